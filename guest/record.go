package guest

import (
	"encoding/binary"
	"errors"
	"math"
)

// Record is one record of a bucket, or, in combine and reduce, one pair of a group. Its bytes are valid
// until the function that got it returns; do not change them.
type Record struct {
	Key, Value []byte
	flags      uint32
}

// Flags of frames, as in the guest ABI.
const (
	flagFirst = 1
	flagLast  = 2
	flagInt   = 4
	flagFloat = 8
)

// First reports whether r is the first pair of its key (combine, reduce).
func (r Record) First() bool { return r.flags&flagFirst != 0 }

// Last reports whether r is the last pair of its key (combine, reduce). What is emitted for a key must be
// emitted by then.
func (r Record) Last() bool { return r.flags&flagLast != 0 }

// Int is the value if it is an i64.
func (r Record) Int() (v int64, ok bool) {
	if r.flags&flagInt == 0 || len(r.Value) != 8 {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(r.Value)), true
}

// Float is the value if it is an f64.
func (r Record) Float() (v float64, ok bool) {
	if r.flags&flagFloat == 0 || len(r.Value) != 8 {
		return 0, false
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(r.Value)), true
}

const frameHeader = 12

var errFrame = errors.New("guest: the batch ends within a frame")

// cutRecord takes the first frame off a batch.
func cutRecord(b []byte) (r Record, rest []byte, err error) {
	if len(b) < frameHeader {
		return r, nil, errFrame
	}
	klen, vlen := uint64(binary.LittleEndian.Uint32(b[4:])), uint64(binary.LittleEndian.Uint32(b[8:]))
	body := b[frameHeader:]
	if klen+vlen > uint64(len(body)) {
		return r, nil, errFrame
	}
	r.flags = binary.LittleEndian.Uint32(b)
	r.Key, r.Value = body[:klen:klen], body[klen:klen+vlen:klen+vlen]
	return r, body[klen+vlen:], nil
}

// appendFrame appends the header and key of a frame whose value, of vlen bytes, follows.
func appendFrame(dst []byte, flags uint32, key []byte, vlen int) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, flags)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(key)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(vlen))
	return append(dst, key...)
}

// readParams takes the frames of pmr_init: name and value.
func readParams(b []byte) (map[string]string, error) {
	params := map[string]string{}
	for len(b) > 0 {
		r, rest, err := cutRecord(b)
		if err != nil {
			return nil, err
		}
		params[string(r.Key)] = string(r.Value)
		b = rest
	}
	return params, nil
}
