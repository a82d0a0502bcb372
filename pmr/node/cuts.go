package node

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// parkedCut is what a node keeps of a cut until somebody claims it.
type parkedCut struct {
	view *buckets.View
	snap *heldSnapshot // nil in a router
	at   time.Time
}

// heldSnapshot is a snapshot with owners to count: cuts with no entry between them share one.
type heldSnapshot struct {
	buckets.Snapshot

	mu   sync.Mutex
	refs int
}

func (h *heldSnapshot) hold() *heldSnapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refs++
	return h
}

func (h *heldSnapshot) release() error {
	h.mu.Lock()
	h.refs--
	last := h.refs == 0
	h.mu.Unlock()
	if last {
		return h.Close()
	}
	return nil
}

// Claim is the state of the cluster at a cut: the table, and in a storage the records. Whoever holds it
// must release it.
type Claim struct {
	View *buckets.View
	snap *heldSnapshot
}

// Release frees the claim's snapshot.
func (c Claim) Release() error {
	if c.snap == nil {
		return nil
	}
	return c.snap.release()
}

// park keeps the table, and a snapshot of the store, as they are at a cut. A storage that has not loaded
// all of its buckets keeps nothing: it cannot answer for the cut.
func (a *Applier) park(seq uint64) error {
	cut := &parkedCut{view: a.table.View(), at: time.Now()}
	if a.store != nil {
		owned := cut.view.Of(a.self)
		if len(owned) == 0 || !a.complete(owned) || a.parkedCount() >= maxParked {
			return nil // nobody can ask for it, or nobody can be answered
		}
		snap, err := a.store.Snapshot()
		if err != nil {
			return err
		}
		cut.snap = (&heldSnapshot{Snapshot: snap}).hold()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parked[seq] = cut
	return nil
}

// complete reports whether all of these buckets are loaded.
func (a *Applier) complete(owned []buckets.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range owned {
		if !a.joined[b] {
			return false
		}
	}
	return true
}

func (a *Applier) parkedCount() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.parked)
}

// Claim waits until a cut was applied and hands out what was parked there, once, if the position can be
// verified. NO_CUT says that nothing is parked: too long ago, or the storage was not ready at the cut.
func (a *Applier) Claim(ctx context.Context, cut uint64) (Claim, error) {
	if err := a.WaitApplied(ctx, cut); err != nil {
		return Claim{}, err
	}
	a.mu.Lock()
	parked := a.parked[cut]
	delete(a.parked, cut)
	full := len(a.parked) >= maxParked && a.store != nil
	epoch := a.epoch
	a.mu.Unlock()
	switch {
	case parked == nil && full:
		return Claim{}, api.Errorf(api.CodeBusy, "%d cuts wait for their pins already", maxParked)
	case parked == nil:
		return Claim{}, api.Errorf(api.CodeNoCut, "no snapshot of the cut at %d", cut)
	}
	claim := Claim{View: parked.view, snap: parked.snap}
	err := a.Verify(ctx, cut)
	if err == nil && !a.sameEpoch(epoch) {
		err = api.Errorf(api.CodeNoCut, "the node was loading again at the cut at %d", cut)
	}
	if err != nil {
		if closeErr := claim.Release(); closeErr != nil {
			a.logger.Error("cannot close a snapshot", "reason", closeErr)
		}
		return Claim{}, err
	}
	return claim, nil
}

func (a *Applier) sameEpoch(epoch uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.epoch == epoch
}

// Verify makes sure that no entry up to a position was missed. The log's first entry must be one that
// follows what was verified before: then nothing in between can have been purged before it was read. An
// answer counts only if it is newer than what was applied; with several replicas a cut-off server may
// answer from the past, so a barrier is appended and must be in the answer.
func (a *Applier) Verify(ctx context.Context, seq uint64) error {
	a.mu.Lock()
	epoch, applied, verified := a.epoch, a.applied, a.verified
	a.mu.Unlock()
	if verified >= seq {
		return nil
	}
	state, err := a.freshState(ctx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.epoch != epoch:
		return api.Errorf(api.CodeNoCut, "the node is loading again")
	case state.First > a.verified+1:
		if a.stopRead != nil {
			a.stopRead(fmt.Errorf("%w: it begins at %d, this node has verified %d", buckets.ErrGap, state.First, a.verified))
		}
		return api.Errorf(api.CodeNoCut, "the log was purged to %d, beyond the verified position %d", state.First, a.verified)
	}
	a.verified = max(a.verified, applied)
	if a.verified < seq {
		return api.Errorf(api.CodeNoCut, "position %d is not applied", seq)
	}
	return nil
}

// freshState asks for the log's extent, and makes sure that the answer is not from before the call.
func (a *Applier) freshState(ctx context.Context) (api.LogState, error) {
	state, err := a.ports.Log.State(ctx)
	if err != nil || state.Replicas <= 1 {
		return state, err
	}
	barrier, err := a.Barrier(ctx)
	if err != nil {
		return state, err
	}
	state, err = a.ports.Log.State(ctx)
	if err == nil && state.Last < barrier {
		err = api.Errorf(api.CodeUnavailable, "the log's server answers from the past: %d, after %d was appended", state.Last, barrier)
	}
	return state, err
}

// Barrier appends an entry that everybody sees and nobody acts on, and returns its position.
func (a *Applier) Barrier(ctx context.Context) (uint64, error) {
	return appendEntry(ctx, a.ports.Log, buckets.SubjectCut, buckets.Cut{}, "barrier-"+rand.Text())
}

// appendEntry appends an entry of the table's kind.
func appendEntry(ctx context.Context, log Log, subject string, entry any, msgID string) (uint64, error) {
	body, err := api.Encode(api.Msgpack, entry)
	if err != nil {
		return 0, err
	}
	return log.Append(ctx, subject, nil, body, msgID)
}

// Expire drops what has been parked for too long.
func (a *Applier) Expire(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for seq, cut := range a.parked {
		if now.Sub(cut.at) >= DefaultParkedFor {
			a.dropCutLocked(seq, cut)
		}
	}
}

func (a *Applier) dropParked() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropParkedLocked()
}

func (a *Applier) dropParkedLocked() {
	for seq, cut := range a.parked {
		a.dropCutLocked(seq, cut)
	}
}

func (a *Applier) dropCutLocked(seq uint64, cut *parkedCut) {
	delete(a.parked, seq)
	if cut.snap == nil {
		return
	}
	if err := cut.snap.release(); err != nil {
		a.logger.Error("cannot close a snapshot", "reason", err)
	}
}
