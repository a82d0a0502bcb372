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

// keys numbers the distinct keys of a table from 0 in order of appearance. It is a hash table of segments, each with
// open addressing and linear probing. A short key lies in its row as three words, so that it is hashed and compared
// without a loop or a call, and the collector has nothing to scan. Beside its key a row has one number for
// the column to use: a sum or a count then lies in the cache line that the comparison has just read.
//
// The hash has a random seed per table: keys are the users' data, and a hash that is known lets them choose
// keys that all collide. The seed decides only where in memory a key lies; nothing is ever emitted in
// that order.
type keys struct {
	seed     maphash.Seed
	salt     [3]uint64
	segments []*segment // a power of two
	shift    uint       // leaves the bits of a tag that choose the segment
	chunks   []*[chunkRows]keyRow
	count    int
	long     arena
	mem      *memory
}

// slot refers to a row. Both the probe's start and the quick comparison use the tag, so that growing needs
// no key to be hashed again.
type slot struct {
	tag  uint32
	next uint32 // row + 1; 0 is a free slot
}

// segment is a hash table by itself, which is probed from the place that the last bits of a tag name and around its
// end. When the table grows, each segment gives half of its keys to a new one: nothing is allocated twice, and both
// stay near the processor meanwhile.
type segment [segmentSlots]slot

// keyRow is a key of up to 22 bytes padded with zeros, or the place of a longer one in the arena and its
// hash; then its size. Last comes a number of the column's.
type keyRow struct {
	key [keyBytes]byte
	num int64
}

const (
	inlineKey    = 22
	keyBytes     = inlineKey + 2
	sizeShift    = 48 // of the size in the third word
	segmentSlots = 2048
	tagBits      = 32
	chunkRows    = 1024 // rows never move, so that growing does not copy them
	maxRows      = math.MaxUint32 - 1
	noPlace      = math.MaxUint64 // no place in an arena
)

func newKeys(m *memory) *keys {
	k := &keys{seed: maphash.MakeSeed(), mem: m, long: arena{mem: m}}
	for i := range k.salt {
		k.salt[i] = maphash.Bytes(k.seed, []byte{byte(i)})
	}
	k.segments, k.shift = []*segment{k.newSegment()}, tagBits
	return k
}

func (k *keys) newSegment() *segment {
	k.mem.used += int64(unsafe.Sizeof(segment{}))
	return new(segment)
}

func (k *keys) segment(tag uint32) *segment { return k.segments[uint64(tag)>>(k.shift&63)] }

func (k *keys) len() int { return k.count }

func (k *keys) row(i uint32) *keyRow { return &k.chunks[i/chunkRows][i%chunkRows] }

// num is the column's number of row i.
func (k *keys) num(i int) *int64 { return &k.row(uint32(i)).num }

// key returns the bytes of row i; they must not be changed.
func (k *keys) key(i uint32) []byte {
	r := k.row(i)
	n := int(binary.LittleEndian.Uint16(r.key[inlineKey:]))
	if n <= inlineKey {
		return r.key[:n:n]
	}
	return k.long.get(binary.LittleEndian.Uint64(r.key[:]), n)
}

// probe is what finding a key needs: the three words that its row has, and the tag. The first word of a long
// key is noPlace.
type probe struct {
	a, b, c uint64
	tag     uint32
}

// probe hashes a key of at most 65,535 bytes.
func (k *keys) probe(key []byte) probe {
	if len(key) > inlineKey {
		return k.longProbe(key)
	}
	a, b, c := words(key)
	return probe{a, b, c, k.hash(a, b, c)}
}

// wordProbe is probe of a short key without a branch: it begins a longer piece of bytes.
func (k *keys) wordProbe(piece *[keyBytes]byte, size uint64) probe {
	keep := &keptBytes[size%keyBytes]
	a := binary.LittleEndian.Uint64(piece[:]) & keep[0]
	b := binary.LittleEndian.Uint64(piece[8:]) & keep[1]
	c := binary.LittleEndian.Uint64(piece[16:])&keep[2] | size<<sizeShift
	return probe{a, b, c, k.hash(a, b, c)}
}

// keptBytes has the masks that keep the first n bytes of three words.
var keptBytes = func() (masks [keyBytes][3]uint64) {
	for n := range masks {
		for at := range n {
			masks[n][at/8] |= 0xff << (8 * (at % 8))
		}
	}
	return masks
}()

func (k *keys) longProbe(key []byte) probe {
	h := maphash.Bytes(k.seed, key)
	return probe{a: noPlace, b: h, c: uint64(len(key)) << sizeShift, tag: uint32(h)}
}

func (k *keys) hash(a, b, c uint64) uint32 {
	hi, lo := bits.Mul64(a^k.salt[0], b^k.salt[1])
	hi, lo = bits.Mul64(hi^lo^k.salt[2], c^k.salt[1])
	return uint32(hi ^ lo)
}

// number returns the number of a key of at most 65,535 bytes, a new one if it is not known.
func (k *keys) number(key []byte) uint32 {
	p := k.probe(key)
	return k.find(&p, key)
}

// find returns the number of a key, a new one if it is not known.
func (k *keys) find(p *probe, key []byte) uint32 {
	for {
		segment := k.segment(p.tag)
		for i := range uint32(segmentSlots) {
			s := &segment[(p.tag+i)%segmentSlots]
			if s.next == 0 {
				return k.insert(s, p, key)
			}
			if s.tag == p.tag && k.is(s.next-1, p, key) {
				return s.next - 1
			}
		}
		k.grow() // the segment is full, though the table is not
	}
}

// is reports whether row i has the key of p.
func (k *keys) is(i uint32, p *probe, key []byte) bool {
	r := k.row(i)
	if len(key) <= inlineKey {
		return r.differs(p) == 0
	}
	return binary.LittleEndian.Uint64(r.key[8:]) == p.b && bytes.Equal(k.key(i), key)
}

// differs is 0 if the row has the key of p. It never is for a long key: its words do not tell.
func (r *keyRow) differs(p *probe) uint64 {
	return (binary.LittleEndian.Uint64(r.key[:]) ^ p.a) | (binary.LittleEndian.Uint64(r.key[8:]) ^ p.b) |
		(binary.LittleEndian.Uint64(r.key[16:]) ^ p.c)
}

func (k *keys) insert(free *slot, p *probe, key []byte) uint32 {
	i := uint32(k.count)
	if k.count == len(k.chunks)*chunkRows {
		k.chunks = append(k.chunks, new([chunkRows]keyRow))
		k.mem.used += int64(unsafe.Sizeof([chunkRows]keyRow{}))
	}
	a := p.a
	if len(key) > inlineKey {
		a = k.long.put(key)
	}
	r := k.row(i)
	binary.LittleEndian.PutUint64(r.key[:], a)
	binary.LittleEndian.PutUint64(r.key[8:], p.b)
	binary.LittleEndian.PutUint64(r.key[16:], p.c)
	k.count++
	*free = slot{tag: p.tag, next: i + 1}
	if k.count > len(k.segments)*(segmentSlots/4*3) {
		k.grow()
	}
	return i
}

// grow makes two segments of each.
func (k *keys) grow() {
	segments := make([]*segment, 0, 2*len(k.segments))
	k.shift--
	for _, s := range k.segments {
		segments = append(segments, s, k.newSegment())
	}
	k.segments = segments
	var old segment
	for i := 0; i < len(segments); i += 2 {
		old = *segments[i]
		*segments[i] = segment{}
		for j := range old {
			if old[j].next != 0 {
				k.segment(old[j].tag).put(old[j])
			}
		}
	}
}

// put puts a slot into the first free place.
func (s *segment) put(it slot) {
	at := it.tag % segmentSlots
	for s[at].next != 0 {
		at = (at + 1) % segmentSlots
	}
	s[at] = it
}

// words is a short key as a row has it.
func words(key []byte) (a, b, c uint64) {
	n := len(key)
	c = uint64(n) << sizeShift
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

// all lists the rows in no useful order.
func (k *keys) all() []uint32 {
	rows := make([]uint32, k.count)
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
	entries := make([]entry, k.count)
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
