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

// intake is told what a join brings in.
type intake interface {
	expect(b buckets.ID, n int64)                        // so many bytes more are to come
	take(ctx context.Context, b buckets.ID, n int) error // they have come; it may wait, so that no more come too fast
}

// atOnce is an intake that lets everything in.
type atOnce struct{}

func (atOnce) expect(buckets.ID, int64)                    {}
func (atOnce) take(context.Context, buckets.ID, int) error { return nil }

// Join loads buckets from their checkpoints and the log, beside the running applier, and has the applier
// follow them from then on. Only the last step stops the applier: it replays what came since and is over
// in moments. Joins of different buckets do not wait for each other.
//
// Large buckets are joined one by one: what has been joined follows the log, while what waits for others to be loaded
// may see the log purged past it.
func (a *Applier) Join(ctx context.Context, bs []buckets.ID, in intake) error {
	bs, err := a.beginJoin(ctx, bs)
	if err != nil {
		return err
	}
	defer a.endJoin(bs)
	for len(bs) > 0 {
		n, err := a.joinSome(ctx, bs, in)
		if err != nil {
			return err
		}
		bs = bs[n:]
	}
	return nil
}

// joinedAtOnce is how many bytes of table files are worth a stop of the applier.
const joinedAtOnce = 4 << 20

// joinSome joins the first of the buckets, and tells how many.
func (a *Applier) joinSome(ctx context.Context, bs []buckets.ID, in intake) (n int, err error) {
	l := &loading{a: a, in: in, from: map[buckets.ID]uint64{}, bytes: map[buckets.ID]int64{}}
	a.mu.Lock()
	epoch, applied := a.epoch, a.applied
	a.mu.Unlock()
	for n < len(bs) && err == nil && l.ingested < joinedAtOnce {
		if err = l.ingest(ctx, bs[n]); err != nil {
			err = fmt.Errorf("node: load bucket %d: %w", bs[n], err)
		}
		n++
	}
	bs = bs[:n]
	if err == nil {
		err = l.catchUp(ctx, bs, applied)
	}
	if err == nil {
		l.in = atOnce{} // the applier stands still
		var finished error
		err = a.do(ctx, func() { finished = l.finish(ctx, bs, epoch) })
		err = errors.Join(err, finished)
	}
	if err != nil {
		a.writing.Lock()
		defer a.writing.Unlock()
		err = errors.Join(err, a.store.Leave(bs)) // half of a bucket is of no use
	}
	return n, err
}

// beginJoin waits until nobody else loads one of the buckets, and claims those that have not been joined by then.
func (a *Applier) beginJoin(ctx context.Context, bs []buckets.ID) (claimed []buckets.ID, err error) {
	err = a.waitUntil(ctx, func() bool {
		if !a.loaded || slices.ContainsFunc(bs, func(b buckets.ID) bool { return a.joining[b] }) {
			return false
		}
		claimed = slices.DeleteFunc(slices.Sorted(slices.Values(bs)), func(b buckets.ID) bool { return a.joined[b] })
		for _, b := range claimed {
			a.joining[b] = true
		}
		return true
	})
	return claimed, err
}

func (a *Applier) endJoin(bs []buckets.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range bs {
		delete(a.joining, b)
	}
	a.broadcast()
}

// While a replay brings more than shortReplay bytes another one follows, so that the last one, for which the applier
// stands still, is short.
const (
	shortReplay = 256 << 10
	mostReplays = 10
)

// catchUp brings buckets from their checkpoints to what the applier has applied.
func (l *loading) catchUp(ctx context.Context, bs []buckets.ID, applied uint64) error {
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
	for range mostReplays {
		if err := l.replay(ctx, bs, applied); err != nil || l.replayed < shortReplay {
			return err
		}
		applied = l.a.Applied()
	}
	return nil
}

// loading is the state of one step of a Join.
type loading struct {
	a        *Applier
	in       intake
	from     map[buckets.ID]uint64 // position of the checkpoint, by bucket
	done     uint64                // replayed up to here
	bytes    map[buckets.ID]int64  // replayed, by bucket
	ingested int64                 // bytes
	replayed int64                 // bytes, in the last replay
	writes   buckets.Writes
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
	l.in.expect(b, m.bytes())
	take := func(n int) error { return l.in.take(ctx, b, n) }
	for i, f := range m.Files {
		path := filepath.Join(dir, fmt.Sprintf("%06d.sst", i))
		if err := download(ctx, l.a.ports.Checkpoints, f.Name, path, take); err != nil {
			return fmt.Errorf("table file %s: %w", f.Name, err)
		}
		paths = append(paths, path)
	}
	l.from[b] = m.Position.Seq
	l.ingested += m.bytes()
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

// download copies an object to a file. take is told of each piece before the next one is asked for.
func download(ctx context.Context, objects Objects, name, path string, take func(n int) error) (err error) {
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
	_, err = io.Copy(f, taken{r, take})
	return err
}

// taken is a reader that tells of what was read.
type taken struct {
	io.Reader
	take func(n int) error
}

func (t taken) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b)
	if n > 0 {
		err = errors.Join(t.take(n), err)
	}
	return n, err
}

// replay applies the buckets' records from where they are up to a position, never beyond what the applier
// has applied: a snapshot of the store must not see later records of some buckets.
func (l *loading) replay(ctx context.Context, bs []buckets.ID, to uint64) error {
	from := l.done
	l.replayed = 0
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
		return l.apply(ctx, e)
	})
	if err == nil && last < barrier {
		err = api.Errorf(api.CodeUnavailable, "the log's server ended at %d, before the entry %d that was just appended", last, barrier)
	}
	return err
}

func (l *loading) apply(ctx context.Context, e api.LogEntry) error {
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
	size := int64(len(e.Data))
	l.bytes[r.Bucket] += size
	l.replayed += size
	put(&l.writes, r)
	if l.writes.Len() >= commitBytes {
		if err := l.write(); err != nil {
			return err
		}
	}
	l.in.expect(r.Bucket, size)
	return l.in.take(ctx, r.Bucket, int(size))
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

// Leave forgets those of the buckets that are still surplus when the applier stands still for it and that are not
// needed. Snapshots that were taken before keep them.
func (a *Applier) Leave(ctx context.Context, bs []buckets.ID, needed func(buckets.ID) bool) error {
	var left error
	err := a.do(ctx, func() {
		a.writing.Lock()
		defer a.writing.Unlock()
		left = a.store.Leave(a.unjoin(bs, needed))
	})
	return errors.Join(err, left)
}

// unjoin ends that buckets count as joined before anything of them is gone, and returns which.
func (a *Applier) unjoin(bs []buckets.ID, needed func(buckets.ID) bool) []buckets.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	bs = slices.DeleteFunc(slices.Clone(bs), func(b buckets.ID) bool {
		return !a.joined[b] || a.view.Owner(b).Storage == a.self || needed(b)
	})
	for _, b := range bs {
		delete(a.joined, b)
	}
	a.broadcast()
	return bs
}

// unjoined lists those of the buckets that are not loaded whole.
func (a *Applier) unjoined(bs []buckets.ID) []buckets.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(bs), func(b buckets.ID) bool { return a.joined[b] })
}

// Absent lists the buckets that the storage owns and has not loaded.
func (a *Applier) Absent() []buckets.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.loaded {
		return nil
	}
	return slices.DeleteFunc(a.view.Of(a.self), func(b buckets.ID) bool { return a.joined[b] })
}

// Surplus lists the buckets that are loaded and that the storage does not own, by the table as last applied, and says
// where and in which epoch that was.
func (a *Applier) Surplus() (surplus []buckets.ID, at, epoch uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for b := range a.buckets {
		if id := buckets.ID(b); a.loaded && a.joined[id] && a.view.Owner(id).Storage != a.self {
			surplus = append(surplus, id)
		}
	}
	return surplus, a.applied, a.epoch
}
