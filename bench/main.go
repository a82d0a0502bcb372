// Command bench measures the whole engine against what one would use instead, in one run, so that the ratios
// mean something on a noisy machine:
//
//   - CPU seconds of the demo's job (words of the Go standard library) against an idiomatic Go program over
//     the same lines in one file;
//   - the median of a job over an empty space against a bare synced JetStream publish;
//   - import against a bare synced JetStream publish of the same bytes.
//
// Started in the root of the repository after make build:
//
//	make bench
//
// CPU time of the engine is read from /proc, so it is printed on Linux only.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/internal/devengine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	dir    string // temporary
	lines  string // file of all lines
	bytes  int64  // of it
	engine *devengine.Engine
	client *pinion.Client
}

func run(ctx context.Context) (err error) {
	b := &bench{}
	if b.dir, err = os.MkdirTemp("", "pinion-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := b.gather(ctx); err != nil {
		return err
	}
	fmt.Printf("%s, %s/%s, %d CPUs; %.1f MB of lines; every JetStream write is synced\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), mb(b.bytes))
	cmd := exec.CommandContext(ctx, "bin/engine", "dev", "--dir", filepath.Join(b.dir, "data"), "--listen", "127.0.0.1:0", "--log", "warn")
	if b.engine, err = devengine.Start(ctx, cmd, filepath.Join(b.dir, "engine.log")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.engine.Stop()) }()
	if b.client, err = pinion.Connect(ctx, pinion.Config{Server: b.engine.Server}); err != nil {
		return err
	}
	defer b.client.Close()
	for _, measure := range []func(context.Context) error{b.latency, b.imports, b.words} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

func mb(n int64) float64 { return float64(n) / 1e6 }

func rate(n int64, d time.Duration) float64 { return mb(n) / d.Seconds() }
