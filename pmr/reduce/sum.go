package reduce

import (
	"encoding/binary"
	"math"

	"github.com/pinion-mr/pinion/api"
)

// sumColumn adds i64 or f64 numbers, one type per key.
//
// An i64 sum is 128 bits wide: its low half is the row's number, its high half, which is nearly always 0, is
// in high. An f64 sum is an [exact], and the row's number says which. So sums do not depend on the order, and
// only their end is checked for range.
type sumColumn struct {
	single
	keys   *keys
	rows   int
	high   map[uint32]int64 // sum = high*2^64 + low, low signed; never holds 0
	kinds  []api.Kind       // empty as long as all rows are i64
	floats []exact
	mem    *memory
}

func newSumColumn(k *keys) column { return &sumColumn{keys: k, high: map[uint32]int64{}, mem: k.mem} }

func (c *sumColumn) kind(row int) api.Kind {
	if len(c.kinds) == 0 {
		return api.KindInt
	}
	return c.kinds[row]
}

// float is the sum of an f64 row.
func (c *sumColumn) float(row int) *exact { return &c.floats[*c.keys.num(row)] }

// begin makes a row of a kind with the sum 0.
func (c *sumColumn) begin(kind api.Kind) {
	if kind == api.KindFloat {
		for len(c.kinds) < c.rows {
			c.kinds = push(c.mem, c.kinds, api.KindInt)
		}
		*c.keys.num(c.rows) = int64(len(c.floats))
		c.floats = push(c.mem, c.floats, exact{})
	}
	if len(c.kinds) > 0 || kind == api.KindFloat {
		c.kinds = push(c.mem, c.kinds, kind)
	}
	c.rows++
}

// open makes sure that a row exists and is of a kind.
func (c *sumColumn) open(row int, kind api.Kind) error {
	if row == c.rows {
		c.begin(kind)
		return nil
	}
	if had := c.kind(row); had != kind {
		return mixed("sum", had, kind)
	}
	return nil
}

func mixed(reducer string, had, got api.Kind) error {
	return api.Errorf(api.CodeTypeMismatch, "%s takes values of one type per key, got %s after %s", reducer, got, had).
		WithHint("emit values of one type for a key")
}

// addQuick adds to a row that exists, if that is as simple as it nearly always is; else it does nothing.
func (c *sumColumn) addQuick(row *keyRow, v int64) bool {
	sum := row.num + v
	if len(c.kinds) > 0 || (sum < v) != (row.num < 0) {
		return false
	}
	row.num = sum
	return true
}

func (c *sumColumn) add(row int, p *pair) error {
	if p.kind == api.KindBytes {
		return api.Errorf(api.CodeTypeMismatch, "sum takes numbers, got %s", p.describe()).
			WithHint("emit the value as an i64 or f64, or use count, min, max or none")
	}
	if p.isNaN() {
		return api.Errorf(api.CodeTypeMismatch, "sum takes numbers, got NaN").
			WithHint("do not emit NaN: leave such records out")
	}
	if err := c.open(row, p.kind); err != nil {
		return err
	}
	if p.kind == api.KindInt {
		c.addInt(row, 0, int64(p.num))
		return nil
	}
	f := c.float(row)
	before := cap(f.words)
	f.add(math.Float64frombits(p.num))
	c.mem.used += int64(cap(f.words)-before) * 8
	return nil
}

// addInt adds high*2^64 + low.
func (c *sumColumn) addInt(row int, high, low int64) {
	num := c.keys.num(row)
	a, sum := *num, *num+low
	*num = sum
	switch { // a signed overflow carries or borrows
	case low >= 0 && sum < a:
		high++
	case low < 0 && sum > a:
		high--
	}
	if high == 0 {
		return
	}
	if h := c.high[uint32(row)] + high; h != 0 {
		c.high[uint32(row)] = h
	} else {
		delete(c.high, uint32(row))
	}
}

func (c *sumColumn) addExact(row int, x *exact) {
	f := c.float(row)
	before := cap(f.words)
	f.merge(x)
	c.mem.used += int64(cap(f.words)-before) * 8
}

func (c *sumColumn) merge(from column, rows []uint32) (int, error) {
	other := from.(*sumColumn)
	for j, row := range rows {
		kind := other.kind(j)
		if err := c.open(int(row), kind); err != nil {
			return int(row), err
		}
		if kind == api.KindFloat {
			c.addExact(int(row), other.float(j))
		} else {
			c.addInt(int(row), other.high[uint32(j)], *other.keys.num(j))
		}
	}
	return 0, nil
}

func (c *sumColumn) check(row int) error {
	if c.kind(row) == api.KindFloat {
		_, err := c.float(row).float()
		return err
	}
	if c.high[uint32(row)] != 0 {
		return api.Errorf(api.CodeOverflow, "the sum leaves the range of an i64").
			WithHint("emit f64 numbers, or smaller units")
	}
	return nil
}

func (c *sumColumn) value(it item) api.Value {
	row := int(it.row)
	if c.kind(row) == api.KindInt {
		return api.IntValue(*c.keys.num(row))
	}
	f, _ := c.float(row).float() // checked before
	return api.FloatValue(f)
}

// Forms of a row in a state.
const (
	sumInt   = 0 // varint
	sumWide  = 1 // varint high, varint low
	sumFloat = 2 // an exact
)

func (c *sumColumn) appendState(dst []byte, items []item) []byte {
	row := int(items[0].row)
	if c.kind(row) == api.KindFloat {
		return c.float(row).appendState(append(dst, sumFloat))
	}
	n := *c.keys.num(row)
	if h := c.high[uint32(row)]; h != 0 {
		return binary.AppendVarint(binary.AppendVarint(append(dst, sumWide), h), n)
	}
	return binary.AppendVarint(append(dst, sumInt), n)
}

func (c *sumColumn) readState(row int, r *reader) {
	form := r.byte()
	kind := api.KindInt
	if form == sumFloat {
		kind = api.KindFloat
	}
	if form > sumFloat {
		r.fail("a sum of form %d", form)
		return
	}
	if err := c.open(row, kind); err != nil {
		r.mismatch(err)
		return
	}
	switch form {
	case sumFloat:
		x := readExact(r)
		c.addExact(row, &x)
	case sumWide:
		high := r.varint()
		c.addInt(row, high, r.varint())
	default:
		c.addInt(row, 0, r.varint())
	}
}
