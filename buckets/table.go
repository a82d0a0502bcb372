package buckets

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pinion-mr/pinion/api"
)

// Owner is who owns a bucket. The zero Owner owns nothing: the bucket has not been assigned.
type Owner struct {
	Storage    string `json:"storage"`
	Generation uint64 `json:"generation"` // log position of the entry that gave it the bucket
}

// Verdict is what an ownership entry came to.
type Verdict int

// The verdicts.
const (
	Applied Verdict = iota // the bucket has a new owner
	Void                   // somebody else was first, or a fence has passed it; nothing changed
	Gap                    // it builds on an entry that was never applied: the table must be reloaded
)

// Table says who owns which bucket at a log position. It is a pure function of the ownership and fence
// entries up to there. It is not safe for concurrent use; a [View] is.
type Table struct {
	seq    uint64
	owners []Owner
	fences map[string]uint64
	view   *View // of the present state; nil after a change
}

// View is a table at one position. It never changes.
type View struct {
	owners []Owner
	fences map[string]uint64
}

// NewTable returns the table of n buckets before the first entry.
func NewTable(n int) *Table {
	return &Table{owners: make([]Owner, n), fences: map[string]uint64{}}
}

// Seq is the position of the last entry that the table has seen.
func (t *Table) Seq() uint64 { return t.seq }

// Own applies an ownership entry at position seq. It counts only if its Prev is the bucket's present
// generation and each fence it names is that storage's present one; its own position is then the new
// generation. So of two claimants one wins, whatever they believe. Void says why as an error.
func (t *Table) Own(seq uint64, o Own) (Verdict, error) {
	t.seq = seq
	if int(o.Bucket) >= len(t.owners) {
		return Void, fmt.Errorf("buckets: bucket %d is not of 0..%d", o.Bucket, len(t.owners)-1)
	}
	now := t.owners[o.Bucket]
	switch {
	case o.Prev >= seq:
		return Void, fmt.Errorf("buckets: ownership of bucket %d at %d builds on %d, which is no earlier entry", o.Bucket, seq, o.Prev)
	case o.Prev > now.Generation:
		return Gap, fmt.Errorf("buckets: ownership of bucket %d at %d builds on generation %d, but %d is the last seen",
			o.Bucket, seq, o.Prev, now.Generation)
	case o.Prev < now.Generation:
		return Void, fmt.Errorf("buckets: bucket %d belongs to %s since %d; %s built on %d",
			o.Bucket, now.Storage, now.Generation, o.Owner, o.Prev)
	case o.FenceDst != 0 && o.FenceDst != t.fences[o.Owner]:
		return Void, fmt.Errorf("buckets: bucket %d: fence %d of %s was passed by %d", o.Bucket, o.FenceDst, o.Owner, t.fences[o.Owner])
	case o.FenceSrc != 0 && o.FenceSrc != t.fences[now.Storage]:
		return Void, fmt.Errorf("buckets: bucket %d: fence %d of %s was passed by %d", o.Bucket, o.FenceSrc, now.Storage, t.fences[now.Storage])
	}
	t.owners[o.Bucket] = Owner{Storage: o.Owner, Generation: seq}
	t.view = nil
	return Applied, nil
}

// Fence applies a fence at position seq.
func (t *Table) Fence(seq uint64, f Fence) {
	t.seq = seq
	t.fences[f.Storage] = seq
	t.view = nil
}

// Seen moves the position past an entry that changes no ownership.
func (t *Table) Seen(seq uint64) { t.seq = seq }

// View returns the table as it is now. It costs a copy after a change, and nothing otherwise.
func (t *Table) View() *View {
	if t.view == nil {
		t.view = &View{owners: slices.Clone(t.owners), fences: maps.Clone(t.fences)}
	}
	return t.view
}

// Len is the number of buckets.
func (v *View) Len() int { return len(v.owners) }

// Owner returns who owns a bucket.
func (v *View) Owner(b ID) Owner { return v.owners[b] }

// Fence returns the position of a storage's last fence, 0 if it never set one.
func (v *View) Fence(storage string) uint64 { return v.fences[storage] }

// Of lists the buckets of a storage, ascending; of "" those without an owner.
func (v *View) Of(storage string) []ID {
	var bs []ID
	for b, o := range v.owners {
		if o.Storage == storage {
			bs = append(bs, ID(b))
		}
	}
	return bs
}

// Storages lists the owners, ascending.
func (v *View) Storages() []string {
	set := map[string]bool{}
	for _, o := range v.owners {
		if o.Storage != "" {
			set[o.Storage] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// tableVersion is the version of the saved form.
const tableVersion = 1

type savedTable struct {
	Version int               `json:"version"`
	Seq     uint64            `json:"seq"`
	Owners  []Owner           `json:"owners"`
	Fences  map[string]uint64 `json:"fences"`
}

// Save returns the table as bytes, for [ParseTable].
func (t *Table) Save() ([]byte, error) {
	return api.Encode(api.JSON, savedTable{Version: tableVersion, Seq: t.seq, Owners: t.owners, Fences: t.fences})
}

// ParseTable reads a saved table of n buckets.
func ParseTable(b []byte, n int) (*Table, error) {
	var s savedTable
	if err := api.Decode(b, &s, api.Lenient); err != nil {
		return nil, fmt.Errorf("buckets: saved table: %w", err)
	}
	if s.Version != tableVersion {
		return nil, fmt.Errorf("buckets: saved table has version %d; this program reads %d", s.Version, tableVersion)
	}
	if len(s.Owners) != n {
		return nil, fmt.Errorf("buckets: saved table has %d buckets, the cluster %d", len(s.Owners), n)
	}
	for b, o := range s.Owners {
		if o.Generation > s.Seq || (o.Storage == "") != (o.Generation == 0) {
			return nil, fmt.Errorf("buckets: saved table contradicts itself at bucket %d", b)
		}
	}
	if s.Fences == nil {
		s.Fences = map[string]uint64{}
	}
	return &Table{seq: s.Seq, owners: s.Owners, fences: s.Fences}, nil
}

// ErrGap says that entries of the log are missing between what was applied and what came next.
var ErrGap = errors.New("buckets: the log was purged past this position")

// Apply steps the table by any entry. It returns ErrGap (wrapped) if the table must be reloaded, and
// otherwise whether ownership changed.
func (t *Table) Apply(seq uint64, e Entry) (changed bool, err error) {
	switch e := e.(type) {
	case Own:
		verdict, why := t.Own(seq, e)
		if verdict == Gap {
			return false, fmt.Errorf("%w: %w", ErrGap, why)
		}
		return verdict == Applied, nil
	case Fence:
		t.Fence(seq, e)
		return true, nil
	default:
		t.Seen(seq)
		return false, nil
	}
}
