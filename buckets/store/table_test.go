package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pinion-mr/pinion/buckets"
)

// exported returns the bytes of a table file of n records.
func exported(t testing.TB, n int) []byte {
	t.Helper()
	st := NewMem()
	join(t, st, 1)
	fill(t, st, 1, n)
	snap := snapshot(t, st)
	paths, err := snap.Export(1, t.TempDir(), 1<<20)
	ok(t, err)
	ok(t, snap.Close())
	data, err := os.ReadFile(paths[0])
	ok(t, err)
	return data
}

// TestIngestDamaged turns bits of a table file over, one at a time; no such file may be ingested.
func TestIngestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.sst")
	check := func(data []byte, at int) {
		bit := byte(1) << (at % 8)
		data[at] ^= bit
		ok(t, os.WriteFile(path, data, 0o600))
		data[at] ^= bit
		if err := checkTables(vfs.Default, 1, []string{path}); !errors.Is(err, ErrTable) {
			t.Errorf("byte %d of %d: %v, want ErrTable", at, len(data), err)
		}
	}
	small := exported(t, 20)
	for at := 0; at < len(small); at += 3 {
		check(small, at)
	}
	blocks := exported(t, 1200)
	check(blocks, 40_000) // in the second of four blocks: neither the first nor the last key is in it

	ok(t, os.WriteFile(path, blocks, 0o600))
	ok(t, checkTables(vfs.Default, 1, []string{path}))
}

func TestIngestCutOff(t *testing.T) {
	data := exported(t, 20)
	path := filepath.Join(t.TempDir(), "t.sst")
	for _, n := range []int{0, 1, 50, len(data) / 2, len(data) - 1} {
		ok(t, os.WriteFile(path, data[:n], 0o600))
		if err := checkTables(vfs.Default, 1, []string{path}); !errors.Is(err, ErrTable) {
			t.Errorf("%d bytes of %d: %v, want ErrTable", n, len(data), err)
		}
	}
}

// TestIngestForeign: whole tables that are no export.
func TestIngestForeign(t *testing.T) {
	for name, write := range map[string]func(w *sstable.Writer) error{
		"keys of something else": func(w *sstable.Writer) error { return w.Set([]byte("joined"), nil) },
		"a key without a space":  func(w *sstable.Writer) error { return w.Set(appendBucket(nil, 1), nil) },
		"a tombstone": func(w *sstable.Writer) error {
			return w.Delete(appendRecord(nil, 1, "default", []byte("a")))
		},
		"a range tombstone": func(w *sstable.Writer) error {
			return errors.Join(
				w.Set(appendRecord(nil, 1, "default", []byte("a")), nil),
				w.DeleteRange(bucketSpan(1).lower, bucketSpan(3).upper))
		},
		"a last key of another bucket": func(w *sstable.Writer) error {
			return errors.Join(
				w.Set(appendRecord(nil, 1, "default", []byte("a")), nil),
				w.Set(appendRecord(nil, 2, "default", []byte("a")), nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.sst")
			f, err := vfs.Default.Create(path, vfs.WriteCategoryUnspecified)
			ok(t, err)
			w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), tableOptions())
			ok(t, write(w))
			ok(t, w.Close())
			for _, impl := range implementations() {
				st := impl.open(t)
				ok(t, st.Load(1))
				if err := st.Ingest(1, []string{path}); !errors.Is(err, ErrTable) {
					t.Errorf("%s: %v, want ErrTable", impl.name, err)
				}
				ok(t, st.Close())
			}
		})
	}
}

// FuzzOpenTable gives damaged files to the reader: it may refuse them, not fail.
func FuzzOpenTable(f *testing.F) {
	data := exported(f, 20)
	f.Add(data)
	f.Add(data[len(data)/2:])
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "t.sst")
		ok(t, os.WriteFile(path, data, 0o600))
		err := readTable(vfs.Default, path, 1, func(key, _ []byte) {
			if b, _, _, err := cutRecord(key); err != nil || b != 1 {
				t.Fatalf("key %q: bucket %d, %v", key, b, err)
			}
		})
		if err != nil && !errors.Is(err, ErrTable) {
			t.Fatal(err)
		}
	})
}

func TestCutRecord(t *testing.T) {
	key := appendRecord(nil, 0xfffe, "a.b", []byte("k\x00\xff"))
	b, space, rest, err := cutRecord(key)
	ok(t, err)
	equal(t, "bucket", b, buckets.ID(0xfffe))
	equal(t, "space", string(space), "a.b")
	equal(t, "key", string(rest), "k\x00\xff")
	equal(t, "last span holds it", bucketSpan(0xfffe).holds(key), true)
	equal(t, "next span holds it", bucketSpan(0xffff).holds(key), false)
	equal(t, "end of all", bucketSpan(0xffff).upper, recordsSpan().upper)
}
