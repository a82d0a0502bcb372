package guest

import (
	"errors"
	"math"
	"unsafe"
)

// Record is one record of a bucket, or, in combine and reduce, one pair of a group. Its bytes are valid
// until the function that got it returns; do not change them.
type Record struct {
	frame unsafe.Pointer // a whole one; a pointer, since Go copies larger structs by slow calls in WebAssembly
}

// Flags of frames, as in the guest ABI.
const (
	flagFirst = 1
	flagLast  = 2
	flagInt   = 4
	flagFloat = 8
)

// Key is the record's key.
func (r Record) Key() []byte { return sliceAt(r.frame, frameHeader, int(load32(r.frame, 4))) }

// Value is the record's value.
func (r Record) Value() []byte { return sliceAt(r.value(), 0, int(load32(r.frame, 8))) }

// sliceAt is the n bytes that lie at bytes behind p. It says nothing of n twice, so that the compiler has
// nothing to check: each check is a jump, and is metered.
func sliceAt(p unsafe.Pointer, at, n int) []byte {
	const most = 1 << 30 // more than a guest's memory
	return (*[most]byte)(unsafe.Add(p, at))[: n&(most-1) : n&(most-1)]
}

func (r Record) value() unsafe.Pointer {
	return unsafe.Add(r.frame, frameHeader+int(load32(r.frame, 4)))
}

// First reports whether r is the first pair of its key (combine, reduce).
func (r Record) First() bool { return load32(r.frame, 0)&flagFirst != 0 }

// Last reports whether r is the last pair of its key (combine, reduce). What is emitted for a key must be
// emitted by then.
func (r Record) Last() bool { return load32(r.frame, 0)&flagLast != 0 }

// Int is the value if it is an i64.
func (r Record) Int() (v int64, ok bool) {
	bits, ok := r.number(flagInt)
	return int64(bits), ok
}

// Float is the value if it is an f64.
func (r Record) Float() (v float64, ok bool) {
	bits, ok := r.number(flagFloat)
	return math.Float64frombits(bits), ok
}

func (r Record) number(flag uint32) (bits uint64, ok bool) {
	if load32(r.frame, 0)&flag == 0 || load32(r.frame, 8) != 8 {
		return 0, false
	}
	return load64(r.value(), 0), true
}

const frameHeader = 12

var errFrame = errors.New("guest: the batch ends within a frame")

// firstFrame is the size of the first frame of a batch, or 0 if there is no whole one.
func firstFrame(b []byte) int {
	if len(b) < frameHeader {
		return 0
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	n := frameHeader + uint64(load32(p, 4)) + uint64(load32(p, 8))
	if n > uint64(len(b)) {
		return 0
	}
	return int(n)
}

func recordAt(b []byte) Record { return Record{unsafe.Pointer(unsafe.SliceData(b))} }

// readParams takes the frames of pmr_init: name and value.
func readParams(b []byte) (map[string]string, error) {
	params := map[string]string{}
	for len(b) > 0 {
		n := firstFrame(b)
		if n == 0 {
			return nil, errFrame
		}
		params[string(recordAt(b).Key())] = string(recordAt(b).Value())
		b = b[n:]
	}
	return params, nil
}
