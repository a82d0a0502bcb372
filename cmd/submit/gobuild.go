package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/guest"
)

const (
	sdkModule  = "github.com/pinion-mr/pinion"
	sdkFolder  = ".pinion" // where the compiler sees the copy of package guest that is in this program
	oldestGo   = 24        // 1.24 is the first with go:wasmexport
	goRemedy   = "install Go 1.24 or later from go.dev, or build the module yourself and name the .wasm file"
	exportMark = "//go:wasmexport "
)

// goBuild is one build of a guest in Go.
type goBuild struct {
	s       *session
	path    string // as the user calls it: a .go file or a folder
	dir     string // to build in: of the file, or the folder
	target  string // what go is to build, in dir
	scratch string // a folder of ours
	overlay []string
}

// buildGo builds a .go file, or the package in a folder, with the installed Go. A package of which a function
// is exported with go:wasmexport becomes a reactor, any other a WASI command.
//
// Nothing but Go is needed: where no go.mod says where package guest is, the copy in this program is laid over
// the folder for the compiler alone. Equal sources give equal bytes, wherever they lie.
func (s *session) buildGo(ctx context.Context, path string, isDir bool) ([]byte, error) {
	b := &goBuild{s: s, path: path, dir: path, target: "."}
	if !isDir {
		b.dir, b.target = filepath.Dir(path), filepath.Base(path)
	}
	var err error
	if b.scratch, err = os.MkdirTemp("", "submit-go-"); err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(b.scratch) }()
	if err := b.findModule(ctx); err != nil {
		return nil, err
	}
	if isTerminal(s.stderr) {
		s.note("building %s", path) // the first build of all takes long
	}
	args := []string{"build", "-trimpath", "-buildvcs=false"}
	reactor, err := b.isReactor(ctx)
	if err != nil {
		return nil, err
	}
	if reactor {
		args = append(args, "-buildmode=c-shared")
	}
	out := filepath.Join(b.scratch, "out.wasm")
	args = append(append(append(args, "-o", out), b.overlay...), b.target)
	cmd := b.command(ctx, args...)
	says := &renamer{w: s.stderr, prefix: b.prefix()}
	cmd.Stdout, cmd.Stderr = says, says
	if err := cmd.Run(); err != nil {
		return nil, b.failure(ctx, err)
	}
	info, err := os.Stat(out)
	if err != nil {
		return nil, err
	}
	return readBounded(out, info.Size())
}

func (b *goBuild) failure(ctx context.Context, err error) error {
	return buildFailure(ctx, b.path, "go", goRemedy, err)
}

// prefix is what stands before the names of files in dir as the user calls them.
func (b *goBuild) prefix() string {
	if b.dir == "." {
		return "./"
	}
	return strings.TrimSuffix(b.dir, "/") + "/"
}

// command is a run of the go tool for the guest's platform, in the guest's folder.
func (b *goBuild) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if len(b.overlay) > 0 {
		cmd.Env = append(cmd.Env, "GOWORK=off")
	}
	return cmd
}

// query runs the go tool and returns what it prints.
func (b *goBuild) query(ctx context.Context, args ...string) ([]byte, error) {
	cmd := b.command(ctx, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &renamer{w: b.s.stderr, prefix: b.prefix()}
	if err := cmd.Run(); err != nil {
		return nil, b.failure(ctx, err)
	}
	return out.Bytes(), nil
}

// findModule looks which module the source belongs to. If there is none, or one that does not know package
// guest, it gets our copy of it.
func (b *goBuild) findModule(ctx context.Context) error {
	out, err := b.query(ctx, "env", "-json", "GOMOD", "GOVERSION")
	if err != nil {
		return err
	}
	var env struct{ GOMOD, GOVERSION string }
	if err := json.Unmarshal(out, &env); err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	if minor := goMinor(env.GOVERSION); minor >= 0 && minor < oldestGo {
		return api.Errorf(api.CodeUnavailable, "%s cannot be built: %s is too old", b.path, env.GOVERSION).WithHint("%s", goRemedy)
	}
	if env.GOMOD == "" || env.GOMOD == os.DevNull {
		dir, err := filepath.Abs(b.dir)
		if err != nil {
			return err
		}
		return b.lay(dir, "module guest\n\ngo 1.24\n")
	}
	known := b.command(ctx, "list", "-find", "-f", "{{.Dir}}", sdkModule+"/guest")
	if known.Run() == nil {
		return nil
	}
	text, err := os.ReadFile(env.GOMOD)
	if err != nil {
		return err
	}
	return b.lay(filepath.Dir(env.GOMOD), string(text))
}

// goMinor is 24 for go1.24.3, and -1 for what is no release.
func goMinor(version string) int {
	rest, ok := strings.CutPrefix(version, "go1.")
	if !ok {
		return -1
	}
	digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if digits >= 0 {
		rest = rest[:digits]
	}
	if n, err := strconv.Atoi(rest); err == nil {
		return n
	}
	return -1
}

// lay has the compiler see a go.mod in a folder, and below it package guest as it is in this program. The
// folder itself is not touched.
func (b *goBuild) lay(dir, goMod string) error {
	files := map[string][]byte{
		"go.mod":              []byte(goMod + "\nrequire " + sdkModule + " v0.0.0\n\nreplace " + sdkModule + " => ./" + sdkFolder + "\n"),
		sdkFolder + "/go.mod": []byte("module " + sdkModule + "\n\ngo 1.24\n"),
	}
	for _, name := range guest.Files() {
		text, err := guest.Source.ReadFile(name)
		if err != nil {
			return err
		}
		files[sdkFolder+"/guest/"+name] = text
	}
	replace := map[string]string{}
	for name, text := range files {
		copied := filepath.Join(b.scratch, "laid", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(copied, text, 0o644); err != nil {
			return err
		}
		replace[filepath.Join(dir, filepath.FromSlash(name))] = copied
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlay := filepath.Join(b.scratch, "overlay.json")
	b.overlay = []string{"-overlay", overlay}
	if _, err := os.Stat(filepath.Join(dir, "vendor")); err == nil {
		b.overlay = append(b.overlay, "-mod=readonly") // our copy is not vendored
	}
	return os.WriteFile(overlay, list, 0o644)
}

// isReactor reports whether a package of the guest's own exports a function.
func (b *goBuild) isReactor(ctx context.Context) (bool, error) {
	args := append(append([]string{"list", "-deps", "-json=Dir,GoFiles,Name,Standard,DepOnly"}, b.overlay...), b.target)
	out, err := b.query(ctx, args...)
	if err != nil {
		return false, err
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir, Name         string
			GoFiles           []string
			Standard, DepOnly bool
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("go list: %w", err)
		}
		if p.Standard {
			continue
		}
		if !p.DepOnly && p.Name != "main" {
			return false, fmt.Errorf("%s is no program but package %s: a guest is a package main", b.path, p.Name)
		}
		if strings.Contains(p.Dir, sdkFolder) { // in the overlay only, and it exports pmr_alloc
			return true, nil
		}
		for _, name := range p.GoFiles {
			if exports(filepath.Join(p.Dir, name)) {
				return true, nil
			}
		}
	}
}

// exports reports whether a file has a go:wasmexport directive. A file that cannot be read has none; the
// compiler will say so.
func exports(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), exportMark) {
			return true
		}
	}
	return false
}

// renamer passes the go tool's lines on, and has the names of files in its working folder begin as the user
// calls that folder.
type renamer struct {
	w      io.Writer
	prefix string
	begun  bool // in the middle of a line
}

var ownFile = regexp.MustCompile(`^(?:\./|[^/\s:]+\.go:\d)`)

func (r *renamer) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		if !r.begun && ownFile.Match(line) {
			line = append([]byte(r.prefix), bytes.TrimPrefix(line, []byte("./"))...)
		}
		r.begun = !bytes.HasSuffix(line, []byte("\n"))
		if _, err := r.w.Write(line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
