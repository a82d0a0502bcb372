package store

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/buckets"
)

// implementation is one of the stores on which the suite runs.
type implementation struct {
	name string
	open func(t *testing.T) buckets.Store
}

func implementations() []implementation {
	return []implementation{
		{"Mem", func(*testing.T) buckets.Store { return NewMem() }},
		{"Pebble", func(t *testing.T) buckets.Store { return openPebble(t, t.TempDir(), Options{Memtable: 64 << 10}) }},
	}
}

// tb is what *testing.T, *testing.B and *rapid.T have in common.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func openPebble(t tb, dir string, o Options) *Pebble {
	t.Helper()
	st, err := OpenPebble(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestConformance runs every case on every implementation, with a store that is closed after it.
func TestConformance(t *testing.T) {
	cases := []struct {
		name string
		run  func(t *testing.T, st buckets.Store)
	}{
		{"Empty", testEmpty},
		{"Apply", testApply},
		{"ApplyRefuses", testApplyRefuses},
		{"ApplyLarge", testApplyLarge},
		{"Order", testOrder},
		{"Fill", testFill},
		{"Holding", testHolding},
		{"Membership", testMembership},
		{"Load", testLoad},
		{"Reset", testReset},
		{"Copy", testCopy},
		{"SnapshotStays", testSnapshotStays},
		{"SnapshotSeesOldLoad", testSnapshotSeesOldLoad},
		{"CursorOutlivesSnapshot", testCursorOutlivesSnapshot},
		{"ExportParts", testExportParts},
		{"ExportRefuses", testExportRefuses},
		{"IngestRefuses", testIngestRefuses},
		{"IngestOverRecords", testIngestOverRecords},
		{"WritersGoOn", testWritersGoOn},
	}
	for _, impl := range implementations() {
		for _, c := range cases {
			t.Run(impl.name+"/"+c.name, func(t *testing.T) {
				st := impl.open(t)
				c.run(t, st)
				ok(t, st.Close())
			})
		}
		t.Run(impl.name+"/Close", func(t *testing.T) { testClose(t, impl.open(t)) })
		for _, dst := range implementations() {
			t.Run(impl.name+"/ExportTo"+dst.name, func(t *testing.T) { testExportIngest(t, impl.open(t), dst.open(t)) })
		}
	}
}

func ok(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused fails unless err is an error of this package that says all of words.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; it should say %q", words)
	}
	for _, word := range append(words, "store: ") {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("error %q does not say %q", err, word)
		}
	}
}

func equal[T any](t tb, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}

func join(t tb, st buckets.Store, bs ...buckets.ID) {
	t.Helper()
	for _, b := range bs {
		ok(t, st.Load(b))
	}
	ok(t, st.Join(bs))
}

// put applies records given as "space/key=value" at position seq.
func put(t tb, st buckets.Store, seq uint64, b buckets.ID, records ...string) {
	t.Helper()
	var w buckets.Writes
	w.Position = buckets.Position{Seq: seq}
	for _, r := range records {
		path, value, _ := strings.Cut(r, "=")
		space, key, _ := strings.Cut(path, "/")
		w.Put(b, space, []byte(key), []byte(value))
	}
	ok(t, st.Apply(&w))
}

func snapshot(t tb, st buckets.Store) buckets.Snapshot {
	t.Helper()
	snap, err := st.Snapshot()
	ok(t, err)
	return snap
}

// read returns all records of a bucket as "space/key=value", in order.
func read(t tb, snap buckets.Snapshot, b buckets.ID) (records []string) {
	t.Helper()
	spaces, err := snap.Spaces(b)
	ok(t, err)
	for _, space := range spaces {
		cur, err := snap.Scan(b, space)
		ok(t, err)
		batch, n, err := cur.Fill(nil, 1<<30)
		ok(t, err)
		for range n {
			var f buckets.Frame
			f, batch, err = buckets.CutFrame(batch)
			ok(t, err)
			records = append(records, fmt.Sprintf("%s/%s=%s", space, f.Key, f.Value))
		}
		if len(batch) != 0 {
			t.Fatalf("%d bytes follow the last frame", len(batch))
		}
		ok(t, cur.Close())
	}
	return records
}

// now reads a bucket as it is.
func now(t tb, st buckets.Store, b buckets.ID) []string {
	t.Helper()
	snap := snapshot(t, st)
	records := read(t, snap, b)
	ok(t, snap.Close())
	return records
}

func testEmpty(t *testing.T, st buckets.Store) {
	equal(t, "position", st.Position(), buckets.Position{})
	equal(t, "table", len(st.Table()), 0)
	equal(t, "joined", len(st.Joined()), 0)
	equal(t, "records", now(t, st, 0), nil)
	snap := snapshot(t, st)
	_, found, err := snap.Get(0, "default", []byte("k"))
	ok(t, err)
	equal(t, "found", found, false)
	paths, err := snap.Export(0, t.TempDir(), 1<<20)
	ok(t, err)
	equal(t, "files", len(paths), 0)
	ok(t, snap.Close())
}

func testApply(t *testing.T, st buckets.Store) {
	join(t, st, 7)
	at := time.Date(2026, 2, 3, 4, 5, 6, 789, time.FixedZone("east", 3600))
	var w buckets.Writes
	w.Put(7, "default", []byte("a"), []byte("1"))
	w.Put(7, "default", []byte("b"), nil)
	w.Put(7, "default", nil, []byte("no key"))
	w.Put(7, "default", []byte("gone"), []byte("1"))
	w.Delete(7, "default", []byte("gone"))
	w.Delete(7, "default", []byte("back"))
	w.Put(7, "default", []byte("back"), []byte("1"))
	w.Put(7, "default", []byte("back"), []byte("2"))
	w.Position = buckets.Position{Seq: 42, Time: at, Digest: 1 << 63}
	w.Table = []byte("table")
	ok(t, st.Apply(&w))
	for i := range w.Records { // the store has copied them
		clear(w.Records[i].Key)
		clear(w.Records[i].Value)
	}
	clear(w.Table)
	w.Reset()

	equal(t, "position", st.Position(), buckets.Position{Seq: 42, Time: at.UTC(), Digest: 1 << 63})
	equal(t, "table", string(st.Table()), "table")
	equal(t, "records", now(t, st, 7), []string{"default/=no key", "default/a=1", "default/b=", "default/back=2"})
	snap := snapshot(t, st)
	value, found, err := snap.Get(7, "default", []byte("b"))
	ok(t, err)
	equal(t, "found", found, true)
	equal(t, "length", len(value), 0)
	_, found, err = snap.Get(7, "default", []byte("gone"))
	ok(t, err)
	equal(t, "found", found, false)
	ok(t, snap.Close())

	w.Position.Seq = 43
	ok(t, st.Apply(&w))
	equal(t, "table", string(st.Table()), "table") // nil leaves it
	equal(t, "position", st.Position().Seq, 43)
	w.Position.Seq = 0
	ok(t, st.Apply(&w))
	equal(t, "position", st.Position().Seq, 43)
}

func testApplyRefuses(t *testing.T, st buckets.Store) {
	join(t, st, 1)
	put(t, st, 1, 1, "default/a=1")
	apply := func(seq uint64, b buckets.ID, space string, key []byte) error {
		var w buckets.Writes
		w.Put(1, "default", []byte("before"), nil)
		if seq == 0 {
			w.Reset()
		}
		w.Put(b, space, key, nil)
		w.Position = buckets.Position{Seq: seq}
		w.Table = []byte("t")
		return st.Apply(&w)
	}
	refused(t, apply(2, 9, "default", []byte("k")), "bucket 9", "neither joined nor being loaded")
	refused(t, apply(0, 1, "default", []byte("k")), "bucket 1", "position")
	refused(t, apply(2, 1, "a\x00b", []byte("k")), "bucket 1", "space")
	refused(t, apply(2, 1, "", []byte("k")), "bucket 1", "space")
	refused(t, apply(2, 1, "default", make([]byte, buckets.MaxKey+1)), "bucket 1", "65535")
	equal(t, "records", now(t, st, 1), []string{"default/a=1"})
	equal(t, "position", st.Position().Seq, 1)
	equal(t, "table", len(st.Table()), 0)
	ok(t, apply(2, 1, "default", bytes.Repeat([]byte{0xff}, buckets.MaxKey)))
	equal(t, "records", len(now(t, st, 1)), 3)
}

// testApplyLarge passes the memtable of 64 KiB in one batch and in many.
func testApplyLarge(t *testing.T, st buckets.Store) {
	join(t, st, 3)
	value := bytes.Repeat([]byte("v"), 1000)
	var w buckets.Writes
	want := 0
	for seq := uint64(1); seq <= 30; seq++ {
		w.Reset()
		for range 1 + seq%3*150 {
			w.Put(3, "default", fmt.Appendf(nil, "%08d", want), value)
			want++
		}
		w.Position = buckets.Position{Seq: seq}
		ok(t, st.Apply(&w))
	}
	records := now(t, st, 3)
	equal(t, "records", len(records), want)
	equal(t, "last", records[want-1], fmt.Sprintf("default/%08d=%s", want-1, value))
}

func testOrder(t *testing.T, st buckets.Store) {
	join(t, st, 0, 1, 255, 256, 65535)
	for i, b := range []buckets.ID{65535, 256, 0, 255, 1} {
		put(t, st, uint64(i+1), b,
			"b/x="+fmt.Sprint(b), "a.b/x=1", "a/\xff\xff=2", "a/\x00=3", "a/=4", "a-b/x=5", "A/x=6", "a/k\x00k=7", "a/k=8")
	}
	for _, b := range st.Joined() {
		equal(t, fmt.Sprintf("bucket %d", b), now(t, st, b), []string{
			"A/x=6", "a/=4", "a/\x00=3", "a/k=8", "a/k\x00k=7", "a/\xff\xff=2", "a-b/x=5", "a.b/x=1", "b/x=" + fmt.Sprint(b),
		})
	}
	equal(t, "other bucket", now(t, st, 2), nil)
}

func testFill(t *testing.T, st buckets.Store) {
	join(t, st, 5)
	put(t, st, 1, 5, "default/a=1234", "default/b=1234", "default/c="+strings.Repeat("x", 100), "default/d=", "other/e=1")
	snap := snapshot(t, st)
	cur, err := snap.Scan(5, "default")
	ok(t, err)
	const frame = buckets.FrameHeader + 5 // of a and b
	batch := append(make([]byte, 0, 256), "head"...)
	for i, step := range []struct{ limit, records, bytes int }{
		{4 + 2*frame - 1, 1, 4 + frame},                         // b would end one byte past the limit
		{4 + 2*frame, 1, 4 + 2*frame},                           // b ends at it
		{50, 1, 4 + 2*frame + buckets.FrameHeader + 101},        // c alone is too long and comes nevertheless
		{1 << 20, 1, 4 + 2*frame + 2*buckets.FrameHeader + 102}, // d; the other space is not read
		{1 << 20, 0, 4 + 2*frame + 2*buckets.FrameHeader + 102},
		{1 << 20, 0, 4 + 2*frame + 2*buckets.FrameHeader + 102},
	} {
		var n int
		batch, n, err = cur.Fill(batch, step.limit)
		ok(t, err)
		equal(t, fmt.Sprintf("records of step %d", i), n, step.records)
		equal(t, fmt.Sprintf("bytes after step %d", i), len(batch), step.bytes)
	}
	rest, found := bytes.CutPrefix(batch, []byte("head"))
	equal(t, "head", found, true)
	f, _, err := buckets.CutFrame(rest)
	ok(t, err)
	equal(t, "frame", fmt.Sprintf("%d %s %s", f.Flags, f.Key, f.Value), "0 a 1234")
	ok(t, cur.Close())
	_, _, err = cur.Fill(nil, 1)
	equal(t, "closed", errors.Is(err, ErrClosed), true)
	ok(t, snap.Close())
}

func testMembership(t *testing.T, st buckets.Store) {
	refused(t, st.Join([]buckets.ID{4}), "join", "bucket 4")
	join(t, st, 9, 2, 300)
	equal(t, "joined", st.Joined(), []buckets.ID{2, 9, 300})
	refused(t, st.Join([]buckets.ID{9}), "bucket 9")
	for i, b := range []buckets.ID{2, 9, 300} {
		put(t, st, uint64(i+1), b, "default/k=1")
	}
	ok(t, st.Load(9))
	equal(t, "joined", st.Joined(), []buckets.ID{2, 300})
	ok(t, st.Leave([]buckets.ID{9, 300, 77}))
	equal(t, "joined", st.Joined(), []buckets.ID{2})
	refused(t, st.Join([]buckets.ID{9}), "bucket 9")
	equal(t, "stays", now(t, st, 2), []string{"default/k=1"})
	equal(t, "left", now(t, st, 300), nil)
	equal(t, "position", st.Position().Seq, 3)
	ok(t, st.Load(8))
	refused(t, st.Join([]buckets.ID{8, 10}), "bucket 10")
	equal(t, "joined", st.Joined(), []buckets.ID{2})
	ok(t, st.Join([]buckets.ID{8}))
}

func testLoad(t *testing.T, st buckets.Store) {
	join(t, st, 1, 2)
	put(t, st, 5, 1, "default/old=1")
	put(t, st, 6, 2, "default/other=1")
	ok(t, st.Load(1))
	equal(t, "loading", now(t, st, 1), nil)
	put(t, st, 0, 1, "default/a=1", "default/b=1")
	put(t, st, 7, 1, "default/b=2")
	equal(t, "loaded", now(t, st, 1), []string{"default/a=1", "default/b=2"})
	ok(t, st.Load(1)) // from the start
	put(t, st, 0, 1, "default/c=3")
	ok(t, st.Join([]buckets.ID{1}))
	equal(t, "joined", now(t, st, 1), []string{"default/c=3"})
	equal(t, "other", now(t, st, 2), []string{"default/other=1"})
	equal(t, "position", st.Position().Seq, 7)
}

func testReset(t *testing.T, st buckets.Store) {
	join(t, st, 1, 2)
	ok(t, st.Load(3))
	put(t, st, 5, 1, "default/a=1")
	put(t, st, 0, 3, "default/a=1")
	w := buckets.Writes{Position: buckets.Position{Seq: 6}, Table: []byte("t")}
	ok(t, st.Apply(&w))
	ok(t, st.Reset())
	testEmpty(t, st)
	for _, b := range []buckets.ID{1, 2, 3} {
		equal(t, "records", now(t, st, b), nil)
	}
	refused(t, st.Join([]buckets.ID{3}), "bucket 3")
	join(t, st, 1)
	put(t, st, 1, 1, "default/z=1")
	equal(t, "records", now(t, st, 1), []string{"default/z=1"})
}

func testClose(t *testing.T, st buckets.Store) {
	join(t, st, 1)
	snap := snapshot(t, st)
	refused(t, st.Close(), "1 snapshots", "0 cursors")
	cur, err := snap.Scan(1, "default")
	ok(t, err)
	ok(t, snap.Close())
	refused(t, st.Close(), "0 snapshots", "1 cursors")
	ok(t, cur.Close())
	ok(t, st.Close())

	_, errSnapshot := st.Snapshot()
	_, _, errGet := snap.Get(1, "default", nil)
	_, errScan := snap.Scan(1, "default")
	_, errSpaces := snap.Spaces(1)
	_, errHolding := snap.Holding([]buckets.ID{1}, "default", 1)
	_, errExport := snap.Export(1, t.TempDir(), 1)
	for name, err := range map[string]error{
		"Apply": st.Apply(&buckets.Writes{}), "Load": st.Load(1), "Ingest": st.Ingest(1, nil), "Join": st.Join(nil),
		"Leave": st.Leave(nil), "Reset": st.Reset(), "Flush": st.Flush(), "Close": st.Close(), "Snapshot": errSnapshot,
		"Snapshot.Get": errGet, "Snapshot.Scan": errScan, "Snapshot.Spaces": errSpaces, "Snapshot.Holding": errHolding, "Snapshot.Export": errExport,
		"Snapshot.Close": snap.Close(), "Cursor.Close": cur.Close(),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", name, err)
		}
	}
}

// A copy leaves the store as it is.
func testCopy(t *testing.T, st buckets.Store) {
	ok(t, st.Load(1))
	ok(t, st.Join([]buckets.ID{1}))
	var w buckets.Writes
	w.Put(1, "s", []byte("k"), []byte("v"))
	w.Position = buckets.Position{Seq: 7}
	ok(t, st.Apply(&w))
	ok(t, st.Copy(filepath.Join(t.TempDir(), "copy")))
	if st.Position().Seq != 7 || len(st.Joined()) != 1 {
		t.Errorf("after a copy: at %d, joined %v", st.Position().Seq, st.Joined())
	}
}
