package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/plugins/builtin"
	"github.com/pinion-mr/pinion/pmr/reduce"
	"github.com/pinion-mr/pinion/wasmhost"
)

// floods are guests that never end, by their exports in wasmhost/testdata/floods.wat.
var floods = []struct{ name, function string }{
	{"a loop", "loop"},
	{"fib(60), no loop", "fib"},
	{"memory.grow", "grow"},
	{"table.grow", "table_grow"},
	{"output flood", "emit_numbers"},
	{"output flood, blocks", "emit_blocks"},
	{"log flood", "log"},
	{"counter flood", "count"},
}

const (
	stopLimit = 50 * time.Millisecond
	stopTries = 50
)

// hosted is a host with the guests of the measures below.
type hosted struct {
	host    *wasmhost.Host
	floods  *wasmhost.Module
	words   *wasmhost.Module
	records *corpus // what the well-behaved guests count
}

func (b *bench) openHosted(ctx context.Context) (h *hosted, closeHost func(*error), err error) {
	c, err := b.corpus()
	if err != nil {
		return nil, nil, err
	}
	host, closeHost, err := openHost(ctx)
	if err != nil {
		return nil, nil, err
	}
	h = &hosted{host: host, records: c.part(50)}
	defer func() {
		if err != nil {
			closeHost(&err)
		}
	}()
	file, err := os.ReadFile("wasmhost/testdata/floods.wasm")
	if err != nil {
		return nil, nil, err
	}
	if h.floods, err = load(ctx, host, file); err != nil {
		return nil, nil, err
	}
	words, _ := builtin.Get("wordcount")
	h.words, err = load(ctx, host, words.File)
	return h, closeHost, err
}

// counting runs n well-behaved guests until stop is called, which returns how often one counted all records.
func (h *hosted) counting(ctx context.Context, n int) (stop func() (uint64, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var done atomic.Uint64
	errs := make([]error, n)
	var guests sync.WaitGroup
	for i := range n {
		guests.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				if errs[i] = h.count(ctx); errs[i] == nil {
					done.Add(1)
				}
			}
		})
	}
	return func() (uint64, error) {
		cancel()
		guests.Wait()
		for _, err := range errs {
			if err != nil && api.CodeOf(err) != api.CodeCanceled {
				return 0, err
			}
		}
		return done.Load(), nil
	}
}

func (h *hosted) count(ctx context.Context) error {
	in, err := h.words.Instance(ctx, wasmhost.Job{Name: "words", Yield: yield})
	if err != nil {
		return err
	}
	defer in.Close()
	sum, err := reduce.Parse("sum")
	if err != nil {
		return err
	}
	_, err = in.Map(ctx, 0, &cursor{of: h.records}, reduce.NewTable(sum, 0))
	return err
}

// yield lets other goroutines run.
func yield(context.Context) error {
	runtime.Gosched()
	return nil
}

// flood runs a guest that does not end by itself until its limit, and returns how long it took.
func (h *hosted) flood(ctx context.Context, function string, limit time.Duration) (time.Duration, error) {
	in, err := h.floods.Instance(ctx, wasmhost.Job{Name: "floods", Function: function, Yield: yield})
	if err != nil {
		return 0, err
	}
	defer in.Close()
	count, err := reduce.Parse("count")
	if err != nil {
		return 0, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err = in.Map(ctx, 0, &cursor{of: &corpus{batches: h.records.batches[:1], records: h.records.records[:1]}}, reduce.NewTable(count, 0))
	took := time.Since(began)
	switch api.CodeOf(err) {
	case api.CodeTimeout, api.CodeLimitExceeded:
		return took, nil
	}
	return took, fmt.Errorf("%s ended with %w", function, err)
}

// stops measures how long after its limit a guest is stopped, next to as many well-behaved guests as there are
// processors.
func (b *bench) stops(ctx context.Context) (err error) {
	fmt.Printf("time until a guest is stopped beyond its limit of %v, p95 of %d, beside %d other guests:\n",
		stopLimit, stopTries, runtime.GOMAXPROCS(0))
	h, closeHost, err := b.openHosted(ctx)
	if err != nil {
		return err
	}
	defer closeHost(&err)
	stop := h.counting(ctx, runtime.GOMAXPROCS(0))
	for _, f := range floods {
		late := make([]time.Duration, stopTries)
		for i := range late {
			took, err := h.flood(ctx, f.function, stopLimit)
			if err != nil {
				_, _ = stop()
				return err
			}
			late[i] = max(0, took-stopLimit)
		}
		slices.Sort(late)
		atMost(f.name+", ms", ms(late[stopTries*95/100]), 200)
	}
	fmt.Println()
	_, err = stop()
	return err
}

const (
	pauseGuests = 8
	pauseTime   = 3 * time.Second
	pauseRounds = 3
)

// pauses compares the pauses for garbage collection of a process that hosts well-behaved guests with those of one
// that hosts a guest that loops too. The collector is kept busy in both. Of some rounds in turn the best count:
// what else runs on the machine makes pauses longer, and never shorter.
func (b *bench) pauses(ctx context.Context) (err error) {
	fmt.Printf("pauses of a process with %d guests that count words, and one that loops; best of %d times %v:\n",
		pauseGuests, pauseRounds, pauseTime)
	h, closeHost, err := b.openHosted(ctx)
	if err != nil {
		return err
	}
	defer closeHost(&err)
	var best [2]paused
	for round := range pauseRounds {
		for i, loops := range []bool{false, true} {
			p, err := h.paused(ctx, loops)
			if err != nil {
				return err
			}
			if round == 0 {
				best[i] = p
			}
			best[i] = paused{min(best[i].p99, p.p99), min(best[i].worst, p.worst), max(best[i].counted, p.counted)}
		}
	}
	for i, name := range []string{"without", "with a guest that loops"} {
		fmt.Printf("  %-28s p99 %7.3f ms, worst %7.3f ms; counted %d times\n", name, ms(best[i].p99), ms(best[i].worst), best[i].counted)
	}
	atMost("pauses with / without a looping guest, p99", best[1].p99.Seconds()/best[0].p99.Seconds(), 5)
	fmt.Println()
	return nil
}

// paused is what one round saw.
type paused struct {
	p99, worst time.Duration
	counted    uint64 // how often guests counted all records
}

func (h *hosted) paused(ctx context.Context, loops bool) (p paused, err error) {
	stopCounting := h.counting(ctx, pauseGuests)
	looping := make(chan error, 1)
	if loops {
		go func() { _, err := h.flood(ctx, "loop", pauseTime); looping <- err }()
	} else {
		looping <- nil
	}
	p.p99, p.worst = collect(pauseTime)
	p.counted, err = stopCounting()
	return p, errors.Join(err, <-looping)
}

// collect has the collector run again and again and returns the 99th percentile and the longest of its pauses.
func collect(during time.Duration) (p99, worst time.Duration) {
	before := pauseCounts()
	for began := time.Now(); time.Since(began) < during; {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	after := pauseCounts()
	total := uint64(0)
	for i := range after.Counts {
		after.Counts[i] -= before.Counts[i]
		total += after.Counts[i]
	}
	seen := uint64(0)
	for i, n := range after.Counts {
		if n == 0 {
			continue
		}
		upper := after.Buckets[i+1] // of the bucket: a pause is at most as long
		if math.IsInf(upper, 1) {
			upper = after.Buckets[i]
		}
		worst = time.Duration(upper * float64(time.Second))
		if seen < total-total/100 {
			p99 = worst
		}
		seen += n
	}
	return p99, worst
}

// pauseCounts is a copy of the runtime's histogram.
func pauseCounts() metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	h := sample[0].Value.Float64Histogram()
	return metrics.Float64Histogram{Counts: slices.Clone(h.Counts), Buckets: h.Buckets}
}
