package reduce

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// listColumn keeps every pair: what none and the module's reduce need. Pairs lie in order of arrival and
// are brought into order when they are read.
type listColumn struct {
	pairs []listed
	raw   arena
	mem   *memory
}

// listed is a pair of a row, 32 bytes.
type listed struct {
	seq    uint64
	num    uint64 // bits of a number, or the place of the bytes in the arena
	row    uint32
	size   uint32 // of the bytes
	bucket buckets.ID
	kind   api.Kind
}

func newListColumn(k *keys) column { return &listColumn{raw: arena{mem: k.mem}, mem: k.mem} }

func (c *listColumn) add(row int, p *pair) error {
	l := listed{seq: p.seq, num: p.num, row: uint32(row), bucket: p.bucket, kind: p.kind}
	if p.kind == api.KindBytes {
		if len(p.raw) > math.MaxInt32 {
			return api.Errorf(api.CodeRecordTooBig, "the value has %d bytes, the limit is %d", len(p.raw), math.MaxInt32)
		}
		l.size, l.num = uint32(len(p.raw)), c.raw.put(p.raw)
	}
	c.pairs = push(c.mem, c.pairs, l)
	return nil
}

func (c *listColumn) bytes(l *listed) []byte {
	if l.kind != api.KindBytes {
		return nil
	}
	return c.raw.get(l.num, int(l.size))
}

func (c *listColumn) merge(from column, rows []uint32) (int, error) {
	other := from.(*listColumn)
	var p pair
	for i := range other.pairs {
		l := &other.pairs[i]
		p = pair{kind: l.kind, bucket: l.bucket, seq: l.seq, num: l.num, raw: other.bytes(l)}
		if err := c.add(int(rows[l.row]), &p); err != nil {
			return int(rows[l.row]), err
		}
	}
	return 0, nil
}

func (c *listColumn) check(int) error { return nil }

// expand distributes the pairs to their rows by counting, then orders each row's; those of one worker are
// in order already.
func (c *listColumn) expand(rows []uint32) []item {
	ends := make([]uint32, c.rowCount()) // first the number of pairs of a row
	for i := range c.pairs {
		ends[c.pairs[i].row]++
	}
	total := uint32(0)
	wanted := make([]bool, len(ends))
	for _, row := range rows { // then where its pairs begin, and in the end where they end
		n := ends[row]
		ends[row], wanted[row] = total, true
		total += n
	}
	items := make([]item, total)
	for i := range c.pairs {
		if row := c.pairs[i].row; wanted[row] {
			items[ends[row]] = item{row: row, nth: uint32(i)}
			ends[row]++
		}
	}
	begin := uint32(0)
	for _, row := range rows {
		if group := items[begin:ends[row]]; !slices.IsSortedFunc(group, c.compare) {
			slices.SortFunc(group, c.compare)
		}
		begin = ends[row]
	}
	return items
}

func (c *listColumn) rowCount() int {
	n := 0
	for i := range c.pairs {
		n = max(n, int(c.pairs[i].row)+1)
	}
	return n
}

// compare orders by bucket and emission. Only pairs that a combine function made can be equal in both;
// their values decide.
func (c *listColumn) compare(a, b item) int {
	x, y := &c.pairs[a.nth], &c.pairs[b.nth]
	if d := cmp.Or(cmp.Compare(x.bucket, y.bucket), cmp.Compare(x.seq, y.seq)); d != 0 {
		return d
	}
	return compareValues(c.value(a), c.value(b))
}

func (c *listColumn) value(it item) api.Value {
	l := &c.pairs[it.nth]
	if l.kind == api.KindBytes {
		return api.BytesValue(c.bytes(l))
	}
	return numberValue(l.kind, l.num)
}

func (c *listColumn) appendState(dst []byte, items []item) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(items)))
	for _, it := range items {
		l := &c.pairs[it.nth]
		dst = binary.AppendUvarint(dst, uint64(l.bucket))
		dst = binary.AppendUvarint(dst, l.seq)
		dst = appendValue(dst, l.kind, l.num, c.bytes(l))
	}
	return dst
}

func (c *listColumn) readState(row int, r *reader) {
	n := r.uvarint()
	if n == 0 {
		r.fail("a key without pairs")
	}
	var p pair
	for ; n > 0 && r.err == nil; n-- {
		b := r.uvarint()
		if b > math.MaxUint16 {
			r.fail("bucket %d", b)
		}
		p.bucket, p.seq = buckets.ID(b), r.uvarint()
		p.kind, p.num, p.raw = r.value()
		if r.err != nil {
			return
		}
		if err := c.add(row, &p); err != nil {
			r.mismatch(err)
		}
	}
}
