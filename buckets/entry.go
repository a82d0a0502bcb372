package buckets

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/pinion-mr/pinion/api"
)

// Subjects of the log's entries, below its prefix.
const (
	SubjectCut  = "cut"
	recPrefix   = "rec."
	ownPrefix   = "own."
	fencePrefix = "fence."
)

// RecSubject is the subject of a bucket's records.
func RecSubject(b ID) string { return recPrefix + strconv.Itoa(int(b)) }

// OwnSubject is the subject of a bucket's ownership entries.
func OwnSubject(b ID) string { return ownPrefix + strconv.Itoa(int(b)) }

// FenceSubject is the subject of a storage's fences.
func FenceSubject(storage string) string { return fencePrefix + storage }

// TableSubjects are the subjects of all entries but records: what is needed to follow the table and the
// cuts.
func TableSubjects() []string { return []string{ownPrefix + "*", fencePrefix + "*", SubjectCut} }

// Own makes Owner the owner of Bucket, if it counts: see [Table.Own].
type Own struct {
	Bucket   ID     `json:"bucket"`
	Prev     uint64 `json:"prev"` // generation that it replaces; 0 for the first
	Owner    string `json:"owner"`
	Move     string `json:"move,omitempty"` // order that asked for it
	FenceSrc uint64 `json:"fence_src,omitempty"`
	FenceDst uint64 `json:"fence_dst,omitempty"`
}

// Fence voids every ownership entry that names an older fence of the storage.
type Fence struct {
	Storage     string `json:"storage"`
	Incarnation string `json:"incarnation"`
}

// Cut fixes one position for all storages. A cut without a job is a barrier: it fixes a position for
// whoever appended it and no snapshot is taken for it.
type Cut struct {
	Job     string `json:"job,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
}

// Records is a record entry: a batch of one bucket and one space, or one record.
type Records struct {
	Bucket ID
	Space  string

	seq    uint64
	single bool
	key    []byte // of a single record
	data   []byte
}

// Entry is Records, Own, Fence or Cut.
type Entry interface{ entry() }

func (Records) entry() {}
func (Own) entry()     {}
func (Fence) entry()   {}
func (Cut) entry()     {}

// Decode reads a log entry of a cluster of n buckets. An entry that it refuses is skipped by every
// applier, so an entry counts as a whole or not at all. The result shares e.Data.
func Decode(e api.LogEntry, n int) (Entry, error) {
	kind, rest, _ := strings.Cut(e.Subject, ".")
	switch kind {
	case "rec":
		b, err := parseBucket(rest, n)
		if err != nil {
			return nil, err
		}
		return decodeRecords(e, b, n)
	case "own":
		return decodeOwn(e.Data, rest, n)
	case "fence":
		var f Fence
		if err := api.Decode(e.Data, &f, api.Lenient); err != nil {
			return nil, err
		}
		if f.Storage != rest || api.CheckID("a storage", rest) != nil {
			return nil, fmt.Errorf("buckets: fence of storage %q on subject %s", f.Storage, e.Subject)
		}
		return f, nil
	case "cut":
		var c Cut
		if err := api.Decode(e.Data, &c, api.Lenient); err != nil {
			return nil, err
		}
		return c, nil
	}
	return nil, fmt.Errorf("buckets: unknown subject %.80q", e.Subject)
}

func parseBucket(s string, n int) (ID, error) {
	b, err := strconv.ParseUint(s, 10, 16)
	if err != nil || int(b) >= n || s != strconv.FormatUint(b, 10) {
		return 0, fmt.Errorf("buckets: %.20q is not a bucket of 0..%d", s, n-1)
	}
	return ID(b), nil
}

func decodeOwn(data []byte, subject string, n int) (Entry, error) {
	b, err := parseBucket(subject, n)
	if err != nil {
		return nil, err
	}
	var o Own
	if err := api.Decode(data, &o, api.Lenient); err != nil {
		return nil, err
	}
	if o.Bucket != b {
		return nil, fmt.Errorf("buckets: ownership of bucket %d on subject own.%d", o.Bucket, b)
	}
	if err := api.CheckID("an owner", o.Owner); err != nil {
		return nil, fmt.Errorf("buckets: ownership of bucket %d: %w", b, err)
	}
	return o, nil
}

func decodeRecords(e api.LogEntry, b ID, n int) (Entry, error) {
	r := Records{Bucket: b, Space: e.Header[api.HeaderSpace], seq: e.Seq, data: e.Data}
	if r.Space == "" {
		r.Space = api.DefaultSpace
	}
	if err := CheckSpace(r.Space); err != nil {
		return nil, fmt.Errorf("buckets: %w", err)
	}
	if key, ok := e.Header[api.HeaderKey]; ok {
		r.single, r.key = true, []byte(key)
		if err := checkKey(r.key, b, n, false); err != nil {
			return nil, fmt.Errorf("buckets: header %s: %w", api.HeaderKey, err)
		}
		return r, nil
	}
	if len(e.Data) == 0 {
		return nil, fmt.Errorf("buckets: no record: neither a frame nor the header %s", api.HeaderKey)
	}
	for i, rest := 0, e.Data; len(rest) > 0; i++ {
		f, tail, err := CutFrame(rest)
		if err == nil {
			err = checkRecordFrame(f, b, n)
		}
		if err != nil {
			return nil, fmt.Errorf("buckets: record %d: %w", i, err)
		}
		rest = tail
	}
	return r, nil
}

func checkRecordFrame(f Frame, b ID, n int) error {
	switch f.Flags {
	case FlagAssign:
		if len(f.Key) > 0 {
			return fmt.Errorf("a record whose key is assigned brings a key of %d bytes", len(f.Key))
		}
		return nil
	case FlagDelete:
		if len(f.Value) > 0 {
			return fmt.Errorf("a deletion brings a value of %d bytes", len(f.Value))
		}
		return checkKey(f.Key, b, n, true)
	case 0:
		return checkKey(f.Key, b, n, false)
	}
	return fmt.Errorf("unknown flags %#x", f.Flags)
}

func checkKey(key []byte, b ID, n int, deletes bool) error {
	if len(key) > MaxKey {
		return fmt.Errorf("key of %d bytes; the limit is %d", len(key), MaxKey)
	}
	if _, _, _, ok := ParseAssigned(key); ok && !deletes {
		return fmt.Errorf("key %s has the form of assigned keys, which only the log gives", KeyText(key))
	}
	if got := Of(key, n); got != b {
		return fmt.Errorf("key %.40q belongs to bucket %d, not %d", KeyText(key), got, b)
	}
	return nil
}

// Each calls fn for every record in order. Key and value are valid only during the call.
func (r Records) Each(fn func(key, value []byte, del bool)) {
	if r.single {
		fn(r.key, r.data, false)
		return
	}
	var assigned [assignedLen]byte
	for i, rest := uint32(0), r.data; len(rest) > 0; i++ {
		f, tail, err := CutFrame(rest)
		if err != nil {
			return // not after Decode
		}
		rest = tail
		key := f.Key
		if f.Flags == FlagAssign {
			key = AppendAssigned(assigned[:0], r.seq, i, r.Bucket)
		}
		fn(key, f.Value, f.Flags == FlagDelete)
	}
}

// Digest recognises a log entry again: a hash of its subject, headers and data.
func Digest(e api.LogEntry) uint64 {
	h := xxhash.New()
	for _, part := range [][]byte{
		[]byte(e.Subject), []byte(e.Header[api.HeaderSpace]), []byte(e.Header[api.HeaderKey]), e.Data,
	} {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(part)))
		_, _ = h.Write(n[:])
		_, _ = h.Write(part)
	}
	return h.Sum64()
}

// PositionOf is the position of a store that has applied everything up to e.
func PositionOf(e api.LogEntry) Position {
	return Position{Seq: e.Seq, Time: e.Time, Digest: Digest(e)}
}

// Same reports whether e is the entry that p covers last.
func (p Position) Same(e api.LogEntry) bool {
	return p.Seq == e.Seq && p.Time.Equal(e.Time) && p.Digest == Digest(e)
}

// HeaderKeyOK reports whether a key can travel in the Pinion-Key header: 1 to 1,024 bytes of printable
// ASCII without outer blanks. Others travel in a frame.
func HeaderKeyOK(key []byte) bool {
	if len(key) == 0 || len(key) > 1024 || len(bytes.TrimSpace(key)) != len(key) {
		return false
	}
	for _, c := range key {
		if c < 0x20 || c >= 0x7f {
			return false
		}
	}
	return true
}
