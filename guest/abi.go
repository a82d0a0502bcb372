//go:build wasip1

package guest

import (
	"encoding/binary"
	"math"
	"unsafe"
)

//go:wasmimport pmr1 emit
func hostEmit(ptr unsafe.Pointer, size uint32)

//go:wasmimport pmr1 log
func hostLog(level uint32, ptr unsafe.Pointer, size uint32)

//go:wasmimport pmr1 count
func hostCount(ptr unsafe.Pointer, size uint32, delta int64)

//go:wasmimport pmr1 fail
func hostFail(ptr unsafe.Pointer, size uint32)

// The guest runs on one thread, so this needs no lock.
var (
	input  []byte // where the host writes batches
	output = make([]byte, 0, blockSize)
	params map[string]string
)

// blockSize is how much is emitted at once.
const blockSize = 64 << 10

//go:wasmexport pmr_alloc
func alloc(size uint32) unsafe.Pointer {
	if uint64(size) > uint64(len(input)) {
		input = make([]byte, size)
	}
	return unsafe.Pointer(unsafe.SliceData(input))
}

//go:wasmexport pmr_init
func begin(_, size uint32) uint32 {
	output = output[:0]
	p, err := readParams(input[:size])
	if err != nil {
		Fail(err.Error())
	}
	params = p
	return 0
}

// Param is a parameter of the job; empty if it was not given.
func Param(name string) string { return params[name] }

// Batch calls f for each record of the batch that an exported function was given, emits what is left, and
// returns what that function must return. An error of f fails the job with its message.
func Batch(_, size uint32, f func(Record) error) uint32 {
	batch := input[:size]
	for len(batch) > 0 {
		r, rest, err := cutRecord(batch)
		if err == nil {
			err = f(r)
		}
		if err != nil {
			Fail(err.Error())
		}
		batch = rest
	}
	return Flush()
}

// Emit emits a pair with a raw value. Key and value are copied.
func Emit(key, value []byte) {
	room(len(key) + len(value))
	output = append(appendFrame(output, 0, key, len(value)), value...)
}

// EmitInt emits a pair with an i64.
func EmitInt(key []byte, value int64) { emitNumber(flagInt, key, uint64(value)) }

// EmitFloat emits a pair with an f64.
func EmitFloat(key []byte, value float64) { emitNumber(flagFloat, key, math.Float64bits(value)) }

func emitNumber(flag uint32, key []byte, bits uint64) {
	room(len(key) + 8)
	output = binary.LittleEndian.AppendUint64(appendFrame(output, flag, key, 8), bits)
}

// room flushes if a frame would make the block larger than blockSize.
func room(n int) {
	if len(output)+frameHeader+n > blockSize {
		Flush()
	}
}

// Flush hands what was emitted to the host and returns 0. Batch does it at the end of each batch.
func Flush() uint32 {
	if len(output) > 0 {
		hostEmit(unsafe.Pointer(unsafe.SliceData(output)), uint32(len(output)))
		output = output[:0]
	}
	return 0
}

// Log writes a line to the job's log.
func Log(message string) {
	const info = 1
	hostLog(info, unsafe.Pointer(unsafe.StringData(message)), uint32(len(message)))
}

// Count adds to a counter of the job.
func Count(name string, delta int64) {
	hostCount(unsafe.Pointer(unsafe.StringData(name)), uint32(len(name)), delta)
}

// Fail ends the job with a message. It does not return.
func Fail(message string) {
	hostFail(unsafe.Pointer(unsafe.StringData(message)), uint32(len(message)))
	panic(message) // not reached: the host has ended the call
}
