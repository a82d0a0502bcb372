package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Applier follows the log: it steps the table of owners and, if it has a store, writes the records of the
// store's buckets. One goroutine, that of Run, applies; everybody else asks for what it has reached.
//
// A follower that falls behind a purge jumps over the gap without being told. So what was applied is
// trusted only up to the verified position: see Verify.
type Applier struct {
	buckets      int
	self         string        // the storage's id; empty in a router
	store        buckets.Store // nil in a router
	ports        Ports
	logger       *slog.Logger
	unknownDirty int64 // what a restart assumes of each bucket's log since its checkpoint

	writing sync.Mutex // held while the store is written: by Run, and by joins that load buckets
	joining sync.Mutex // one join at a time
	cmds    chan func()

	// Owned by the goroutine of Run.
	table      *buckets.Table
	tableDirty bool
	writes     buckets.Writes
	at         buckets.Position // that the store and whoever waits know of
	last       api.LogEntry     // applied after it and not committed yet; Seq 0 if there is none

	mu          sync.Mutex
	stopRead    context.CancelCauseFunc // ends the read that runs; nil between reads
	pending     int                     // commands that wait for the goroutine of Run
	changed     chan struct{}           // closed and replaced whenever something below changes
	epoch       uint64                  // counts loads; what was learned in an older one is void
	loaded      bool
	applied     uint64
	verified    uint64
	view        *buckets.View
	joined      map[buckets.ID]bool
	dirty       []int64  // by bucket: bytes of its log since its last checkpoint, about
	lastRecord  []uint64 // by bucket: position of its last record entry, or later
	parked      map[uint64]*parkedCut
	skipped     uint64
	lastSkipped string
	reloads     uint64
	alarm       string // why nothing can be served; empty again once it can
	lostTail    string // what the log was once found to lack
}

var (
	errCommand = errors.New("node: interrupted by a command")
	errReload  = errors.New("node: told to load again")
)

// NewApplier returns the applier of a cluster. A router passes no store.
func NewApplier(settings api.Settings, self string, store buckets.Store, ports Ports) *Applier {
	n := settings.Buckets
	return &Applier{
		buckets: n, self: self, store: store, ports: ports, logger: ports.Logger,
		unknownDirty: settings.CheckpointBytes / 2,
		cmds:         make(chan func()), changed: make(chan struct{}),
		dirty: make([]int64, n), lastRecord: make([]uint64, n),
		parked: map[uint64]*parkedCut{}, joined: map[buckets.ID]bool{},
		view: buckets.NewTable(n).View(),
	}
}

// Run applies the log until ctx ends. Failures are logged and tried again, from what the store holds.
func (a *Applier) Run(ctx context.Context) {
	defer a.dropParked()
	emptied := false // since the last load that succeeded
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 2*time.Second) {
		err := a.load(ctx)
		if err == nil {
			emptied = false
			err = a.follow(ctx)
			pause = 50 * time.Millisecond
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errReload):
			continue
		case errors.Is(err, buckets.ErrGap) && emptied:
			a.setAlarm(fmt.Sprintf("the log was purged beyond the saved table: %v", err))
		case errors.Is(err, buckets.ErrGap):
			a.logger.Warn("the log was purged past this node; loading again from the checkpoints", "reason", err)
			if err = a.startOver(ctx); err == nil {
				emptied = true
				continue
			}
		}
		a.logger.Error("cannot follow the log; trying again", "reason", err, "in", pause)
		a.idle(ctx, pause)
	}
}

// idle waits, and runs commands meanwhile.
func (a *Applier) idle(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case cmd := <-a.cmds:
			cmd()
		}
	}
}

// load finds where to go on: at the store's position, or at the saved table if the store has none.
func (a *Applier) load(ctx context.Context) error {
	state, err := a.ports.Log.State(ctx)
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
	a.table, a.at, a.last, a.tableDirty = table, at, api.LogEntry{}, true
	a.writes.Reset()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.epoch++
	a.applied, a.verified, a.view, a.loaded, a.alarm = at.Seq, verified, table.View(), true, ""
	a.joined = map[buckets.ID]bool{}
	if a.store != nil {
		for _, b := range a.store.Joined() {
			a.joined[b] = true
			a.dirty[b], a.lastRecord[b] = a.unknownDirty, at.Seq
		}
	}
	a.dropParkedLocked()
	a.broadcast()
	return nil
}

// checkTail compares the last entry that was applied with the log's. A node that is ahead of the log, or
// saw another entry there, begins anew.
func (a *Applier) checkTail(ctx context.Context, state api.LogState) error {
	at := a.at
	if a.store != nil {
		at = a.store.Position()
	}
	if at.Seq == 0 || at.Seq < state.First {
		return nil
	}
	e, err := a.ports.Log.Entry(ctx, at.Seq)
	switch {
	case err == nil && at.Same(e):
		return nil
	case err != nil && api.CodeOf(err) != api.CodeNotFound:
		return fmt.Errorf("node: read log entry %d: %w", at.Seq, err)
	}
	// An entry below the last one that is not there was purged a moment ago; load finds the gap.
	if err != nil && at.Seq < state.Last {
		return nil
	}
	a.mu.Lock()
	a.lostTail = fmt.Sprintf("the log's entry %d was not the one that this node had applied (the log ended at %d): loaded again from the checkpoints; what the log has lost is lost", at.Seq, state.Last)
	a.mu.Unlock()
	a.logger.Error("the log has lost its tail or is another one; loading again from the checkpoints", "applied", at.Seq, "log ends", state.Last)
	return a.forget()
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
		for _, b := range a.store.Joined() {
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

// forget empties the store; the buckets come back from checkpoints and log.
func (a *Applier) forget() error {
	a.at = buckets.Position{}
	a.mu.Lock()
	a.reloads++
	a.epoch++
	a.loaded, a.verified = false, 0
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

// follow reads the log and runs commands between reads.
func (a *Applier) follow(ctx context.Context) error {
	for {
		readCtx, cancel := context.WithCancelCause(ctx)
		if waiting := a.startRead(cancel); waiting {
			cancel(errCommand)
			if err := a.runCommand(ctx); err != nil {
				return err
			}
			continue
		}
		err := a.ports.Log.Read(readCtx, a.at.Seq+1, a.filters(), a.apply)
		a.endRead()
		cause := context.Cause(readCtx)
		cancel(nil)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(cause, errReload), errors.Is(cause, buckets.ErrGap):
			return cause
		case errors.Is(cause, errCommand):
			continue
		case err != nil:
			return err
		}
	}
}

func (a *Applier) startRead(cancel context.CancelCauseFunc) (waiting bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending > 0 {
		return true
	}
	a.stopRead = cancel
	return false
}

func (a *Applier) endRead() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopRead = nil
}

// runCommand runs the command that interrupted a read, unless its caller has given up.
func (a *Applier) runCommand(ctx context.Context) error {
	a.mu.Lock()
	changed, pending := a.changed, a.pending
	a.mu.Unlock()
	if pending == 0 {
		return nil
	}
	select {
	case cmd := <-a.cmds:
		cmd()
		return nil
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// do runs fn in the goroutine of Run, between two reads: nothing is applied meanwhile.
func (a *Applier) do(ctx context.Context, fn func()) error {
	a.mu.Lock()
	a.pending++
	if a.stopRead != nil {
		a.stopRead(errCommand)
	}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.pending--
		a.broadcast()
		a.mu.Unlock()
	}()
	done := make(chan struct{})
	select {
	case a.cmds <- func() { defer close(done); fn() }:
		<-done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reload has the applier compare itself with the log again and go on: after a reconnect.
func (a *Applier) Reload() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopRead != nil {
		a.stopRead(errReload)
	}
}

// maxFilters is how many buckets are read by name; above it the whole log is read and most of it dropped
// (5,461 filters cost 2.3 s at every change).
const maxFilters = 256

func (a *Applier) filters() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.joined) > maxFilters {
		return nil
	}
	filters := buckets.TableSubjects()
	for b := range a.buckets {
		if a.joined[buckets.ID(b)] {
			filters = append(filters, buckets.RecSubject(buckets.ID(b)))
		}
	}
	return filters
}

// commitBytes is how much is written to the store at once.
const commitBytes = 4 << 20

func (a *Applier) apply(batch []api.LogEntry) error {
	for _, e := range batch {
		if err := a.applyEntry(e); err != nil {
			return err
		}
		if a.writes.Len() >= commitBytes {
			if err := a.commit(); err != nil {
				return err
			}
		}
	}
	return a.commit()
}

func (a *Applier) applyEntry(e api.LogEntry) error {
	if e.Seq <= max(a.at.Seq, a.last.Seq) {
		return nil
	}
	entry, err := buckets.Decode(e, a.buckets)
	if err != nil {
		a.skip(e, err)
	}
	a.last = e
	switch entry := entry.(type) {
	case buckets.Records:
		a.record(entry, e)
	case buckets.Own, buckets.Fence:
		changed, err := a.table.Apply(e.Seq, entry)
		if err != nil {
			return err
		}
		a.tableDirty = a.tableDirty || changed
	case buckets.Cut:
		a.table.Seen(e.Seq)
		if entry.Job == "" {
			break
		}
		if err := a.write(); err != nil {
			return err
		}
		return a.park(e.Seq) // before anybody is told that the cut was applied
	}
	return nil
}

func (a *Applier) record(r buckets.Records, e api.LogEntry) {
	a.mu.Lock()
	joined := a.joined[r.Bucket]
	if joined {
		a.dirty[r.Bucket] += int64(len(e.Data))
		a.lastRecord[r.Bucket] = e.Seq
	}
	a.mu.Unlock()
	if joined {
		put(&a.writes, r)
	}
}

func put(w *buckets.Writes, r buckets.Records) {
	r.Each(func(key, value []byte, del bool) {
		if del {
			w.Delete(r.Bucket, r.Space, key)
			return
		}
		w.Put(r.Bucket, r.Space, key, value)
	})
}

// skip counts an entry that cannot be applied. It is the same for every applier.
func (a *Applier) skip(e api.LogEntry, err error) {
	a.logger.Warn("a log entry is malformed and was skipped", "seq", e.Seq, "subject", e.Subject, "reason", err)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.skipped++
	a.lastSkipped = fmt.Sprintf("%d on %.80q: %v", e.Seq, e.Subject, err)
}

// commit writes what was collected and tells those who wait.
func (a *Applier) commit() error {
	if err := a.write(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.applied, a.view = a.at.Seq, a.table.View()
	a.broadcast()
	return nil
}

// write brings the store to the last entry that was applied.
func (a *Applier) write() error {
	if a.last.Seq > 0 {
		a.at, a.last = buckets.PositionOf(a.last), api.LogEntry{}
	}
	if a.store != nil && a.at.Seq > 0 && (a.tableDirty || a.at.Seq > a.store.Position().Seq) {
		if err := a.writeStore(); err != nil {
			return err
		}
	}
	a.tableDirty = false
	return nil
}

func (a *Applier) writeStore() error {
	a.writes.Position = a.at
	if a.tableDirty {
		saved, err := a.saveLocalTable()
		if err != nil {
			return err
		}
		a.writes.Table = saved
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	err := a.store.Apply(&a.writes)
	a.writes.Reset()
	if err != nil {
		return fmt.Errorf("node: write at log position %d: %w", a.at.Seq, err)
	}
	return nil
}

func (a *Applier) saveLocalTable() ([]byte, error) {
	table, err := a.table.Save()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	local := localTable{Verified: a.verified, Table: table}
	a.mu.Unlock()
	return api.Encode(api.Msgpack, local)
}

// broadcast wakes everybody who waits for a change. mu is held.
func (a *Applier) broadcast() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// waitUntil waits until ok, which is called with mu held.
func (a *Applier) waitUntil(ctx context.Context, ok func() bool) error {
	for {
		a.mu.Lock()
		done, changed := ok(), a.changed
		a.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// WaitApplied waits until everything up to a position was applied.
func (a *Applier) WaitApplied(ctx context.Context, seq uint64) error {
	err := a.waitUntil(ctx, func() bool { return a.loaded && a.applied >= seq })
	if err != nil {
		return api.Errorf(api.CodeTimeout, "log position %d was not reached in time; %d is applied", seq, a.Applied())
	}
	return nil
}

// Applied is the position up to which the log was applied, verified or not.
func (a *Applier) Applied() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.applied
}

// View is the table as last applied. It may be old: only a cut fixes it.
func (a *Applier) View() *buckets.View {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.view
}

// Changed is closed at the next change of position or table.
func (a *Applier) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

func (a *Applier) setAlarm(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.alarm = text
}
