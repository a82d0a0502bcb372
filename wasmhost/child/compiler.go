package child

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// Compiler is the parent's side. Its fields are not changed after the first use; a zero field is its default.
// Any number of goroutines may use it: one child runs at a time, and who wants the same module waits for the
// same child.
type Compiler struct {
	Executable string   // default this program
	Args       []string // that make it call [Main]
	Env        []string // NAME=VALUE; the child has no others

	CacheDir    string
	MemoryPages uint32        // as the host's
	Timeout     time.Duration // compile-timeout, of wall-clock time; default 60 s
	Memory      int64         // compile-memory, bytes of address space beyond what a process begins with; default 2 GiB
	CPU         time.Duration // compile-cpu, of processor time, in whole seconds; default 60 s

	started func(pid int) // for tests

	mu      sync.Mutex
	running map[[sha256.Size]byte]*compilation
	turn    chan struct{} // holds the one child there is
}

// compilation is one child, for all who want its module.
type compilation struct {
	done    chan struct{}
	waiting int // under Compiler.mu
	stop    context.CancelFunc
	err     error
}

// The defaults.
const (
	DefaultTimeout = 60 * time.Second
	DefaultMemory  = 2 << 30
	DefaultCPU     = 60 * time.Second
)

// minMemory is what compiling a small module takes.
const minMemory = 64 << 20

// Validate reports the first setting out of range.
func (c *Compiler) Validate() error {
	switch {
	case c.CacheDir == "":
		return errors.New("child: CacheDir is missing")
	case c.Timeout < 0:
		return fmt.Errorf("child: compile-timeout is %v; it cannot be negative", c.Timeout)
	case c.Memory != 0 && c.Memory < minMemory:
		return fmt.Errorf("child: compile-memory is %d bytes; it must be at least %d", c.Memory, minMemory)
	case c.CPU != 0 && c.CPU < time.Second:
		return fmt.Errorf("child: compile-cpu is %v; it must be at least 1s", c.CPU)
	}
	return nil
}

func (c *Compiler) timeout() time.Duration { return orDefault(c.Timeout, DefaultTimeout) }
func (c *Compiler) memory() int64          { return orDefault(c.Memory, DefaultMemory) }

// cpu is in whole seconds, as the system counts.
func (c *Compiler) cpu() time.Duration {
	return (orDefault(c.CPU, DefaultCPU) + time.Second - 1).Truncate(time.Second)
}

func orDefault[T comparable](v, value T) T {
	var zero T
	if v == zero {
		return value
	}
	return v
}

// Precompile compiles a metered module into CacheDir; it is wasmhost's Config.Precompile. It fails with
// BAD_MODULE and the compiler's reason, with LIMIT_EXCEEDED that names compile-timeout, compile-memory or
// compile-cpu, with UNAVAILABLE if the child was killed by somebody else, or with the context's error.
func (c *Compiler) Precompile(ctx context.Context, file []byte) error {
	if err := c.Validate(); err != nil {
		return err
	}
	key := sha256.Sum256(file)
	c.mu.Lock()
	r := c.running[key]
	if r == nil {
		r = &compilation{done: make(chan struct{})}
		work, stop := context.WithCancel(context.WithoutCancel(ctx))
		r.stop = stop
		if c.running == nil {
			c.running, c.turn = map[[sha256.Size]byte]*compilation{}, make(chan struct{}, 1)
		}
		c.running[key] = r
		go func() {
			defer stop()
			err := c.compile(work, file)
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.running[key] == r {
				delete(c.running, key)
			}
			r.err = err
			close(r.done)
		}()
	}
	r.waiting++
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	c.leave(key, r)
	return fmt.Errorf("child: compile: %w", ctx.Err())
}

// leave stops a child that nobody waits for, and waits for its end.
func (c *Compiler) leave(key [sha256.Size]byte, r *compilation) {
	c.mu.Lock()
	r.waiting--
	last := r.waiting == 0
	if last {
		r.stop()
		if c.running[key] == r {
			delete(c.running, key) // who comes now must not share its end
		}
	}
	c.mu.Unlock()
	if last {
		<-r.done
	}
}

// compile runs a child.
func (c *Compiler) compile(ctx context.Context, file []byte) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	program := c.Executable
	if program == "" {
		var err error
		if program, err = os.Executable(); err != nil {
			return fmt.Errorf("child: this program's file: %w", err)
		}
	}
	timed, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	cmd := exec.CommandContext(timed, program, c.Args...)
	ownGroup(cmd)
	cmd.Env = append([]string{"GOTRACEBACK=none"}, c.Env...)
	cmd.WaitDelay = time.Second
	words := &firstWords{}
	cmd.Stderr = words
	a, err := c.exchange(cmd, file)
	if a.OK && err == nil {
		return nil
	}
	c.sweep()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case timed.Err() != nil:
		return limitError("compile-timeout", c.timeout().String(), "compiling took longer than")
	}
	return c.explain(cmd, a, words.String(), err)
}

// exchange starts the child, gives it its task and reads its answer. Standard input stays open until then.
func (c *Compiler) exchange(cmd *exec.Cmd, file []byte) (answer, error) {
	var a answer
	in, err := cmd.StdinPipe()
	if err != nil {
		return a, fmt.Errorf("child: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return a, fmt.Errorf("child: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return a, fmt.Errorf("child: start %s: %w", filepath.Base(cmd.Path), err)
	}
	if c.started != nil {
		c.started(cmd.Process.Pid)
	}
	t := task{
		CacheDir: c.CacheDir, MemoryPages: c.MemoryPages, Memory: c.memory(), CPUSeconds: int64(c.cpu() / time.Second), Size: len(file),
	}
	sent := writeMessage(in, t)
	if sent == nil {
		_, sent = in.Write(file)
	}
	// A child that ended early says more by its answer or its end than the pipe that it closed.
	got := readMessage(bufio.NewReaderSize(io.LimitReader(out, maxMessage), maxMessage), &a)
	_ = in.Close()
	if got != nil && !errors.Is(got, io.EOF) {
		_ = cmd.Cancel() // it says something else, perhaps more than the pipe takes
		a = answer{Error: got.Error(), Internal: true}
	}
	err = cmd.Wait()
	switch {
	case a.OK || a.Error != "":
		return a, nil
	case err != nil:
		return a, err
	default:
		return a, errors.Join(sent, got)
	}
}

// noMemory is what a Go program says when the system gives it no more memory: the first and the last two come
// from its runtime, which then ends, the second is the system's.
var noMemory = []string{"out of memory", "cannot allocate memory", "failed to create new OS thread", "address space collisions"}

// explain says why a child gave no code.
func (c *Compiler) explain(cmd *exec.Cmd, a answer, words string, err error) error {
	state := cmd.ProcessState
	switch {
	case c.killedAtCPU(state):
		return limitError("compile-cpu", c.cpu().String(), "compiling took more processor time than")
	case a.NoMemory || slices.ContainsFunc(noMemory, func(s string) bool { return strings.Contains(words, s) }):
		return limitError("compile-memory", memoryText(c.memory()), "compiling took more memory than")
	case a.Internal:
		return fmt.Errorf("child: %s", a.Error)
	case a.Error != "":
		return api.Errorf(api.CodeBadModule, "%s", a.Error)
	case strings.HasPrefix(words, "panic: ") || strings.HasPrefix(words, "fatal error: "):
		first, _, _ := strings.Cut(words, "\n")
		return api.Errorf(api.CodeBadModule, "the compiler failed on it: %s", first)
	case state != nil && !state.Exited():
		return api.Errorf(api.CodeUnavailable, "the process that compiles modules was ended by someone else (%v)", state).
			WithHint("try again; the machine may be short of memory")
	}
	if words != "" {
		return fmt.Errorf("child: the process that compiles modules gave no answer: %w: %s", err, words)
	}
	return fmt.Errorf("child: the process that compiles modules gave no answer: %w", err)
}

// killedAtCPU reports whether the system killed a child at its limit of processor time. It counts that time by
// its clock's ticks, so that the exact time may be less.
func (c *Compiler) killedAtCPU(state *os.ProcessState) bool {
	return state != nil && !state.Exited() && state.UserTime()+state.SystemTime() >= c.cpu()/5*4
}

func limitError(name, value, message string) error {
	return api.Errorf(api.CodeLimitExceeded, "%s %s (%s)", message, name, value).
		WithHint("split large functions, or raise %s", name).With("limit", name).With("value", value)
}

func memoryText(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// sweep removes files that a killed child was writing. No other child runs now.
func (c *Compiler) sweep() {
	files, _ := filepath.Glob(filepath.Join(c.CacheDir, "wazero-*", "*.tmp")) // the pattern is good
	for _, f := range files {
		_ = os.Remove(f) // it only takes room
	}
}

// firstWords keeps the beginning of what a child writes on stderr: that is where Go says why it ends.
type firstWords struct {
	mu sync.Mutex
	b  []byte
}

// Write keeps 4 KiB and drops the rest.
func (w *firstWords) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, b[:min(len(b), 4096-len(w.b))]...)
	return len(b), nil
}

func (w *firstWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(bytes.TrimSpace(w.b))
}
