package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Join loads buckets from their checkpoints and the log, beside the running applier, and has the applier
// follow them from then on. Only the last step stops the applier: it replays what came since and is over
// in moments.
func (a *Applier) Join(ctx context.Context, bs []buckets.ID) error {
	a.joining.Lock()
	defer a.joining.Unlock()
	if err := a.waitUntil(ctx, func() bool { return a.loaded }); err != nil {
		return err
	}
	a.mu.Lock()
	epoch, applied := a.epoch, a.applied
	bs = slices.DeleteFunc(slices.Clone(bs), func(b buckets.ID) bool { return a.joined[b] })
	a.mu.Unlock()
	if len(bs) == 0 {
		return nil
	}
	slices.Sort(bs)
	l := &loading{a: a, from: map[buckets.ID]uint64{}, bytes: map[buckets.ID]int64{}}
	err := l.load(ctx, bs, applied)
	if err == nil {
		var finished error
		err = a.do(ctx, func() { finished = l.finish(ctx, bs, epoch) })
		err = errors.Join(err, finished)
	}
	if err != nil {
		a.writing.Lock()
		defer a.writing.Unlock()
		return errors.Join(err, a.store.Leave(bs)) // half of a bucket is of no use
	}
	return nil
}

// load brings buckets from their checkpoints to what the applier has applied.
func (l *loading) load(ctx context.Context, bs []buckets.ID, applied uint64) error {
	for _, b := range bs {
		if err := l.ingest(ctx, b); err != nil {
			return fmt.Errorf("node: load bucket %d: %w", b, err)
		}
	}
	if applied < l.highest() {
		// The applier must be past every checkpoint before the bucket can follow it.
		barrier, err := l.a.Barrier(ctx)
		if err != nil {
			return err
		}
		if err := l.a.WaitApplied(ctx, barrier); err != nil {
			return err
		}
		applied = barrier
	}
	return l.replay(ctx, bs, applied)
}

// loading is the state of one Join.
type loading struct {
	a      *Applier
	from   map[buckets.ID]uint64 // position of the checkpoint, by bucket
	done   uint64                // replayed up to here
	bytes  map[buckets.ID]int64  // replayed, by bucket
	writes buckets.Writes
}

// highest is the position of the latest checkpoint.
func (l *loading) highest() uint64 {
	var high uint64
	for _, from := range l.from {
		high = max(high, from)
	}
	return high
}

// ingest brings a bucket to the position of its checkpoint.
func (l *loading) ingest(ctx context.Context, b buckets.ID) error {
	m, _, err := loadManifest(ctx, l.a.ports.Manifests, b)
	if err != nil {
		return err
	}
	if m.Position.Seq > 0 {
		state, err := l.a.freshState(ctx)
		if err != nil {
			return err
		}
		if err := checkManifest(ctx, l.a.ports.Log, state, m); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(l.a.ports.TempDir, "load-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var paths []string
	for i, f := range m.Files {
		path := filepath.Join(dir, fmt.Sprintf("%06d.sst", i))
		if err := download(ctx, l.a.ports.Checkpoints, f.Name, path); err != nil {
			return fmt.Errorf("table file %s: %w", f.Name, err)
		}
		paths = append(paths, path)
	}
	l.from[b] = m.Position.Seq
	l.a.writing.Lock()
	defer l.a.writing.Unlock()
	if err := l.a.store.Load(b); err != nil {
		return err
	}
	if len(paths) == 0 {
		return nil
	}
	return l.a.store.Ingest(b, paths)
}

// checkManifest refuses a checkpoint that is ahead of the log, or was made of another one.
func checkManifest(ctx context.Context, log Log, state api.LogState, m Manifest) error {
	lost := m.Position.Seq > state.Last
	if !lost && m.Position.Seq >= state.First && !m.Position.Time.IsZero() {
		e, err := log.Entry(ctx, m.Position.Seq)
		if err != nil && api.CodeOf(err) != api.CodeNotFound {
			return err
		}
		lost = err == nil && !m.Position.Same(e)
	}
	if lost {
		return api.Errorf(api.CodeInternal, "the checkpoint of bucket %d covers log entry %d, which the log (to %d) does not have: the log has lost its tail", m.Bucket, m.Position.Seq, state.Last).
			WithHint("restore the log's stream from a backup that reaches this entry")
	}
	return nil
}

func download(ctx context.Context, objects Objects, name, path string) (err error) {
	r, err := objects.Get(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(f, r)
	return err
}

// replay applies the buckets' records from where they are up to a position, never beyond what the applier
// has applied: a snapshot of the store must not see later records of some buckets.
func (l *loading) replay(ctx context.Context, bs []buckets.ID, to uint64) error {
	from := l.done
	if from == 0 {
		from = to
		for _, b := range bs {
			from = min(from, l.from[b])
		}
	}
	var filters []string
	if len(bs) <= maxFilters {
		for _, b := range bs {
			filters = append(filters, buckets.RecSubject(b))
		}
	}
	if from < to {
		if err := l.read(ctx, from+1, to, filters); err != nil {
			return fmt.Errorf("node: replay %s to %d: %w", buckets.Ranges(bs), to, err)
		}
	}
	l.done = to
	return l.write()
}

// read applies what matches in [from, to]. A server that lags might end early and say nothing: so a barrier
// is appended behind it, and the reading counts only if it came to the barrier.
func (l *loading) read(ctx context.Context, from, to uint64, filters []string) error {
	barrier, err := l.a.Barrier(ctx)
	if err != nil {
		return err
	}
	if filters != nil {
		filters = append(filters, buckets.SubjectCut)
	}
	last := uint64(0)
	err = l.a.ports.Log.ReadTo(ctx, from, barrier, filters, func(e api.LogEntry) error {
		last = e.Seq
		if e.Seq > to {
			return nil
		}
		return l.apply(e)
	})
	if err == nil && last < barrier {
		err = api.Errorf(api.CodeUnavailable, "the log's server ended at %d, before the entry %d that was just appended", last, barrier)
	}
	return err
}

func (l *loading) apply(e api.LogEntry) error {
	entry, err := buckets.Decode(e, l.a.buckets)
	if err != nil {
		return nil //nolint:nilerr // skipped here as everywhere; the applier of its time has counted it
	}
	r, ok := entry.(buckets.Records)
	if !ok {
		return nil
	}
	if from, wanted := l.from[r.Bucket]; !wanted || e.Seq <= from {
		return nil
	}
	l.bytes[r.Bucket] += int64(len(e.Data))
	put(&l.writes, r)
	if l.writes.Len() >= commitBytes {
		return l.write()
	}
	return nil
}

func (l *loading) write() error {
	if len(l.writes.Records) == 0 {
		return nil
	}
	l.a.writing.Lock()
	defer l.a.writing.Unlock()
	err := l.a.store.Apply(&l.writes)
	l.writes.Reset()
	return err
}

// finish runs in the goroutine of Run. It brings the buckets to the applier's position and makes sure that
// the log still held everything that was replayed.
func (l *loading) finish(ctx context.Context, bs []buckets.ID, epoch uint64) error {
	a := l.a
	if !a.sameEpoch(epoch) {
		return api.Errorf(api.CodeNoCut, "node: loading began anew while %s were being loaded", buckets.Ranges(bs))
	}
	if err := l.replay(ctx, bs, a.at.Seq); err != nil {
		return err
	}
	state, err := a.freshState(ctx)
	if err != nil {
		return err
	}
	for _, b := range bs {
		if state.First > l.from[b]+1 {
			return api.Errorf(api.CodeNoCut, "node: the log was purged to %d while bucket %d was replayed from %d", state.First, b, l.from[b])
		}
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	if err := a.store.Join(bs); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range bs {
		a.joined[b] = true
		a.dirty[b] = l.bytes[b]
		a.lastRecord[b] = l.from[b]
		if l.bytes[b] > 0 {
			a.lastRecord[b] = a.at.Seq
		}
	}
	a.broadcast()
	return nil
}

// Leave forgets buckets.
func (a *Applier) Leave(ctx context.Context, bs []buckets.ID) error {
	var left error
	err := a.do(ctx, func() {
		a.writing.Lock()
		defer a.writing.Unlock()
		if left = a.store.Leave(bs); left != nil {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, b := range bs {
			delete(a.joined, b)
		}
		a.broadcast()
	})
	return errors.Join(err, left)
}

// Absent lists the buckets that the storage owns and has not loaded, and Surplus those that it has loaded
// and does not own.
func (a *Applier) Absent() (absent, surplus []buckets.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.loaded {
		return nil, nil
	}
	for b := range a.buckets {
		id := buckets.ID(b)
		owned := a.view.Owner(id).Storage == a.self
		switch {
		case owned && !a.joined[id]:
			absent = append(absent, id)
		case !owned && a.joined[id]:
			surplus = append(surplus, id)
		}
	}
	return absent, surplus
}
