package reduce

import (
	"encoding/binary"
	"fmt"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Groups reads a table's pairs as frames grouped by key, as a module's combine and reduce take them: keys
// ascend, the pairs of a key are in order of bucket and emission, [buckets.FlagFirst] and
// [buckets.FlagLast] mark the first and last frame of a key, [buckets.FlagInt] and [buckets.FlagFloat] a
// number. It reads the table, which must not be changed meanwhile.
type Groups struct {
	keys  *keys
	list  *listColumn
	items []item
	next  int
}

var _ buckets.Cursor = (*Groups)(nil)

// Grouped returns the groups of a table whose reducer is none or a module's function.
func (t *Table) Grouped() (*Groups, error) {
	if t.err != nil {
		return nil, t.err
	}
	list, ok := t.column.(*listColumn)
	if !ok {
		return nil, fmt.Errorf("reduce: a table of %s keeps no pairs to group", t.reducer)
	}
	return &Groups{keys: t.keys, list: list, items: list.expand(t.keys.sorted(false, 0))}, nil
}

// Fill appends whole frames to dst until the next one would make it longer than limit; at least one if any
// is left. It returns dst and the number of frames appended: 0 at the end. A key's frames may be spread
// over several calls.
func (g *Groups) Fill(dst []byte, limit int) ([]byte, int, error) {
	n := 0
	for ; g.next < len(g.items); g.next++ {
		l := &g.list.pairs[g.items[g.next].nth]
		key := g.keys.key(l.row)
		size := 8
		if l.kind == api.KindBytes {
			size = int(l.size)
		}
		if n > 0 && len(dst)+buckets.FrameHeader+len(key)+size > limit {
			break
		}
		dst = g.appendFrame(dst, l, key)
		n++
	}
	return dst, n, nil
}

func (g *Groups) appendFrame(dst []byte, l *listed, key []byte) []byte {
	var flags uint32
	if g.next == 0 || g.items[g.next-1].row != l.row {
		flags |= buckets.FlagFirst
	}
	if g.next+1 == len(g.items) || g.items[g.next+1].row != l.row {
		flags |= buckets.FlagLast
	}
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], l.num)
	switch l.kind {
	case api.KindInt:
		return buckets.AppendFrame(dst, flags|buckets.FlagInt, key, number[:])
	case api.KindFloat:
		return buckets.AppendFrame(dst, flags|buckets.FlagFloat, key, number[:])
	}
	return buckets.AppendFrame(dst, flags, key, g.list.bytes(l))
}

// Close does nothing; Groups has it to be a [buckets.Cursor].
func (g *Groups) Close() error { return nil }
