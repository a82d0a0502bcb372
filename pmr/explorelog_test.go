package pmr_test

import (
	"slices"

	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// entry is one of the log, and what the log has come to with it.
type entry struct {
	what    buckets.Entry
	changed bool // it has changed the table
	table   *buckets.View
	records []records // by bucket
}

// records is a set of records of a bucket: those that were written to it have the numbers 0, 1, ...
type records uint8

// holding is a storage's copy of a bucket.
type holding struct {
	loading, joined bool
	wanted          bool    // a mover has asked for it, and its time is not over
	from            uint64  // of one that loads: where its checkpoint was made
	records         records // of the checkpoint while it loads
}

// parkedCut is what a storage keeps for pins of a cut.
type parkedCut struct {
	cut  uint64
	held []records // by bucket
}

// manifest is a bucket's checkpoint.
type manifest struct {
	at      uint64
	records records
}

// end is the position of the last entry.
func (w *world) end() uint64 { return uint64(len(w.log)) }

// table is that of the log's end, and viewAt that at a position.
func (w *world) table() *buckets.View           { return w.viewAt(w.end()) }
func (w *world) viewAt(at uint64) *buckets.View { return w.log[at-1].table }
func (w *world) recordsAt(at uint64, b int) records {
	if at == 0 {
		return 0
	}
	return w.log[at-1].records[b]
}

// follows reports whether a storage applies what is appended at once, as long as it runs.
func (w *world) follows(s int) bool { return !slices.Contains(w.m.slow, s) }

// append puts an entry in the log.
func (w *world) append(what buckets.Entry) (at uint64) {
	e := &entry{what: what, records: make([]records, w.m.buckets)}
	if len(w.log) > 0 {
		last := w.log[len(w.log)-1]
		e.table, e.records = last.table, last.records
	}
	w.log = append(slices.Clip(w.log), e)
	switch what := what.(type) {
	case buckets.Own, buckets.Fence:
		table := buckets.NewTable(w.m.buckets)
		for i, before := range w.log {
			e.changed, _ = table.Apply(uint64(i)+1, before.what) // void is as good as applied, for the log
		}
		e.table = table.View()
	case buckets.Records:
		e.records = slices.Clone(e.records)
		e.records[what.Bucket] |= 1 << w.written
		w.written++
	}
	for s := range w.storages {
		if w.follows(s) && w.alive(s) {
			w.catchUp(s)
		}
	}
	return w.end()
}

// catchUp has a storage apply all that is in the log.
func (w *world) catchUp(s int) {
	for w.storages[s].at < w.end() {
		w.apply(s)
	}
}

// apply has a storage apply the next entry. Of what was purged it is not told.
func (w *world) apply(s int) {
	h := w.change(s)
	h.at++
	if h.at <= w.purged {
		h.jumped, h.at = true, w.purged
		w.fenceSeen(s)
		return
	}
	switch what := w.log[h.at-1].what.(type) {
	case buckets.Fence:
		w.fenceSeen(s)
	case buckets.Cut:
		w.park(h, s)
	case buckets.Own:
		if h.copies != nil && w.viewAt(h.at).Owner(what.Bucket).Storage == storageID(s) {
			h.copies[what.Bucket].wanted = false
		}
	case buckets.Records:
		if h.copies != nil && h.copies[what.Bucket].joined {
			w.take(h, int(what.Bucket), h.at-1, h.at)
		}
	}
}

// fenceSeen tells a storage of the last of its fences that it has applied.
func (w *world) fenceSeen(s int) {
	h := w.storages[s]
	if own := w.viewAt(h.at).Fence(storageID(s)); own > h.fence {
		h.fence = own
		w.storage(s, pmr.FenceSet{}, nil)
	}
}

// take adds what was written to a bucket between two positions to a copy of it. It is half of invariant B: nothing is
// applied twice.
func (w *world) take(h *host, b int, from, to uint64) {
	more := w.recordsAt(to, b) &^ w.recordsAt(from, b)
	if h.copies[b].records&more != 0 {
		fault("B: records %b of bucket %d are applied twice", more, b)
	}
	h.copies[b].records |= more
}

// park keeps what the storage owns at a cut, if all of it is loaded.
func (w *world) park(h *host, s int) {
	p := parkedCut{cut: h.at}
	for _, b := range w.viewAt(h.at).Of(storageID(s)) {
		if h.copies != nil && !h.copies[b].joined {
			return
		}
	}
	for _, c := range h.copies {
		p.held = append(p.held, c.records)
	}
	h.parked = append(h.parked, p)
}

// parkedAt is what a storage has parked at a cut, if all was there.
func (h *host) parkedAt(cut uint64) (parkedCut, bool) {
	i := slices.IndexFunc(h.parked, func(p parkedCut) bool { return p.cut == cut })
	if i < 0 {
		return parkedCut{}, false
	}
	return h.parked[i], true
}

// keeps is the other half of invariant B: a PMR sees of each of its buckets all that was written before the cut.
func (w *world) keeps(t *minted, p parkedCut) {
	for _, pin := range w.pins(t) {
		if p.held == nil {
			return
		}
		if held, all := p.held[pin.Bucket], w.recordsAt(t.cut, int(pin.Bucket)); held != all {
			fault("B: %s pins records %b of bucket %d, in which %b were before the cut", t.code.show(), held, pin.Bucket, all)
		}
	}
}

// has reports whether a storage has loaded buckets of an order.
func (w *world) has(s int, list []uint16) bool {
	h := w.storages[s]
	return h.copies == nil || !slices.ContainsFunc(list, func(b uint16) bool { return !h.copies[b].joined })
}

// load begins to load a bucket, from its checkpoint.
func (w *world) load(s, b int) {
	h, m := w.change(s), w.manifests[b]
	c := &h.copies[b]
	c.loading, c.from, c.records = true, m.at, m.records
}

// join ends it: what was written since is replayed, unless it was purged meanwhile.
func (w *world) join(s, b int) {
	h := w.change(s)
	c := &h.copies[b]
	if w.purged > c.from {
		*c = holding{wanted: c.wanted}
		w.tellFailure(s, b)
		return
	}
	w.take(h, b, max(c.from, w.purged), h.at)
	*c = holding{joined: true, wanted: c.wanted, records: c.records}
}

// Loads and leftovers of a storage, as useful lists them.
func (w *world) usefulOfCopies(s int, now []action) []action {
	h := w.storages[s]
	for b, c := range h.copies {
		own := w.viewAt(h.at).Owner(buckets.ID(b)).Storage == storageID(s)
		switch {
		case c.loading && c.from <= h.at:
			now = append(now, action{do: join, i: s, k: b})
		case own && !c.joined && !c.loading && !h.jumped:
			now = append(now, action{do: load, i: s, k: b})
		case !own && c.joined && !c.wanted && !h.jumped && w.purged <= h.at && !w.activates(s, b):
			now = append(now, action{do: forget, i: s, k: b})
		}
	}
	return now
}

// forget ends a storage's copy of a bucket that it does not own.
func (w *world) forget(s, b int) {
	h := w.change(s)
	h.copies[b] = holding{}
}

// reload is what a storage does once it knows that it has missed something: it has nothing, and begins at the log's
// end.
func (w *world) reload(s int) {
	h := w.change(s)
	h.jumped, h.at, h.parked = false, w.end(), nil
	for b := range h.copies {
		h.copies[b] = holding{wanted: h.copies[b].wanted}
	}
	w.fenceSeen(s)
}

// purge has every storage write a checkpoint of what it owns, as far as it knows, and purges what all checkpoints
// have passed. Of an older owner's and a newer one's checkpoint that counts which is further.
func (w *world) purge() {
	w.purges++
	w.purged = w.passed(func(b int, m manifest) { w.manifests[b] = m })
	for b, m := range w.manifests {
		if lost := w.recordsAt(w.purged, b) &^ m.records; lost != 0 {
			fault("B: records %b of bucket %d are purged, and in no checkpoint", lost, b)
		}
	}
}

// passed is the position that all checkpoints have passed after another round of them.
func (w *world) passed(each func(b int, m manifest)) uint64 {
	lowest := w.end()
	for b, m := range w.manifests {
		for s, h := range w.storages {
			if h.machine == nil || h.jumped || h.at <= m.at || !h.copies[b].joined || w.viewAt(h.at).Owner(buckets.ID(b)).Storage != storageID(s) {
				continue
			}
			m = manifest{at: h.at, records: h.copies[b].records}
		}
		each(b, m)
		lowest = min(lowest, m.at)
	}
	return lowest
}

// mayPurge reports whether there is anything to purge.
func (w *world) mayPurge() bool {
	return w.purges < w.m.purges && w.passed(func(int, manifest) {}) > w.purged
}
