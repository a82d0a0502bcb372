package devengine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	startTime = 60 * time.Second // for a cluster to be ready
	stopTime  = 30 * time.Second // for a program to end after SIGTERM
)

// Engine is a running cluster.
type Engine struct {
	Server string // its address
	cmd    *exec.Cmd
	log    string        // file
	ended  chan struct{} // closed when it has ended
	err    error         // set before ended is closed
}

// Start runs engine dev, with its log in a file, and returns when it is ready. The engine outlives ctx;
// it runs until Stop.
func Start(ctx context.Context, cmd *exec.Cmd, log string) (*Engine, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the engine has it
	cmd.Stderr = file
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	e := &Engine{cmd: cmd, log: log, ended: make(chan struct{})}
	ready := make(chan string, 1)
	go func() {
		defer close(e.ended)
		lines := bufio.NewScanner(out)
		var server string
		for lines.Scan() {
			if v, ok := strings.CutPrefix(lines.Text(), "export PINION_SERVER="); ok {
				server = v
			}
			if lines.Text() == "ready" {
				ready <- server
			}
		}
		e.err = cmd.Wait()
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("the engine was not ready within %v", startTime))
	defer cancel()
	select {
	case e.Server = <-ready:
		return e, nil
	case <-e.ended:
		return nil, fmt.Errorf("the engine ended before it was ready: %v\n%s", cmd.ProcessState, e.tail())
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("%w\n%s", context.Cause(ctx), e.tail()), e.Stop())
	}
}

// PID is the engine's process id.
func (e *Engine) PID() int { return e.cmd.Process.Pid }

// Stop ends the engine with SIGTERM and waits for it. A status other than 0, also of an engine that ended by
// itself, is an error with the end of its log.
func (e *Engine) Stop() error {
	_ = e.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
	late := time.AfterFunc(stopTime, func() { _ = e.cmd.Process.Kill() })
	<-e.ended
	if !late.Stop() {
		return fmt.Errorf("the engine did not end within %v of SIGTERM and was killed\n%s", stopTime, e.tail())
	}
	if e.err != nil {
		return fmt.Errorf("the engine: %w\n%s", e.err, e.tail())
	}
	return nil
}

// tail is the end of the engine's log.
func (e *Engine) tail() string {
	const most = 20
	text, err := os.ReadFile(e.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
