package reduce

import (
	"fmt"

	"github.com/pinion-mr/pinion/api"
)

// Sort is an order of rows. All are total: rows of equal value follow by ascending key, pairs of equal key by
// bucket and order of emission.
type Sort uint8

// The orders. Values compare as numbers, and numbers come before bytes.
const (
	ByKey Sort = iota
	ByKeyDescending
	ByValue
	ByValueDescending
	// Unordered promises no order, but the same one each time.
	Unordered
)

// sortNames has the spellings of a job's field sort; the first of each Sort is what String gives.
var sortNames = []struct {
	name string
	sort Sort
}{
	{"key", ByKey},
	{"", ByKey},
	{"-key", ByKeyDescending},
	{"value", ByValue},
	{"-value", ByValueDescending},
	{"none", Unordered},
}

// ParseSort reads key, -key, value, -value or none; the empty string is key. Anything else is BAD_REQUEST.
func ParseSort(s string) (Sort, error) {
	for _, n := range sortNames {
		if n.name == s {
			return n.sort, nil
		}
	}
	return 0, api.Errorf(api.CodeBadRequest, "rows cannot be sorted by %.64q", s).
		WithHint("sort is one of key, -key, value, -value, none")
}

// String is the name that ParseSort reads.
func (s Sort) String() string {
	for _, n := range sortNames {
		if n.sort == s {
			return n.name
		}
	}
	return fmt.Sprintf("Sort(%d)", uint8(s))
}

// Rows is a table's result in order. It reads the table, which must not be changed any more.
type Rows struct {
	table *Table
	items []item
}

// Rows brings the result into order: all of it, or the first limit rows if limit is above 0.
//
// Errors: OVERFLOW naming the first key whose sum leaves its range, whether or not it is among the rows.
func (t *Table) Rows(s Sort, limit int) (*Rows, error) {
	if t.err != nil {
		return nil, t.err
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	r := &Rows{table: t}
	switch s {
	case ByValue, ByValueDescending:
		r.items = smallest(t.column.expand(t.keys.all()), limit, t.byValue(s))
	default:
		// Every key has a row at least.
		r.items = t.column.expand(t.keys.sorted(s == ByKeyDescending, limit))
		if limit > 0 && limit < len(r.items) {
			r.items = r.items[:limit]
		}
	}
	return r, nil
}

// check finds the first key, by its bytes, that has no result.
func (t *Table) check() error {
	first := -1
	for row := range t.keys.len() {
		if t.column.check(row) != nil && (first < 0 || t.keys.compare(uint32(row), uint32(first)) < 0) {
			first = row
		}
	}
	if first < 0 {
		return nil
	}
	return atKey(t.column.check(first), t.keys.key(uint32(first)))
}

func (t *Table) byValue(s Sort) func(a, b item) int {
	return func(a, b item) int {
		d := compareValues(t.column.value(a), t.column.value(b))
		if s == ByValueDescending {
			d = -d
		}
		if d == 0 { // equal values of one key are equal rows
			d = t.keys.compare(a.row, b.row)
		}
		return d
	}
}

// Len is the number of rows.
func (r *Rows) Len() int { return len(r.items) }

// Row returns the i-th row, from 0. Its bytes are the table's own and must not be changed.
func (r *Rows) Row(i int) api.Row {
	it := r.items[i]
	return api.Row{Key: r.table.keys.key(it.row), Value: r.table.column.value(it)}
}
