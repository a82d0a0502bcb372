package reduce

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"

	"github.com/pinion-mr/pinion/api"
)

// extremeColumn keeps the least or the greatest value of a key. Bytes are compared byte by byte, numbers by
// value, -0.0 before 0.0.
type extremeColumn struct {
	single
	name string
	want int // the result of comparing a new value with the old one for which the new one is taken
	best []extreme
	raw  [][]byte // of rows whose kind is bytes, extreme.num is the place here
	mem  *memory
}

type extreme struct {
	kind api.Kind
	num  uint64
}

func newMinColumn(k *keys) column { return &extremeColumn{name: "min", want: -1, mem: k.mem} }
func newMaxColumn(k *keys) column { return &extremeColumn{name: "max", want: 1, mem: k.mem} }

func (c *extremeColumn) add(row int, p *pair) error {
	if p.isNaN() {
		return api.Errorf(api.CodeTypeMismatch, "%s takes values that have an order, got NaN", c.name).
			WithHint("do not emit NaN: leave such records out")
	}
	return c.fold(row, p.kind, p.num, p.raw)
}

func (c *extremeColumn) fold(row int, kind api.Kind, num uint64, raw []byte) error {
	if row == len(c.best) {
		if kind == api.KindBytes {
			num = uint64(len(c.raw))
			c.raw = push(c.mem, c.raw, bytes.Clone(raw))
			c.mem.used += int64(len(raw))
		}
		c.best = push(c.mem, c.best, extreme{kind, num})
		return nil
	}
	b := &c.best[row]
	if b.kind != kind {
		return mixed(c.name, b.kind, kind)
	}
	if kind == api.KindBytes {
		old := &c.raw[b.num]
		if bytes.Compare(raw, *old) == c.want {
			before := cap(*old)
			*old = append((*old)[:0], raw...)
			c.mem.used += int64(cap(*old) - before)
		}
		return nil
	}
	if compareNumbers(numberValue(kind, num), numberValue(kind, b.num)) == c.want {
		b.num = num
	}
	return nil
}

func (c *extremeColumn) rawOf(e extreme) []byte {
	if e.kind != api.KindBytes {
		return nil
	}
	return c.raw[e.num]
}

func (c *extremeColumn) merge(from column, rows []uint32) (int, error) {
	other := from.(*extremeColumn)
	for j, e := range other.best {
		row := int(rows[j])
		if err := c.fold(row, e.kind, e.num, other.rawOf(e)); err != nil {
			return row, err
		}
	}
	return 0, nil
}

func (c *extremeColumn) check(int) error { return nil }

func (c *extremeColumn) value(it item) api.Value {
	e := c.best[it.row]
	if e.kind == api.KindBytes {
		return api.BytesValue(c.raw[e.num])
	}
	return numberValue(e.kind, e.num)
}

func (c *extremeColumn) appendState(dst []byte, items []item) []byte {
	e := c.best[items[0].row]
	return appendValue(dst, e.kind, e.num, c.rawOf(e))
}

func (c *extremeColumn) readState(row int, r *reader) {
	kind, num, raw := r.value()
	if kind == api.KindFloat && math.IsNaN(math.Float64frombits(num)) {
		r.fail("NaN as a %s", c.name)
	}
	if r.err != nil {
		return
	}
	if err := c.fold(row, kind, num, raw); err != nil {
		r.mismatch(err)
	}
}

// appendValue writes a value of any kind for a state: kind, then uvarint length and bytes, or 8 bytes.
func appendValue(dst []byte, kind api.Kind, num uint64, raw []byte) []byte {
	dst = append(dst, byte(kind))
	if kind == api.KindBytes {
		return append(binary.AppendUvarint(dst, uint64(len(raw))), raw...)
	}
	return binary.LittleEndian.AppendUint64(dst, num)
}

// compareValues is a total order of all values: numbers by value before bytes. Of equal numbers an i64
// comes before an f64 and -0.0 before 0.0. NaN comes after all other numbers.
func compareValues(a, b api.Value) int {
	switch {
	case a.Kind == api.KindBytes && b.Kind == api.KindBytes:
		return bytes.Compare(a.Bytes, b.Bytes)
	case a.Kind == api.KindBytes:
		return 1
	case b.Kind == api.KindBytes:
		return -1
	}
	return compareNumbers(a, b)
}

func compareNumbers(a, b api.Value) int {
	switch {
	case a.Kind == api.KindInt && b.Kind == api.KindInt:
		return cmp.Compare(a.Int, b.Int)
	case a.Kind == api.KindFloat && b.Kind == api.KindFloat:
		return compareFloats(a.Float, b.Float)
	case a.Kind == api.KindInt:
		return compareIntFloat(a.Int, b.Float)
	}
	return -compareIntFloat(b.Int, a.Float)
}

func compareFloats(a, b float64) int {
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	aNaN, bNaN := math.IsNaN(a), math.IsNaN(b)
	switch {
	case aNaN && bNaN:
		return cmp.Compare(math.Float64bits(a), math.Float64bits(b))
	case aNaN:
		return 1
	case bNaN:
		return -1
	}
	// Equal; the zeros differ by their sign.
	return cmp.Compare(int64(math.Float64bits(a)), int64(math.Float64bits(b)))
}

// compareIntFloat never returns 0: an i64 comes before an f64 of the same value.
func compareIntFloat(i int64, f float64) int {
	switch {
	case math.IsNaN(f) || f >= 1<<63:
		return -1
	case f < -1<<63:
		return 1
	}
	whole := math.Trunc(f)
	if n := int64(whole); i != n {
		return cmp.Compare(i, n)
	}
	if f < whole {
		return 1
	}
	return -1
}
