package wasmhost_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tetratelabs/wazero"
	wazeroapi "github.com/tetratelabs/wazero/api"

	"github.com/pinion-mr/pinion/plugins/wasm"
)

// command is a line of a script of the WebAssembly core test suite, as wast2json writes it.
type command struct {
	Type     string
	Line     int
	Name     string
	As       string
	Filename string
	Kind     string `json:"module_type"`
	Action   struct {
		Type, Module, Field string
		Args                []value
	}
}

type value struct {
	Type  string
	Lanes string `json:"lane_type"`
	Value any
}

// bits returns a value as the compiler takes it: one word, or two of a vector.
func (v value) bits(t *testing.T) []uint64 {
	if v.Type != "v128" {
		return []uint64{number(t, v.Value, v.Type)}
	}
	lanes := v.Value.([]any)
	words := make([]uint64, 2)
	for i, lane := range lanes {
		width := 128 / len(lanes)
		words[i*width/64] |= number(t, lane, v.Lanes) & (1<<width - 1) << (i * width % 64)
	}
	return words
}

func number(t *testing.T, v any, typ string) uint64 {
	s, ok := v.(string)
	switch {
	case !ok || s == "null" || typ == "funcref":
		return 0
	case strings.HasPrefix(s, "-"):
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(typ, "32") {
			return uint64(uint32(n))
		}
		return uint64(n)
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if typ == "externref" {
		n++ // the compiler takes 0 for null
	}
	return n
}

// world is where a script's modules live: as they are, or metered.
type world struct {
	runtime wazero.Runtime
	metered bool
	named   map[string]wazeroapi.Module
	last    wazeroapi.Module
	ticks   int
}

func newWorld(ctx context.Context, t *testing.T, spectest []byte, metered bool) *world {
	w := &world{metered: metered, named: map[string]wazeroapi.Module{}}
	w.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	t.Cleanup(func() { _ = w.runtime.Close(ctx) })
	_, err := w.runtime.NewHostModuleBuilder(wasm.TickModule).NewFunctionBuilder().
		WithGoModuleFunction(wazeroapi.GoModuleFunc(w.tick), nil, nil).Export(wasm.TickName).Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.runtime.InstantiateWithConfig(ctx, spectest, wazero.NewModuleConfig().WithName("spectest")); err != nil {
		t.Fatal(err)
	}
	return w
}

// tick is what a host does when a slice is used up.
func (w *world) tick(_ context.Context, m wazeroapi.Module, _ []uint64) {
	w.ticks++
	m.ExportedGlobal(wasm.FuelExport).(wazeroapi.MutableGlobal).Set(wasm.Slice)
}

// rewritten returns the file as this world wants it. A module that the reader refuses is an error.
func (w *world) rewritten(file []byte) ([]byte, error) {
	if !w.metered {
		return file, nil
	}
	m, err := wasm.Read(file)
	if err != nil {
		return nil, err
	}
	return wasm.Meter(m, math.MaxUint32)
}

// instantiate makes an instance; others import it as registered.
func (w *world) instantiate(ctx context.Context, file []byte, name, registered string) error {
	file, err := w.rewritten(file)
	if err != nil {
		return err
	}
	w.last, err = w.runtime.InstantiateWithConfig(ctx, file, wazero.NewModuleConfig().WithName(registered).WithStartFunctions())
	if name != "" {
		w.named[name] = w.last
	}
	return err
}

func (w *world) compile(ctx context.Context, file []byte) error {
	file, err := w.rewritten(file)
	if err != nil {
		return err
	}
	m, err := w.runtime.CompileModule(ctx, file)
	if err == nil {
		_ = m.Close(ctx)
	}
	return err
}

func (w *world) module(name string) wazeroapi.Module {
	if name == "" {
		return w.last
	}
	return w.named[name]
}

// do calls a function or reads a global.
func (w *world) do(ctx context.Context, t *testing.T, c command) ([]uint64, error) {
	m := w.module(c.Action.Module)
	if m == nil {
		return nil, fmt.Errorf("no module %q", c.Action.Module)
	}
	if c.Action.Type == "get" {
		g := m.ExportedGlobal(c.Action.Field)
		if g == nil {
			return nil, fmt.Errorf("no global %q", c.Action.Field)
		}
		return []uint64{g.Get()}, nil
	}
	f := m.ExportedFunction(c.Action.Field)
	if f == nil {
		return nil, fmt.Errorf("no function %q", c.Action.Field)
	}
	var args []uint64
	for _, a := range c.Action.Args {
		args = append(args, a.bits(t)...)
	}
	return f.Call(ctx, args...)
}

var functionNumber = regexp.MustCompile(`function\[\d+\]`)

// reason is the first line of an error, without the numbers of functions, which metering shifts.
func reason(err error) string {
	if err == nil {
		return ""
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return functionNumber.ReplaceAllString(line, "function")
}

// A metered module does what the module did: the WebAssembly core test suite, which comes with the
// compiler's source, gives the same results, traps and refusals.
func TestMeteredSpec(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
	spectest, err := os.ReadFile(filepath.Join(folder, "testdata", "spectest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob(filepath.Join(folder, "v2", "testdata", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var done atomic.Int64
	t.Run("scripts", func(t *testing.T) {
		for _, script := range scripts {
			name := strings.TrimSuffix(filepath.Base(script), ".json")
			if testing.Short() && strings.HasPrefix(name, "simd") {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				done.Add(int64(runScript(t, script, spectest)))
			})
		}
	})
	least := int64(40_000)
	if testing.Short() {
		least = 15_000
	}
	if n := done.Load(); n < least {
		t.Errorf("only %d commands were compared", n)
	} else {
		t.Logf("%d commands were compared", n)
	}
}

// runScript runs a script in both worlds and returns how many commands it compared.
func runScript(t *testing.T, script string, spectest []byte) (compared int) {
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	var s struct{ Commands []command }
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	plain, metered := newWorld(ctx, t, spectest, false), newWorld(ctx, t, spectest, true)
	for i, c := range s.Commands {
		if strings.HasSuffix(c.Filename, ".wat") {
			continue // malformed text is no matter of ours
		}
		var file []byte
		if c.Filename != "" {
			if file, err = os.ReadFile(filepath.Join(filepath.Dir(script), c.Filename)); err != nil {
				t.Fatal(err)
			}
		}
		compared++
		switch c.Type {
		case "module", "assert_uninstantiable", "assert_unlinkable":
			registered := "" // by the next command: an instance cannot get another name
			if i+1 < len(s.Commands) && s.Commands[i+1].Type == "register" {
				registered = s.Commands[i+1].As
			}
			a, b := plain.instantiate(ctx, file, c.Name, registered), metered.instantiate(ctx, file, c.Name, registered)
			if (a == nil) != (b == nil) || c.Type == "assert_uninstantiable" && reason(a) != reason(b) {
				t.Errorf("line %d: %s: %v; metered: %v", c.Line, c.Type, a, b)
			}
			if c.Type == "module" && a != nil {
				t.Errorf("line %d: the module cannot be used: %v", c.Line, a)
			}
		case "assert_invalid", "assert_malformed":
			a, b := plain.compile(ctx, file), metered.compile(ctx, file)
			if a != nil && b == nil {
				t.Errorf("line %d: %s is refused, but not when it is metered: %v", c.Line, c.Filename, a)
			}
		case "action", "assert_return", "assert_trap", "assert_exhaustion":
			want, a := plain.do(ctx, t, c)
			got, b := metered.do(ctx, t, c)
			if c.Type == "assert_return" && a != nil {
				t.Errorf("line %d: %s: %v", c.Line, c.Action.Field, a)
			}
			if !reflect.DeepEqual(got, want) || reason(a) != reason(b) {
				t.Errorf("line %d: %s %s: %v, %s; metered: %v, %s", c.Line, c.Type, c.Action.Field, want, reason(a), got, reason(b))
			}
		case "register":
		default:
			t.Fatalf("line %d: there is no command %s", c.Line, c.Type)
		}
	}
	return compared
}
