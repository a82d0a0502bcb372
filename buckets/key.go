package buckets

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/pinion-mr/pinion/api"
)

// ID is the number of a bucket, from 0.
type ID uint16

// Limits of keys and buckets.
const (
	MaxKey     = 65_535 // bytes
	MaxBuckets = 65_535
)

const (
	assignedLen = 15
	assignedTag = 0x00
)

// Of returns the bucket of a key among n. It is fnv1a32(key) mod n, the function of the NATS subject
// mapping partition(), except for keys that the log assigned: those carry their bucket. The result is
// always below n.
func Of(key []byte, n int) ID {
	if _, _, b, ok := ParseAssigned(key); ok && int(b) < n {
		return b
	}
	h := fnv.New32a()
	_, _ = h.Write(key)
	return ID(h.Sum32() % uint32(n))
}

// AppendAssigned appends the 15-byte key of record index of the batch at log position seq of a bucket:
// 0x00, u64be seq, u32be index, u16be bucket. It is the same at every replay, unique and ascending.
func AppendAssigned(dst []byte, seq uint64, index uint32, b ID) []byte {
	dst = append(dst, assignedTag)
	dst = binary.BigEndian.AppendUint64(dst, seq)
	dst = binary.BigEndian.AppendUint32(dst, index)
	return binary.BigEndian.AppendUint16(dst, uint16(b))
}

// ParseAssigned takes an assigned key apart; ok is false for every other key.
func ParseAssigned(key []byte) (seq uint64, index uint32, b ID, ok bool) {
	if len(key) != assignedLen || key[0] != assignedTag {
		return 0, 0, 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), binary.BigEndian.Uint32(key[9:]), ID(binary.BigEndian.Uint16(key[13:])), true
}

// KeyText is a key as people read it: #sequence.index.bucket for an assigned one, else its bytes.
func KeyText(key []byte) string {
	if seq, index, b, ok := ParseAssigned(key); ok {
		return fmt.Sprintf("#%d.%d.%d", seq, index, b)
	}
	return string(key)
}

// MaxSpace is the longest name of a space, in bytes.
const MaxSpace = 64

// CheckSpace reports what is wrong with the name of a space: 1 to 64 of a-z A-Z 0-9 _ - and, not first or
// last, the dot.
func CheckSpace(name string) error {
	if name == "" || len(name) > MaxSpace {
		return fmt.Errorf("a space's name has 1 to %d characters; %.80q has %d", MaxSpace, name, len(name))
	}
	for i, c := range []byte(name) {
		word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
		if !word && (c != '.' || i == 0 || i == len(name)-1 || name[i-1] == '.') {
			return fmt.Errorf("a space's name is made of a-z A-Z 0-9 _ - and single dots inside; %.80q is not", name)
		}
	}
	return nil
}

// CheckRecord refuses a record over the limits with a RECORD_TOO_BIG [api.Error]: a key over [MaxKey], or key
// and value together over maxRecord bytes.
func CheckRecord(key, value []byte, maxRecord int) error {
	if len(key) > MaxKey {
		return api.Errorf(api.CodeRecordTooBig, "the key has %d bytes; the limit is %d", len(key), MaxKey)
	}
	if n := len(key) + len(value); n > maxRecord {
		return api.Errorf(api.CodeRecordTooBig, "the record has %d bytes (key %d, value %d); the limit max_record is %d",
			n, len(key), len(value), maxRecord)
	}
	return nil
}
