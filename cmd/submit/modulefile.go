package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/plugins"
)

// moduleFile is a module as its file or its source gives it.
type moduleFile struct {
	name     string // for people: what it was made of
	bytes    []byte
	manifest *plugins.Manifest
}

// isFile tells a module's file, source or folder from its name in the catalogue.
func isFile(module string) bool {
	switch filepath.Ext(module) {
	case ".wasm", ".go", ".wat":
		return true
	}
	if sourceLanguage(module) != "" {
		return true
	}
	return module == "." || module == ".." || strings.ContainsAny(module, `/\`)
}

// sourceLanguage names the language of a source that a project's build.sh has to build; "" for other files.
func sourceLanguage(path string) string {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".c":
		return "C"
	case ".cc", ".cpp", ".cxx":
		return "C++"
	case ".rs":
		return "Rust"
	case ".ts":
		return "AssemblyScript"
	}
	return ""
}

// readModule reads a .wasm file, or builds a .go file, a .wat file or the project in a folder, and checks
// what it got as a router will. What the check finds is a BAD_MODULE [api.Error] in the chain of the error.
func (s *session) readModule(ctx context.Context, path string) (*moduleFile, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such file or directory", path)
	} else if err != nil {
		return nil, err
	}
	m := &moduleFile{name: filepath.Base(path)}
	switch ext := filepath.Ext(path); {
	case info.IsDir():
		m.bytes, err = s.buildFolder(ctx, path)
	case ext == ".go":
		m.bytes, err = s.buildGo(ctx, path, false)
	case sourceLanguage(path) != "":
		err = api.Errorf(api.CodeBadRequest, "%s is a source in %s, not a module", path, sourceLanguage(path)).
			WithHint("build it first: `sh build.sh`, then name guest.wasm; or name the folder, which does both")
	case ext == ".wat":
		m.bytes, err = s.assemble(ctx, path)
	default:
		m.bytes, err = readBounded(path, info.Size())
	}
	if err != nil {
		return nil, err
	}
	if m.manifest, err = plugins.Inspect(m.bytes, plugins.DefaultLimits()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// readBounded reads a file that is not larger than a module may be.
func readBounded(path string, size int64) ([]byte, error) {
	if limit := plugins.DefaultLimits().ModuleBytes; size > int64(limit) {
		return nil, fmt.Errorf("%s has %d bytes; a module may have %d", path, size, limit)
	}
	return os.ReadFile(path)
}

// assemble has wat2wasm translate a module in WebAssembly's text format.
func (s *session) assemble(ctx context.Context, path string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "submit-wat-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "out.wasm")
	cmd := exec.CommandContext(ctx, "wat2wasm", path, "-o", out)
	cmd.Stdout, cmd.Stderr = s.stderr, s.stderr
	if err := cmd.Run(); err != nil {
		return nil, buildFailure(ctx, path, "wat2wasm", "it comes with WABT (Debian: wabt)", err)
	}
	return os.ReadFile(out)
}

// buildFailure says why a tool made no module. What the tool says itself is on stderr already.
func buildFailure(ctx context.Context, path, tool, remedy string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: stopped while %s was building it: %w", path, tool, ctx.Err())
	case errors.Is(err, exec.ErrNotFound):
		return api.Errorf(api.CodeUnavailable, "%s cannot be built: there is no program %s here", path, tool).WithHint("%s", remedy)
	}
	return fmt.Errorf("%s cannot be built: %s failed (%w)", path, tool, err)
}
