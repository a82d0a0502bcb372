package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/pinion-mr/pinion/internal/cli"
	"github.com/pinion-mr/pinion/wasmhost"
	"github.com/pinion-mr/pinion/wasmhost/child"
)

// newHost starts a host with the limits of an engine whose operator sets none. It compiles in a child process, as
// engines do, into a folder.
func newHost(ctx context.Context, dir string) (*wasmhost.Host, error) {
	compiler := &child.Compiler{Args: []string{cli.CompileModule}, CacheDir: dir, MemoryPages: wasmhost.DefaultMemoryPages}
	return wasmhost.New(ctx, wasmhost.Config{CacheDir: dir, Precompile: compiler.Precompile})
}

// compiledFolder is where compiled modules stay from run to run: below the user's cache folder, or else the
// system's for what may be lost.
func compiledFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "pinion", "compiled")
}
