package buckets

import "time"

// Position is how far into the log a local copy reaches: the last entry it covers, with what is needed
// to recognise that entry again. The zero Position is before the first entry.
type Position struct {
	Seq    uint64    `json:"seq"`
	Time   time.Time `json:"time"`   // when the server stored that entry
	Digest uint64    `json:"digest"` // see [Digest]
}

// Store is a storage's local copy of its buckets: a cache of the log. It keeps one position for all its
// buckets, written with the records, so that after a crash it is a prefix of what was applied. Nothing is
// synced but where a method says so.
//
// There is one caller at a time of all methods but Snapshot, which any goroutine may call; snapshots may be read
// by any.
//
// A bucket's data appears in two ways: it is joined and then follows the store's position; or it is being
// loaded, is unknown after a crash, and becomes part of the store by Join.
type Store interface {
	// Position and Table return what the last Apply stored.
	Position() Position
	Table() []byte
	// Joined lists the buckets that the store holds at its position, ascending.
	Joined() []ID

	// Apply writes records and position at once, all or nothing.
	Apply(w *Writes) error
	// Load begins to load a bucket: whatever the store had of it is gone.
	Load(b ID) error
	// Ingest adds table files, made by [Snapshot].Export, to a bucket that is being loaded. Their keys
	// must belong to the bucket and not overlap. The files are moved or copied.
	Ingest(b ID, paths []string) error
	// Join makes loaded buckets part of the store. It is synced.
	Join(bs []ID) error
	// Leave forgets buckets and frees their space; open snapshots still see them. It is synced.
	Leave(bs []ID) error
	// Copy writes a copy of the store, as it is, into a folder that does not exist yet.
	Copy(dir string) error
	// Reset forgets everything, position and table too. It is synced.
	Reset() error
	// Flush makes all that was applied survive a crash.
	Flush() error
	// Snapshot fixes the records of all buckets as they are now, in constant time.
	Snapshot() (Snapshot, error)
	// Close flushes and closes. Snapshots must be closed before.
	Close() error
}

// Writes is a group of changes for [Store].Apply. The order of changes to one key is kept. Byte slices
// are copied. Reset it and use it again.
type Writes struct {
	Records  []Write
	Position Position // ignored if Seq is 0: then only records of buckets that are being loaded are written
	Table    []byte   // stored if not nil
	arena    []byte
}

// Write puts or deletes one record.
type Write struct {
	Bucket     ID
	Space      string
	Key, Value []byte
	Delete     bool
}

// Snapshot is a consistent view of a store. It must be closed; use after Close fails.
type Snapshot interface {
	// Get returns one record's value; ok is false if there is none. The value is the caller's.
	Get(b ID, space string, key []byte) (value []byte, ok bool, err error)
	// Scan reads the records of a space of a bucket in order of their keys.
	Scan(b ID, space string) (Cursor, error)
	// Spaces lists the spaces of which the bucket holds a record, ascending.
	Spaces(b ID) ([]string, error)
	// Holding lists those of some buckets, given ascending, that hold a record of a space: at most the first most.
	Holding(bs []ID, space string, most int) ([]ID, error)
	// Export writes the bucket, all spaces, as sorted, checksummed table files of about maxFile bytes into
	// dir, and returns their paths in key order; none for an empty bucket.
	Export(b ID, dir string, maxFile int) (paths []string, err error)
	Close() error
}

// Cursor reads records as frames (flags 0).
type Cursor interface {
	// Fill appends whole frames to dst until the next one would make it longer than limit; at least one
	// if any is left. It returns dst and the number of records appended: 0 at the end.
	Fill(dst []byte, limit int) (out []byte, records int, err error)
	Close() error
}

// Put adds a record.
func (w *Writes) Put(b ID, space string, key, value []byte) {
	w.add(Write{Bucket: b, Space: space}, key, value)
}

// Delete removes a record.
func (w *Writes) Delete(b ID, space string, key []byte) {
	w.add(Write{Bucket: b, Space: space, Delete: true}, key, nil)
}

// Len is the number of bytes of all keys and values.
func (w *Writes) Len() int { return len(w.arena) }

// Reset empties w and keeps its memory.
func (w *Writes) Reset() {
	clear(w.Records)
	*w = Writes{Records: w.Records[:0], arena: w.arena[:0]}
}

func (w *Writes) add(r Write, key, value []byte) {
	// Growing moves the arena; records already added keep the old array.
	n := len(w.arena)
	w.arena = append(append(w.arena, key...), value...)
	m := n + len(key)
	r.Key, r.Value = w.arena[n:m:m], w.arena[m:len(w.arena):len(w.arena)]
	w.Records = append(w.Records, r)
}
