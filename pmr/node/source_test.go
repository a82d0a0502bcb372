package node

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pinion-mr/pinion/buckets"
)

// listCursor gives frames out of a list.
type listCursor struct{ frames [][]byte }

func (c *listCursor) Fill(dst []byte, limit int) ([]byte, int, error) {
	n := 0
	for len(c.frames) > 0 && (n == 0 || len(dst)+len(c.frames[0]) <= limit) {
		dst = append(dst, c.frames[0]...)
		c.frames = c.frames[1:]
		n++
	}
	return dst, n, nil
}

func (c *listCursor) Close() error { return nil }

// drained is what a source gives, batch by batch: the numbers of the records, which are in their keys.
func drained(t *rapid.T, s *source, limit int) [][]uint64 {
	var batches [][]uint64
	for {
		dst := []byte("before")
		out, n, err := s.Fill(dst, len(dst)+limit)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return batches
		}
		var batch []uint64
		for rest := out[len(dst):]; len(rest) > 0; {
			f, tail, err := buckets.CutFrame(rest)
			if err != nil {
				t.Fatal(err)
			}
			var number uint64
			if _, err := fmt.Sscanf(string(f.Key), "%d", &number); err != nil {
				t.Fatal(err)
			}
			batch, rest = append(batch, number), tail
		}
		if len(batch) != n || batch[0] != s.First() {
			t.Fatalf("%d records in a batch from %d: %v", n, s.First(), batch)
		}
		if n > 1 && len(out)-len(dst) > limit {
			t.Fatalf("a batch of %d bytes; the limit is %d", len(out)-len(dst), limit)
		}
		if got := s.atRecord(); got != (n == 1 && batch[0] >= s.single) {
			t.Fatalf("atRecord is %v after %v, single from %d", got, batch, s.single)
		}
		batches = append(batches, batch)
	}
}

// A source gives all records but those to be left out, under their own numbers, and its batches up to a record
// are the same whether single ones follow or not.
func TestSource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(0, 300).Draw(t, "records")
		size := rapid.IntRange(0, 2000).Draw(t, "size")
		limit := rapid.IntRange(1, 100_000).Draw(t, "limit")
		skip := rapid.SliceOfNDistinct(rapid.Uint64Range(0, 320), 0, 20, rapid.ID[uint64]).Draw(t, "skip")
		slices.Sort(skip)
		frames := make([][]byte, total)
		var want []uint64
		for i := range frames {
			frames[i] = buckets.AppendFrame(nil, 0, fmt.Appendf(nil, "%d", i), make([]byte, size))
			if !slices.Contains(skip, uint64(i)) {
				want = append(want, uint64(i))
			}
		}
		run := func(single uint64) ([][]uint64, *source) {
			s := newSource(&listCursor{frames}, skip)
			s.single, s.progress = single, &progress{}
			empty, err := s.peek()
			if err != nil || empty != (len(want) == 0) {
				t.Fatalf("empty %v, %v; want %d records", empty, err, len(want))
			}
			batches := drained(t, s, limit)
			if got := slices.Concat(batches...); !slices.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			if n := s.progress.records.Load(); n != uint64(total) || !s.ended {
				t.Fatalf("%d records counted of %d, ended %v", n, total, s.ended)
			}
			return batches, s
		}
		whole, s := run(1 << 62)
		s.undo()
		if r, b := s.progress.records.Load(), s.progress.bytes.Load(); r != 0 || b != 0 {
			t.Fatalf("%d records, %d bytes are left after undo", r, b)
		}
		if len(whole) == 0 {
			return
		}
		at := rapid.IntRange(0, len(whole)-1).Draw(t, "failing batch")
		parted, _ := run(whole[at][0])
		for i := range at {
			if !slices.Equal(parted[i], whole[i]) {
				t.Fatalf("batch %d is %v, was %v", i, parted[i], whole[i])
			}
		}
		for _, batch := range parted[at:] {
			if len(batch) != 1 {
				t.Fatalf("a batch of %v from record %d on", batch, whole[at][0])
			}
		}
	})
}
