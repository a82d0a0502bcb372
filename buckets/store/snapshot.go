package store

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pinion-mr/pinion/buckets"
)

var (
	_ buckets.Snapshot = (*pebbleSnapshot)(nil)
	_ buckets.Cursor   = (*pebbleCursor)(nil)
)

// pebbleSnapshot reads a [Pebble] as it was. Its cursors may outlive it.
type pebbleSnapshot struct {
	readers *readers
	fs      vfs.FS

	mu   sync.RWMutex
	snap *pebble.Snapshot // nil once closed
}

// Snapshot implements [buckets.Store]. It waits while records of a bucket are being removed, some
// milliseconds.
func (p *Pebble) Snapshot() (buckets.Snapshot, error) {
	p.readers.mu.Lock()
	defer p.readers.mu.Unlock()
	if p.readers.closed {
		return nil, ErrClosed
	}
	p.readers.snapshots++
	return &pebbleSnapshot{readers: &p.readers, fs: p.fs, snap: p.db.NewSnapshot()}, nil
}

func (s *pebbleSnapshot) Get(b buckets.ID, space string, key []byte) (value []byte, ok bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.snap == nil {
		return nil, false, ErrClosed
	}
	v, closer, err := s.snap.Get(appendRecord(nil, b, space, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("store: get: bucket %d, space %q: %w", b, space, err)
	}
	value = bytes.Clone(v)
	return value, true, closer.Close()
}

func (s *pebbleSnapshot) iter(bounds span) (*pebble.Iterator, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.snap == nil {
		return nil, ErrClosed
	}
	return s.snap.NewIter(&pebble.IterOptions{LowerBound: bounds.lower, UpperBound: bounds.upper})
}

func (s *pebbleSnapshot) Scan(b buckets.ID, space string) (buckets.Cursor, error) {
	bounds := spaceSpan(b, space)
	it, err := s.iter(bounds)
	if err != nil {
		return nil, err
	}
	it.First()
	s.readers.addCursor(1)
	return &pebbleCursor{readers: s.readers, it: it, prefix: len(bounds.lower)}, nil
}

func (s *pebbleSnapshot) Spaces(b buckets.ID) (spaces []string, err error) {
	it, err := s.iter(bucketSpan(b))
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok; {
		_, space, _, err := cutRecord(it.Key())
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		spaces = append(spaces, string(space))
		ok = it.SeekGE(spaceSpan(b, string(space)).upper)
	}
	return spaces, errors.Join(it.Error(), it.Close())
}

// Holding goes over all buckets with one iterator, and passes those that hold nothing in one step.
func (s *pebbleSnapshot) Holding(bs []buckets.ID, space string, most int) (holding []buckets.ID, err error) {
	if len(bs) == 0 {
		return nil, nil
	}
	it, err := s.iter(span{bucketSpan(bs[0]).lower, bucketSpan(bs[len(bs)-1]).upper})
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(bs) && len(holding) < most; {
		bounds := spaceSpan(bs[i], space)
		if !it.SeekGE(bounds.lower) {
			break
		}
		if bytes.Compare(it.Key(), bounds.upper) < 0 {
			holding = append(holding, bs[i])
			i++
			continue
		}
		next, _, _, err := cutRecord(it.Key())
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		if next == bs[i] { // its first record is of a later space
			i++
		}
		for i < len(bs) && bs[i] < next {
			i++
		}
	}
	return holding, errors.Join(it.Error(), it.Close())
}

func (s *pebbleSnapshot) Export(b buckets.ID, dir string, maxFile int) (paths []string, err error) {
	it, err := s.iter(bucketSpan(b))
	if err != nil {
		return nil, err
	}
	paths, err = writeTables(s.fs, dir, b, maxFile, &iterSource{it: it})
	return paths, errors.Join(err, it.Close())
}

// iterSource is a tableSource.
type iterSource struct {
	it      *pebble.Iterator
	started bool
}

func (s *iterSource) next() (key, value []byte, err error) {
	if s.started {
		s.it.Next()
	} else {
		s.it.First()
		s.started = true
	}
	if !s.it.Valid() {
		return nil, nil, s.it.Error()
	}
	value, err = s.it.ValueAndErr()
	return s.it.Key(), value, err
}

func (s *pebbleSnapshot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snap == nil {
		return ErrClosed
	}
	err := s.snap.Close()
	s.snap = nil
	s.readers.dropSnapshot()
	return err
}

// pebbleCursor's iterator stands on the next record.
type pebbleCursor struct {
	readers *readers
	it      *pebble.Iterator // nil once closed
	prefix  int              // bytes of a key before the record's own
}

func (c *pebbleCursor) Fill(dst []byte, limit int) (out []byte, records int, err error) {
	if c.it == nil {
		return dst, 0, ErrClosed
	}
	for c.it.Valid() {
		key := c.it.Key()[c.prefix:]
		value, err := c.it.ValueAndErr()
		if err != nil {
			return dst, records, fmt.Errorf("store: scan: %w", err)
		}
		if records > 0 && len(dst)+buckets.FrameHeader+len(key)+len(value) > limit {
			return dst, records, nil
		}
		dst = buckets.AppendFrame(dst, 0, key, value)
		records++
		c.it.Next()
	}
	if err := c.it.Error(); err != nil {
		return dst, records, fmt.Errorf("store: scan: %w", err)
	}
	return dst, records, nil
}

func (c *pebbleCursor) Close() error {
	if c.it == nil {
		return ErrClosed
	}
	err := c.it.Close()
	c.it = nil
	c.readers.addCursor(-1)
	return err
}
