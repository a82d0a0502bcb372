package store

import (
	"bytes"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pinion-mr/pinion/buckets"
)

var (
	_ buckets.Store    = (*Mem)(nil)
	_ buckets.Snapshot = (*memSnapshot)(nil)
	_ buckets.Cursor   = (*memCursor)(nil)
)

// Mem is a store in memory. It forgets everything when the process ends; tables that it exports and
// ingests are the same files as those of [Pebble].
type Mem struct {
	position buckets.Position
	table    []byte
	roster   roster

	readers readers // its lock guards root
	root    *tree
}

// NewMem returns an empty store.
func NewMem() *Mem { return &Mem{roster: newRoster()} }

// Position implements [buckets.Store].
func (m *Mem) Position() buckets.Position { return m.position }

// Table implements [buckets.Store].
func (m *Mem) Table() []byte { return m.table }

// Joined implements [buckets.Store].
func (m *Mem) Joined() []buckets.ID { return m.roster.joinedList() }

// Copy implements [buckets.Store]: there is nothing on disk, and nothing to keep.
func (m *Mem) Copy(string) error { return m.readers.check() }

// Apply implements [buckets.Store].
func (m *Mem) Apply(w *buckets.Writes) error {
	if err := m.readers.check(); err != nil {
		return err
	}
	if _, err := m.roster.check(w); err != nil {
		return err
	}
	root := m.root
	for _, r := range w.Records {
		key := appendRecord(nil, r.Bucket, r.Space, r.Key)
		if r.Delete {
			root = root.remove(key)
		} else {
			root = root.put(key, bytes.Clone(r.Value))
		}
	}
	m.setRoot(root)
	if w.Position.Seq != 0 {
		m.position = plain(w.Position)
	}
	if w.Table != nil {
		m.table = bytes.Clone(w.Table)
	}
	return nil
}

// Load implements [buckets.Store].
func (m *Mem) Load(b buckets.ID) error {
	if err := m.readers.check(); err != nil {
		return err
	}
	m.setRoot(m.root.removeSpan(bucketSpan(b)))
	m.roster.load(b)
	return nil
}

// Ingest implements [buckets.Store]. The files stay where they are.
func (m *Mem) Ingest(b buckets.ID, paths []string) error {
	if err := m.readers.check(); err != nil {
		return err
	}
	if err := m.roster.checkIngest(b); err != nil {
		return err
	}
	if err := checkTables(vfs.Default, b, paths); err != nil {
		return err
	}
	root := m.root
	for _, path := range paths {
		err := readTable(vfs.Default, path, b, func(key, value []byte) {
			root = root.put(bytes.Clone(key), bytes.Clone(value))
		})
		if err != nil {
			return err
		}
	}
	m.setRoot(root)
	return nil
}

// Join implements [buckets.Store].
func (m *Mem) Join(bs []buckets.ID) error {
	if err := m.readers.check(); err != nil {
		return err
	}
	if err := m.roster.checkJoin(bs); err != nil {
		return err
	}
	m.roster.join(bs)
	return nil
}

// Leave implements [buckets.Store].
func (m *Mem) Leave(bs []buckets.ID) error {
	if err := m.readers.check(); err != nil {
		return err
	}
	root := m.root
	for _, b := range bs {
		root = root.removeSpan(bucketSpan(b))
	}
	m.setRoot(root)
	m.roster.leave(bs)
	return nil
}

// Reset implements [buckets.Store].
func (m *Mem) Reset() error {
	if err := m.readers.check(); err != nil {
		return err
	}
	m.setRoot(nil)
	m.position, m.table, m.roster = buckets.Position{}, nil, newRoster()
	return nil
}

// Flush implements [buckets.Store]; there is nothing to flush.
func (m *Mem) Flush() error { return m.readers.check() }

// Close implements [buckets.Store].
func (m *Mem) Close() error { return m.readers.close() }

func (m *Mem) setRoot(t *tree) {
	m.readers.mu.Lock()
	m.root = t
	m.readers.mu.Unlock()
}

// Snapshot implements [buckets.Store].
func (m *Mem) Snapshot() (buckets.Snapshot, error) {
	m.readers.mu.Lock()
	defer m.readers.mu.Unlock()
	if m.readers.closed {
		return nil, ErrClosed
	}
	m.readers.snapshots++
	return &memSnapshot{readers: &m.readers, root: m.root}, nil
}

type memSnapshot struct {
	readers *readers
	root    *tree

	mu     sync.Mutex
	closed bool
}

func (s *memSnapshot) tree() (*tree, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	return s.root, nil
}

func (s *memSnapshot) Get(b buckets.ID, space string, key []byte) ([]byte, bool, error) {
	t, err := s.tree()
	if err != nil {
		return nil, false, err
	}
	value, ok := t.get(appendRecord(nil, b, space, key))
	return bytes.Clone(value), ok, nil
}

func (s *memSnapshot) Scan(b buckets.ID, space string) (buckets.Cursor, error) {
	t, err := s.tree()
	if err != nil {
		return nil, err
	}
	s.readers.addCursor(1)
	bounds := spaceSpan(b, space)
	return &memCursor{readers: s.readers, walk: t.walk(bounds), prefix: len(bounds.lower)}, nil
}

func (s *memSnapshot) Spaces(b buckets.ID) ([]string, error) {
	t, err := s.tree()
	if err != nil {
		return nil, err
	}
	var spaces []string
	for bounds := bucketSpan(b); ; {
		n := t.walk(bounds).peek()
		if n == nil {
			return spaces, nil
		}
		_, space, _, err := cutRecord(n.key)
		if err != nil {
			return nil, err
		}
		spaces = append(spaces, string(space))
		bounds.lower = spaceSpan(b, string(space)).upper
	}
}

func (s *memSnapshot) Holding(bs []buckets.ID, space string, most int) (holding []buckets.ID, err error) {
	for _, b := range bs {
		spaces, err := s.Spaces(b)
		if err != nil {
			return nil, err
		}
		if len(holding) < most && slices.Contains(spaces, space) {
			holding = append(holding, b)
		}
	}
	return holding, nil
}

func (s *memSnapshot) Export(b buckets.ID, dir string, maxFile int) ([]string, error) {
	t, err := s.tree()
	if err != nil {
		return nil, err
	}
	return writeTables(vfs.Default, dir, b, maxFile, t.walk(bucketSpan(b)))
}

// next implements tableSource.
func (w *walk) next() (key, value []byte, err error) {
	t := w.peek()
	if t == nil {
		return nil, nil, nil
	}
	w.step()
	return t.key, t.value, nil
}

func (s *memSnapshot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.closed = true
	s.root = nil
	s.readers.dropSnapshot()
	return nil
}

type memCursor struct {
	readers *readers
	walk    *walk // nil once closed
	prefix  int
}

func (c *memCursor) Fill(dst []byte, limit int) ([]byte, int, error) {
	if c.walk == nil {
		return dst, 0, ErrClosed
	}
	n := 0
	for t := c.walk.peek(); t != nil; t = c.walk.peek() {
		key := t.key[c.prefix:]
		if n > 0 && len(dst)+buckets.FrameHeader+len(key)+len(t.value) > limit {
			break
		}
		dst = buckets.AppendFrame(dst, 0, key, t.value)
		n++
		c.walk.step()
	}
	return dst, n, nil
}

func (c *memCursor) Close() error {
	if c.walk == nil {
		return ErrClosed
	}
	c.walk = nil
	c.readers.addCursor(-1)
	return nil
}
