package guest

import (
	"iter"
	"unsafe"
)

// The guest runs on one thread, so this needs no lock.
var (
	input    []byte // where the host writes batches, with padding bytes more than its length
	params   map[string]string
	onBegin  []func() error
	onEnd    []func() error
	counters []*Counter // that hold sums
)

// padding is how far beyond the end of the input may be read.
const padding = 64

func alloc(size uint32) []byte {
	if uint64(size) > uint64(len(input)) {
		input = make([]byte, int(size)+padding)[:size]
	}
	return input
}

// padded reports whether padding bytes from p on can be read, because p is in the input.
func padded(p unsafe.Pointer) bool { return foreign(p) == 0 }

// foreign is 0 if p is in the input, and 1 if it is not.
func foreign(p unsafe.Pointer) uint64 {
	at := uintptr(p) - uintptr(unsafe.Pointer(unsafe.SliceData(input)))
	return uint64(at|(uintptr(len(input))-1-at)) >> 63 // one of them is negative
}

// OnBegin has f called before the first record of each bucket, with the job's parameters known: to read
// them, and to reset what the guest keeps. An error fails the job. Call it from an init function.
func OnBegin(f func() error) { onBegin = append(onBegin, f) }

// OnEnd has f called after the last record of each bucket. It may emit what a map has gathered; for a
// combine or reduce it may not. An error fails the job. Call it from an init function.
func OnEnd(f func() error) { onEnd = append(onEnd, f) }

// begin starts a bucket.
func begin(frames []byte) {
	out.n = 0
	for _, c := range counters {
		c.forget()
	}
	counters = counters[:0]
	p, err := readParams(frames)
	if err != nil {
		Fail(err.Error())
	}
	params = p
	call(onBegin)
}

// end ends a bucket.
func end() {
	call(onEnd)
	for _, c := range counters {
		c.flush()
	}
	counters = counters[:0]
	out.flush()
}

func call(hooks []func() error) {
	for _, f := range hooks {
		if err := f(); err != nil {
			Fail(err.Error())
		}
	}
}

// Param is a parameter of the job; empty if it was not given.
func Param(name string) string { return params[name] }

// LookupParam is a parameter of the job, and whether it was given.
func LookupParam(name string) (value string, ok bool) {
	value, ok = params[name]
	return value, ok
}

// Records yields the records of the batch that an exported function was given:
//
//	//go:wasmexport map
//	func lines(ptr, size uint32) uint32 {
//		for r := range guest.Records(ptr, size) {
//			guest.EmitInt(r.Value(), 1)
//		}
//		return guest.Flush()
//	}
//
// A record is valid until the function returns.
func Records(_, size uint32) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for b := input[:size]; len(b) > 0; {
			n := firstFrame(b)
			if n == 0 {
				Fail(errFrame.Error())
			}
			if !yield(recordAt(b)) {
				return
			}
			b = b[n:]
		}
	}
}

// Batch calls f for each record of the batch that an exported function was given, and returns what that
// function must return. An error of f fails the job with its message.
func Batch(ptr, size uint32, f func(Record) error) uint32 {
	for r := range Records(ptr, size) {
		if err := f(r); err != nil {
			Fail(err.Error())
		}
	}
	return Flush()
}

// Flush hands what was emitted so far to the host and returns 0, the result of a function that did its work.
// [Batch] does it by itself. A [Counter] keeps its sums.
func Flush() uint32 {
	out.flush()
	return 0
}

// Log writes a line to the job's log.
func Log(message string) {
	const info = 1
	hostLog(info, unsafe.Pointer(unsafe.StringData(message)), uint32(len(message)))
}

// Count adds to a counter of the job, which is shown beside its result. For counts by key there are
// [EmitInt] and [Counter].
func Count(name string, delta int64) {
	hostCount(unsafe.Pointer(unsafe.StringData(name)), uint32(len(name)), delta)
}

// Fail ends the job with a message. It does not return.
func Fail(message string) {
	hostFail(unsafe.Pointer(unsafe.StringData(message)), uint32(len(message)))
	panic(message) // not reached: the host has ended the call
}
