package reduce

import "unsafe"

// memory counts the bytes that a table's parts have allocated.
type memory struct{ used int64 }

// push appends to a slice and counts its growth.
func push[T any](m *memory, s []T, v T) []T {
	if len(s) < cap(s) {
		return append(s, v)
	}
	before := cap(s)
	s = append(s, v)
	m.used += int64(cap(s)-before) * int64(unsafe.Sizeof(v))
	return s
}

// arena keeps byte strings in chunks that never move. It holds no pointer per string.
type arena struct {
	chunks [][]byte
	mem    *memory
}

const (
	firstChunk = 4 << 10
	lastChunk  = 1 << 20 // chunks double up to here; a longer string gets a chunk of its own
)

// put copies b and returns where it is: chunk number and offset.
func (a *arena) put(b []byte) uint64 {
	n := len(a.chunks)
	if n == 0 || cap(a.chunks[n-1])-len(a.chunks[n-1]) < len(b) {
		size := max(min(firstChunk<<min(n, 8), lastChunk), len(b))
		a.chunks = append(a.chunks, make([]byte, 0, size))
		a.mem.used += int64(size)
		n++
	}
	chunk := &a.chunks[n-1]
	ref := uint64(n-1)<<32 | uint64(len(*chunk))
	*chunk = append(*chunk, b...)
	return ref
}

// get returns size bytes at ref.
func (a *arena) get(ref uint64, size int) []byte {
	off := int(uint32(ref))
	return a.chunks[ref>>32][off : off+size : off+size]
}
