package wasmhost

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"unicode/utf16"

	"github.com/tetratelabs/wazero"
	wazeroapi "github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// hostFunc is a function that guests import. An error ends the guest's call.
type hostFunc func(in *Instance, args []uint64) error

const (
	i32 = wazeroapi.ValueTypeI32
	i64 = wazeroapi.ValueTypeI64
	f64 = wazeroapi.ValueTypeF64
)

// imports are the functions of the ABI; none has a result. Package plugins lists the same for the catalogue.
var imports = map[string][]struct {
	name   string
	params []wazeroapi.ValueType
	call   hostFunc
}{
	"pmr1": {
		{"emit", []wazeroapi.ValueType{i32, i32}, hostEmit},
		{"emit_kv", []wazeroapi.ValueType{i32, i32, i32, i32}, hostEmitPair},
		{"emit_i64", []wazeroapi.ValueType{i32, i32, i64}, hostEmitNumber(buckets.FlagInt)},
		{"emit_f64", []wazeroapi.ValueType{i32, i32, f64}, hostEmitNumber(buckets.FlagFloat)},
		{"log", []wazeroapi.ValueType{i32, i32, i32}, hostLog},
		{"count", []wazeroapi.ValueType{i32, i32, i64}, hostCount},
		{"fail", []wazeroapi.ValueType{i32, i32}, hostFail},
	},
	"env": {
		{"abort", []wazeroapi.ValueType{i32, i32, i32, i32}, hostAbort},
	},
}

// installImports gives a runtime the modules that guests import from.
func installImports(ctx context.Context, r wazero.Runtime) error {
	for module, functions := range imports {
		builder := r.NewHostModuleBuilder(module)
		for _, f := range functions {
			builder.NewFunctionBuilder().WithGoModuleFunction(stopping(f.call), f.params, nil).Export(f.name)
		}
		if _, err := builder.Instantiate(ctx); err != nil {
			return fmt.Errorf("imports of %s: %w", module, err)
		}
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r); err != nil {
		return fmt.Errorf("imports of WASI: %w", err)
	}
	return nil
}

// stopping makes an error of a host function end the guest's call.
func stopping(call hostFunc) wazeroapi.GoModuleFunc {
	return func(ctx context.Context, mod wazeroapi.Module, args []uint64) {
		in := instanceOf(ctx)
		if in.memory == nil {
			in.memory = mod.ExportedMemory("memory") // the start function runs before instantiation returns
		}
		if err := call(in, args); err != nil {
			in.stop = err
			panic(errStopped)
		}
	}
}

// bytes is a view of the guest's memory, valid until the guest runs again. Read compares the range with the
// memory as it is now, in 64 bits. The pointer of an empty range is
// not looked at: languages put anything there.
func (in *Instance) bytes(what string, ptr, n uint64) ([]byte, error) {
	ptr, n = ptr&math.MaxUint32, n&math.MaxUint32
	if n == 0 {
		return nil, nil
	}
	if in.memory == nil {
		return nil, in.fault(in.place.function, "it has no memory")
	}
	b, ok := in.memory.Read(uint32(ptr), uint32(n))
	if !ok {
		return nil, in.outside(what, ptr, n)
	}
	return b, nil
}

func hostEmit(in *Instance, args []uint64) error {
	block, err := in.bytes("the emitted block", args[0], args[1])
	if err != nil {
		return err
	}
	return in.emitBlock(block)
}

func hostEmitPair(in *Instance, args []uint64) error {
	key, err := in.bytes("the emitted key", args[0], args[1])
	if err != nil {
		return err
	}
	value, err := in.bytes("the emitted value", args[2], args[3])
	if err != nil {
		return err
	}
	return in.emitPair(0, key, value)
}

func hostEmitNumber(flag uint32) hostFunc {
	return func(in *Instance, args []uint64) error {
		key, err := in.bytes("the emitted key", args[0], args[1])
		if err != nil {
			return err
		}
		return in.emitNumber(flag, key, args[2])
	}
}

func hostLog(in *Instance, args []uint64) error {
	text, err := in.bytes("the log message", args[1], args[2])
	if err != nil {
		return err
	}
	levels := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	level := slog.LevelError
	if i := uint32(args[0]); int(i) < len(levels) {
		level = levels[i]
	}
	in.log(level, oneLine(string(text[:min(len(text), maxLogLine)]), maxLogLine))
	return nil
}

func hostCount(in *Instance, args []uint64) error {
	name, err := in.bytes("the name of a counter", args[0], args[1])
	if err != nil {
		return err
	}
	if in.run == nil {
		return in.fault(in.place.function, "counted outside of a bucket")
	}
	counters, delta := in.run.figures.Counters, int64(args[2])
	n, known := counters[string(name)]
	if !known {
		if err := in.job.Quota.counter(string(name)); err != nil {
			return in.placed(err)
		}
	}
	if sum := n + delta; (sum > n) != (delta > 0) && delta != 0 {
		return in.placed(api.Errorf(api.CodeOverflow, "counter %q left the range of an i64: %d + %d", name, n, delta))
	}
	if counters == nil {
		counters = map[string]int64{}
		in.run.figures.Counters = counters
	}
	counters[string(name)] = n + delta
	return nil
}

func hostFail(in *Instance, args []uint64) error {
	text, err := in.bytes("the message of fail", args[0], args[1])
	if err != nil {
		return err
	}
	message := oneLine(string(text[:min(len(text), 4*maxMessage)]), maxMessage)
	if message == "" {
		message = "it failed without a message"
	}
	return in.fault(in.place.function, message)
}

// hostAbort is how AssemblyScript ends: message and file are its strings, UTF-16 with the number of bytes
// in the four bytes before.
func hostAbort(in *Instance, args []uint64) error {
	message, file := in.utf16(args[0]), in.utf16(args[1])
	if message == "" {
		message = "no message"
	}
	place := ""
	if file != "" || uint32(args[2]) != 0 {
		place = fmt.Sprintf(" at %s:%d:%d", file, uint32(args[2]), uint32(args[3]))
	}
	return in.fault(in.place.function, oneLine(fmt.Sprintf("abort: %s%s", message, place), maxMessage))
}

// utf16 reads a string of AssemblyScript; what cannot be read is empty, since this only explains a failure.
func (in *Instance) utf16(ptr uint64) string {
	ptr &= math.MaxUint32
	if ptr < 4 || in.memory == nil {
		return ""
	}
	size, ok := in.memory.ReadUint32Le(uint32(ptr) - 4)
	if !ok {
		return ""
	}
	b, ok := in.memory.Read(uint32(ptr), min(size, 4*maxMessage)&^1)
	if !ok {
		return ""
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = uint16(b[2*i]) | uint16(b[2*i+1])<<8
	}
	return string(utf16.Decode(units))
}
