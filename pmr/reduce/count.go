package reduce

import (
	"encoding/binary"
	"math"

	"github.com/pinion-mr/pinion/api"
)

// countColumn counts pairs, 8 bytes a row.
type countColumn struct {
	single
	n   []int64
	mem *memory
}

func newCountColumn(m *memory) column { return &countColumn{mem: m} }

func (c *countColumn) add(row int, _ *pair) error {
	if row == len(c.n) {
		c.n = push(c.mem, c.n, 1)
		return nil
	}
	c.n[row]++
	return nil
}

func (c *countColumn) merge(from column, rows []uint32) (int, error) {
	for j, n := range from.(*countColumn).n {
		c.fold(int(rows[j]), n)
	}
	return 0, nil
}

// fold adds n; a count beyond an i64 stays at its end, where check finds it.
func (c *countColumn) fold(row int, n int64) {
	switch {
	case row == len(c.n):
		c.n = push(c.mem, c.n, n)
	case c.n[row] > math.MaxInt64-n:
		c.n[row] = math.MaxInt64
	default:
		c.n[row] += n
	}
}

func (c *countColumn) check(row int) error {
	if c.n[row] == math.MaxInt64 {
		return api.Errorf(api.CodeOverflow, "the count leaves the range of an i64")
	}
	return nil
}

func (c *countColumn) value(it item) api.Value { return api.IntValue(c.n[it.row]) }

func (c *countColumn) appendState(dst []byte, items []item) []byte {
	return binary.AppendUvarint(dst, uint64(c.n[items[0].row]))
}

func (c *countColumn) readState(row int, r *reader) {
	n := r.uvarint()
	if n == 0 || n > math.MaxInt64 {
		r.fail("a count of %d", n)
		return
	}
	c.fold(row, int64(n))
}
