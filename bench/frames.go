package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/pinion-mr/pinion/wasmhost"
)

// framesOnly compares a guest that only walks its frames with a Go loop over the same source, and one that splits
// words with the same C compiled for this machine. Both go by bits for 64 bytes. On amd64 both get these by the same
// vectors of 16; elsewhere only the guest does, and the output says so.
func (b *bench) framesOnly(ctx context.Context) (err error) {
	fmt.Println("frames only, one processor:")
	c, err := b.corpus()
	if err != nil {
		return err
	}
	file, err := b.framesGuest(ctx)
	if file == nil {
		return err
	}
	host, closeHost, err := openHost(ctx)
	if err != nil {
		return err
	}
	defer closeHost(&err)
	m, err := load(ctx, host, file)
	if err != nil {
		return err
	}
	defer m.Close()
	program, err := b.compileNative(ctx, c)
	if err != nil {
		return err
	}
	var best frameCosts
	for range 7 {
		if err := best.round(ctx, m, program, c); err != nil {
			return err
		}
	}
	row("Go loop", best.loop, c.bytes, "", 0)
	row("C guest that walks", best.walk, c.bytes, "the Go loop", times(best.walk, best.loop))
	vectors := "as the guest by vectors of 16"
	if runtime.GOARCH != "amd64" {
		vectors = "by words of 8, the guest by vectors of 16"
	}
	fmt.Printf("  splitting goes by bits for 64 bytes; native has them %s\n", vectors)
	row("C that splits, native -O2", best.native, c.bytes, "", 0)
	row("C guest that splits", best.split, c.bytes, "native", times(best.split, best.native))
	atLeast("walking guest / Go loop, speed", times(best.walk, best.loop), 0.5)
	atLeast("splitting guest / native, speed", times(best.split, best.native), 0.6)
	allocations, batches, err := allocationsOf(func(c *corpus) error {
		_, _, err := mapCorpus(ctx, m, "walk", c)
		return err
	}, c)
	if err != nil {
		return err
	}
	atMost(fmt.Sprintf("allocations per batch, of %d more batches", batches), float64(allocations)/float64(batches), 0.01)
	fmt.Println()
	return nil
}

// frameCosts are the best so far.
type frameCosts struct{ loop, walk, split, native cost }

// round measures each once, in turn, so that what else the machine does hits all alike.
func (f *frameCosts) round(ctx context.Context, m *wasmhost.Module, program native, c *corpus) error {
	walked := uint64(0)
	took, err := measure(ownCPU, func() error { walked = walkFrames(&cursor{of: c}); return nil })
	if err != nil {
		return err
	}
	f.loop = better(f.loop, took)
	if took, err = mapAndCheck(ctx, m, "walk", c, walked); err != nil {
		return err
	}
	f.walk = better(f.walk, took)
	took, words, err := program.run(ctx, "split")
	if err != nil {
		return err
	}
	f.native = better(f.native, took)
	for range nativeRuns { // as often as the program, or its best would be that of more tries
		if took, err = mapAndCheck(ctx, m, "split", c, words); err != nil {
			return err
		}
		f.split = better(f.split, took)
	}
	return nil
}

// nativeRuns is how many runs the program makes of which it tells the best.
const nativeRuns = 2

// mapAndCheck is mapCorpus with a function whose answer is known.
func mapAndCheck(ctx context.Context, m *wasmhost.Module, function string, c *corpus, want uint64) (cost, error) {
	took, table, err := mapCorpus(ctx, m, function, c)
	if err != nil {
		return took, err
	}
	if got := sumOf(table); got != want {
		return took, fmt.Errorf("%s in a guest counted %d, outside %d", function, got, want)
	}
	return took, nil
}

// allocationsOf is how many more allocations a run over all batches makes than one over a tenth of them.
func allocationsOf(run func(*corpus) error, c *corpus) (more int64, batches int, err error) {
	count := func(c *corpus) (n uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = run(c)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	small := c.part(10)
	few := count(small)
	if err != nil {
		return 0, 0, err
	}
	many := count(c)
	return int64(many) - int64(few), len(c.batches) - len(small.batches), err
}
