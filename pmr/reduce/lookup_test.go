package reduce

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/buckets"
)

// numbered finds the numbers of made-up probes, in batches.
func numbered(k *keys, probes []probe) []uint32 {
	var rows []uint32
	var batch [batchPairs]lookup
	for len(probes) > 0 {
		part := batch[:min(batchPairs, len(probes))]
		for i := range part {
			part[i].probe = probes[i]
		}
		k.lookUp(part)
		for i := range part {
			rows = append(rows, k.settle(&part[i], nil))
		}
		probes = probes[len(part):]
	}
	return rows
}

// Keys of a few segments only: one is full long before the table would grow, and some are looked up in a batch
// within which it is split.
func TestFullSegment(t *testing.T) {
	probes := make([]probe, 6000)
	for i := range probes {
		const quarter = 2 // bits that are 0, so that three quarters of the segments stay empty
		probes[i] = probe{a: uint64(i), c: 8 << sizeShift, tag: uint32(i) * 2654435761 >> quarter}
	}
	k := newKeys(&memory{})
	for round := range 2 {
		for i, row := range numbered(k, probes) {
			if row != uint32(i) {
				t.Fatalf("round %d: key %d has number %d", round, i, row)
			}
		}
	}
	if k.len() != len(probes) || len(k.segments) < 8 {
		t.Errorf("%d keys in %d segments, want %d in 8 at least", k.len(), len(k.segments), len(probes))
	}
}

// Keys that have one tag are told apart, in a batch too.
func TestOneTag(t *testing.T) {
	probes := make([]probe, 1000)
	for i := range probes {
		probes[i] = probe{a: uint64(i), c: 8 << sizeShift, tag: 0xfffffffe} // near the end of the last segment
	}
	k := newKeys(&memory{})
	for round := range 2 {
		for i, row := range numbered(k, probes) {
			if row != uint32(i) {
				t.Fatalf("round %d: key %d has number %d", round, i, row)
			}
		}
	}
}

// The memory of a table is that of its rows and slots; growing leaves nothing behind that would count.
func TestGrowthIsCounted(t *testing.T) {
	table := newTable(t, "sum")
	one := numberBytes(i64(1))
	for i := range 100_000 {
		if err := table.Emit(buckets.FlagInt, fmt.Appendf(nil, "%d", i), one); err != nil {
			t.Fatal(err)
		}
	}
	const rows, slots = 98 * chunkRows * 32, 262_144 * 8 // three quarters of 131,072 slots would not do
	if got := table.Bytes(); got != rows+slots {
		t.Errorf("%d bytes for 100,000 keys, want %d", got, rows+slots)
	}
}

// Large tables that have half of their keys in common.
func TestMergeOfManyKeys(t *testing.T) {
	one := numberBytes(i64(1))
	emit := func(table *Table, from, to int) {
		for i := from; i < to; i++ {
			key := fmt.Appendf(nil, "%d", i)
			if i%5 == 0 {
				key = append(key, strings.Repeat("long", 10)...)
			}
			if err := table.Emit(buckets.FlagInt, key, one); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, reducer := range []string{"sum", "count", "min"} {
		a, b, want := newTable(t, reducer), newTable(t, reducer), newTable(t, reducer)
		emit(a, 0, 20_000)
		emit(b, 10_000, 25_000)
		emit(want, 0, 20_000)
		emit(want, 10_000, 25_000)
		if err := a.Merge(b); err != nil {
			t.Fatal(err)
		}
		got, err := a.AppendState(nil)
		if err != nil {
			t.Fatal(err)
		}
		if state, _ := want.AppendState(nil); a.Len() != 25_000 || string(got) != string(state) {
			t.Errorf("%s: the merged table has %d keys and differs", reducer, a.Len())
		}
	}
}
