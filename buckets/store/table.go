package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pinion-mr/pinion/buckets"
)

// tableSource yields the keys and values of a bucket in ascending order; next returns a nil key at the end.
// The slices may be reused by the following call.
type tableSource interface {
	next() (key, value []byte, err error)
}

// writeTables writes the records of src as table files named after the bucket into dir, each closed once
// it holds maxFile bytes of keys and values. After an error none of them is left.
func writeTables(fsys vfs.FS, dir string, b buckets.ID, maxFile int, src tableSource) (paths []string, err error) {
	if maxFile <= 0 {
		return nil, fmt.Errorf("store: export: the size of a file must be positive, not %d", maxFile)
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("store: export: %w", err)
	}
	var file *tableWriter
	defer func() {
		if err == nil {
			return
		}
		if file != nil {
			_ = file.w.Close()
		}
		for _, path := range paths {
			_ = fsys.Remove(path)
		}
		paths, err = nil, fmt.Errorf("store: export bucket %d: %w", b, err)
	}()
	for {
		key, value, err := src.next()
		if err != nil || key == nil {
			if file != nil && err == nil {
				err, file = file.w.Close(), nil
			}
			return paths, err
		}
		if file == nil {
			path := fsys.PathJoin(dir, fmt.Sprintf("bucket-%05d-%06d.sst", b, len(paths)))
			if file, err = createTable(fsys, path); err != nil {
				return paths, err
			}
			paths = append(paths, path)
		}
		if err := file.w.Set(key, value); err != nil {
			return paths, err
		}
		if file.size += len(key) + len(value); file.size >= maxFile {
			err, file = file.w.Close(), nil
			if err != nil {
				return paths, err
			}
		}
	}
}

type tableWriter struct {
	w    *sstable.Writer
	size int
}

func createTable(fsys vfs.FS, path string) (*tableWriter, error) {
	if _, err := fsys.Stat(path); err == nil {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	return &tableWriter{w: sstable.NewWriter(objstorageprovider.NewFileWritable(f), tableOptions())}, nil
}

// tableOptions are the options of exported tables: those of the lowest level of a store.
func tableOptions() sstable.WriterOptions {
	o := new(pebble.Options)
	o.FormatMajorVersion = pebbleFormat
	setLevels(o)
	o.EnsureDefaults()
	return o.MakeWriterOptions(len(o.Levels)-1, pebbleFormat.MaxTableFormat())
}

// ErrTable says that a file cannot be ingested: it is damaged, or not a table file of that bucket.
var ErrTable = errors.New("not a whole table file of this bucket; export or fetch it again")

// openTable opens a table file, verifies its checksums and that all its keys are the bucket's.
func openTable(fsys vfs.FS, path string, b buckets.ID) (*sstable.Reader, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, fmt.Errorf("store: ingest: bucket %d: %w", b, err)
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return nil, fmt.Errorf("store: ingest: bucket %d: %s: %w", b, path, errors.Join(err, f.Close()))
	}
	r, err := readTableHead(readable)
	if err != nil {
		_ = readable.Close()
		return nil, fmt.Errorf("store: ingest: bucket %d: %s: %w: %w", b, path, ErrTable, err)
	}
	if err := checkTable(r, b); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("store: ingest: bucket %d: %s: %w: %w", b, path, ErrTable, err)
	}
	return r, nil
}

// readTableHead turns Pebble's panic into an error: it has one for whole tables of a foreign key schema.
func readTableHead(readable objstorage.Readable) (r *sstable.Reader, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("read the table: %v", p)
		}
	}()
	o := new(pebble.Options)
	o.EnsureDefaults()
	return sstable.NewReader(context.Background(), readable, o.MakeReaderOptions())
}

func checkTable(r *sstable.Reader, b buckets.ID) error {
	if err := r.ValidateBlockChecksums(); err != nil {
		return err
	}
	props, err := r.ReadPropertiesBlock(context.Background(), nil)
	if err != nil {
		return err
	}
	if props.NumDeletions+props.NumRangeKeys()+props.NumMergeOperands > 0 {
		return errors.New("it holds more than records")
	}
	t, err := tableBounds(r)
	if err != nil || t.lower == nil {
		return err
	}
	for _, key := range [][]byte{t.lower, t.upper} {
		owner, _, _, err := cutRecord(key)
		if err != nil {
			return err
		}
		if owner != b {
			return fmt.Errorf("it holds records of bucket %d", owner)
		}
	}
	return nil
}

// tableBounds returns the first and the last key of a table, both inclusive; nil if it is empty.
func tableBounds(r *sstable.Reader) (span, error) {
	it, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return span{}, err
	}
	var s span
	if kv := it.First(); kv != nil {
		s.lower = bytes.Clone(kv.K.UserKey)
	}
	if kv := it.Last(); kv != nil {
		s.upper = bytes.Clone(kv.K.UserKey)
	}
	return s, errors.Join(it.Error(), it.Close())
}

// checkTables verifies the table files and that no two of them overlap.
func checkTables(fsys vfs.FS, b buckets.ID, paths []string) error {
	bounds := make([]span, 0, len(paths))
	for _, path := range paths {
		r, err := openTable(fsys, path, b)
		if err != nil {
			return err
		}
		s, err := tableBounds(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("store: ingest: bucket %d: %s: %w", b, path, err)
		}
		for i, o := range bounds {
			if s.lower != nil && o.lower != nil && bytes.Compare(s.lower, o.upper) <= 0 && bytes.Compare(o.lower, s.upper) <= 0 {
				return fmt.Errorf("store: ingest: bucket %d: %s and %s overlap", b, paths[i], path)
			}
		}
		bounds = append(bounds, s)
	}
	return nil
}

// readTable calls put with every record of a table file. Key and value are valid until put returns.
func readTable(fsys vfs.FS, path string, b buckets.ID, put func(key, value []byte)) error {
	r, err := openTable(fsys, path, b)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	it, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return fmt.Errorf("store: ingest: %s: %w", path, err)
	}
	for kv := it.First(); kv != nil; kv = it.Next() {
		value, _, err := kv.Value(nil)
		if err != nil {
			return errors.Join(fmt.Errorf("store: ingest: %s: %w", path, err), it.Close())
		}
		put(kv.K.UserKey, value)
	}
	return errors.Join(it.Error(), it.Close())
}
