package sim

import (
	"maps"
	"slices"

	"github.com/pinion-mr/pinion/buckets"
)

// owners is the table of owners worked out a second time, from what docs/protocol.md says and not from what package
// buckets does: the two must agree on each entry.
type owners struct {
	of     map[buckets.ID]claim
	fences map[string]uint64 // position of each storage's last fence
	cuts   map[uint64]map[buckets.ID]claim
	since  map[buckets.ID][]claim // all owners that a bucket has had, in order
}

// claim is a bucket in the hands of a storage since a position.
type claim struct {
	storage string
	since   uint64
}

func newOwners() *owners {
	return &owners{of: map[buckets.ID]claim{}, fences: map[string]uint64{}, cuts: map[uint64]map[buckets.ID]claim{}, since: map[buckets.ID][]claim{}}
}

// apply follows an entry, and reports whether it gave a bucket another owner.
func (o *owners) apply(seq uint64, entry buckets.Entry) bool {
	switch e := entry.(type) {
	case buckets.Fence:
		o.fences[e.Storage] = seq
	case buckets.Cut:
		o.cuts[seq] = maps.Clone(o.of)
	case buckets.Own:
		now := o.of[e.Bucket]
		current := func(fence uint64, storage string) bool { return fence == 0 || fence == o.fences[storage] }
		if e.Prev != now.since || !current(e.FenceSrc, now.storage) || !current(e.FenceDst, e.Owner) {
			return false
		}
		o.of[e.Bucket] = claim{e.Owner, seq}
		o.since[e.Bucket] = append(o.since[e.Bucket], claim{e.Owner, seq})
		return true
	}
	return false
}

// steady reports whether a storage has owned a bucket from a position to the end of the log.
func (o *owners) steady(b buckets.ID, storage string, from uint64) bool {
	now, is := o.of[b]
	return is && now.storage == storage && now.since <= from
}

// checkPins looks at the buckets that a storage says it has pinned at a cut: each was its own there. Two storages that
// pin a bucket at one cut cannot both pass.
func (o *oracle) checkPins(p *process, cut uint64, pins map[buckets.ID]uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, known := o.owners.cuts[cut]
	if !known {
		o.failLocked("%s pinned at %d, which is no cut", p.peer, cut)
	}
	for b, generation := range pins {
		if c := at[b]; known && (c.storage != p.id || c.since != generation) {
			o.failLocked("%s pinned bucket %d at cut %d under generation %d; there it was %+v", p.peer, b, cut, generation, c)
		}
	}
}

// claiming looks at a storage that is about to append its ownership: it has the bucket.
func (o *oracle) claiming(p *process, own buckets.Own) {
	if p.mem == nil || own.Owner != p.id || holds(p.mem, own.Bucket) {
		return
	}
	o.failf("%s claims bucket %d, which it has not loaded", p.peer, own.Bucket)
}

// leaving looks at buckets that a storage is about to forget: none of them is its own, neither for itself nor by now.
func (o *oracle) leaving(p *process, bs []buckets.ID) {
	at := p.mem.Position().Seq
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range bs {
		if o.owners.steady(b, p.id, at) && holds(p.mem, b) {
			o.failLocked("%s forgets bucket %d, which it owns", p.peer, b)
		}
	}
}

func holds(s buckets.Store, b buckets.ID) bool {
	return slices.Contains(s.Joined(), b)
}
