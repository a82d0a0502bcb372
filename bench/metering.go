package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/tetratelabs/wazero"
	wazeroapi "github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/plugins/wasm"
)

// meteringGoals are what counting steps may cost, in per cent of the guest as it was.
var meteringGoals = map[string]float64{
	"c": 10, "rust": 10, "wat": 10, "go": 15, "assemblyscript": 25, "wasi-c": 25, "wasi-rust": 25,
}

// metering compares guests with what they are rewritten to, in a runtime that does nothing else: it throws away
// what they emit. An engine runs no guest as it was, so this knows wazero itself.
func (b *bench) metering(ctx context.Context) error {
	fmt.Println("metering, one processor, guests alone:")
	whole, err := b.corpus()
	if err != nil {
		return err
	}
	c := whole.part(12)
	guests, err := b.built(ctx)
	if err != nil {
		return err
	}
	for _, language := range languages {
		if guests[language] == nil {
			continue
		}
		plain, ratio, err := meterBoth(ctx, guests[language], c)
		if err != nil {
			return fmt.Errorf("%s: %w", language, err)
		}
		row(language+" as it was", plain, c.bytes, "", 0)
		atMost(language+" guest, metering in %", 100*(ratio-1), meteringGoals[language])
	}
	fmt.Println()
	return nil
}

// meterBoth runs a guest as it is and metered, in turn. It returns the best round of the one, and the median of how
// many times as long the other took beside it. What else a machine does lasts longer than the two runs of a round,
// and so hits both; a best round of each would compare the luckiest moments of two.
func meterBoth(ctx context.Context, file []byte, c *corpus) (plain cost, ratio float64, err error) {
	module, err := wasm.Read(file)
	if err != nil {
		return plain, 0, err
	}
	rewritten, err := wasm.Meter(module, 10_000)
	if err != nil {
		return plain, 0, err
	}
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(1024))
	defer func() { err = errors.Join(err, r.Close(ctx)) }()
	if err := importNothing(ctx, r); err != nil {
		return plain, 0, err
	}
	var compiled [2]wazero.CompiledModule
	for i, file := range [][]byte{file, rewritten} {
		if compiled[i], err = r.CompileModule(ctx, file); err != nil {
			return plain, 0, err
		}
	}
	const rounds, enough = 21, 1200 * time.Millisecond // short runs vary more, so there are more of them
	var ratios []float64
	for spent := time.Duration(0); len(ratios) < rounds || spent < enough; {
		var took [2]cost
		for turn := range took {
			i := (len(ratios) + turn) % 2 // neither is always the first
			if took[i], err = runBare(ctx, r, compiled[i], c); err != nil {
				return plain, 0, err
			}
		}
		plain, spent = better(plain, took[0]), spent+took[0].cpu
		ratios = append(ratios, times(took[0], took[1]))
	}
	slices.Sort(ratios)
	return plain, ratios[len(ratios)/2], nil
}

// importNothing gives a runtime what guests import. The functions do nothing, but tick refills the slice.
func importNothing(ctx context.Context, r wazero.Runtime) error {
	const i32, i64, f64 = wazeroapi.ValueTypeI32, wazeroapi.ValueTypeI64, wazeroapi.ValueTypeF64
	nothing := wazeroapi.GoModuleFunc(func(context.Context, wazeroapi.Module, []uint64) {})
	pmr1 := r.NewHostModuleBuilder("pmr1")
	for _, f := range []struct {
		name   string
		params []wazeroapi.ValueType
	}{
		{"emit", []wazeroapi.ValueType{i32, i32}},
		{"emit_kv", []wazeroapi.ValueType{i32, i32, i32, i32}},
		{"emit_i64", []wazeroapi.ValueType{i32, i32, i64}},
		{"emit_f64", []wazeroapi.ValueType{i32, i32, f64}},
		{"log", []wazeroapi.ValueType{i32, i32, i32}},
		{"count", []wazeroapi.ValueType{i32, i32, i64}},
		{"fail", []wazeroapi.ValueType{i32, i32}},
	} {
		pmr1.NewFunctionBuilder().WithGoModuleFunction(nothing, f.params, nil).Export(f.name)
	}
	abort := r.NewHostModuleBuilder("env")
	abort.NewFunctionBuilder().WithGoModuleFunction(nothing, []wazeroapi.ValueType{i32, i32, i32, i32}, nil).Export("abort")
	tick := r.NewHostModuleBuilder(wasm.TickModule)
	tick.NewFunctionBuilder().WithGoModuleFunction(wazeroapi.GoModuleFunc(func(_ context.Context, m wazeroapi.Module, _ []uint64) {
		m.ExportedGlobal(wasm.FuelExport).(wazeroapi.MutableGlobal).Set(wasm.Slice)
	}), nil, nil).Export(wasm.TickName)
	for _, builder := range []wazero.HostModuleBuilder{pmr1, abort, tick} {
		if _, err := builder.Instantiate(ctx); err != nil {
			return err
		}
	}
	_, err := wasi_snapshot_preview1.Instantiate(ctx, r)
	return err
}

// runBare runs a reactor's map over all batches, or a command over all lines.
func runBare(ctx context.Context, r wazero.Runtime, compiled wazero.CompiledModule, c *corpus) (took cost, err error) {
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithArgs("bench", "map").WithStdin(&lineReader{source: cursor{of: c}}).WithStdout(io.Discard).WithStderr(io.Discard)
	m, err := r.InstantiateModule(ctx, compiled, config)
	if err != nil {
		return took, err
	}
	defer func() { err = errors.Join(err, m.Close(ctx)) }()
	runtime.GC()
	if start := m.ExportedFunction("_start"); start != nil {
		return measure(ownCPU, func() error {
			_, err := start.Call(ctx)
			var exit *sys.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == 0 {
				return nil
			}
			return err
		})
	}
	if start := m.ExportedFunction("_initialize"); start != nil {
		if _, err := start.Call(ctx); err != nil {
			return took, err
		}
	}
	return measure(ownCPU, func() error { return mapBare(ctx, m, c) })
}

// mapBare does the least that a host must do.
func mapBare(ctx context.Context, m wazeroapi.Module, c *corpus) error {
	memory, alloc, mapping := m.ExportedMemory("memory"), m.ExportedFunction("pmr_alloc"), m.ExportedFunction("map")
	var at uint64
	capacity := 0
	for _, batch := range c.batches {
		if len(batch) > capacity {
			capacity = max(2*capacity, len(batch))
			out, err := alloc.Call(ctx, uint64(capacity))
			if err != nil {
				return err
			}
			at = out[0]
		}
		if !memory.Write(uint32(at), batch) {
			return errors.New("the buffer is outside of the memory")
		}
		stack := [2]uint64{at, uint64(len(batch))}
		if err := mapping.CallWithStack(ctx, stack[:]); err != nil {
			return err
		}
		if stack[0] != 0 {
			return fmt.Errorf("map returned %d", stack[0])
		}
	}
	if end := m.ExportedFunction("pmr_end"); end != nil {
		if _, err := end.Call(ctx); err != nil {
			return err
		}
	}
	return nil
}

// lineReader reads the values of records as lines.
type lineReader struct {
	source cursor
	batch  []byte
	lines  []byte // not read yet
	text   []byte
}

func (l *lineReader) Read(b []byte) (int, error) {
	if len(l.lines) == 0 {
		batch, records, _ := l.source.Fill(l.batch[:0], batchBytes)
		if records == 0 {
			return 0, io.EOF
		}
		l.batch, l.text = batch, l.text[:0]
		for rest := batch; len(rest) > 0; {
			f, tail, err := buckets.CutFrame(rest)
			if err != nil {
				return 0, err
			}
			l.text = append(append(l.text, f.Value...), '\n')
			rest = tail
		}
		l.lines = l.text
	}
	n := copy(b, l.lines)
	l.lines = l.lines[n:]
	return n, nil
}
