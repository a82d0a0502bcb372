package reduce

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"unsafe"
)

// keys numbers the distinct keys of a table from 0 in order of appearance. It is an open-addressing hash
// table with linear probing. A short key lies in its row as three words, so that it is hashed and compared
// without a loop or a call, and the collector has nothing to scan.
//
// The hash has a random seed per table: keys are the users' data, and a hash that is known lets them choose
// keys that all collide. The seed decides only where in memory a key lies; nothing is ever emitted in
// that order.
type keys struct {
	seed  maphash.Seed
	salt  [3]uint64
	slots []slot // a power of two
	rows  []keyRow
	long  arena
	mem   *memory
}

// slot refers to a row. Both the probe's start and the quick comparison use the tag, so that growing needs
// no key to be hashed again.
type slot struct {
	tag  uint32
	next uint32 // row + 1; 0 is a free slot
}

// keyRow is a key: up to 22 bytes padded with zeros, or the place of a longer one in the arena; then its
// size.
type keyRow [inlineKey + 2]byte

const (
	inlineKey  = 22
	firstSlots = 64
	maxRows    = math.MaxUint32 - 1
)

func newKeys(m *memory) keys {
	k := keys{seed: maphash.MakeSeed(), mem: m, long: arena{mem: m}}
	for i := range k.salt {
		k.salt[i] = maphash.Bytes(k.seed, []byte{byte(i)})
	}
	k.setSlots(firstSlots)
	return k
}

func (k *keys) setSlots(n int) {
	k.mem.used += int64(n-len(k.slots)) * int64(unsafe.Sizeof(slot{}))
	k.slots = make([]slot, n)
}

func (k *keys) len() int { return len(k.rows) }

func (r *keyRow) size() int { return int(binary.LittleEndian.Uint16(r[inlineKey:])) }

// key returns the bytes of row i; they must not be changed.
func (k *keys) key(i uint32) []byte {
	r := &k.rows[i]
	n := r.size()
	if n <= inlineKey {
		return r[:n:n]
	}
	return k.long.get(binary.LittleEndian.Uint64(r[:]), n)
}

// row returns the number of a key of at most 65,535 bytes, a new one if it is not known.
func (k *keys) row(key []byte) int {
	if len(key) > inlineKey {
		return k.longRow(key)
	}
	a, b, c := words(key)
	hi, lo := bits.Mul64(a^k.salt[0], b^k.salt[1])
	hi, lo = bits.Mul64(hi^lo^k.salt[2], c^k.salt[1])
	tag := uint32(hi ^ lo)
	mask := uint32(len(k.slots) - 1)
	for at := tag & mask; ; at = (at + 1) & mask {
		s := k.slots[at]
		if s.next == 0 {
			var r keyRow
			r.set(a, b, c)
			return k.insert(at, tag, r)
		}
		if s.tag == tag && k.rows[s.next-1].is(a, b, c) {
			return int(s.next - 1)
		}
	}
}

func (k *keys) longRow(key []byte) int {
	tag := uint32(maphash.Bytes(k.seed, key))
	mask := uint32(len(k.slots) - 1)
	for at := tag & mask; ; at = (at + 1) & mask {
		s := k.slots[at]
		if s.next == 0 {
			var r keyRow
			r.set(k.long.put(key), 0, uint64(len(key))<<48)
			return k.insert(at, tag, r)
		}
		if s.tag == tag && bytes.Equal(k.key(s.next-1), key) {
			return int(s.next - 1)
		}
	}
}

// words is a short key as a row has it.
func words(key []byte) (a, b, c uint64) {
	n := len(key)
	c = uint64(n) << 48
	switch {
	case n > 16:
		a, b = binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:])
		c |= binary.LittleEndian.Uint64(key[n-8:]) >> (8 * uint(24-n))
	case n >= 8:
		a = binary.LittleEndian.Uint64(key)
		b = binary.LittleEndian.Uint64(key[n-8:]) >> (8 * uint(16-n))
	case n >= 4:
		a = uint64(binary.LittleEndian.Uint32(key))
		a |= uint64(binary.LittleEndian.Uint32(key[n-4:])>>(8*uint(8-n))) << 32
	case n > 0:
		a = uint64(key[0]) | uint64(key[n/2])<<(8*uint(n/2)) | uint64(key[n-1])<<(8*uint(n-1))
	}
	return a, b, c
}

func (r *keyRow) set(a, b, c uint64) {
	binary.LittleEndian.PutUint64(r[:], a)
	binary.LittleEndian.PutUint64(r[8:], b)
	binary.LittleEndian.PutUint64(r[16:], c)
}

func (r *keyRow) is(a, b, c uint64) bool {
	return binary.LittleEndian.Uint64(r[:]) == a && binary.LittleEndian.Uint64(r[8:]) == b &&
		binary.LittleEndian.Uint64(r[16:]) == c
}

func (k *keys) insert(at, tag uint32, r keyRow) int {
	k.rows = push(k.mem, k.rows, r)
	k.slots[at] = slot{tag: tag, next: uint32(len(k.rows))}
	if len(k.rows) > len(k.slots)/4*3 {
		k.grow()
	}
	return len(k.rows) - 1
}

func (k *keys) grow() {
	old := k.slots
	k.setSlots(2 * len(old))
	mask := uint32(len(k.slots) - 1)
	for _, s := range old {
		if s.next == 0 {
			continue
		}
		at := s.tag & mask
		for k.slots[at].next != 0 {
			at = (at + 1) & mask
		}
		k.slots[at] = s
	}
}

// all lists the rows in no useful order.
func (k *keys) all() []uint32 {
	rows := make([]uint32, len(k.rows))
	for i := range rows {
		rows[i] = uint32(i)
	}
	return rows
}

func (k *keys) compare(a, b uint32) int {
	if a == b {
		return 0
	}
	return bytes.Compare(k.key(a), k.key(b))
}

// sorted lists the rows by key, the first limit of them if limit is not 0; descending if asked.
func (k *keys) sorted(descending bool, limit int) []uint32 {
	// The first eight bytes decide most comparisons without a look at the key.
	type entry struct {
		prefix uint64
		row    uint32
	}
	entries := make([]entry, len(k.rows))
	for i := range entries {
		var p [8]byte
		copy(p[:], k.key(uint32(i)))
		entries[i] = entry{binary.BigEndian.Uint64(p[:]), uint32(i)}
	}
	order := func(a, b entry) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		return k.compare(a.row, b.row)
	}
	ascending := order
	if descending {
		order = func(a, b entry) int { return ascending(b, a) }
	}
	entries = smallest(entries, limit, order)
	rows := make([]uint32, len(entries))
	for i, e := range entries {
		rows[i] = e.row
	}
	return rows
}

// smallest returns the first limit elements of xs in order; all of them if limit is 0. It reorders xs.
// The bounded case keeps a heap of the best so far with the worst of them on top.
func smallest[T any](xs []T, limit int, order func(a, b T) int) []T {
	if limit <= 0 || limit >= len(xs) {
		slices.SortFunc(xs, order)
		return xs
	}
	heap := xs[:limit]
	for i := limit/2 - 1; i >= 0; i-- {
		sink(heap, i, order)
	}
	for _, x := range xs[limit:] {
		if order(x, heap[0]) < 0 {
			heap[0] = x
			sink(heap, 0, order)
		}
	}
	slices.SortFunc(heap, order)
	return heap
}

func sink[T any](heap []T, i int, order func(a, b T) int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && order(heap[child], heap[child+1]) < 0 {
			child++
		}
		if order(heap[i], heap[child]) >= 0 {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}
