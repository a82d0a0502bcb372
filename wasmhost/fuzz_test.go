//go:build unix

package wasmhost_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/pinion-mr/pinion/plugins/wasm"
)

// What the compiler of the fuzz test may use. What is let through weighs at most a second, so one that takes
// longer than this is a compile bomb: the weight that package wasm estimates is wrong.
const (
	fuzzWeight  = 1_000_000
	fuzzTime    = 20 * time.Second
	fuzzMemory  = 4 << 30 // of address space
	compilerEnv = "PINION_TEST_COMPILER"
)

// TestCompiler is no test: in a process of its own it compiles what FuzzCompile sends it, pairs of a size and
// a file, and answers with a byte each: 1 if it was compiled.
func TestCompiler(t *testing.T) {
	if os.Getenv(compilerEnv) == "" {
		t.Skip("it is run by FuzzCompile")
	}
	limit := syscall.Rlimit{Cur: fuzzMemory, Max: fuzzMemory}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for {
		var size uint32
		if err := binary.Read(os.Stdin, binary.LittleEndian, &size); err != nil {
			os.Exit(0) // before the test framework writes to the answers
		}
		file := make([]byte, size)
		if _, err := io.ReadFull(os.Stdin, file); err != nil {
			os.Exit(1)
		}
		if _, err := os.Stdout.Write([]byte{compiles(ctx, file)}); err != nil {
			os.Exit(1)
		}
	}
}

func compiles(ctx context.Context, file []byte) byte {
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	defer func() { _ = r.Close(ctx) }()
	if _, err := r.CompileModule(ctx, file); err != nil {
		return 0
	}
	return 1
}

// compiler is a process that runs TestCompiler.
type compiler struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     io.Reader
}

func startCompiler() (*compiler, error) {
	c := &compiler{process: exec.Command(os.Args[0], "-test.run=^TestCompiler$")}
	c.process.Env = append(os.Environ(), compilerEnv+"=1")
	var err error
	if c.in, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	if c.out, err = c.process.StdoutPipe(); err != nil {
		return nil, err
	}
	return c, c.process.Start()
}

// compile reports whether the file can be compiled. An error means that the process is gone.
func (c *compiler) compile(file []byte) (ok bool, err error) {
	late := time.AfterFunc(fuzzTime, func() { _ = c.process.Process.Kill() })
	defer late.Stop()
	message := binary.LittleEndian.AppendUint32(nil, uint32(len(file)))
	if _, err = c.in.Write(append(message, file...)); err != nil {
		return false, err
	}
	answer := make([]byte, 1)
	_, err = io.ReadFull(c.out, answer)
	return answer[0] == 1, err
}

func (c *compiler) stop() {
	_ = c.in.Close()
	_ = c.process.Wait()
}

// What the reader lets through and Meter rewrites, the compiler takes or refuses as it did before, within
// bounds of time and memory. Parts of one module in another are what mutating bytes hardly finds, so the
// arguments behind the file say what to take from which of the seeds.
func FuzzCompile(f *testing.F) {
	seeds := seedModules(f)
	for i, s := range seeds {
		f.Add(s, uint8(i), uint16(0), uint16(0))
		f.Add(s, uint8(i+1), uint16(1), uint16(2))
	}
	var c *compiler
	f.Cleanup(func() {
		if c != nil {
			c.stop()
		}
	})
	f.Fuzz(func(t *testing.T, file []byte, donor uint8, to, from uint16) {
		if from > 0 {
			file = graft(file, seeds[int(donor)%len(seeds)], int(to), int(from))
		}
		bounds := wasm.DefaultBounds()
		bounds.Weight, bounds.AllWeight = fuzzWeight, fuzzWeight
		m, err := wasm.ReadWithin(file, bounds)
		if err != nil {
			return
		}
		metered, err := wasm.Meter(m, 10_000)
		if err != nil {
			return // it uses the names that Meter adds
		}
		if c == nil {
			if c, err = startCompiler(); err != nil {
				t.Fatal(err)
			}
		}
		before, err := c.compile(withoutCustom(file, m))
		after := false
		if err == nil {
			after, err = c.compile(metered)
		}
		if err != nil {
			c.stop()
			c = nil
			t.Fatalf("the compiler took more than %v or %d bytes, or crashed: %v", fuzzTime, int64(fuzzMemory), err)
		}
		if before != after {
			t.Fatalf("the compiler takes the module: %v; metered: %v", before, after)
		}
	})
}

func seedModules(f *testing.F) (seeds [][]byte) {
	for _, pattern := range []string{"../plugins/builtin/*.wasm", "testdata/*.wasm"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			f.Fatalf("%s: no modules, %v", pattern, err)
		}
		for _, name := range names {
			seed, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			seeds = append(seeds, seed)
		}
	}
	return seeds
}

// graft replaces a function of a module by one of another, or, if from is large, a whole section.
func graft(file, donor []byte, to, from int) []byte {
	a, err := wasm.ReadWithin(file, wasm.DefaultBounds())
	if err != nil {
		return file
	}
	b, err := wasm.ReadWithin(donor, wasm.DefaultBounds())
	if err != nil || len(a.Sections) == 0 || len(b.Sections) == 0 {
		return file
	}
	const code = 10
	out := bytes.Clone(file[:8])
	for i, s := range a.Sections {
		contents := file[s.Offset : s.Offset+s.Size]
		switch {
		case from > math.MaxUint16/2 && i == to%len(a.Sections):
			other := b.Sections[from%len(b.Sections)]
			s.ID, contents = other.ID, donor[other.Offset:other.Offset+other.Size]
		case from <= math.MaxUint16/2 && s.ID == code:
			contents = graftFunction(contents, sectionOf(donor, b, code), to, from)
		}
		out = append(out, s.ID)
		out = binary.AppendUvarint(out, uint64(len(contents)))
		out = append(out, contents...)
	}
	return out
}

// withoutCustom leaves the custom sections out, which mean nothing: wazero refuses a name section that it cannot
// read, and Meter does not pass one on.
func withoutCustom(file []byte, m *wasm.Module) []byte {
	const custom = 0
	out := bytes.Clone(file[:8])
	for _, s := range m.Sections {
		if s.ID == custom {
			continue
		}
		out = append(out, s.ID)
		out = binary.AppendUvarint(out, uint64(s.Size))
		out = append(out, file[s.Offset:s.Offset+s.Size]...)
	}
	return out
}

func sectionOf(file []byte, m *wasm.Module, id byte) []byte {
	for _, s := range m.Sections {
		if s.ID == id {
			return file[s.Offset : s.Offset+s.Size]
		}
	}
	return nil
}

func graftFunction(code, donor []byte, to, from int) []byte {
	a, b := bodies(code), bodies(donor)
	if len(a) == 0 || len(b) == 0 {
		return code
	}
	a[to%len(a)] = b[from%len(b)]
	out := binary.AppendUvarint(nil, uint64(len(a)))
	for _, body := range a {
		out = binary.AppendUvarint(out, uint64(len(body)))
		out = append(out, body...)
	}
	return out
}

// bodies splits a code section that was read before.
func bodies(code []byte) (list [][]byte) {
	number := func() uint64 {
		n, size := binary.Uvarint(code)
		code = code[size:]
		return n
	}
	if len(code) == 0 {
		return nil
	}
	for n := number(); n > 0; n-- {
		size := number()
		list = append(list, code[:size])
		code = code[size:]
	}
	return list
}

// A graft is a module again, with the other's function.
func TestGraft(t *testing.T) {
	var files [2][]byte
	for i, name := range []string{"groups", "hooks"} {
		var err error
		if files[i], err = os.ReadFile(fmt.Sprintf("testdata/%s.wasm", name)); err != nil {
			t.Fatal(err)
		}
	}
	out := graft(files[0], files[1], 1, 2)
	if bytes.Equal(out, files[0]) || len(bodies(sectionOf(out, must(t, out), 10))) != len(must(t, files[0]).Bodies) {
		t.Error("the function was not put in")
	}
}

func must(t *testing.T, file []byte) *wasm.Module {
	t.Helper()
	bounds := wasm.DefaultBounds()
	m, err := wasm.ReadWithin(file, bounds)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
