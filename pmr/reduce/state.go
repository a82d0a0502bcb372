package reduce

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// StateVersion is the first byte of a state.
const StateVersion = 1

// AppendState appends all that the table holds in the form that travels from a storage to the router. Tables
// with equal content give equal bytes.
//
//	byte version, byte length and name of the reducer, uvarint pairs, uvarint keys,
//	then by ascending key: uvarint length and bytes of the key, what the reducer keeps of it
func (t *Table) AppendState(dst []byte) ([]byte, error) {
	if t.err != nil {
		return dst, t.err
	}
	name := t.reducer.name[:min(len(t.reducer.name), 255)]
	dst = append(dst, StateVersion, byte(len(name)))
	dst = append(dst, name...)
	dst = binary.AppendUvarint(dst, t.pairs)
	dst = binary.AppendUvarint(dst, uint64(t.keys.len()))
	items := t.column.expand(t.keys.sorted(false, 0))
	for begin := 0; begin < len(items); {
		end := begin + 1
		for end < len(items) && items[end].row == items[begin].row {
			end++
		}
		key := t.keys.key(items[begin].row)
		dst = binary.AppendUvarint(dst, uint64(len(key)))
		dst = append(dst, key...)
		dst = t.column.appendState(dst, items[begin:end])
		begin = end
	}
	return dst, nil
}

// MergeState adds a whole state that AppendState wrote for the same reducer. It keeps no part of b.
//
// Errors: INTERNAL for bytes that are no such state, TYPE_MISMATCH when a key has values of two types,
// LIMIT_EXCEEDED. Nothing is allocated by a declared length alone.
func (t *Table) MergeState(b []byte) error {
	if t.err != nil {
		return t.err
	}
	r := &reader{rest: b}
	keys := t.readHeader(r)
	var last []byte
	for n := uint64(0); n < keys && r.err == nil; n++ {
		key := r.key()
		if n > 0 && bytes.Compare(last, key) >= 0 {
			r.fail("key %s after %s", keyName(key), keyName(last))
		}
		if r.err != nil {
			break
		}
		last = key
		t.column.readState(int(t.keys.number(key)), r)
		if r.err != nil {
			t.err = atKey(r.err, key)
			return t.err
		}
		if t.mem.used > t.limit {
			return t.full()
		}
	}
	if r.err == nil && len(r.rest) > 0 {
		r.fail("%d bytes after its end", len(r.rest))
	}
	if r.err != nil {
		e := api.AsError(r.err)
		e.Message = "reduce: " + e.Message
		t.err = e
	}
	return t.err
}

func (t *Table) readHeader(r *reader) (keys uint64) {
	if v := r.byte(); r.err == nil && v != StateVersion {
		r.fail("version %d, this engine reads %d", v, StateVersion)
	}
	if name := r.take(int(r.byte())); r.err == nil && string(name) != t.reducer.name {
		r.fail("reduce %.64q, wanted %s", name, t.reducer)
	}
	t.pairs += r.uvarint()
	return r.uvarint()
}

// reader takes a state apart. The first error stays, and every later read gives zero.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err != nil {
		return
	}
	r.err = api.Errorf(api.CodeInternal, "a storage's state cannot be read: %s", fmt.Sprintf(format, args...)).
		WithHint("run one version of the engine on all routers and storages")
}

// mismatch ends the reading for an error that is not the state's form.
func (r *reader) mismatch(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.fail("%d bytes wanted, %d are left", n, len(r.rest))
	}
	if r.err != nil {
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("a broken number")
	}
	if r.err != nil {
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail("a broken number")
	}
	if r.err != nil {
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// sized takes a length and as many bytes.
func (r *reader) sized(limit uint64) []byte {
	n := r.uvarint()
	if n > limit || n > uint64(len(r.rest)) {
		r.fail("%d bytes wanted, %d are left", n, len(r.rest))
		return nil
	}
	return r.take(int(n))
}

func (r *reader) value() (kind api.Kind, num uint64, raw []byte) {
	switch kind = api.Kind(r.byte()); kind {
	case api.KindBytes:
		return kind, 0, r.sized(1 << 31)
	case api.KindInt, api.KindFloat:
		if b := r.take(8); len(b) == 8 {
			num = binary.LittleEndian.Uint64(b)
		}
		return kind, num, nil
	}
	r.fail("a value of kind %d", kind)
	return kind, 0, nil
}

func (r *reader) key() []byte { return r.sized(buckets.MaxKey) }
