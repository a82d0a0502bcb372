package node

import (
	"context"
	"errors"
	"maps"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// frozen is a snapshot of the store between cuts: for reads of single records and for checkpoints.
type frozen struct {
	buckets.Snapshot
	at     buckets.Position
	view   *buckets.View       // at the position, or later
	joined map[buckets.ID]bool // buckets that the snapshot holds whole
	epoch  uint64
}

// freeze takes a snapshot of the store as it is.
func (a *Applier) freeze() (*frozen, error) {
	a.writing.Lock()
	defer a.writing.Unlock()
	snap, err := a.store.Snapshot()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return &frozen{Snapshot: snap, at: a.store.Position(), view: a.view, joined: maps.Clone(a.joined), epoch: a.epoch}, nil
}

// verifiedNow takes a snapshot of the store as it is and makes sure that nothing was missed up to it.
func (a *Applier) verifiedNow(ctx context.Context) (*frozen, error) {
	f, err := a.freeze()
	if err != nil {
		return nil, err
	}
	err = a.Verify(ctx, f.at.Seq)
	if err == nil && !a.sameEpoch(f.epoch) {
		err = api.Errorf(api.CodeNoCut, "the node is loading again")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// upToDate is verifiedNow with everything that was in the log before the call.
func (a *Applier) upToDate(ctx context.Context) (*frozen, error) {
	seq, err := a.Barrier(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.WaitApplied(ctx, seq); err != nil {
		return nil, err
	}
	return a.verifiedNow(ctx)
}

// owns reports whether the storage owns a bucket and the snapshot holds it whole.
func (f *frozen) owns(b buckets.ID, storage string) bool {
	return int(b) < f.view.Len() && f.view.Owner(b).Storage == storage && f.joined[b]
}
