package devengine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMain is also the engine that these tests start: the binary of the test with a role in its environment.
func TestMain(m *testing.M) {
	switch os.Getenv("DEVENGINE_TEST_ROLE") {
	case "":
		os.Exit(m.Run())
	case "good":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		fmt.Println("export PINION_SERVER=nats://127.0.0.1:1")
		fmt.Println("ready")
		<-ctx.Done()
		fmt.Fprintln(os.Stderr, "drained")
	case "failing":
		fmt.Fprintln(os.Stderr, "engine: the port is taken")
		os.Exit(1)
	case "hanging":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		<-ctx.Done()
	}
}

func fake(t *testing.T, role string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "DEVENGINE_TEST_ROLE="+role)
	return cmd, filepath.Join(t.TempDir(), "engine.log")
}

// gone fails the test if the process has not ended and been waited for.
func gone(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if cmd.ProcessState == nil {
		t.Error("the engine has not ended")
	}
}

func TestEngineStops(t *testing.T) {
	cmd, log := fake(t, "good")
	e, err := Start(t.Context(), cmd, log)
	if err != nil {
		t.Fatal(err)
	}
	if e.Server != "nats://127.0.0.1:1" {
		t.Errorf("server %q", e.Server)
	}
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
	gone(t, cmd)
	if e.tail() != "drained" {
		t.Errorf("log %q", e.tail())
	}
}

func TestEngineThatDoesNotStart(t *testing.T) {
	cmd, log := fake(t, "failing")
	_, err := Start(t.Context(), cmd, log)
	if err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "the port is taken") {
		t.Error(err)
	}
	gone(t, cmd)
}

func TestEngineDiesLater(t *testing.T) {
	cmd, log := fake(t, "good")
	e, err := Start(t.Context(), cmd, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-e.ended
	if err := e.Stop(); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Error(err)
	}
}

// A program that is interrupted while the engine starts leaves none running.
func TestInterruptedStart(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	cmd, log := fake(t, "hanging")
	interrupt()
	_, err := Start(ctx, cmd, log)
	if err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Error(err)
	}
	gone(t, cmd)
}
