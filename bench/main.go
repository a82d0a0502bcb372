// Command bench measures the engine and its guests against what one would use instead, in one run, so that the
// ratios mean something on a noisy machine. In the root of the repository:
//
//	make bench                      # all sections, in some minutes
//	make build && go run ./bench wordcount stops
//
// The sections:
//
//	latency     the median of a job over an empty space against a bare synced JetStream publish
//	interactive the same on three storage processes, and many such jobs at a time
//	fairness    the longest waits of jobs and of gates, as moves need them, that compete without a pause
//	moves       moves of buckets beside writes, jobs and long maps, and a takeover; -moves.time shortens its minutes
//	imports     submit import against a bare synced JetStream publish of the same bytes
//	job         CPU seconds of the demo's job (words of the Go standard library) against an idiomatic Go program
//	            over the same lines in one file
//	neighbours  jobs beside one that loops for ever, against the same jobs alone
//	wordcount   word counts of one processor: guests in several languages, idiomatic Go, mawk
//	frames      a guest that only walks its frames against a Go loop, one that splits words against native C
//	metering    guests against what they are rewritten to
//	stops       how long after its limit a guest is stopped that loops, grows or floods
//	pauses      the garbage collector's pauses beside a guest that loops
//
// Where a ratio has a goal it is printed, with PASS or "short of the goal". Guests whose toolchain is missing are
// skipped. CPU time of the engine is read from /proc, so it is printed on Linux only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/internal/devengine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	flag.Parse()
	err := run(ctx, flag.Args())
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
	frames *corpus
	guests map[string][]byte

	engine   *devengine.Engine
	client   *pinion.Client
	imported time.Duration // what the import of the lines took; 0 before
}

// section is one measure.
type section struct {
	name   string
	engine bool // it needs one
	run    func(context.Context) error
}

func (b *bench) sections() []section {
	return []section{
		{"latency", true, b.latency},
		{"interactive", false, b.interactive},
		{"fairness", false, b.fairness},
		{"moves", false, b.moves},
		{"imports", true, b.imports},
		{"job", true, b.words},
		{"neighbours", true, b.neighbours},
		{"wordcount", false, b.wordcount},
		{"frames", false, b.framesOnly},
		{"metering", false, b.metering},
		{"stops", false, b.stops},
		{"pauses", false, b.pauses},
	}
}

// run measures the sections named, or all.
func run(ctx context.Context, names []string) (err error) {
	b := &bench{}
	sections := b.sections()
	for _, name := range names {
		if !slices.ContainsFunc(sections, func(s section) bool { return s.name == name }) {
			return fmt.Errorf("there is no section %q", name)
		}
	}
	if b.dir, err = os.MkdirTemp("", "pinion-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := b.gather(ctx); err != nil {
		return err
	}
	fmt.Printf("%s, %s/%s, %d CPUs; %.1f MB of lines; every JetStream write is synced\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), mb(b.bytes))
	defer func() { err = errors.Join(err, b.stopEngine()) }()
	for _, s := range sections {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		if s.engine {
			err = b.startEngine(ctx)
		} else {
			err = b.stopEngine() // it would take part of the processors
		}
		if err == nil {
			err = s.run(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (b *bench) startEngine(ctx context.Context) (err error) {
	if b.engine != nil {
		return nil
	}
	cmd := exec.CommandContext(ctx, "bin/engine", "dev", "--dir", filepath.Join(b.dir, "data"), "--listen", "127.0.0.1:0", "--log", "warn")
	if b.engine, err = devengine.Start(ctx, cmd, filepath.Join(b.dir, "engine.log")); err != nil {
		return err
	}
	b.client, err = pinion.Connect(ctx, pinion.Config{Server: b.engine.Server})
	return err
}

func (b *bench) stopEngine() error {
	if b.client != nil {
		b.client.Close()
		b.client = nil
	}
	if b.engine == nil {
		return nil
	}
	err := b.engine.Stop()
	b.engine = nil
	return err
}

func mb(n int64) float64 { return float64(n) / 1e6 }

func rate(n int64, d time.Duration) float64 { return mb(n) / d.Seconds() }
