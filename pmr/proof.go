package pmr

import (
	"maps"
	"slices"
	"strings"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Proof says who pinned what for a job: every bucket exactly once, at one cut.
type Proof struct {
	Cut      uint64
	Attempts int
	Pinned   []api.PinnedOnStorage // by storage
}

func (r *Router) proof() *Proof {
	p := &Proof{Cut: r.cut, Attempts: r.attempt}
	for _, storage := range slices.Sorted(maps.Keys(r.pins)) {
		pin := r.pins[storage]
		p.Pinned = append(p.Pinned, api.PinnedOnStorage{
			Storage: storage, Incarnation: pin.Incarnation, PMR: pin.PMR, Buckets: pin.Buckets,
		})
	}
	return p
}

// prove checks that the pins cover the whole table: pairwise disjoint, nothing missing, each bucket pinned
// by its owner at the cut under the generation that the table gives. vshard compares a sum of counts; a
// bucket lost and another doubled pass there.
func prove(owners *buckets.View, pins map[string]api.PinReply) *api.Error {
	by := map[buckets.ID]string{}
	var doubled, foreign, unknown []buckets.ID
	for _, storage := range slices.Sorted(maps.Keys(pins)) {
		for _, pin := range pins[storage].Buckets {
			b := buckets.ID(pin.Bucket)
			if int(b) >= owners.Len() {
				unknown = append(unknown, b)
				continue
			}
			if _, twice := by[b]; twice {
				doubled = append(doubled, b)
			}
			by[b] = storage
			if owner := owners.Owner(b); owner.Storage != storage || owner.Generation != pin.Generation {
				foreign = append(foreign, b)
			}
		}
	}
	var missing []buckets.ID
	for b := range owners.Len() {
		if _, ok := by[buckets.ID(b)]; !ok {
			missing = append(missing, buckets.ID(b))
		}
	}
	var faults []string
	for _, f := range []struct {
		what string
		bs   []buckets.ID
	}{
		{"pinned by nobody: ", missing},
		{"pinned twice: ", doubled},
		{"pinned by another owner or generation than the table's: ", foreign},
		{"not of this cluster: ", unknown},
	} {
		if len(f.bs) > 0 {
			faults = append(faults, f.what+buckets.Ranges(f.bs))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	_, all, _ := strings.Cut(buckets.Ranges(slices.Concat(missing, doubled, foreign, unknown)), " ")
	return api.Errorf(api.CodeCoverage, "the pinned buckets are not the whole set: %s", strings.Join(faults, "; ")).
		With("buckets", all)
}
