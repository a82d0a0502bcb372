package reduce

import (
	"encoding/binary"
	"math"

	"github.com/pinion-mr/pinion/api"
)

// countColumn counts pairs in the rows' numbers.
type countColumn struct {
	single
	keys *keys
}

func newCountColumn(k *keys) column { return &countColumn{keys: k} }

func (c *countColumn) add(row int, _ *pair) error {
	*c.keys.num(row)++
	return nil
}

func (c *countColumn) merge(from column, rows []uint32) (int, error) {
	other := from.(*countColumn)
	for j, row := range rows {
		c.fold(int(row), *other.keys.num(j))
	}
	return 0, nil
}

// fold adds n; a count beyond an i64 stays at its end, where check finds it.
func (c *countColumn) fold(row int, n int64) {
	had := c.keys.num(row)
	*had += min(n, math.MaxInt64-*had)
}

func (c *countColumn) check(row int) error {
	if *c.keys.num(row) == math.MaxInt64 {
		return api.Errorf(api.CodeOverflow, "the count leaves the range of an i64")
	}
	return nil
}

func (c *countColumn) value(it item) api.Value { return api.IntValue(*c.keys.num(int(it.row))) }

func (c *countColumn) appendState(dst []byte, items []item) []byte {
	return binary.AppendUvarint(dst, uint64(*c.keys.num(int(items[0].row))))
}

func (c *countColumn) readState(row int, r *reader) {
	n := r.uvarint()
	if n == 0 || n > math.MaxInt64 {
		r.fail("a count of %d", n)
		return
	}
	c.fold(row, int64(n))
}
