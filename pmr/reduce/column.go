package reduce

import "github.com/pinion-mr/pinion/api"

// column holds what a reducer keeps of the pairs of every row of a table; row i belongs to the table's
// i-th key. Rows begin in ascending order: a row equal to the number of rows so far begins it.
//
// Errors are *api.Error without a place; the table adds it.
type column interface {
	// add folds a pair into a row. It copies what it keeps.
	add(row int, p *pair) error
	// merge folds every row j of another column of the same reducer into row rows[j]. On failure it says
	// at which of its own rows.
	merge(from column, rows []uint32) (row int, err error)
	// check reports a row that has no result.
	check(row int) error
	// expand lists the values of rows, row by row, in their order within the row.
	expand(rows []uint32) []item
	// value is the result of a checked row. Its bytes are the column's own.
	value(it item) api.Value
	// appendState writes what the column holds of one row, given all its items, in canonical form.
	appendState(dst []byte, items []item) []byte
	// readState folds what appendState wrote into a row.
	readState(row int, r *reader)
}

// item names one value of a column.
type item struct {
	row uint32
	nth uint32 // which, for columns with several values per row
}

// single is embedded by columns with one value per row.
type single struct{}

func (single) expand(rows []uint32) []item {
	items := make([]item, len(rows))
	for i, row := range rows {
		items[i].row = row
	}
	return items
}
