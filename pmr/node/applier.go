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
	cmds    chan func()

	// Owned by the goroutine of Run.
	table      *buckets.Table
	tableDirty bool
	writes     buckets.Writes
	at         buckets.Position // that the store and whoever waits know of
	last       api.LogEntry     // applied after it and not committed yet; Seq 0 if there is none
	rests      rests
	cut        uint64          // parked and not committed yet
	gapAt      uint64          // entry that seemed to prove a gap
	forged     map[uint64]bool // such entries, where no gap can be: they build on what never was

	mu          sync.Mutex
	stopRead    context.CancelCauseFunc // ends the read that runs; nil between reads
	endWith     error                   // why the next read must not begin; see end
	pending     int                     // commands that wait for the goroutine of Run
	asked       *question               // under way
	changed     chan struct{}           // closed and replaced whenever something below changes
	epoch       uint64                  // counts loads; what was learned in an older one is void
	loaded      bool
	applied     uint64
	verified    uint64
	view        *buckets.View
	joined      map[buckets.ID]bool
	joining     map[buckets.ID]bool // being loaded
	dirty       []int64             // by bucket: bytes of its log since its last checkpoint, about
	lastRecord  []uint64            // by bucket: position of its last record entry, or later
	parked      map[uint64]*parkedCut
	skipped     uint64
	lastSkipped string
	reloads     uint64
	alarm       string // why nothing can be served; empty again once it can
	lostTail    string // what the log was once found to lack
	losses      int    // how often it was
}

var (
	errCommand = errors.New("node: interrupted by a command")
	errReload  = errors.New("node: told to load again")
	errForged  = errors.New("node: it builds on a generation that never was: forged, or written by hand")
	errStore   = errors.New("node: the local copy cannot be written")
)

// NewApplier returns the applier of a cluster. A router passes no store.
func NewApplier(settings api.Settings, self string, store buckets.Store, ports Ports) *Applier {
	n := settings.Buckets
	return &Applier{
		buckets: n, self: self, store: store, ports: ports, logger: ports.Logger,
		unknownDirty: settings.CheckpointBytes / 2,
		cmds:         make(chan func()), changed: make(chan struct{}),
		dirty: make([]int64, n), lastRecord: make([]uint64, n),
		parked: map[uint64]*parkedCut{}, joined: map[buckets.ID]bool{}, joining: map[buckets.ID]bool{},
		view: buckets.NewTable(n).View(),
	}
}

// isLoaded reports whether the table is that of the log, and not still to be loaded.
func (a *Applier) isLoaded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.loaded
}

// Run applies the log until ctx ends. Failures are logged and tried again, from what the store holds. It
// fails if the store cannot be written any more, as on a full disk.
func (a *Applier) Run(ctx context.Context) error {
	defer a.dropParked()
	emptied := false // since the last load that succeeded
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 2*time.Second) {
		err := a.load(ctx)
		if err == nil {
			emptied = false
			began := a.at.Seq
			err = a.follow(ctx)
			if a.at.Seq > began {
				pause = 50 * time.Millisecond
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errStore):
			return err
		case errors.Is(err, errReload):
			continue
		case errors.Is(err, buckets.ErrGap) && a.noGap(ctx):
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
	return nil
}

// noGap reports whether an entry that builds on an unknown generation must be forged: nothing can have been
// purged between what was verified and it. The entry is skipped from then on.
func (a *Applier) noGap(ctx context.Context) bool {
	state, err := a.freshState(ctx)
	if err != nil || a.gapAt == 0 || state.First > a.verifiedSoFar()+1 {
		return false
	}
	if a.forged == nil {
		a.forged = map[uint64]bool{}
	}
	a.forged[a.gapAt] = true
	return true
}

// follow reads the log and runs commands between reads.
func (a *Applier) follow(ctx context.Context) error {
	for {
		readCtx, cancel := context.WithCancelCause(ctx)
		waiting, wanted := a.startRead(cancel)
		if wanted != nil {
			cancel(wanted)
			return wanted
		}
		if waiting {
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

// startRead registers a read, unless a command waits or the applier was told to end.
func (a *Applier) startRead(cancel context.CancelCauseFunc) (waiting bool, wanted error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if wanted = a.endWith; wanted != nil {
		a.endWith = nil
		return false, wanted
	}
	if a.pending > 0 {
		return true, nil
	}
	a.stopRead = cancel
	return false, nil
}

// end has follow return with a cause: at once if it reads, else before it reads again. mu is held.
func (a *Applier) end(cause error) {
	if a.stopRead != nil {
		a.stopRead(cause)
		return
	}
	a.endWith = cause
}

func (a *Applier) endRead() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopRead = nil
}

// Reload has the applier compare itself with the log again and go on: after a reconnect.
func (a *Applier) Reload() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(errReload)
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
		if err != nil && !a.forged[e.Seq] {
			a.gapAt = e.Seq
			return err
		}
		if err != nil {
			a.skip(e, errForged)
		}
		if own, ok := entry.(buckets.Own); ok && err == nil && !changed {
			a.tellVoid(e.Seq, own)
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
		a.cut = e.Seq
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
	a.mu.Lock()
	defer a.mu.Unlock()
	a.skipped++
	if a.skipped <= 10 || a.skipped%1000 == 0 {
		a.logger.Warn("a log entry is malformed and was skipped", "seq", e.Seq, "subject", e.Subject, "reason", err, "skipped so far", a.skipped)
	}
	a.lastSkipped = fmt.Sprintf("%d on %.80q: %v", e.Seq, e.Subject, err)
}

// commit writes what was collected and tells those who wait.
func (a *Applier) commit() error {
	if err := a.write(); err != nil {
		return err
	}
	a.mu.Lock()
	a.applied, a.view = a.at.Seq, a.table.View()
	a.broadcast()
	a.mu.Unlock()
	if a.cut > 0 && a.store != nil {
		_ = a.question(a.cut) // pins of the cut will need the answer
		a.cut = 0
	}
	return nil
}

// write brings the store to the last entry that was applied.
func (a *Applier) write() error {
	if a.last.Seq > 0 {
		a.rests.moved(time.Now(), a.at)
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
		saved, err := a.encodeLocalTable()
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
		return fmt.Errorf("%w at log position %d: %w", errStore, a.at.Seq, err)
	}
	return nil
}

// tellVoid logs a claim that counts for nothing: another one came before it, or a fence that it names was passed.
func (a *Applier) tellVoid(seq uint64, own buckets.Own) {
	now := a.table.View().Owner(own.Bucket)
	a.logger.Info("a claim to a bucket came too late and counts for nothing", "bucket", own.Bucket, "by", own.Owner, "at", seq, "order", own.Move,
		"built on", own.Prev, "fences", [2]uint64{own.FenceSrc, own.FenceDst}, "owner", now.Storage, "since", now.Generation)
}

func (a *Applier) encodeLocalTable() ([]byte, error) {
	table, err := a.table.Save()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	local := localTable{Verified: a.verified, Table: table}
	a.mu.Unlock()
	return api.Encode(api.Msgpack, local)
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
