package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pinion-mr/pinion/buckets"
)

var _ buckets.Store = (*Pebble)(nil)

// Pebble is a store in a folder. See the package comment for its layout and what a crash leaves.
//
// If the disk fails or is full, every method that writes returns that error from then on; snapshots can
// still be read. The store must be closed and opened again.
type Pebble struct {
	db      *pebble.DB
	lock    *pebble.Lock
	fs      vfs.FS
	health  *health
	readers readers

	position buckets.Position
	table    []byte
	roster   roster
	dirty    map[buckets.ID]bool // buckets being loaded with records or tombstones that may not be flushed
	covered  map[buckets.ID]bool // buckets that left under open snapshots: only a tombstone hides their records
	batch    *pebble.Batch
	memtable int
	unpaced  int // bytes applied since the last look at Pebble's backlog
}

// OpenPebble opens the store in dir, or makes one. It fails if another process uses dir, or if dir holds
// another version's store ([ErrFormat]).
func OpenPebble(dir string, o Options) (*Pebble, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if err := o.fs.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("store: open: %w", err)
	}
	lock, err := pebble.LockDirectory(dir, o.fs)
	if err != nil {
		return nil, fmt.Errorf("store: %s is locked; stop the process that uses it or choose another folder: %w", dir, err)
	}
	p := &Pebble{
		lock: lock, fs: o.fs, health: newHealth(o.Logger), memtable: o.Memtable,
		roster: newRoster(), dirty: map[buckets.ID]bool{}, covered: map[buckets.ID]bool{},
	}
	if err := p.open(dir, o); err != nil {
		if p.db != nil {
			err = errors.Join(err, p.db.Close())
		}
		return nil, fmt.Errorf("store: open %s: %w", dir, errors.Join(err, lock.Close()))
	}
	return p, nil
}

func (p *Pebble) open(dir string, o Options) (err error) {
	popts := o.pebbleOptions(p.health)
	popts.Lock = p.lock
	if p.db, err = pebble.Open(dir, popts); err != nil {
		return err
	}
	p.batch = p.db.NewBatch()
	m, fresh, err := readMeta(p.db)
	if err != nil {
		return err
	}
	if fresh {
		if err := p.batch.Set(keyFormat, []byte(layoutVersion), nil); err != nil {
			return err
		}
		return p.commitSync()
	}
	p.position, p.table = m.position, m.table
	for _, b := range m.joined {
		p.roster.joined[b] = true
	}
	spans, err := strays(p.db, m.joined)
	if err != nil {
		return err
	}
	_, err = p.excise(spans)
	return err
}

// Position implements [buckets.Store].
func (p *Pebble) Position() buckets.Position { return p.position }

// Table implements [buckets.Store]. The slice must not be changed.
func (p *Pebble) Table() []byte { return p.table }

// Joined implements [buckets.Store].
func (p *Pebble) Joined() []buckets.ID { return p.roster.joinedList() }

// begin is called before anything is written. It returns the reason why nothing can be, if there is one,
// and removes what snapshots held back that are closed now.
func (p *Pebble) begin() error {
	if err := errors.Join(p.readers.check(), p.health.check()); err != nil {
		return err
	}
	if len(p.covered) == 0 {
		return nil
	}
	var spans []span
	for _, b := range slices.Sorted(maps.Keys(p.covered)) {
		spans = append(spans, bucketSpan(b))
	}
	done, err := p.excise(spans)
	if done {
		clear(p.covered)
	}
	return err
}

// Apply implements [buckets.Store]. It waits if the disk is far behind.
func (p *Pebble) Apply(w *buckets.Writes) error {
	if err := p.begin(); err != nil {
		return err
	}
	size, err := p.roster.check(w)
	if err != nil {
		return err
	}
	if err := p.makeRoom(size); err != nil {
		return err
	}
	p.batch.Reset()
	for i := range w.Records {
		if err := p.stage(&w.Records[i]); err != nil {
			return fmt.Errorf("store: apply: bucket %d: %w", w.Records[i].Bucket, err)
		}
	}
	position := plain(w.Position)
	if position.Seq != 0 {
		if err := p.stagePosition(position); err != nil {
			return err
		}
	}
	if w.Table != nil {
		if err := p.batch.Set(keyTable, w.Table, nil); err != nil {
			return fmt.Errorf("store: apply: %w", err)
		}
	}
	if err := p.commit(); err != nil {
		return err
	}
	p.noteLoading(w)
	if position.Seq != 0 {
		p.position = position
	}
	if w.Table != nil {
		p.table = slices.Clone(w.Table)
	}
	return nil
}

// stage adds a write to the batch, its key composed in place.
func (p *Pebble) stage(r *buckets.Write) error {
	size := bucketPrefixLen + len(r.Space) + 1 + len(r.Key)
	if r.Delete {
		op := p.batch.DeleteDeferred(size)
		appendRecord(op.Key[:0], r.Bucket, r.Space, r.Key)
		return op.Finish()
	}
	op := p.batch.SetDeferred(size, len(r.Value))
	appendRecord(op.Key[:0], r.Bucket, r.Space, r.Key)
	copy(op.Value, r.Value)
	return op.Finish()
}

func (p *Pebble) stagePosition(position buckets.Position) error {
	value, err := json.Marshal(position)
	if err == nil {
		err = p.batch.Set(keyPosition, value, nil)
	}
	if err != nil {
		return fmt.Errorf("store: apply: position: %w", err)
	}
	return nil
}

func (p *Pebble) noteLoading(w *buckets.Writes) {
	if len(p.roster.loading) == 0 {
		return
	}
	for i := range w.Records {
		if b := w.Records[i].Bucket; p.roster.loading[b] {
			p.dirty[b] = true
		}
	}
}

// makeRoom waits while three memtables are full or being written to disk or level 0 is deep. Pebble's counters are not free to
// read: they are looked at once in a quarter of a memtable.
func (p *Pebble) makeRoom(size int) error {
	const deepest = 24 // sublevels of level 0; the default depth at which Pebble stops is 12
	if p.unpaced += size; p.unpaced < p.memtable/4 {
		return nil
	}
	p.unpaced = 0
	for {
		change := p.health.change()
		m := p.db.Metrics()
		if m.MemTable.Size <= 3*uint64(p.memtable) && m.Levels[0].Sublevels < deepest {
			return nil
		}
		p.health.log.Debug("writing waits for the disk")
		if err := p.health.await(change); err != nil {
			return err
		}
	}
}

// commit applies and empties the batch.
func (p *Pebble) commit() error {
	if err := p.db.Apply(p.batch, pebble.NoSync); err != nil {
		return fmt.Errorf("store: apply: %w", err)
	}
	p.batch.Reset()
	return p.health.check()
}

func (p *Pebble) commitSync() error {
	if err := p.commit(); err != nil {
		return err
	}
	return p.flush()
}

func (p *Pebble) flush() error {
	done, err := p.db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("store: flush: %w", err)
	}
	if err := p.health.await(done); err != nil {
		return err
	}
	clear(p.dirty)
	return nil
}

// Flush implements [buckets.Store].
func (p *Pebble) Flush() error {
	if err := p.begin(); err != nil {
		return err
	}
	return p.flush()
}

// Copy implements [buckets.Store]. Files are linked, not copied, on the same file system.
func (p *Pebble) Copy(dir string) error {
	if err := p.Flush(); err != nil {
		return err
	}
	if err := p.db.Checkpoint(dir); err != nil {
		return fmt.Errorf("store: copy to %s: %w", dir, err)
	}
	return nil
}

// Load implements [buckets.Store].
func (p *Pebble) Load(b buckets.ID) error {
	if err := p.Leave([]buckets.ID{b}); err != nil {
		return err
	}
	p.roster.load(b)
	delete(p.covered, b) // an excise would take the new records too
	return nil
}

// Ingest implements [buckets.Store]. The files are moved, or copied from another file system and removed;
// after an error they are still there. A file that is damaged or holds another bucket's records is
// [ErrTable].
func (p *Pebble) Ingest(b buckets.ID, paths []string) error {
	if err := p.begin(); err != nil {
		return err
	}
	if err := p.roster.checkIngest(b); err != nil {
		return err
	}
	if err := checkTables(p.fs, b, paths); err != nil || len(paths) == 0 {
		return err
	}
	if p.dirty[b] {
		// Tables go below what is in memory; Pebble would flush that first, without a way out.
		if err := p.flush(); err != nil {
			return err
		}
	}
	if err := p.db.Ingest(context.Background(), paths); err != nil {
		return fmt.Errorf("store: ingest: bucket %d: %w", b, err)
	}
	return p.health.check()
}

// Join implements [buckets.Store].
func (p *Pebble) Join(bs []buckets.ID) error {
	if err := p.begin(); err != nil {
		return err
	}
	if err := p.roster.checkJoin(bs); err != nil || len(bs) == 0 {
		return err
	}
	p.batch.Reset()
	for _, b := range bs {
		if err := p.batch.Set(joinedKey(b), nil, nil); err != nil {
			return fmt.Errorf("store: join: bucket %d: %w", b, err)
		}
	}
	if err := p.commitSync(); err != nil {
		return err
	}
	p.roster.join(bs)
	return nil
}

// Leave implements [buckets.Store].
func (p *Pebble) Leave(bs []buckets.ID) error {
	if err := p.begin(); err != nil {
		return err
	}
	p.batch.Reset()
	var known []buckets.ID
	for _, b := range bs {
		if !p.roster.knows(b) {
			continue
		}
		known = append(known, b)
		if err := p.batch.Delete(joinedKey(b), nil); err != nil {
			return fmt.Errorf("store: leave: bucket %d: %w", b, err)
		}
	}
	if len(known) == 0 {
		return nil
	}
	if err := p.commitSync(); err != nil {
		return err
	}
	p.roster.leave(known)
	return p.removeRecords(known)
}

// Reset implements [buckets.Store].
func (p *Pebble) Reset() error {
	if err := p.begin(); err != nil {
		return err
	}
	p.batch.Reset()
	err := errors.Join(
		p.batch.Delete(keyPosition, nil),
		p.batch.Delete(keyTable, nil),
		p.batch.DeleteRange(keyJoined, afterPrefix(keyJoined), nil),
	)
	if err != nil {
		return fmt.Errorf("store: reset: %w", err)
	}
	if err := p.commitSync(); err != nil {
		return err
	}
	known := p.roster.known()
	p.position, p.table, p.roster = buckets.Position{}, nil, newRoster()
	return p.removeRecords(known)
}

// removeRecords removes the records of buckets that have no joined mark on disk. Nothing of them may be in
// memory only.
func (p *Pebble) removeRecords(bs []buckets.ID) error {
	var spans []span
	for _, b := range bs {
		spans = append(spans, bucketSpan(b))
	}
	if done, err := p.excise(spans); done || err != nil {
		return err
	}
	p.batch.Reset()
	for i, s := range spans {
		if err := p.batch.DeleteRange(s.lower, s.upper, nil); err != nil {
			return fmt.Errorf("store: remove: bucket %d: %w", bs[i], err)
		}
		p.covered[bs[i]] = true
	}
	return p.commitSync()
}

// excise removes spans unless a snapshot is open, and reports whether it did. None can be opened
// meanwhile: that one would lose records while it is read.
func (p *Pebble) excise(spans []span) (done bool, err error) {
	p.readers.mu.Lock()
	defer p.readers.mu.Unlock()
	if p.readers.snapshots > 0 {
		return false, nil
	}
	for _, s := range spans {
		if err := p.db.Excise(context.Background(), pebble.KeyRange{Start: s.lower, End: s.upper}); err != nil {
			return false, fmt.Errorf("store: remove: %w", err)
		}
	}
	return true, p.health.check()
}

// Close implements [buckets.Store]. It refuses while snapshots or cursors are open. After a failure of the
// disk it closes without flushing and returns that failure.
func (p *Pebble) Close() error {
	if err := p.readers.close(); err != nil {
		return err
	}
	err := p.health.check()
	if err == nil {
		err = p.flush()
	}
	err = errors.Join(err, p.batch.Close())
	if cerr := p.db.Close(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("store: close: %w", cerr))
	}
	return errors.Join(err, p.lock.Close())
}
