package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/pinion-mr/pinion/api"
)

// What a project that module init made is built by, and what comes of it.
const (
	buildScript = "build.sh"
	buildOutput = "guest.wasm"
)

// buildFolder builds the project in a folder: a Go program if there are Go files, else by its build.sh, else
// its only .wat file.
func (s *session) buildFolder(ctx context.Context, dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".go":
			return s.buildGo(ctx, dir, true)
		case ".wat":
			texts = append(texts, filepath.Join(dir, e.Name()))
		}
	}
	if _, err := os.Stat(filepath.Join(dir, buildScript)); err == nil {
		return s.runBuildScript(ctx, dir)
	}
	switch {
	case len(texts) == 1:
		return s.assemble(ctx, texts[0])
	case len(texts) > 1:
		return nil, fmt.Errorf("%s holds %d .wat files: name the one that is meant", dir, len(texts))
	}
	return nil, api.Errorf(api.CodeBadRequest, "%s cannot be built: there are no Go files, no %s and no .wat file in it", dir, buildScript).
		WithHint("name the module's file; `submit module init` writes a project to begin with")
}

// runBuildScript runs a project's build.sh, whose output is guest.wasm beside it. What it says is shown as it
// says it, as which program is missing.
func (s *session) runBuildScript(ctx context.Context, dir string) ([]byte, error) {
	s.note("building %s: sh %s", dir, buildScript)
	cmd := exec.CommandContext(ctx, "sh", buildScript)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = s.stderr, s.stderr // stdout is for rows
	if err := cmd.Run(); err != nil {
		return nil, buildFailure(ctx, dir, "sh "+buildScript, "build the module yourself, and name the .wasm file", err)
	}
	out := filepath.Join(dir, buildOutput)
	info, err := os.Stat(out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s cannot be built: %s ended without a fault, but wrote no %s", dir, buildScript, buildOutput)
	} else if err != nil {
		return nil, err
	}
	return readBounded(out, info.Size())
}
