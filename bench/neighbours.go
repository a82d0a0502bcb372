package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
)

const (
	neighbours     = 8 // jobs at a time
	neighbourTurns = 8 // beside the loop
	neighboursTime = 3 * time.Second
	neighboursRest = 500 * time.Millisecond // before the count begins
	neighbourBytes = 4 << 20                // of lines in their space
)

// neighbours measures what a job that loops for ever takes from others: how many short jobs are done, so many at
// once, without it and beside it.
//
// What counts is jobs per second of the engine's CPU time. Per second of the clock they depend on what else this
// machine does, which is not the same in any two turns. The loss so measured is never too small: beside
// the loop no processor is idle, so that per second of the clock there is at least as much CPU time as without it.
// Each turn beside the loop is compared with the turns just before and after it, and of these losses the
// median counts.
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
	alone, err := b.shortJobs(ctx)
	if err != nil {
		return err
	}
	without, with := []done{alone}, []done{}
	var perCPU, perSecond []float64
	for range neighbourTurns {
		stop := b.loop(ctx)
		beside, err := b.shortJobs(ctx)
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
		before := alone
		if alone, err = b.shortJobs(ctx); err != nil {
			return err
		}
		without, with = append(without, alone), append(with, beside)
		perCPU = append(perCPU, loss(done.perCPU, before, beside, alone))
		perSecond = append(perSecond, loss(done.perSecond, before, beside, alone))
	}
	rows("without", without)
	rows("beside a job that loops", with)
	fmt.Printf("  loss per second of the clock, median %25.2f %%\n", middle(perSecond))
	atMost("the good jobs' loss, %; the loop's share is 1/9", middle(perCPU), 100.0/(neighbours+1))
	fmt.Println()
	return nil
}

// done is how many jobs were done in a turn, and what it took.
type done struct {
	jobs float64
	cost
}

func (d done) perSecond() float64 { return d.jobs / d.wall.Seconds() }

// perCPU is perSecond where there is no count of CPU time.
func (d done) perCPU() float64 {
	if d.cpu == 0 {
		return d.perSecond()
	}
	return d.jobs / d.cpu.Seconds()
}

// loss is how much less there is beside the loop than before and after, in percent.
func loss(rate func(done) float64, before, beside, after done) float64 {
	return 100 * (1 - 2*rate(beside)/(rate(before)+rate(after)))
}

func rows(name string, turns []done) {
	var perSecond, perCPU []float64
	for _, d := range turns {
		perSecond, perCPU = append(perSecond, d.perSecond()), append(perCPU, d.perCPU())
	}
	fmt.Printf("  %-28s %6.1f jobs/s  %6.2f per CPU second, medians of %d turns\n", name, middle(perSecond), middle(perCPU), len(turns))
}

// middle is the median.
func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
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

// shortJobs runs jobs for some time. A job that is under way when the count begins or ends counts by the part of its
// time that lies within.
func (b *bench) shortJobs(ctx context.Context) (done, error) {
	from := time.Now().Add(neighboursRest)
	until := from.Add(neighboursTime)
	jobs := make([]float64, neighbours)
	errs := make([]error, neighbours)
	var clients sync.WaitGroup
	for i := range jobs {
		clients.Go(func() {
			for began := time.Now(); began.Before(until); {
				if _, errs[i] = b.client.Run(ctx, pinion.Job{Module: "wordcount", Reduce: "sum", Space: "part", Sort: "-value", Limit: 20}); errs[i] != nil {
					return
				}
				ended := time.Now()
				jobs[i] += within(began, ended, from, until)
				began = ended
			}
		})
	}
	time.Sleep(time.Until(from))
	d := done{}
	var err error
	d.cost, err = measure(func() (time.Duration, error) { return cpuOf(b.engine.PID()) }, func() error {
		time.Sleep(time.Until(until))
		return nil
	})
	clients.Wait()
	for _, n := range jobs {
		d.jobs += n
	}
	return d, errors.Join(err, errors.Join(errs...))
}

// within is which part of a time lies within another.
func within(began, ended, from, until time.Time) float64 {
	first, last := began, ended
	if from.After(first) {
		first = from
	}
	if until.Before(last) {
		last = until
	}
	return max(0, float64(last.Sub(first))/float64(ended.Sub(began)))
}
