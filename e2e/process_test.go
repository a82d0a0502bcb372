//go:build unix

package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// programs is the folder of the programs that TestMain has built.
var programs string

// natsServer is the public NATS server, built from the module that the engine embeds.
const natsServer = "github.com/nats-io/nats-server/v2"

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "pinion-e2e-*")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	programs = dir
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./cmd/engine", "./cmd/submit", natsServer)
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// long reports whether the long variants were asked for.
func long() bool { return os.Getenv("PINION_E2E") == "long" }

// scaled is n, or ten times as many in the long variants.
func scaled(n int) int {
	if long() {
		return 10 * n
	}
	return n
}

// environment is this process's, without what would steer the programs.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PINION_") })
}

// process is a program that runs beside the test, and can be started again after its end.
type process struct {
	t       *testing.T
	name    string
	program string
	args    []string
	log     string // file of stdout and stderr

	cmd    *exec.Cmd
	server chan string   // gets the address that the process says it listens on
	ended  chan struct{} // closed when the process has ended
}

func newProcess(t *testing.T, name, logDir, program string, args ...string) *process {
	p := &process{t: t, name: name, program: program, args: args, log: filepath.Join(logDir, name+".log")}
	t.Cleanup(func() {
		if p.running() {
			p.kill()
		}
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", name, p.logTail())
		}
	})
	return p
}

func (p *process) start() {
	p.t.Helper()
	if p.running() {
		p.t.Fatalf("%s runs already", p.name)
	}
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	p.server, p.ended = make(chan string, 1), make(chan struct{})
	p.cmd = exec.Command(filepath.Join(programs, p.program), p.args...)
	p.cmd.Env, p.cmd.SysProcAttr = environment(), endWithTest()
	p.cmd.Stdout, p.cmd.Stderr = &announcement{log: f, server: p.server}, f
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait() // what it says is read from cmd.ProcessState
		_ = f.Close()
		close(ended)
	}(p.cmd, p.ended)
}

func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %s of %s: %v", s, p.name, err)
	}
}

// kill ends the process at once, and returns when it is gone.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait(10 * time.Second)
}

// terminate asks the process to end, and fails the test unless it does so with exit code 0.
func (p *process) terminate() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(20 * time.Second); code != 0 {
		p.t.Errorf("%s ended with exit code %d after SIGTERM, want 0", p.name, code)
	}
}

// wait returns the exit code; -1 if a signal ended it.
func (p *process) wait(patience time.Duration) int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("%s has not ended within %s", p.name, patience)
		return -1
	}
}

// listening waits for the process to say where it listens.
func (p *process) listening() string {
	p.t.Helper()
	select {
	case url := <-p.server:
		return url
	case <-p.ended:
		p.t.Fatalf("%s ended early:\n%s", p.name, p.logTail())
	case <-time.After(30 * time.Second):
		p.t.Fatalf("%s does not say where it listens:\n%s", p.name, p.logTail())
	}
	return ""
}

func (p *process) logTail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-40):], nil))
}

// openFiles counts the files and connections that the process has open; -1 if this system does not tell.
func (p *process) openFiles() int {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		return -1
	}
	return len(list)
}

// announcement looks for the line that says where a server listens, and copies all to the log.
type announcement struct {
	log    *os.File
	server chan string

	mu   sync.Mutex
	head []byte
	told bool
}

func (a *announcement) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.told {
		a.head = append(a.head, b...)
		if _, rest, ok := bytes.Cut(a.head, []byte("export PINION_SERVER=")); ok {
			if url, _, ok := bytes.Cut(rest, []byte("\n")); ok {
				a.told = true
				a.server <- string(url)
			}
		}
	}
	return a.log.Write(b)
}

// outcome is how a command ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// command runs a program to its end, for at most a minute. If that fails, so does the test.
func command(t *testing.T, stdin string, program string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(programs, program), args...)
	cmd.Env, cmd.SysProcAttr = environment(), endWithTest()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Errorf("%s %.200s: %v %v\n%s", program, strings.Join(args, " "), err, ctx.Err(), stderr.String())
		return outcome{code: -1}
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}
