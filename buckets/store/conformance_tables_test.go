package store

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/buckets"
)

// The cases of TestConformance about exported and ingested tables.

func testExportIngest(t *testing.T, src, dst buckets.Store) {
	join(t, src, 1, 2)
	join(t, dst, 7)
	put(t, dst, 9, 7, "default/stays=1")
	want := fill(t, src, 2, 2000)
	snap := snapshot(t, src)
	put(t, src, 3, 2, "default/later=1")
	paths, err := snap.Export(2, t.TempDir(), 16<<10)
	ok(t, err)
	ok(t, snap.Close())
	if len(paths) < 5 || !slices.IsSorted(paths) {
		t.Fatalf("paths are %q", paths)
	}
	ok(t, dst.Load(2))
	ok(t, dst.Ingest(2, paths[:2]))
	ok(t, dst.Ingest(2, paths[2:]))
	put(t, dst, 0, 2, "default/tail=1")
	ok(t, dst.Join([]buckets.ID{2}))
	equal(t, "records", now(t, dst, 2), slices.Sorted(slices.Values(append(want, "default/tail=1"))))
	equal(t, "other bucket", now(t, dst, 7), []string{"default/stays=1"})
	equal(t, "position", dst.Position().Seq, 9)
	ok(t, src.Close())
	ok(t, dst.Close())
}

// fill puts n records of about 100 bytes into a bucket at position 2 and returns them.
func fill(t tb, st buckets.Store, b buckets.ID, n int) (records []string) {
	t.Helper()
	for i := range n {
		records = append(records, fmt.Sprintf("default/%06d=%s", i, strings.Repeat("v", 90)))
	}
	put(t, st, 2, b, records...)
	return records
}

func testExportParts(t *testing.T, st buckets.Store) {
	join(t, st, 1)
	fill(t, st, 1, 1000)
	snap := snapshot(t, st)
	dir := t.TempDir()
	const maxFile = 10_000
	paths, err := snap.Export(1, dir, maxFile)
	ok(t, err)
	equal(t, "files", len(paths), 11) // 1000 records of 108 bytes, 93 to a file
	for _, path := range paths {
		info, err := os.Stat(path)
		ok(t, err)
		if info.Size() > 2*maxFile {
			t.Fatalf("%s has %d bytes", path, info.Size())
		}
	}
	whole, err := snap.Export(1, t.TempDir(), 1<<30)
	ok(t, err)
	equal(t, "files", len(whole), 1)
	ok(t, snap.Close())
}

func testExportRefuses(t *testing.T, st buckets.Store) {
	join(t, st, 1)
	put(t, st, 1, 1, "default/a=1", "default/b=1", "default/c=1")
	snap := snapshot(t, st)
	dir := t.TempDir()
	paths, err := snap.Export(1, dir, 1)
	ok(t, err)
	equal(t, "files", len(paths), 3)
	_, err = snap.Export(1, dir, 1) // never over files that are there
	refused(t, err, "bucket 1", paths[0])
	ok(t, os.Remove(paths[0]))
	_, err = snap.Export(1, dir, 1)
	refused(t, err, paths[1])
	_, err = os.Stat(paths[0])
	equal(t, "half an export is gone", errors.Is(err, os.ErrNotExist), true)
	_, err = snap.Export(1, dir, 0)
	refused(t, err, "positive")
	ok(t, snap.Close())
}

func testIngestRefuses(t *testing.T, st buckets.Store) {
	join(t, st, 1, 2)
	put(t, st, 1, 1, "default/a=1", "default/b=1")
	snap := snapshot(t, st)
	paths, err := snap.Export(1, t.TempDir(), 1<<20)
	ok(t, err)
	twin, err := snap.Export(1, t.TempDir(), 1<<20)
	ok(t, err)
	ok(t, snap.Close())
	refused(t, st.Ingest(1, paths), "bucket 1", "not being loaded")
	ok(t, st.Load(1))
	ok(t, st.Load(3))
	err = st.Ingest(3, paths)
	refused(t, err, "bucket 3", paths[0], "bucket 1")
	equal(t, "is ErrTable", errors.Is(err, ErrTable), true)
	refused(t, st.Ingest(1, []string{paths[0], twin[0]}), "bucket 1", "overlap")
	refused(t, st.Ingest(1, []string{paths[0] + "x"}), "bucket 1", paths[0]+"x")
	equal(t, "records", now(t, st, 1), nil)
	ok(t, st.Ingest(1, nil))
	ok(t, st.Ingest(1, paths)) // they are still there
	equal(t, "records", now(t, st, 1), []string{"default/a=1", "default/b=1"})
}

// testIngestOverRecords: what was ingested last wins, over records too.
func testIngestOverRecords(t *testing.T, st buckets.Store) {
	join(t, st, 1)
	put(t, st, 1, 1, "default/a=1", "default/b=1")
	snap := snapshot(t, st)
	paths, err := snap.Export(1, t.TempDir(), 1<<20)
	ok(t, err)
	ok(t, snap.Close())
	ok(t, st.Load(1))
	put(t, st, 0, 1, "default/a=2", "default/c=2")
	ok(t, st.Ingest(1, paths))
	equal(t, "records", now(t, st, 1), []string{"default/a=1", "default/b=1", "default/c=2"})
}
