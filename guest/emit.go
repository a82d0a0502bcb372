package guest

import (
	"math"
	"unsafe"
)

// blockSize is how much is emitted at once.
const blockSize = 64 << 10

// block gathers frames until it is full.
//
// Frames are written with plain loads and stores of 8 bytes, through unsafe pointers: for WebAssembly Go's compiler
// does not join the four stores of encoding/binary to one, and copy is a call into the host for each short key.
type block struct {
	bytes []byte // blockSize or more, and slack
	n     int    // of them are written
}

// slack is how far a frame may be written beyond its end.
const slack = 8

var out = block{bytes: make([]byte, blockSize+slack)}

// Emit emits a pair with a raw value. Key and value are copied.
func Emit(key, value []byte) {
	p := out.frame(0, len(key), len(value))
	putKey(p, key)
	copy(unsafe.Slice((*byte)(unsafe.Add(p, len(key))), len(value)), value)
}

// EmitInt emits a pair with an i64.
func EmitInt(key []byte, value int64) { out.number(flagInt, key, uint64(value)) }

// EmitFloat emits a pair with an f64.
func EmitFloat(key []byte, value float64) { out.number(flagFloat, key, math.Float64bits(value)) }

func (b *block) number(flag uint32, key []byte, bits uint64) {
	p := b.frame(flag, len(key), 8)
	putKey(p, key)
	store64(p, len(key), bits)
}

// frame makes room for a frame, writes its header and returns where its key goes.
func (b *block) frame(flags uint32, klen, vlen int) unsafe.Pointer {
	n := frameHeader + klen + vlen
	if b.n+n+slack > len(b.bytes) {
		b.room(n)
	}
	p := unsafe.Add(unsafe.Pointer(unsafe.SliceData(b.bytes)), b.n)
	b.n += n
	store64(p, 0, uint64(flags)|uint64(klen)<<32)
	store32(p, 8, uint32(vlen))
	return unsafe.Add(p, frameHeader)
}

func (b *block) room(n int) {
	b.flush()
	if n+slack > len(b.bytes) {
		b.bytes = make([]byte, n+slack)
	}
}

func (b *block) flush() {
	if b.n > 0 {
		hostEmit(unsafe.Pointer(unsafe.SliceData(b.bytes)), uint32(b.n))
		b.n = 0
	}
}

// putKey copies a key to p, and perhaps up to 8 bytes behind it.
func putKey(p unsafe.Pointer, key []byte) {
	n, k := len(key), unsafe.Pointer(unsafe.SliceData(key))
	switch {
	case n >= 8 && n <= 16:
		store64(p, 0, load64(k, 0))
		store64(p, n-8, load64(k, n-8))
	case n < 8 && padded(k):
		store64(p, 0, load64(k, 0))
	default:
		copy(unsafe.Slice((*byte)(p), n), key)
	}
}

func load32(p unsafe.Pointer, at int) uint32     { return *(*uint32)(unsafe.Add(p, at)) }
func load64(p unsafe.Pointer, at int) uint64     { return *(*uint64)(unsafe.Add(p, at)) }
func store32(p unsafe.Pointer, at int, v uint32) { *(*uint32)(unsafe.Add(p, at)) = v }
func store64(p unsafe.Pointer, at int, v uint64) { *(*uint64)(unsafe.Add(p, at)) = v }
