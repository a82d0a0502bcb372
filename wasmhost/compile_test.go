package wasmhost

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	wazeroapi "github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/pinion-mr/pinion/api"
)

// Our functions of WASI have the names and types of wazero's, which follow the standard.
func TestWASITypes(t *testing.T) {
	ctx := t.Context()
	theirs := wazero.NewRuntime(ctx)
	defer func() { _ = theirs.Close(context.WithoutCancel(ctx)) }()
	want, err := wasi_snapshot_preview1.Instantiate(ctx, theirs)
	if err != nil {
		t.Fatal(err)
	}
	module, ok := want.(wazeroapi.Module)
	if !ok {
		t.Fatalf("wazero's WASI is a %T", want)
	}
	definitions := module.ExportedFunctionDefinitions()
	if len(definitions) != len(wasiFunctions) {
		t.Errorf("%d functions, want %d", len(wasiFunctions), len(definitions))
	}
	for _, f := range wasiFunctions {
		d := definitions[f.name]
		if d == nil {
			t.Errorf("%s is unknown", f.name)
			continue
		}
		params, results := wasiTypes(f.name, f.params)
		if !bytes.Equal(params, d.ParamTypes()) || !bytes.Equal(results, d.ResultTypes()) {
			t.Errorf("%s is %v -> %v, want %v -> %v", f.name, params, results, d.ParamTypes(), d.ResultTypes())
		}
	}
}

// precompiler does in this process what a child would do, and counts.
type precompiler struct {
	dir   string
	calls int
	err   error
}

func (p *precompiler) compile(ctx context.Context, file []byte) error {
	p.calls++
	if p.err != nil {
		return p.err
	}
	return CompileTo(ctx, p.dir, 1024, file)
}

// compileAnew compiles in a new host.
func compileAnew(t *testing.T, p *precompiler, name string) error {
	t.Helper()
	h, err := New(t.Context(), Config{CacheDir: p.dir, Precompile: p.compile})
	if err != nil {
		t.Fatal(err)
	}
	file := guestFile(t, name)
	m, err := h.Compile(t.Context(), digestOf(file), file)
	if err == nil {
		err = oneMap(t.Context(), m, "")
		m.Close()
	}
	return errors.Join(err, h.Close(t.Context()))
}

func TestPrecompileOnce(t *testing.T) {
	p := &precompiler{dir: t.TempDir()}
	code := func() []string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(p.dir, "wazero-*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	for range 3 {
		if err := compileAnew(t, p, "hooks"); err != nil {
			t.Fatal(err)
		}
		if p.calls != 1 || len(code()) != 1 {
			t.Errorf("compiled %d times, code is %v: this process must find what the other left", p.calls, code())
		}
	}
	for _, f := range code() { // damaged code is made anew, by the other process
		if err := os.Truncate(f, 40); err != nil {
			t.Fatal(err)
		}
	}
	if err := compileAnew(t, p, "hooks"); err != nil || p.calls != 2 || len(code()) != 1 {
		t.Errorf("damaged: %v, compiled %d times, code is %v", err, p.calls, code())
	}
}

func TestPrecompileErrors(t *testing.T) {
	lost := errors.New("no space left")
	for _, c := range []struct {
		err  error
		code api.Code
		want string
	}{
		// hooks imports two functions, and the compiler's numbers leave them out.
		{api.Errorf(api.CodeBadModule, "invalid function[3] export[\"map\"]: it is odd"), api.CodeBadModule, "cannot be compiled: invalid function 5 export[\"map\"]: it is odd"},
		{api.Errorf(api.CodeLimitExceeded, "compiling took longer than compile-timeout (1s)").WithHint("raise it"), api.CodeLimitExceeded, ": compiling took longer than compile-timeout (1s) (raise it)"},
		{lost, api.CodeInternal, "no space left"},
	} {
		p := &precompiler{dir: t.TempDir(), err: c.err}
		err := compileAnew(t, p, "hooks")
		digest := digestOf(guestFile(t, "hooks"))
		if api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), digest[:8]) ||
			api.AsError(err).Details["digest"] != digest {
			t.Errorf("Compile = %v (%s), want %q", err, api.CodeOf(err), c.want)
		}
		p.err = nil // what failed is tried again
		if err := compileAnew(t, p, "hooks"); err != nil || p.calls != 2 {
			t.Errorf("again: %v, %d calls", err, p.calls)
		}
	}
}

// What a module begins with is compared with what its instances may have.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		config     Config
		name, want string
	}{
		{Config{MemoryPages: 3}, "faults", "begins with 262144 bytes of memory, more than guest-memory (196608 bytes)"},
		{Config{TableElements: 3}, "faults", "table 0 of module"},
		{Config{TableElements: 3}, "faults", "begins with 4 elements, more than guest-table (3)"},
		{Config{ModuleSize: 100}, "faults", "has 2090 bytes, more than module-size (100 bytes)"},
	} {
		h := newHost(t, c.config)
		file := guestFile(t, c.name)
		_, err := h.Compile(t.Context(), digestOf(file), file)
		if e := api.AsError(err); e.Code != api.CodeLimitExceeded || !strings.Contains(e.Message, c.want) || e.Hint == "" {
			t.Errorf("Compile = %v (%s)", err, e.Code)
		}
	}
}
