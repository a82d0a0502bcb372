package pmr

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Proof says who pinned what for a job: every bucket exactly once, at one cut.
type Proof struct {
	Cut      uint64
	Attempt  int // its number
	Attempts int
	Pinned   []api.PinnedOnStorage // by storage
}

func (r *Router) proof() *Proof {
	return &Proof{Cut: r.cut, Attempt: r.attempt, Attempts: r.attempt - r.cfg.First, Pinned: r.pinned()}
}

// pinned lists the pins by storage.
func (r *Router) pinned() []api.PinnedOnStorage {
	var all []api.PinnedOnStorage
	for _, storage := range slices.Sorted(maps.Keys(r.pins)) {
		pin := r.pins[storage]
		all = append(all, api.PinnedOnStorage{
			Storage: storage, Incarnation: pin.Incarnation, PMR: pin.PMR, Buckets: pin.Buckets,
		})
	}
	return all
}

// wantedOf is the set that a job has to cover: what it names, or the whole table.
func wantedOf(owners *buckets.View, named []buckets.ID) []buckets.ID {
	if named != nil {
		return named
	}
	all := make([]buckets.ID, owners.Len())
	for i := range all {
		all[i] = buckets.ID(i)
	}
	return all
}

// prove checks that the pins cover what is wanted, nil for the whole table: pairwise disjoint, nothing missing
// or too much, each bucket pinned by its owner at the cut under the generation that the table gives. vshard
// compares a sum of counts; a bucket lost and another doubled pass there.
func prove(owners *buckets.View, named []buckets.ID, pinned []api.PinnedOnStorage) *api.Error {
	faults := coverage(owners, math.MaxUint64, named, pinned)
	if len(faults) == 0 {
		return nil
	}
	var texts []string
	var wrong []buckets.ID
	for _, f := range faults {
		texts = append(texts, f.Text)
		wrong = append(wrong, f.Buckets...)
	}
	_, all, _ := strings.Cut(buckets.Ranges(wrong), " ")
	return api.Errorf(api.CodeCoverage, "the pinned buckets are not the whole set: %s", strings.Join(texts, "; ")).
		With("buckets", all)
}

// coverage lists what is wrong with pinned buckets, by kind. Of a bucket whose generation in the table lies
// beyond the cut nobody can tell who owned it at the cut, only that it was under a generation up to there.
func coverage(owners *buckets.View, cut uint64, named []buckets.ID, pinned []api.PinnedOnStorage) []Fault {
	by := map[buckets.ID]bool{}
	var doubled, foreign, unknown []buckets.ID
	for _, storage := range pinned {
		for _, pin := range storage.Buckets {
			b := buckets.ID(pin.Bucket)
			if int(b) >= owners.Len() {
				unknown = append(unknown, b)
				continue
			}
			if by[b] {
				doubled = append(doubled, b)
			}
			by[b] = true
			owner := owners.Owner(b)
			if owner.Generation <= cut && (owner.Storage != storage.Storage || owner.Generation != pin.Generation) || pin.Generation > cut {
				foreign = append(foreign, b)
			}
		}
	}
	var missing []buckets.ID
	for _, b := range wantedOf(owners, named) {
		if !by[b] {
			missing = append(missing, b)
		}
		delete(by, b)
	}
	var faults []Fault
	for _, f := range []struct {
		kind FaultKind
		what string
		bs   []buckets.ID
	}{
		{FaultMissing, "pinned by nobody: ", missing},
		{FaultDoubled, "pinned twice: ", doubled},
		{FaultForeign, "pinned by another owner or generation than the table's: ", foreign},
		{FaultSurplus, "not asked for: ", slices.Sorted(maps.Keys(by))},
		{FaultUnknown, "not of this cluster: ", unknown},
	} {
		if len(f.bs) > 0 {
			faults = append(faults, Fault{f.kind, f.bs, f.what + buckets.Ranges(f.bs)})
		}
	}
	return faults
}
