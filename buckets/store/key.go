package store

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/pinion-mr/pinion/buckets"
)

// The first byte of every key of the database.
const (
	recordTag = 'r'
	metaTag   = 'm'
)

const bucketPrefixLen = 3

// appendBucket appends the common start of all keys of a bucket.
func appendBucket(dst []byte, b buckets.ID) []byte {
	return binary.BigEndian.AppendUint16(append(dst, recordTag), uint16(b))
}

// appendSpace appends the common start of all keys of a space of a bucket.
func appendSpace(dst []byte, b buckets.ID, space string) []byte {
	return append(append(appendBucket(dst, b), space...), 0)
}

// appendRecord appends the database's key of a record.
func appendRecord(dst []byte, b buckets.ID, space string, key []byte) []byte {
	return append(appendSpace(dst, b, space), key...)
}

// span is a range of keys: from lower, up to but not including upper.
type span struct{ lower, upper []byte }

// bucketsSpan is the range of all records of the buckets from first up to but not including end.
func bucketsSpan(first, end int) span {
	return span{lower: bucketBound(first), upper: bucketBound(end)}
}

// bucketBound is the lower bound of bucket n, or of what follows the last possible bucket.
func bucketBound(n int) []byte {
	if n > int(^buckets.ID(0)) {
		return []byte{recordTag + 1}
	}
	return appendBucket(nil, buckets.ID(n))
}

func bucketSpan(b buckets.ID) span { return bucketsSpan(int(b), int(b)+1) }

func recordsSpan() span { return span{lower: []byte{recordTag}, upper: []byte{recordTag + 1}} }

func spaceSpan(b buckets.ID, space string) span {
	lower := appendSpace(nil, b, space)
	return span{lower: lower, upper: afterPrefix(lower)}
}

// afterPrefix returns the first key that sorts after all keys which start with prefix. The prefix must
// end with a byte below 0xff.
func afterPrefix(prefix []byte) []byte {
	upper := bytes.Clone(prefix)
	upper[len(upper)-1]++
	return upper
}

func (s span) holds(key []byte) bool {
	return bytes.Compare(s.lower, key) <= 0 && bytes.Compare(key, s.upper) < 0
}

// cutRecord takes the database's key of a record apart. The parts belong to key.
func cutRecord(key []byte) (b buckets.ID, space, rest []byte, err error) {
	if len(key) < bucketPrefixLen || key[0] != recordTag {
		return 0, nil, nil, fmt.Errorf("store: %.80q is not the key of a record", key)
	}
	b = buckets.ID(binary.BigEndian.Uint16(key[1:]))
	space, rest, ok := bytes.Cut(key[bucketPrefixLen:], []byte{0})
	if !ok || len(space) == 0 || len(space) > buckets.MaxSpace || len(rest) > buckets.MaxKey {
		return 0, nil, nil, fmt.Errorf("store: %.80q is not the key of a record", key)
	}
	return b, space, rest, nil
}
