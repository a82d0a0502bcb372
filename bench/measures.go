package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/bus"
)

// tries is how often short things are measured.
const tries = 200

// latency compares a job over an empty space with the least that a durable system must do: one synced write.
func (b *bench) latency(ctx context.Context) error {
	if err := b.client.CreateSpace(ctx, "nothing"); err != nil {
		return err
	}
	job, err := median(tries, func() error {
		_, err := b.client.Run(ctx, pinion.Job{Module: "wordcount", Space: "nothing"})
		return err
	})
	if err != nil {
		return err
	}
	log, stop, err := b.bareLog(ctx)
	if err != nil {
		return err
	}
	defer stop()
	body := bytes.Repeat([]byte("x"), 128)
	publish, err := median(tries, func() error {
		_, err := log.Append(ctx, "rec.0", nil, body, "")
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("job over an empty space   %8.2f ms median of %d\n", ms(job), tries)
	fmt.Printf("bare synced publish       %8.2f ms median of %d      difference %.2f ms\n\n", ms(publish), tries, ms(job-publish))
	return nil
}

// bareLog is a JetStream stream on a server of its own, in this process, synced as the engine's.
func (b *bench) bareLog(ctx context.Context) (log *bus.Log, stop func(), err error) {
	dir, err := os.MkdirTemp(b.dir, "bare-")
	if err != nil {
		return nil, nil, err
	}
	srv, err := bus.StartServer(bus.ServerConfig{Dir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		return nil, nil, err
	}
	conn, err := bus.Connect(ctx, bus.Config{Server: srv.URL()})
	if err != nil {
		srv.Close()
		return nil, nil, err
	}
	log, err = conn.CreateLog(ctx, bus.LogConfig{})
	return log, func() { conn.Close(); srv.Close() }, err
}

// imports compares submit import with publishing the same bytes in messages of 128 KiB.
func (b *bench) imports(ctx context.Context) error {
	began := time.Now()
	cmd := exec.CommandContext(ctx, "bin/submit", "import", "--server", b.engine.Server, "--format", "lines", b.lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("submit import: %w\n%s", err, out)
	}
	imported := time.Since(began)
	text, err := os.ReadFile(b.lines)
	if err != nil {
		return err
	}
	log, stop, err := b.bareLog(ctx)
	if err != nil {
		return err
	}
	defer stop()
	began = time.Now()
	appender := log.NewAppender(64)
	for i, piece := range slices.Collect(slices.Chunk(text, 128<<10)) {
		if err := appender.Append(ctx, "rec."+strconv.Itoa(i%256), nil, piece); err != nil {
			return err
		}
	}
	if err := appender.Wait(ctx); err != nil {
		return err
	}
	published := time.Since(began)
	fmt.Printf("submit import, lines      %8.1f MB/s\n", rate(b.bytes, imported))
	fmt.Printf("bare synced publish       %8.1f MB/s, 128 KiB messages    import / publish %.2f\n\n",
		rate(b.bytes, published), published.Seconds()/imported.Seconds())
	return nil
}

// words compares the demo's job with plain Go, twice each in turn; the better one counts.
func (b *bench) words(ctx context.Context) error {
	var job, plain cost
	for range 2 {
		j, err := measure(func() (time.Duration, error) { return cpuOf(b.engine.PID()) }, func() error {
			_, err := b.client.Run(ctx, pinion.Job{Module: "wordcount", Reduce: "sum", Sort: "-value", Limit: 20, Timeout: 10 * time.Minute})
			return err
		})
		if err != nil {
			return err
		}
		p, err := measure(ownCPU, func() error { _, err := countWords(b.lines); return err })
		if err != nil {
			return err
		}
		job, plain = better(job, j), better(plain, p)
	}
	fmt.Printf("wordcount job             %8.2f CPU s, %.2f s\n", job.cpu.Seconds(), job.wall.Seconds())
	fmt.Printf("plain Go, bufio and map   %8.2f CPU s, %.2f s             job / plain %.2f CPU\n",
		plain.cpu.Seconds(), plain.wall.Seconds(), job.cpu.Seconds()/plain.cpu.Seconds())
	return nil
}

// cost is what something took.
type cost struct{ cpu, wall time.Duration }

func better(a, b cost) cost {
	if a.wall == 0 || b.cpu < a.cpu {
		return b
	}
	return a
}

func measure(cpu func() (time.Duration, error), fn func() error) (cost, error) {
	before, err := cpu()
	if err != nil {
		return cost{}, err
	}
	began := time.Now()
	if err := fn(); err != nil {
		return cost{}, err
	}
	wall := time.Since(began)
	after, err := cpu()
	return cost{after - before, wall}, err
}

func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// cpuOf is the CPU time of a process so far, user and system; 0 where there is no /proc.
func cpuOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, nil //nolint:nilerr // not Linux
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	var total time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}

func median(n int, fn func() error) (time.Duration, error) {
	var took []time.Duration
	for range n {
		began := time.Now()
		if err := fn(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
