package store

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/buckets"
)

const (
	benchRecords = 200_000
	benchValue   = 84 // with a key of 16 bytes, 100 bytes a record
	benchBatch   = 1000
)

// benchFill loads bucket 1 with records of 100 bytes, in scattered order of keys.
func benchFill(b *testing.B, st buckets.Store) (bytes int) {
	b.Helper()
	var w buckets.Writes
	value := []byte(strings.Repeat("v", benchValue))
	key := make([]byte, 16)
	for i := range benchRecords {
		binary.BigEndian.PutUint64(key, uint64(i)*0x9e3779b97f4a7c15)
		w.Put(1, "default", key, value)
		if (i+1)%benchBatch == 0 {
			w.Position.Seq = uint64(i + 1)
			ok(b, st.Apply(&w))
			bytes += w.Len()
			w.Reset()
		}
	}
	return bytes
}

func benchStores(b *testing.B, run func(b *testing.B, open func() buckets.Store)) {
	b.Run("Pebble", func(b *testing.B) {
		run(b, func() buckets.Store { return openPebble(b, b.TempDir(), Options{}) })
	})
	b.Run("Mem", func(b *testing.B) { run(b, func() buckets.Store { return NewMem() }) })
}

// BenchmarkApply loads 20 MB by writes and flushes them.
func BenchmarkApply(b *testing.B) {
	benchStores(b, func(b *testing.B, open func() buckets.Store) {
		for b.Loop() {
			st := open()
			join(b, st, 1)
			b.SetBytes(int64(benchFill(b, st)))
			ok(b, st.Flush())
			ok(b, st.Close())
		}
	})
}

// BenchmarkScan reads 20 MB in batches of 64 KiB.
func BenchmarkScan(b *testing.B) {
	benchStores(b, func(b *testing.B, open func() buckets.Store) {
		st := open()
		join(b, st, 1)
		b.SetBytes(int64(benchFill(b, st)))
		ok(b, st.Flush())
		snap := snapshot(b, st)
		batch := make([]byte, 0, 64<<10)
		b.ReportAllocs()
		for b.Loop() {
			cur, err := snap.Scan(1, "default")
			ok(b, err)
			total := 0
			for n := 1; n > 0; total += n {
				batch, n, err = cur.Fill(batch[:0], 64<<10)
				ok(b, err)
			}
			ok(b, cur.Close())
			if total != benchRecords {
				b.Fatalf("%d records", total)
			}
		}
		ok(b, snap.Close())
		ok(b, st.Close())
	})
}

// BenchmarkIngest exports 20 MB as tables of 8 MiB and ingests them into another store.
func BenchmarkIngest(b *testing.B) {
	benchStores(b, func(b *testing.B, open func() buckets.Store) {
		src, dst := open(), open()
		join(b, src, 1)
		b.SetBytes(int64(benchFill(b, src)))
		snap := snapshot(b, src)
		dir, round := b.TempDir(), 0
		for b.Loop() {
			round++
			paths, err := snap.Export(1, fmt.Sprintf("%s/%d", dir, round), 8<<20)
			ok(b, err)
			ok(b, dst.Load(1))
			ok(b, dst.Ingest(1, paths))
			ok(b, dst.Join([]buckets.ID{1}))
		}
		ok(b, snap.Close())
		ok(b, src.Close())
		ok(b, dst.Close())
	})
}
