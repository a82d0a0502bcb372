package child

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pinion-mr/pinion/api"
)

// The test program starts itself again as a child, and role says what the child does.
const role = "PINION_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		goleak.VerifyTestMain(m)
	case "compile":
		os.Exit(Main(os.Stdin, os.Stdout))
	case "hang":
		select {}
	case "silent":
		os.Exit(0)
	case "noise":
		_, _ = os.Stderr.Write(bytes.Repeat([]byte("noise\n"), 1<<16))
		_, _ = os.Stdout.Write(bytes.Repeat([]byte("x"), 1<<20))
		os.Exit(3)
	case "panic":
		panic("the compiler's own fault")
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func compiler(t *testing.T, as string) *Compiler {
	t.Helper()
	return &Compiler{Env: []string{role + "=" + as}, CacheDir: t.TempDir()}
}

func u32(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func section(id byte, contents ...[]byte) []byte {
	body := bytes.Join(contents, nil)
	return append(append([]byte{id}, u32(len(body))...), body...)
}

// module has one function () -> () with the given locals, all of type i32, and body.
func module(locals int, body []byte) []byte {
	code := bytes.Join([][]byte{{1}, u32(locals), {0x7f}, body, {0x0b}}, nil)
	return bytes.Join([][]byte{
		[]byte("\x00asm\x01\x00\x00\x00"),
		section(1, []byte{1, 0x60, 0, 0}),
		section(3, []byte{1, 0}),
		section(10, []byte{1}, u32(len(code)), code),
	}, nil)
}

// nested is a module that takes wazero a time that grows with the square of depth.
func nested(depth, locals int) []byte {
	var body []byte
	for i := range depth {
		body = append(body, 0x41, 1, 0x04, 0x40) // i32.const 1, if
		body = append(append(body, 0x41, 2, 0x21), u32(i%locals)...)
	}
	return module(locals, append(body, bytes.Repeat([]byte{0x0b}, depth)...))
}

func codeFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestPrecompile(t *testing.T) {
	c := compiler(t, "compile")
	if err := c.Precompile(t.Context(), module(1, nil)); err != nil {
		t.Fatal(err)
	}
	if files := codeFiles(t, c.CacheDir); len(files) != 1 {
		t.Errorf("files in the folder: %v", files)
	}
}

func TestBadModule(t *testing.T) {
	c := compiler(t, "compile")
	err := c.Precompile(t.Context(), module(1, []byte{0x6a})) // i32.add of nothing
	if api.CodeOf(err) != api.CodeBadModule || !strings.Contains(err.Error(), "i32.add") {
		t.Errorf("Precompile = %v", err)
	}
}

// A module that takes too long or too much is killed, and its error names the limit, its value and the setting.
func TestBombs(t *testing.T) {
	for _, c := range []struct {
		limit, value string
		set          func(*Compiler)
		file         []byte
	}{
		{"compile-timeout", "300ms", func(c *Compiler) { c.Timeout = 300 * time.Millisecond }, nested(20_000, 1000)},
		{"compile-cpu", "1s", func(c *Compiler) { c.CPU = time.Second }, nested(20_000, 1000)},
		{"compile-memory", "256 MiB", func(c *Compiler) { c.Memory = 256 << 20 }, module(1<<32-1, nil)},
	} {
		t.Run(c.limit, func(t *testing.T) {
			compiler := compiler(t, "compile")
			compiler.Timeout = 50 * time.Second
			c.set(compiler)
			err := compiler.Precompile(t.Context(), c.file)
			e := api.AsError(err)
			if e.Code != api.CodeLimitExceeded || !strings.Contains(e.Message, fmt.Sprintf("%s (%s)", c.limit, c.value)) ||
				!strings.Contains(e.Hint, "raise "+c.limit) {
				t.Errorf("Precompile = %v", err)
			}
			if files := codeFiles(t, compiler.CacheDir); len(files) != 0 {
				t.Errorf("files are left: %v", files)
			}
		})
	}
}

// However a child ends, it is an error and nothing hangs.
func TestChildrenThatFail(t *testing.T) {
	for as, want := range map[string]struct {
		code api.Code
		text string
	}{
		"killed": {api.CodeUnavailable, "ended by someone else (signal: killed)"},
		"silent": {api.CodeInternal, "gave no answer"},
		"noise":  {api.CodeInternal, "child: message: "},
		"panic":  {api.CodeBadModule, "the compiler failed on it: panic: the compiler's own fault"},
		"hang":   {api.CodeLimitExceeded, "compile-timeout (500ms)"},
	} {
		t.Run(as, func(t *testing.T) {
			c := compiler(t, as)
			if as == "hang" {
				c.Timeout = 500 * time.Millisecond
			}
			err := c.Precompile(t.Context(), module(1, nil))
			if api.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.text) {
				t.Errorf("Precompile = %v (%s)", err, api.CodeOf(err))
			}
		})
	}
	c := compiler(t, "compile")
	c.Executable = filepath.Join(c.CacheDir, "missing")
	if err := c.Precompile(t.Context(), module(1, nil)); err == nil || !strings.Contains(err.Error(), "start missing") {
		t.Errorf("Precompile without a program = %v", err)
	}
	c = compiler(t, "compile")
	c.CacheDir = filepath.Join(c.CacheDir, "file", "folder")
	if err := os.WriteFile(filepath.Dir(c.CacheDir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Precompile(t.Context(), module(1, nil)); api.CodeOf(err) != api.CodeInternal {
		t.Errorf("Precompile without a folder = %v", err)
	}
}

// Those who want the same module at once share a child.
func TestOneChildPerModule(t *testing.T) {
	c := compiler(t, "compile")
	var starts atomic.Int64
	c.started = func(int) { starts.Add(1) }
	file := nested(2000, 10)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := c.Precompile(t.Context(), file); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if starts.Load() != 1 {
		t.Errorf("%d children were started", starts.Load())
	}
}

// A child whose module nobody wants any more is killed, and one that others want is not.
func TestCancel(t *testing.T) {
	c := compiler(t, "hang")
	pids := make(chan int, 1)
	c.started = func(pid int) { pids <- pid }
	first, cancelFirst := context.WithCancel(t.Context())
	second, cancelSecond := context.WithCancel(t.Context())
	ends := make(chan error)
	for _, ctx := range []context.Context{first, second} {
		go func() { ends <- c.Precompile(ctx, module(1, nil)) }()
	}
	pid := <-pids
	c.awaitWaiting(2)
	cancelFirst()
	if err := <-ends; !errors.Is(err, context.Canceled) {
		t.Errorf("Precompile = %v", err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the child is gone: %v", err)
	}
	cancelSecond()
	if err := <-ends; !errors.Is(err, context.Canceled) {
		t.Errorf("Precompile = %v", err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the child is still there: %v", err)
	}
}

// awaitWaiting returns when so many wait for one module.
func (c *Compiler) awaitWaiting(n int) {
	for {
		c.mu.Lock()
		for _, r := range c.running {
			if r.waiting == n {
				c.mu.Unlock()
				return
			}
		}
		c.mu.Unlock()
	}
}

func TestMainRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":             "EOF",
		"{}":           "message",
		"not json\n":   "message",
		"{\"size\":3}": "message",
	} {
		var out bytes.Buffer
		if status := Main(strings.NewReader(in), &out); status != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("Main(%q) = %d, %s", in, status, &out)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, c := range map[string]*Compiler{
		"CacheDir":        {},
		"compile-timeout": {CacheDir: "d", Timeout: -1},
		"compile-memory":  {CacheDir: "d", Memory: 1 << 20},
		"compile-cpu":     {CacheDir: "d", CPU: time.Millisecond},
	} {
		if err := c.Precompile(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
