package wasmhost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"unicode/utf16"

	"github.com/tetratelabs/wazero"
	wazeroapi "github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/plugins/wasm"
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
	wasm.TickModule: {
		{wasm.TickName, nil, hostTick},
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
	builder := r.NewHostModuleBuilder(wasiModule)
	for _, f := range wasiFunctions {
		params, results := wasiTypes(f.name, f.params)
		builder.NewFunctionBuilder().WithGoModuleFunction(stopping(wasiImport(f.call)), params, results).Export(f.name)
	}
	if _, err := builder.Instantiate(ctx); err != nil {
		return fmt.Errorf("imports of WASI: %w", err)
	}
	return nil
}

// stopping makes an error of a host function end the guest's call.
func stopping(call hostFunc) wazeroapi.GoModuleFunc {
	return func(ctx context.Context, mod wazeroapi.Module, args []uint64) {
		in := instanceOf(ctx)
		if in.meter.left == nil {
			in.enterModule(mod) // the start function runs before instantiation returns
		}
		if err := call(in, args); err != nil {
			in.leaveGuest(err)
		}
	}
}

// leaveGuest ends the guest's call. wazero recovers the panic.
func (in *Instance) leaveGuest(err error) {
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		panic(exit)
	}
	in.stop = err
	panic(errStopped)
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
	for at := 0; ; {
		// A block may be as large as the memory: the clock is looked at in between.
		part := block[at:]
		part = part[:wholeFrames(part, pieceBytes)]
		pairs := in.pairs()
		if err := in.emitBlock(part, at); err != nil {
			return err
		}
		if err := in.work(int(in.pairs()-pairs), len(part)); err != nil {
			return err
		}
		if at += len(part); at == len(block) {
			return nil
		}
	}
}

// pairs is the number of pairs that the Map or Group under way has emitted.
func (in *Instance) pairs() uint64 {
	if in.run == nil {
		return 0
	}
	return in.run.figures.Pairs
}

// wholeFrames is the length of the first frames of a block, about limit bytes. If no frame begins there it is
// the whole block.
func wholeFrames(block []byte, limit int) int {
	if len(block) <= limit {
		return len(block)
	}
	at := 0
	for at < limit && len(block)-at >= buckets.FrameHeader {
		head := block[at:]
		size := buckets.FrameHeader + uint64(binary.LittleEndian.Uint32(head[4:])) + uint64(binary.LittleEndian.Uint32(head[8:]))
		if size > uint64(len(head)) {
			break
		}
		at += int(size)
	}
	if at == 0 {
		return len(block)
	}
	return at
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
	if err := in.work(1, len(key)+len(value)); err != nil {
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
		if err := in.work(1, len(key)); err != nil {
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
	levels := [...]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	return in.log(levels[min(uint32(args[0]), uint32(len(levels)-1))], text)
}

func hostCount(in *Instance, args []uint64) error {
	name, err := in.bytes("the name of a counter", args[0], args[1])
	if err != nil {
		return err
	}
	if err := in.work(1, len(name)); err != nil {
		return err
	}
	return in.count(name, int64(args[2]))
}

// count adds to a counter of the job.
func (in *Instance) count(name []byte, delta int64) error {
	if in.run == nil {
		return in.fault(in.place.function, "counted outside of a bucket")
	}
	n := in.run.counters[string(name)]
	if n == nil {
		if err := in.job.Quota.counter(string(name)); err != nil {
			return in.placed(err)
		}
		n = new(int64)
		if in.run.counters == nil {
			in.run.counters = map[string]*int64{}
		}
		in.run.counters[string(name)] = n
	}
	if sum := *n + delta; (sum > *n) != (delta > 0) && delta != 0 {
		return in.placed(api.Errorf(api.CodeOverflow, "counter %q left the range of an i64: %d + %d", name, *n, delta).
			WithHint("count smaller numbers"))
	}
	*n += delta
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
