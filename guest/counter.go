package guest

import (
	"math/bits"
	"unsafe"
)

// Counter adds up integers by key inside the guest and emits the sums: fewer pairs for a job whose reducer
// is sum. It holds a fixed number of keys; one that needs the place of another has that one emitted. What is
// left is emitted at the end of the bucket.
//
//	var counts guest.Counter
//	...
//	counts.Add(word, 1)
//
// Its zero value is ready to use. Use it in maps only: a combine or reduce must emit a key's sum while it
// has the key.
type Counter struct {
	slots  [slotCount]slot // one for each hash
	filled [slotCount / 64]uint64
}

// slotCount times the size of a slot, 400 KB, is about what a core's cache holds.
const (
	slotBits  = 13
	slotCount = 1 << slotBits
	maxKey    = 32 // of a key in a slot
)

// slot holds a sum and its key of up to maxKey bytes: the first 8 bytes, the last 8, the second 8, and those
// before the last 8, as far as the key reaches. They may overlap. A key of less than 8 has zeros behind it.
//
// Its fields are not a struct of their own, since Go copies larger structs by slow calls in WebAssembly.
type slot struct {
	size                        uint64 // of the key and 1; 0 if the slot is free
	first, last, second, before uint64
	sum                         int64
}

// Add adds n to the sum of a key.
//
// Conditions are joined by bits rather than by ||, since each jump costs, and is metered.
func (c *Counter) Add(key []byte, n int64) {
	size, p := uint64(len(key)), unsafe.Pointer(unsafe.SliceData(key))
	if (size-1)>>3|foreign(p) != 0 { // not 1 to 8 bytes of the input
		c.addAny(p, int(size), n)
		return
	}
	first := load64(p, 0) & (^uint64(0) >> ((64 - 8*size) & 63))
	h := hash(size, first, 0, 0, 0)
	s := &c.slots[h]
	sum := s.sum + n
	overflow := uint64((sum^s.sum)&(sum^n)) >> 63
	if (s.size^(size+1))|(s.first^first)|overflow != 0 {
		c.replace(h, size, first, 0, 0, 0, n)
		return
	}
	s.sum = sum
}

// addAny is Add for any key, also one that is no part of the input.
func (c *Counter) addAny(p unsafe.Pointer, size int, n int64) {
	var first, last, second, before uint64
	switch {
	case size > maxKey:
		EmitInt(sliceAt(p, 0, size), n)
		return
	case size > 16:
		first, last, second, before = load64(p, 0), load64(p, size-8), load64(p, 8), load64(p, size-16)
	case size > 8:
		first, last = load64(p, 0), load64(p, size-8)
	case size == 8:
		first = load64(p, 0)
	default:
		first = short(p, size)
	}
	h := hash(uint64(size), first, last, second, before)
	s := &c.slots[h]
	if s.size == uint64(size)+1 && s.first == first && s.last == last && s.second == second && s.before == before {
		if sum := s.sum + n; (sum^s.sum)&(sum^n) >= 0 {
			s.sum = sum
			return
		}
	}
	c.replace(h, uint64(size), first, last, second, before, n)
}

func hash(size, first, last, second, before uint64) uint64 {
	const a, b, d = 0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9
	h := (first^bits.RotateLeft64(last, 32))*a ^ (second^bits.RotateLeft64(before, 32)^size)*b
	return (h ^ h>>29) * d >> (64 - slotBits)
}

// short is a key of less than 8 bytes as a number.
func short(p unsafe.Pointer, size int) uint64 {
	var w uint64
	for i := range size {
		w |= uint64(*(*byte)(unsafe.Add(p, i))) << (i * 8)
	}
	return w
}

// replace emits what is in a slot, if it is in use, and puts a key into it.
func (c *Counter) replace(at, size, first, last, second, before uint64, n int64) {
	s := &c.slots[at&(slotCount-1)]
	if s.size > 0 {
		s.emit()
	} else {
		if c.filled == [len(c.filled)]uint64{} {
			counters = append(counters, c)
		}
		c.filled[at/64] |= 1 << (at & 63)
	}
	s.size, s.first, s.last, s.second, s.before, s.sum = size+1, first, last, second, before, n
}

func (s *slot) emit() {
	size := int(s.size - 1)
	p := out.frame(flagInt, size, 8)
	store64(p, 0, s.first)
	if size > 16 {
		store64(p, 8, s.second)
		store64(p, size-16, s.before)
	}
	if size > 8 {
		store64(p, size-8, s.last)
	}
	store64(p, size, uint64(s.sum))
}

// flush emits all sums and forgets them.
func (c *Counter) flush() {
	for i, set := range c.filled {
		for ; set != 0; set &= set - 1 {
			s := &c.slots[i*64+bits.TrailingZeros64(set)]
			s.emit()
			s.size = 0
		}
	}
	c.filled = [len(c.filled)]uint64{}
}

// forget is flush without emitting.
func (c *Counter) forget() {
	clear(c.slots[:])
	c.filled = [len(c.filled)]uint64{}
}
