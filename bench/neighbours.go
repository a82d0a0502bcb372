package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
)

const (
	neighbours     = 8 // jobs at a time
	neighboursTime = 5 * time.Second
	neighbourTurns = 2
	neighbourBytes = 4 << 20 // of lines in their space
)

// neighbours measures what a job that loops for ever takes from others: how many short jobs are done in a time,
// so many at once, without it and beside it. Both are measured in turn, and the better turn counts.
func (b *bench) neighbours(ctx context.Context) error {
	fmt.Printf("%d jobs at a time, again and again, on the engine:\n", neighbours)
	if err := b.importPart(ctx, "part", neighbourBytes); err != nil {
		return err
	}
	file, err := os.ReadFile("wasmhost/testdata/floods.wasm")
	if err != nil {
		return err
	}
	if _, err := b.client.AddModule(ctx, "floods", "", "sum", file); err != nil {
		return err
	}
	var best [2]uint64
	for range neighbourTurns {
		for i := range best {
			stop := func() error { return nil }
			if i == 1 {
				stop = b.loop(ctx)
			}
			done, err := b.shortJobs(ctx)
			if err := errors.Join(err, stop()); err != nil {
				return err
			}
			best[i] = max(best[i], done)
		}
	}
	for i, name := range []string{"without", "beside a job that loops"} {
		fmt.Printf("  %-28s %6.1f jobs/s\n", name, float64(best[i])/neighboursTime.Seconds())
	}
	lost := 1 - float64(best[1])/float64(best[0])
	atMost("the good jobs' loss, %; the loop's share is 1/9", 100*lost, 100.0/(neighbours+1))
	fmt.Println()
	return nil
}

// importPart imports the first lines into a space.
func (b *bench) importPart(ctx context.Context, space string, n int) error {
	text, err := os.ReadFile(b.lines)
	if err != nil {
		return err
	}
	path := filepath.Join(b.dir, space+".txt")
	if err := os.WriteFile(path, text[:min(n, len(text))], 0o600); err != nil {
		return err
	}
	return b.submitImport(ctx, space, path)
}

// loop starts a job that does not end by itself. stop cancels it and waits.
func (b *bench) loop(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := b.client.Run(ctx, pinion.Job{Module: "floods", Function: "loop", Space: "part", Timeout: 10 * time.Minute})
		ended <- err
	}()
	return func() error {
		cancel()
		if err := <-ended; api.CodeOf(err) != api.CodeCanceled {
			return fmt.Errorf("the job that loops ended with: %w", err)
		}
		return nil
	}
}

// shortJobs runs jobs for some time and returns how many were done.
func (b *bench) shortJobs(ctx context.Context) (uint64, error) {
	var done atomic.Uint64
	errs := make([]error, neighbours)
	var clients sync.WaitGroup
	until := time.Now().Add(neighboursTime)
	for i := range errs {
		clients.Go(func() {
			for time.Now().Before(until) && errs[i] == nil {
				if _, errs[i] = b.client.Run(ctx, pinion.Job{Module: "wordcount", Reduce: "sum", Space: "part", Sort: "-value", Limit: 20}); errs[i] == nil {
					done.Add(1)
				}
			}
		})
	}
	clients.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return done.Load(), nil
}
