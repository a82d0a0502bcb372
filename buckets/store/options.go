package store

import (
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	defaultMemtable  = 64 << 20
	defaultCache     = 64 << 20
	defaultOpenFiles = 512
	blockSize        = 32 << 10
)

// pebbleFormat is fixed, so that every build of this version of the package reads the others' tables.
const pebbleFormat = pebble.FormatValueSeparation

// Options configure [OpenPebble]. The zero value is good for one storage in a process.
type Options struct {
	// Logger gets Pebble's messages: what it does at level debug, failures at level error. nil: none.
	Logger *slog.Logger
	// Cache is shared with other stores of the process. nil: the store has its own of 64 MiB.
	Cache *Cache
	// Memtable is the number of bytes of changes that are gathered in memory before they are written to
	// disk, and so about what is replayed from the log after a crash. Up to four times as much is in
	// memory while the disk is behind. 0: 64 MiB.
	Memtable int
	// OpenFiles is how many table files are kept open, at least 16. 0: 512.
	OpenFiles int

	fs vfs.FS // nil: the operating system's; tests crash another one
}

// Validate reports what is wrong with o.
func (o Options) Validate() error {
	if o.Memtable != 0 && (o.Memtable < 64<<10 || o.Memtable > 1<<30) {
		return fmt.Errorf("store: the memtable has 64 KiB to 1 GiB, not %d bytes", o.Memtable)
	}
	if o.OpenFiles != 0 && o.OpenFiles < 16 {
		return fmt.Errorf("store: at least 16 table files are kept open, not %d", o.OpenFiles)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Memtable == 0 {
		o.Memtable = defaultMemtable
	}
	if o.OpenFiles == 0 {
		o.OpenFiles = defaultOpenFiles
	}
	if o.fs == nil {
		o.fs = vfs.Default
	}
	return o
}

// Cache keeps blocks of table files in memory for all stores that are opened with it.
type Cache struct{ c *pebble.Cache }

// NewCache returns a cache of size bytes. Close it after the last store.
func NewCache(size int64) *Cache { return &Cache{c: pebble.NewCache(size)} }

// Close frees the cache once the stores that use it are closed.
func (c *Cache) Close() { c.c.Unref() }

// pebbleOptions has no upper limits of its own on unflushed memtables and level 0: there Pebble would wait
// in a way that cannot be interrupted when flushes fail. See [Pebble] makeRoom.
func (o Options) pebbleOptions(h *health) *pebble.Options {
	p := &pebble.Options{
		FS:                          o.fs,
		FormatMajorVersion:          pebbleFormat,
		DisableWAL:                  true,
		MemTableSize:                uint64(o.Memtable),
		MemTableStopWritesThreshold: 1 << 10,
		L0StopWritesThreshold:       1 << 10,
		MaxOpenFiles:                o.OpenFiles,
		CacheSize:                   defaultCache,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		Logger:                      h,
		EventListener: &pebble.EventListener{
			BackgroundError: h.fail,
			DataCorruption:  func(info pebble.DataCorruptionInfo) { h.fail(info.Details) },
			FlushEnd:        func(pebble.FlushInfo) { h.wake() },
			CompactionEnd:   func(pebble.CompactionInfo) { h.wake() },
			TableDeleted:    func(pebble.TableDeleteInfo) { h.wake() },
		},
	}
	if o.Cache != nil {
		p.Cache = o.Cache.c
	}
	// An ingestion is durable when it returns, not at a later flush.
	p.Experimental.DisableIngestAsFlushable = func() bool { return true }
	// Meta keys and records never share a file: so a file goes when the buckets in it have left.
	p.Experimental.SpanPolicyFunc = func(start []byte) (pebble.SpanPolicy, []byte, error) {
		if start[0] < recordTag {
			return pebble.SpanPolicy{}, []byte{recordTag}, nil
		}
		return pebble.SpanPolicy{}, nil, nil
	}
	setLevels(p)
	return p
}

// setLevels chooses blocks that scan fast: large and not compressed.
func setLevels(p *pebble.Options) {
	for i := range p.Levels {
		p.Levels[i].BlockSize = blockSize
		p.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	}
}
