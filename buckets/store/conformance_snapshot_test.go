package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/buckets"
)

// The cases of TestConformance about snapshots.

// testSnapshotStays changes everything under snapshots, which must not notice.
func testSnapshotStays(t *testing.T, st buckets.Store) {
	join(t, st, 1, 2, 3)
	put(t, st, 1, 1, "default/a=1", "default/b=1", "s/c=1")
	put(t, st, 2, 2, "default/d=1")
	put(t, st, 3, 3, "default/e=1")
	type view struct {
		snap buckets.Snapshot
		want [4][]string
	}
	var views []view
	look := func() {
		v := view{snap: snapshot(t, st)}
		for b := range v.want {
			v.want[b] = read(t, v.snap, buckets.ID(b))
		}
		views = append(views, v)
	}
	look()
	put(t, st, 4, 1, "default/a=2", "default/new=1")
	look()
	var w buckets.Writes
	w.Delete(1, "default", []byte("b"))
	w.Position = buckets.Position{Seq: 5}
	ok(t, st.Apply(&w))
	look()
	ok(t, st.Leave([]buckets.ID{2}))
	look()
	ok(t, st.Load(1))
	look()
	put(t, st, 0, 1, "default/a=loaded")
	ok(t, st.Flush())
	look()
	ok(t, st.Join([]buckets.ID{1}))
	ok(t, st.Reset())
	look()
	equal(t, "first view", views[0].want[1], []string{"default/a=1", "default/b=1", "s/c=1"})
	equal(t, "view before the load", views[3].want[1], []string{"default/a=2", "default/new=1", "s/c=1"})
	equal(t, "last view", views[6].want, [4][]string{})
	for i, v := range views {
		for b := range v.want {
			equal(t, fmt.Sprintf("view %d of bucket %d", i, b), read(t, v.snap, buckets.ID(b)), v.want[b])
		}
		ok(t, v.snap.Close())
	}
}

// testSnapshotSeesOldLoad lets a bucket leave and come back as tables while a snapshot is open.
func testSnapshotSeesOldLoad(t *testing.T, st buckets.Store) {
	join(t, st, 1)
	put(t, st, 1, 1, "default/a=1", "default/b=1")
	old := snapshot(t, st)
	paths, err := old.Export(1, t.TempDir(), 1<<20)
	ok(t, err)
	put(t, st, 2, 1, "default/a=2", "default/c=2")
	newer := snapshot(t, st)
	ok(t, st.Leave([]buckets.ID{1}))
	ok(t, st.Load(1))
	ok(t, st.Ingest(1, paths))
	ok(t, st.Join([]buckets.ID{1}))
	equal(t, "old", read(t, old, 1), []string{"default/a=1", "default/b=1"})
	equal(t, "newer", read(t, newer, 1), []string{"default/a=2", "default/b=1", "default/c=2"})
	equal(t, "now", now(t, st, 1), []string{"default/a=1", "default/b=1"})
	ok(t, old.Close())
	ok(t, newer.Close())
	put(t, st, 3, 1, "default/d=3")
	equal(t, "later", now(t, st, 1), []string{"default/a=1", "default/b=1", "default/d=3"})
	ok(t, st.Leave([]buckets.ID{1}))
	equal(t, "left", now(t, st, 1), nil)
}

func testCursorOutlivesSnapshot(t *testing.T, st buckets.Store) {
	join(t, st, 1)
	put(t, st, 1, 1, "default/a=1", "default/b=1")
	ok(t, st.Flush())
	snap := snapshot(t, st)
	cur, err := snap.Scan(1, "default")
	ok(t, err)
	ok(t, snap.Close())
	ok(t, st.Leave([]buckets.ID{1}))
	_, n, err := cur.Fill(nil, 1<<20)
	ok(t, err)
	equal(t, "records", n, 2)
	ok(t, cur.Close())
}

// testWritersGoOn scans snapshots in other goroutines while the store is written, flushed and emptied.
func testWritersGoOn(t *testing.T, st buckets.Store) {
	join(t, st, 1, 2)
	const rounds = 40
	done := make(chan error, rounds)
	for round := range rounds {
		mark := fmt.Sprintf("%04d", round)
		var w buckets.Writes
		for i := range 50 {
			w.Put(1, "default", fmt.Appendf(nil, "%04d", i), []byte(mark+strings.Repeat("x", 60)))
		}
		w.Position = buckets.Position{Seq: uint64(round + 1)}
		ok(t, st.Apply(&w))
		snap := snapshot(t, st)
		go func() { done <- errors.Join(uniform(snap, mark, 50), snap.Close()) }()
		if round%10 == 5 {
			join(t, st, 1)
		}
	}
	for range rounds {
		ok(t, <-done)
	}
}

// uniform reports an error unless bucket 1 has n records whose values all start with mark.
func uniform(snap buckets.Snapshot, mark string, n int) error {
	cur, err := snap.Scan(1, "default")
	if err != nil {
		return err
	}
	total := 0
	for {
		batch, records, err := cur.Fill(nil, 512)
		if err != nil {
			return err
		}
		if records == 0 {
			break
		}
		for total += records; len(batch) > 0; {
			var f buckets.Frame
			if f, batch, err = buckets.CutFrame(batch); err != nil {
				return err
			}
			if !bytes.HasPrefix(f.Value, []byte(mark)) {
				return fmt.Errorf("snapshot %s holds %.4s", mark, f.Value)
			}
		}
	}
	if total != n {
		return fmt.Errorf("snapshot %s holds %d records, not %d", mark, total, n)
	}
	return cur.Close()
}

func testHolding(t *testing.T, st buckets.Store) {
	join(t, st, 0, 1, 2, 3, 5, 255, 256)
	put(t, st, 1, 1, "a/k=1", "b/k=1")
	put(t, st, 2, 2, "c/k=1")
	put(t, st, 3, 3, "b/k=1", "b/l=1", "bb/k=1")
	put(t, st, 4, 5, "a/k=1", "b/k=1")
	put(t, st, 5, 256, "b/k=1")
	var w buckets.Writes
	w.Position = buckets.Position{Seq: 6}
	w.Delete(5, "b", []byte("k"))
	ok(t, st.Apply(&w))
	snap := snapshot(t, st)
	put(t, st, 7, 0, "b/k=1")
	all := []buckets.ID{0, 1, 2, 3, 4, 5, 255, 256}
	for _, c := range []struct {
		of    []buckets.ID
		space string
		most  int
		want  []buckets.ID
	}{
		{all, "b", 9, []buckets.ID{1, 3, 256}},
		{all, "b", 2, []buckets.ID{1, 3}},
		{all, "b", 1, []buckets.ID{1}},
		{all, "a", 9, []buckets.ID{1, 5}},
		{all, "bb", 9, []buckets.ID{3}},
		{all, "ba", 9, nil},
		{all, "zz", 9, nil},
		{[]buckets.ID{2, 5}, "b", 9, nil},
		{[]buckets.ID{3}, "b", 9, []buckets.ID{3}},
		{[]buckets.ID{0, 256}, "b", 9, []buckets.ID{256}},
		{nil, "b", 9, nil},
	} {
		got, err := snap.Holding(c.of, c.space, c.most)
		ok(t, err)
		if !slices.Equal(got, c.want) {
			t.Errorf("of %v at most %d hold %q: %v, want %v", c.of, c.most, c.space, got, c.want)
		}
	}
	ok(t, snap.Close())
}
