package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
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
	publish, err := b.barePublish(ctx)
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
	imported, err := b.importLines(ctx)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(b.lines)
	if err != nil {
		return err
	}
	log, stop, err := b.bareLog(ctx)
	if err != nil {
		return err
	}
	defer stop()
	began := time.Now()
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

// importLines imports the corpus, once.
func (b *bench) importLines(ctx context.Context) (time.Duration, error) {
	if b.imported > 0 {
		return b.imported, nil
	}
	began := time.Now()
	if err := b.submitImport(ctx, "default", b.lines); err != nil {
		return 0, err
	}
	b.imported = time.Since(began)
	return b.imported, nil
}

func (b *bench) submitImport(ctx context.Context, space, path string) error {
	cmd := exec.CommandContext(ctx, "bin/submit", "import", "--server", b.engine.Server, "--format", "lines", "--space", space, path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("submit import: %w\n%s", err, out)
	}
	return nil
}

// words compares the demo's job with plain Go, twice each in turn; the better one counts.
func (b *bench) words(ctx context.Context) error {
	if _, err := b.importLines(ctx); err != nil {
		return err
	}
	var job, plain cost
	for range 2 {
		j, err := measure(func() (time.Duration, error) { return cpuOf(b.engine.PID()) }, func() error {
			_, err := b.client.Run(ctx, pinion.Job{Module: "wordcount", Reduce: "sum", Sort: "-value", Limit: 20, Timeout: 10 * time.Minute})
			return err
		})
		if err != nil {
			return err
		}
		p, err := measure(ownCPU, func() error { _, err := countFile(b.lines); return err })
		if err != nil {
			return err
		}
		job, plain = better(job, j), better(plain, p)
	}
	fmt.Println("words, the whole job, and the idiomatic program over one file:")
	row("wordcount job", job, b.bytes, "", 0)
	row("plain Go, bufio and map", plain, b.bytes, "", 0)
	atMost("job / plain Go, CPU", job.cpu.Seconds()/plain.cpu.Seconds(), 1.2)
	fmt.Println()
	return nil
}
