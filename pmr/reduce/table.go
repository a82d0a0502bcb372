package reduce

import (
	"fmt"
	"strconv"
	"unsafe"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Table aggregates pairs by key. It is not safe for concurrent use: every worker has its own.
//
// After a method has failed the table is of no more use, and every later call gives the same error.
type Table struct {
	reducer Reducer
	limit   int64
	keys    *keys
	column  column
	mem     *memory
	pairs   uint64
	pair    pair // the one being emitted: bucket and number stay from call to call
	err     error
}

// maxBytes keeps the number of rows and of pairs within 32 bits.
const maxBytes = maxRows * int64(unsafe.Sizeof(keyRow{}))

// NewTable makes an empty table. It fails beyond limitBytes of memory; 0 is no limit (of ours: 96 GiB). Arrays grow by
// doubling, so that it may have allocated twice as much when it notices.
func NewTable(r Reducer, limitBytes int64) *Table {
	if limitBytes <= 0 || limitBytes > maxBytes {
		limitBytes = maxBytes
	}
	k := newKeys(&memory{})
	return &Table{reducer: r, limit: limitBytes, keys: k, column: r.column(k), mem: k.mem}
}

// StartBucket says that the pairs to come are of bucket b, numbered from 0. A bucket must not be split over
// tables that are merged.
func (t *Table) StartBucket(b buckets.ID) {
	t.pair.bucket, t.pair.seq = b, 0
}

// Emit adds a pair as the guest ABI has it: flags [buckets.FlagInt] or [buckets.FlagFloat] with 8 bytes
// of value, else the value is bytes; other flags are ignored. Key and value are copied if they are kept.
//
// Errors name key, bucket and number of the pair: TYPE_MISMATCH, RECORD_TOO_BIG for a key over 65,535
// bytes, LIMIT_EXCEEDED. Leaving the range of a sum is not seen before [Table.Rows].
func (t *Table) Emit(flags uint32, key, value []byte) error {
	if t.err != nil {
		return t.err
	}
	p := &t.pair
	if err := p.read(flags, value); err != nil {
		return t.failAt(err, key)
	}
	if len(key) > buckets.MaxKey {
		return t.failAt(api.Errorf(api.CodeRecordTooBig, "the key has %d bytes, the limit is %d", len(key), buckets.MaxKey), key)
	}
	return t.add(t.keys.number(key), key)
}

// add folds the present pair, which has been read, into a row.
func (t *Table) add(row uint32, key []byte) error {
	if err := t.column.add(int(row), &t.pair); err != nil {
		return t.failAt(err, key)
	}
	t.pair.seq++
	t.pairs++
	if t.mem.used > t.limit {
		return t.full()
	}
	return nil
}

// Merge adds all of other, a table of the same reducer, which must not be used afterwards.
//
// Errors: TYPE_MISMATCH when a key has values of two types, LIMIT_EXCEEDED.
func (t *Table) Merge(other *Table) error {
	switch {
	case t.err != nil:
		return t.err
	case other.err != nil:
		t.err = other.err
		return t.err
	case t.reducer.name != other.reducer.name:
		t.err = fmt.Errorf("reduce: a table of %s cannot be merged with one of %s", t.reducer, other.reducer)
		return t.err
	}
	if other.keys.len() > t.keys.len() {
		t.keys, other.keys = other.keys, t.keys
		t.column, other.column = other.column, t.column
		t.mem, other.mem = other.mem, t.mem
	}
	t.pairs += other.pairs
	if row, err := t.column.merge(other.column, t.keys.numbers(other.keys)); err != nil {
		t.err = atKey(err, t.keys.key(uint32(row)))
		return t.err
	}
	if t.mem.used > t.limit {
		return t.full()
	}
	return nil
}

// Len is the number of distinct keys.
func (t *Table) Len() int { return t.keys.len() }

// Pairs is the number of pairs emitted into this table and those merged into it.
func (t *Table) Pairs() uint64 { return t.pairs }

// Bytes is the memory that the table has allocated.
func (t *Table) Bytes() int64 { return t.mem.used }

// Reducer is the table's reducer.
func (t *Table) Reducer() Reducer { return t.reducer }

func (t *Table) full() error {
	t.err = TooMuch(t.mem.used, t.limit)
	return t.err
}

// TooMuch is the LIMIT_EXCEEDED error of tables that take more bytes of memory than they may.
func TooMuch(used, limit int64) error {
	return api.Errorf(api.CodeLimitExceeded, "the job's output takes %d bytes of memory, over the %d of aggregation-memory", used, limit).
		WithHint("use a reduce that keeps less (count or sum), or name a combine function").
		With("setting", "aggregation-memory")
}

// failAt adds the place of the present pair to an error and keeps it.
func (t *Table) failAt(err error, key []byte) error {
	e := api.AsError(err)
	e.Message = fmt.Sprintf("reduce %s: key %s, bucket %d, pair %d: %s", t.reducer, keyName(key), t.pair.bucket, t.pair.seq, e.Message)
	t.err = e.With("key", keyName(key)).
		With("bucket", strconv.Itoa(int(t.pair.bucket))).
		With("pair", strconv.FormatUint(t.pair.seq, 10))
	return t.err
}

func atKey(err error, key []byte) error {
	e := api.AsError(err)
	e.Message = fmt.Sprintf("reduce: key %s: %s", keyName(key), e.Message)
	return e.With("key", keyName(key))
}
