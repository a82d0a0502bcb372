package node

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// parkedCut is what a node keeps of a cut until somebody claims it.
type parkedCut struct {
	view *buckets.View
	snap buckets.Snapshot // nil in a router
	at   time.Time
}

// Claim is the state of the cluster at a cut: the table, and in a storage the records. Whoever holds it
// must release it.
type Claim struct {
	View       *buckets.View
	cut, epoch uint64
	snap       buckets.Snapshot
}

// Release frees the claim's snapshot.
func (c Claim) Release() error {
	if c.snap == nil {
		return nil
	}
	return c.snap.Close()
}

// park keeps the table, and a snapshot of the store, as they are at a cut. A storage that has not loaded
// all of its buckets keeps nothing: it cannot answer for the cut.
func (a *Applier) park(seq uint64) error {
	cut := &parkedCut{view: a.table.View(), at: time.Now()}
	if a.store != nil {
		owned := cut.view.Of(a.self)
		if len(owned) == 0 || !a.complete(owned) {
			return nil // nobody can ask for it, or nobody can be answered
		}
		var err error
		if cut.snap, err = a.store.Snapshot(); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.store != nil && len(a.parked) >= maxParked {
		// The oldest is the one that is most likely forgotten: of a job that gave up, or replayed at a start.
		oldest := slices.Min(slices.Collect(maps.Keys(a.parked)))
		a.dropCutLocked(oldest, a.parked[oldest])
	}
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

// Claim waits until a cut was applied and hands out what was parked there, once, if the position can be
// verified. NO_CUT says that nothing is parked: too long ago, or the storage was not ready at the cut.
func (a *Applier) Claim(ctx context.Context, cut uint64) (Claim, error) {
	claim, err := a.claimUnverified(ctx, cut)
	if err != nil {
		return Claim{}, err
	}
	if err := a.verifyClaim(ctx, claim); err != nil {
		if closeErr := claim.Release(); closeErr != nil {
			a.logger.Error("cannot close a snapshot", "reason", closeErr)
		}
		return Claim{}, err
	}
	return claim, nil
}

// claimUnverified is Claim without what makes sure that no entry was missed: verifyClaim.
func (a *Applier) claimUnverified(ctx context.Context, cut uint64) (Claim, error) {
	if err := a.WaitApplied(ctx, cut); err != nil {
		return Claim{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	parked := a.parked[cut]
	delete(a.parked, cut)
	if parked == nil {
		return Claim{}, api.Errorf(api.CodeNoCut, "no snapshot of the cut at %d", cut)
	}
	return Claim{View: parked.view, cut: cut, epoch: a.epoch, snap: parked.snap}, nil
}

func (a *Applier) verifyClaim(ctx context.Context, c Claim) error {
	err := a.Verify(ctx, c.cut)
	if err == nil && !a.sameEpoch(c.epoch) {
		err = api.Errorf(api.CodeNoCut, "the node was loading again at the cut at %d", c.cut)
	}
	return err
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
	q := a.question(seq)
	if q == nil {
		return nil
	}
	select {
	case <-q.answered:
		return q.err
	case <-ctx.Done():
		return api.Errorf(api.CodeTimeout, "log position %d was not verified in time", seq)
	}
}

// question is one to the log that verifies what was applied before it was asked. Those who need no more share
// its answer.
type question struct {
	applied, epoch uint64
	answered       chan struct{}
	err            error
}

// question returns the one that verifies a position and is under way, or asks another; nil if the position is
// verified.
func (a *Applier) question(seq uint64) *question {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.verified >= seq {
		return nil
	}
	if q := a.asked; q != nil && q.applied >= seq && q.epoch == a.epoch {
		return q
	}
	q := &question{applied: a.applied, epoch: a.epoch, answered: make(chan struct{})}
	a.asked = q
	go func() {
		defer close(q.answered)
		ctx, cancel := context.WithTimeout(context.Background(), DefaultPinTTL)
		defer cancel()
		state, err := a.freshState(ctx)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.asked == q {
			a.asked = nil
		}
		if q.err = err; err == nil {
			q.err = a.answer(q, state)
		}
		if q.err == nil && a.verified < seq {
			q.err = api.Errorf(api.CodeNoCut, "position %d is not applied", seq)
		}
	}()
	return q
}

// answer moves the verified position, if the log's extent allows it; mu is held.
func (a *Applier) answer(q *question, state api.LogState) error {
	switch {
	case a.epoch != q.epoch:
		return api.Errorf(api.CodeNoCut, "the node is loading again")
	case state.First > a.verified+1:
		a.end(fmt.Errorf("%w: it begins at %d, this node has verified %d", buckets.ErrGap, state.First, a.verified))
		return api.Errorf(api.CodeNoCut, "the log was purged to %d, beyond the verified position %d", state.First, a.verified)
	}
	a.verified = max(a.verified, q.applied)
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
	if err := cut.snap.Close(); err != nil {
		a.logger.Error("cannot close a snapshot", "reason", err)
	}
}
