package pmr

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// FaultKind is a way in which buckets that were pinned are not those that were wanted, or in which a
// certificate contradicts itself.
type FaultKind string

// The kinds of faults.
const (
	FaultMissing FaultKind = "missing" // wanted, and pinned by nobody
	FaultDoubled FaultKind = "doubled" // pinned twice
	FaultForeign FaultKind = "foreign" // pinned by another than its owner at the cut, or under another generation
	FaultSurplus FaultKind = "surplus" // pinned, and not wanted
	FaultUnknown FaultKind = "unknown" // not of this cluster
	FaultCounts  FaultKind = "counts"  // the figures do not add up
)

// Fault is what is wrong with some buckets.
type Fault struct {
	Kind    FaultKind
	Buckets []buckets.ID
	Text    string
}

// CertificateCheck is what became of checking a certificate.
type CertificateCheck struct {
	Faults []Fault      // by kind; none if nothing is wrong
	Proven int          // wanted buckets that were pinned by their owner at the cut, under that generation
	Open   []buckets.ID // wanted ones of which the table does not tell any more who owned them at the cut
}

// CheckCertificate checks a certificate against the table of owners at the cut: the pinned buckets are
// pairwise disjoint and the whole wanted set, each pinned by its owner under that generation, and the figures
// add up.
//
// The table may also be a later one, if the log was purged meanwhile. A bucket that has had the same
// generation since the cut or longer is as provable there; of the others nothing is known any more.
func CheckCertificate(c api.Certificate, owners *buckets.View) CertificateCheck {
	if c.Buckets != owners.Len() {
		text := fmt.Sprintf("it is of a cluster of %d buckets, this one has %d", c.Buckets, owners.Len())
		return CertificateCheck{Faults: []Fault{{Kind: FaultUnknown, Text: text}}}
	}
	var named []buckets.ID
	for _, b := range c.Wanted {
		if int(b) >= c.Buckets || len(named) > 0 && buckets.ID(b) <= named[len(named)-1] {
			text := fmt.Sprintf("the wanted buckets are not ascending and of 0..%d", c.Buckets-1)
			return CertificateCheck{Faults: []Fault{{FaultUnknown, []buckets.ID{buckets.ID(b)}, text}}}
		}
		named = append(named, buckets.ID(b))
	}
	pinned := make([]api.PinnedOnStorage, len(c.Storages))
	for i, s := range c.Storages {
		pinned[i].Storage = s.Storage
		for _, b := range s.Buckets {
			pinned[i].Buckets = append(pinned[i].Buckets, api.BucketPin{Bucket: b.Bucket, Generation: b.Generation})
		}
	}
	check := CertificateCheck{Faults: coverage(owners, c.Cut, named, pinned)}
	wrong := map[buckets.ID]bool{}
	for _, f := range check.Faults {
		for _, b := range f.Buckets {
			wrong[b] = true
		}
	}
	for _, b := range wantedOf(owners, named) {
		switch {
		case wrong[b]:
		case owners.Owner(b).Generation > c.Cut:
			check.Open = append(check.Open, b)
		default:
			check.Proven++
		}
	}
	if text := countFault(c); text != "" {
		check.Faults = append(check.Faults, Fault{Kind: FaultCounts, Text: text})
	}
	return check
}

// countFault says where the figures of a certificate do not add up.
func countFault(c api.Certificate) string {
	var records, pairs uint64
	for _, s := range c.Storages {
		for _, b := range s.Buckets {
			if records > math.MaxUint64-b.Records || pairs > math.MaxUint64-b.Pairs {
				return fmt.Sprintf("the counts of bucket %d are out of range", b.Bucket)
			}
			records, pairs = records+b.Records, pairs+b.Pairs
		}
	}
	switch {
	case records != c.Records:
		return fmt.Sprintf("the buckets' records are %d together, the job's %d", records, c.Records)
	case pairs != c.Pairs:
		return fmt.Sprintf("the buckets' pairs are %d together, the job's %d", pairs, c.Pairs)
	case c.Skips > records:
		return fmt.Sprintf("%d records were left out of %d", c.Skips, records)
	}
	return ""
}

// ParamsDigest is the digest of all that a complete request says of the answer: module and functions, reduce,
// space, params, buckets and keys, mode, order and limit, and what is done about failing records. It does not
// depend on the order of what has none. It is SHA-256 over frames: one of each field in the order below, with
// the field's name as key, then those of params and so on, with what they belong to behind the name.
func ParamsDigest(req api.JobRequest) string {
	d := digest{sha256.New()}
	d.field("function", req.Function)
	d.field("combine", req.Combine)
	d.field("reduce", req.Reduce)
	d.field("space", req.Space)
	d.field("mode", req.Mode)
	d.field("sort", req.Sort)
	d.field("limit", strconv.Itoa(req.Limit))
	d.field("on_error", req.OnError)
	d.field("max_skip", strconv.Itoa(req.MaxSkip))
	d.params("param.", req.Params)
	own := slices.SortedFunc(slices.Values(req.BucketParams), func(a, b api.BucketParams) int { return int(a.Bucket) - int(b.Bucket) })
	for _, p := range own {
		d.params(fmt.Sprintf("bucket.%d.", p.Bucket), p.Params)
	}
	for _, b := range slices.Compact(slices.Sorted(slices.Values(req.Buckets))) {
		d.field("wanted", strconv.Itoa(int(b)))
	}
	keys := make([]string, len(req.Keys))
	for i, k := range req.Keys {
		keys[i] = string(k)
	}
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		d.field("key", k)
	}
	return d.sum()
}

// RowDigest is the digest of rows in their order: SHA-256 over them as frames, with the flags that a guest
// gives numbers. The zero value is not ready; see [NewRowDigest].
type RowDigest struct {
	digest
	rows   uint64
	buffer []byte
}

// NewRowDigest returns the digest of no rows.
func NewRowDigest() *RowDigest { return &RowDigest{digest: digest{sha256.New()}} }

// Add takes the next row.
func (d *RowDigest) Add(r api.Row) {
	d.rows++
	var number [8]byte
	switch r.Value.Kind {
	case api.KindInt:
		binary.LittleEndian.PutUint64(number[:], uint64(r.Value.Int))
		d.buffer = buckets.AppendFrame(d.buffer, buckets.FlagInt, r.Key, number[:])
	case api.KindFloat:
		binary.LittleEndian.PutUint64(number[:], math.Float64bits(r.Value.Float))
		d.buffer = buckets.AppendFrame(d.buffer, buckets.FlagFloat, r.Key, number[:])
	default:
		d.buffer = buckets.AppendFrame(d.buffer, 0, r.Key, r.Value.Bytes)
	}
	if len(d.buffer) >= 32<<10 {
		d.flush()
	}
}

// Rows is how many there were.
func (d *RowDigest) Rows() uint64 { return d.rows }

// Sum is the digest of the rows so far, in hex.
func (d *RowDigest) Sum() string {
	d.flush()
	return d.sum()
}

func (d *RowDigest) flush() {
	_, _ = d.Write(d.buffer) // a hash takes everything
	d.buffer = d.buffer[:0]
}

// digest hashes frames.
type digest struct{ hash.Hash }

func (d digest) field(name, value string) {
	_, _ = d.Write(buckets.AppendFrame(nil, 0, []byte(name), []byte(value)))
}

func (d digest) params(prefix string, params map[string]api.Bytes) {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		d.field(prefix+name, string(params[name]))
	}
}

func (d digest) sum() string { return hex.EncodeToString(d.Sum(nil)) }
