package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// load finds where to go on: at the store's position, or at the saved table if the store has none.
func (a *Applier) load(ctx context.Context) error {
	state, err := a.freshState(ctx) // an old answer would look as if the log had lost its tail
	if err != nil {
		return fmt.Errorf("node: ask for the log's extent: %w", err)
	}
	if err := a.checkTail(ctx, state); err != nil {
		return err
	}
	table, at, verified, err := a.loadTable(ctx)
	if err != nil {
		return err
	}
	if at.Seq > state.Last {
		a.setAlarm(fmt.Sprintf("the log ends at %d, but the table was saved at %d: the log has lost its tail", state.Last, at.Seq))
		return api.Errorf(api.CodeInternal, "node: the log ends at %d, before the saved table's position %d", state.Last, at.Seq)
	}
	if state.First > verified+1 {
		return fmt.Errorf("%w: it begins at %d, this node has verified %d", buckets.ErrGap, state.First, verified)
	}
	same := a.at.Seq == at.Seq // as after a reconnect: what is known of each bucket's log still holds
	a.table, a.at, a.last, a.tableDirty = table, at, api.LogEntry{}, true
	a.writes.Reset()
	joined := a.storeJoined()
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.joined
	a.epoch++
	a.applied, a.verified, a.view, a.loaded, a.alarm = at.Seq, verified, table.View(), true, ""
	a.joined = map[buckets.ID]bool{}
	if a.store != nil {
		for _, b := range joined {
			a.joined[b] = true
			if !before[b] || !same {
				a.dirty[b], a.lastRecord[b] = a.unknownDirty, at.Seq
			}
		}
	}
	a.dropParkedLocked()
	a.broadcast()
	return nil
}

// rests are the positions at which the applier paused of late. After a reconnect it may have gone on before
// it could look back, and what it has applied since proves nothing: a log that has lost its tail may have
// grown past the position again.
type rests struct {
	moves time.Time // when the position last moved
	last  []buckets.Position
}

// A server that lost a part of its disk was away for longer than shortRest.
const (
	shortRest = 100 * time.Millisecond
	keptRests = 32
)

// moved notes that a position is being left.
func (r *rests) moved(now time.Time, from buckets.Position) {
	if from.Seq > 0 && now.Sub(r.moves) >= shortRest {
		r.last = append(r.last[max(0, len(r.last)-keptRests+1):len(r.last):len(r.last)], from)
	}
	r.moves = now
}

// checkTail compares the last entry that was applied, and those before the last pauses, with the log's. A
// node that is ahead of the log, or saw another entry there, begins anew.
func (a *Applier) checkTail(ctx context.Context, state api.LogState) error {
	at := a.at
	if a.store != nil {
		at = a.store.Position()
	}
	for _, p := range append([]buckets.Position{at}, a.rests.last...) {
		lost, err := a.lost(ctx, p, state)
		if err != nil {
			return err
		}
		if lost {
			return a.loseTail(p.Seq, state)
		}
	}
	return nil
}

// lost reports whether the log does not hold the entry that a position covers last.
func (a *Applier) lost(ctx context.Context, at buckets.Position, state api.LogState) (bool, error) {
	if at.Time.IsZero() || at.Seq < state.First { // taken from the saved table, or purged: nothing to compare
		return false, nil
	}
	e, err := a.ports.Log.Entry(ctx, at.Seq)
	switch {
	case err == nil:
		return !at.Same(e), nil
	case api.CodeOf(err) != api.CodeNotFound:
		return false, fmt.Errorf("node: read log entry %d: %w", at.Seq, err)
	}
	// An entry below the last one that is not there was purged a moment ago; load finds the gap.
	return at.Seq >= state.Last, nil
}

func (a *Applier) loseTail(seq uint64, state api.LogState) error {
	kept, err := a.keepAside(seq)
	if err != nil {
		return fmt.Errorf("node: the log is not the one that this storage has applied, and its records cannot be kept aside: %w", err)
	}
	a.mu.Lock()
	a.losses++
	a.lostTail = fmt.Sprintf("the log's entry %d was not the one that this node had applied (the log ended at %d): loaded again from the checkpoints%s", seq, state.Last, kept)
	a.mu.Unlock()
	a.logger.Error("the log has lost its tail or is another one; loading again from the checkpoints", "applied", seq, "log ends", state.Last)
	return a.forget()
}

// keepAside copies the store before it is emptied: it may hold the last copy of what the log has lost.
func (a *Applier) keepAside(seq uint64) (told string, err error) {
	if a.store == nil || a.ports.KeepDir == "" {
		return "; what the log has lost is lost", nil
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	dir := filepath.Join(a.ports.KeepDir, fmt.Sprintf("lost-%d-%s", seq, rand.Text()[:6]))
	return "; the records as they were are kept in " + dir, a.store.Copy(dir)
}

// lostTails is how often the log was found to lack what this node had applied.
func (a *Applier) lostTails() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.losses
}

// localTable is what a storage keeps in its store beside the records.
type localTable struct {
	Verified uint64 `json:"verified"`
	Table    []byte `json:"table"`
}

// loadTable returns the table, the position to go on from, and up to where that is verified.
func (a *Applier) loadTable(ctx context.Context) (*buckets.Table, buckets.Position, uint64, error) {
	if a.store != nil {
		if at := a.store.Position(); at.Seq > 0 {
			return a.loadLocalTable(at)
		}
	} else if a.at.Digest != 0 {
		return a.table, a.at, a.verifiedSoFar(), nil // a router goes on where it was
	}
	saved, err := a.ports.State.Get(ctx, keyTable)
	if err != nil {
		return nil, buckets.Position{}, 0, fmt.Errorf("node: read the saved table: %w", err)
	}
	if saved.Revision == 0 {
		return buckets.NewTable(a.buckets), buckets.Position{}, 0, nil
	}
	table, err := buckets.ParseTable(saved.Value, a.buckets)
	if err != nil {
		return nil, buckets.Position{}, 0, err
	}
	return table, buckets.Position{Seq: table.Seq()}, table.Seq(), nil
}

func (a *Applier) verifiedSoFar() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.verified
}

func (a *Applier) loadLocalTable(at buckets.Position) (*buckets.Table, buckets.Position, uint64, error) {
	var local localTable
	if err := api.Decode(a.store.Table(), &local, api.Lenient); err != nil {
		return nil, at, 0, fmt.Errorf("node: the store's table: %w", err)
	}
	table, err := buckets.ParseTable(local.Table, a.buckets)
	if err != nil {
		return nil, at, 0, err
	}
	table.Seen(at.Seq)
	a.mu.Lock()
	defer a.mu.Unlock()
	return table, at, min(max(local.Verified, a.verified), at.Seq), nil
}

// startOver empties the store, once it is certain that checkpoints and log can fill it again. Where the log
// was purged beyond a checkpoint, this copy may be the last one: it is kept, and not served.
func (a *Applier) startOver(ctx context.Context) error {
	if a.store != nil {
		state, err := a.ports.Log.State(ctx)
		if err != nil {
			return err
		}
		for _, b := range a.storeJoined() {
			m, _, err := loadManifest(ctx, a.ports.Manifests, b)
			if err != nil {
				return err
			}
			if m.Position.Seq+1 < state.First {
				text := fmt.Sprintf("the log begins at %d, but the checkpoint of bucket %d reaches only to %d: records between are lost to this storage, whose own copy is kept and not served", state.First, b, m.Position.Seq)
				a.setAlarm(text)
				return errors.New("node: " + text)
			}
		}
	}
	return a.forget()
}

// storeJoined lists the buckets that the store holds.
func (a *Applier) storeJoined() []buckets.ID {
	if a.store == nil {
		return nil
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	return a.store.Joined()
}

// forget empties the store; the buckets come back from checkpoints and log.
func (a *Applier) forget() error {
	a.at, a.rests = buckets.Position{}, rests{}
	a.mu.Lock()
	a.reloads++
	a.epoch++
	a.loaded, a.verified = false, 0
	a.joined = map[buckets.ID]bool{}
	a.dropParkedLocked()
	a.mu.Unlock()
	if a.store == nil {
		return nil
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	if err := a.store.Reset(); err != nil {
		return fmt.Errorf("node: empty the store: %w", err)
	}
	return nil
}
