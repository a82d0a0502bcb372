package wasmhost

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is what a guest emitted, with its value in text.
type pair struct{ key, value string }

// pairs is a Sink that keeps everything.
type pairs struct {
	list []pair
	fail error // returned for each pair
}

func (p *pairs) Emit(flags uint32, key, value []byte) error {
	if p.fail != nil {
		return p.fail
	}
	text := string(value)
	switch flags {
	case buckets.FlagInt:
		text = fmt.Sprint(int64(binary.LittleEndian.Uint64(value)))
	case buckets.FlagFloat:
		text = fmt.Sprintf("%.2f", math.Float64frombits(binary.LittleEndian.Uint64(value)))
	}
	p.list = append(p.list, pair{string(key), text})
	return nil
}

// frames is a Source of given frames.
type frames struct {
	list []buckets.Frame
	err  error // at the end
}

func (f *frames) Fill(dst []byte, limit int) ([]byte, int, error) {
	n := 0
	for len(f.list) > 0 {
		next := f.list[0]
		if n > 0 && len(dst)+buckets.FrameHeader+len(next.Key)+len(next.Value) > limit {
			break
		}
		dst = buckets.AppendFrame(dst, next.Flags, next.Key, next.Value)
		f.list = f.list[1:]
		n++
	}
	if n == 0 && f.err != nil {
		return dst, 0, f.err
	}
	return dst, n, nil
}

// records makes a source of values with keys k0, k1 and so on.
func records(values ...string) *frames {
	f := &frames{}
	for i, v := range values {
		f.list = append(f.list, buckets.Frame{Key: fmt.Appendf(nil, "k%d", i), Value: []byte(v)})
	}
	return f
}

func newHost(t *testing.T, config Config) *Host {
	t.Helper()
	h, err := New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func digestOf(file []byte) string {
	sum := sha256.Sum256(file)
	return hex.EncodeToString(sum[:])
}

func guestFile(t *testing.T, name string) []byte {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func compile(t *testing.T, h *Host, file []byte) *Module {
	t.Helper()
	m, err := h.Compile(t.Context(), digestOf(file), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func guest(t *testing.T, h *Host, name string) *Module {
	t.Helper()
	return compile(t, h, guestFile(t, name))
}

func instance(t *testing.T, m *Module, job Job) *Instance {
	t.Helper()
	in, err := m.Instance(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Close)
	return in
}

func TestCompileOnce(t *testing.T) {
	h := newHost(t, Config{})
	file := guestFile(t, "faults")
	digest := digestOf(file)
	if _, ok := h.Cached(digest); ok {
		t.Fatal("cached before it was compiled")
	}
	type result struct {
		m   *Module
		err error
	}
	results := make(chan result)
	for range 8 {
		go func() {
			m, err := h.Compile(t.Context(), digest, file)
			results <- result{m, err}
		}()
	}
	entries := map[*entry]bool{}
	for range 8 {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		entries[r.m.entry] = true
		r.m.Close()
	}
	if len(entries) != 1 {
		t.Errorf("compiled %d times", len(entries))
	}
	m, ok := h.Cached(digest)
	if !ok {
		t.Fatal("not cached")
	}
	m.Close()
	m.Close() // is harmless
	if m.entry.refs != 0 {
		t.Errorf("%d references are left", m.entry.refs)
	}
}

// A module that was pushed out of the cache still serves the instance that it has.
func TestModulesAreDropped(t *testing.T) {
	h := newHost(t, Config{MaxModules: 1})
	faults := guest(t, h, "faults")
	in := instance(t, faults, Job{Function: "all_kinds"})
	faults.Close()
	for _, name := range []string{"hooks", "groups", "alloc_null"} {
		m := guest(t, h, name)
		m.Close()
	}
	h.mu.Lock()
	var kept []string
	for d := range h.byID {
		kept = append(kept, d)
	}
	h.mu.Unlock()
	if len(kept) != 2 {
		t.Errorf("%d modules are kept, want the one in use and one more", len(kept))
	}
	var sink pairs
	if _, err := in.Map(t.Context(), 0, records("a"), &sink); err != nil || len(sink.list) != 5 {
		t.Errorf("Map = %v, %v", sink.list, err)
	}
	in.Close()
	if _, ok := h.Cached(digestOf(guestFile(t, "hooks"))); ok {
		t.Error("the module that was idle longest is still there")
	}
}

// Compiling, running and dropping modules at the same time.
func TestParallel(t *testing.T) {
	h := newHost(t, Config{MaxModules: 1, CacheDir: t.TempDir()})
	files := [][]byte{guestFile(t, "faults"), guestFile(t, "hooks"), guestFile(t, "groups")}
	functions := []string{"echo", "map", "echo"}
	errs := make(chan error)
	for worker := range 6 {
		go func() {
			errs <- func() error {
				for i := range 30 {
					n := (worker + i) % len(files)
					m, err := h.Compile(t.Context(), digestOf(files[n]), files[n])
					if err != nil {
						return err
					}
					in, err := m.Instance(t.Context(), Job{Function: functions[n]})
					m.Close()
					if err != nil {
						return err
					}
					_, err = in.Map(t.Context(), 0, records("a", "b"), &pairs{})
					in.Close()
					if err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range 6 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.byID) > 1 || len(h.idle) > 1 {
		t.Errorf("%d modules are kept, want 1", len(h.byID))
	}
}

func TestCacheFolder(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		h, err := New(t.Context(), Config{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		file := guestFile(t, "groups")
		m, err := h.Compile(t.Context(), digestOf(file), file)
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
		if err := h.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(dir, "*", "*"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no compiled code in the folder: %v, %v", found, err)
		}
	}
}

// Compiled code that was damaged on disk is made anew.
func TestDamagedCache(t *testing.T) {
	dir := t.TempDir()
	file := guestFile(t, "groups")
	for i := range 2 {
		h, err := New(t.Context(), Config{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		m, err := h.Compile(t.Context(), digestOf(file), file)
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		m.Close()
		if err := h.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		found, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
		for _, name := range found {
			if err := os.Truncate(name, 40); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	h := newHost(t, Config{})
	good := guestFile(t, "groups")
	for name, c := range map[string]struct {
		file   []byte
		digest string
	}{
		"text":         {file: []byte("(module)")},
		"truncated":    {file: good[:len(good)-5]},
		"other digest": {file: good, digest: digestOf(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			if c.digest == "" {
				c.digest = digestOf(c.file)
			}
			if _, err := h.Compile(t.Context(), c.digest, c.file); api.CodeOf(err) != api.CodeBadModule {
				t.Errorf("Compile = %v", err)
			}
			if _, ok := h.Cached(c.digest); ok {
				t.Error("a module that failed is cached")
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file := guestFile(t, "hooks")
	m, err := h.Compile(ctx, digestOf(file), file)
	if err == nil {
		m.Close() // it was faster than the look at ctx
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("Compile with a canceled context = %v", err)
	}
}

func TestUnknownFunction(t *testing.T) {
	h := newHost(t, Config{})
	m := guest(t, h, "groups")
	for _, name := range []string{"map", "pmr_alloc", "memory", ""} {
		_, err := m.Instance(t.Context(), Job{Name: "groups", Function: name})
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeUnknownFunction || e.Hint != "it has echo, other, sum" {
			t.Errorf("Instance with function %q = %v", name, err)
		}
	}
	in := instance(t, m, Job{Function: "sum"})
	if _, err := in.Group(t.Context(), "combine", records(), &pairs{}); api.CodeOf(err) != api.CodeUnknownFunction {
		t.Errorf("Group = %v", err)
	}
	if in.Broken() {
		t.Error("an unknown function broke the instance")
	}
}

func TestConfig(t *testing.T) {
	for want, c := range map[string]Config{
		"guest-memory": {MemoryPages: 70_000}, "modules kept": {MaxModules: -1}, "compile-timeout": {CompileTimeout: -1},
		"guest-table": {TableElements: 1 << 31}, "module-size": {ModuleSize: -1}, "guest-fuel": {Fuel: -1}, "guest-output": {MaxOutputBytes: -1},
		"guest-log-lines": {MaxLogLines: -1}, "guest-counters": {MaxCounters: -1}, "batch": {BatchBytes: -1},
		"CacheDir": {Precompile: func(context.Context, []byte) error { return nil }},
	} {
		if _, err := New(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v) = %v, want %q", c, err, want)
		}
	}
	c := Config{Log: slog.Default(), MaxLogLines: 7}.withDefaults()
	if c.MemoryPages != 1024 || c.MaxLogLines != 7 || c.BatchBytes != 65_536 {
		t.Errorf("defaults = %+v", c)
	}
}
