package reduce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// emitEach is what EmitBlock must do, frame by frame.
func emitEach(t *Table, block []byte) error {
	for len(block) > 0 {
		f, rest, err := buckets.CutFrame(block)
		if err != nil {
			return fmt.Errorf("reduce: bucket %d, pair %d: %w", t.pair.bucket, t.pair.seq, err)
		}
		if err := t.Emit(f.Flags, f.Key, f.Value); err != nil {
			return err
		}
		block = rest
	}
	return nil
}

// compareBlocks gives the same blocks to two tables, to one as blocks and to the other frame by frame.
func compareBlocks(t testing.TB, reducer string, blocks [][]byte) {
	t.Helper()
	fast, slow := newTable(t, reducer), newTable(t, reducer)
	for i, block := range blocks {
		fast.StartBucket(buckets.ID(i))
		slow.StartBucket(buckets.ID(i))
		before := slow.Pairs()
		pairs, err := fast.EmitBlock(block)
		want := emitEach(slow, block)
		if fmt.Sprint(err) != fmt.Sprint(want) || api.CodeOf(err) != api.CodeOf(want) {
			t.Fatalf("%s, block %d: error %v, want %v", reducer, i, err, want)
		}
		if uint64(pairs) != slow.Pairs()-before || fast.Pairs() != slow.Pairs() || fast.Len() != slow.Len() {
			t.Fatalf("%s, block %d: %d pairs, in all %d of %d keys; want %d, %d of %d", reducer, i,
				pairs, fast.Pairs(), fast.Len(), slow.Pairs()-before, slow.Pairs(), slow.Len())
		}
		if err != nil {
			if _, again := fast.EmitBlock(block); again == nil {
				t.Fatalf("%s: the table goes on after %v", reducer, err)
			}
			return
		}
	}
	got, err := fast.AppendState(nil)
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := slow.AppendState(nil); !bytes.Equal(got, want) {
		t.Fatalf("%s: the tables differ", reducer)
	}
}

// Blocks with keys of all sizes around those at which they are kept otherwise, numbers that overflow and, now
// and then, a fault.
func TestBlocksAreTheirFrames(t *testing.T) {
	size := rapid.OneOf(rapid.IntRange(0, 30), rapid.SampledFrom([]int{0, 1, 7, 8, 9, 15, 16, 17, 21, 22, 23, 24, 25, 100}))
	rapid.Check(t, func(rt *rapid.T) {
		reducer := rapid.SampledFrom([]string{"sum", "count", "min", "max", "none"}).Draw(rt, "reducer")
		faulty := rapid.IntRange(0, 3).Draw(rt, "faulty") == 0
		blocks := make([][]byte, rapid.IntRange(1, 4).Draw(rt, "blocks"))
		for i := range blocks {
			for range rapid.IntRange(0, 3*batchPairs).Draw(rt, "pairs") {
				key := bytes.Repeat([]byte{byte(rapid.IntRange(0, 2).Draw(rt, "byte"))}, size.Draw(rt, "size"))
				flags, value := drawFrameValue(rt, len(key))
				if faulty && rapid.IntRange(0, 50).Draw(rt, "fault") == 0 {
					flags = rapid.Uint32Range(0, 16).Draw(rt, "flags")
					value = value[:rapid.IntRange(0, len(value)).Draw(rt, "length")]
				}
				blocks[i] = buckets.AppendFrame(blocks[i], flags, key, value)
			}
			if faulty && rapid.Bool().Draw(rt, "torn") {
				blocks[i] = blocks[i][:rapid.IntRange(0, len(blocks[i])).Draw(rt, "bytes")]
			}
		}
		compareBlocks(t, reducer, blocks)
	})
}

// drawFrameValue draws a number whose type depends on the key's size, so that most sums have one type.
func drawFrameValue(t *rapid.T, klen int) (flags uint32, value []byte) {
	if klen%8 == 5 {
		f := rapid.Float64Range(-10, 10).Draw(t, "float")
		return buckets.FlagFloat, numberBytes(f64(f))
	}
	return buckets.FlagInt, numberBytes(i64(rapid.OneOf(rapid.Int64Range(-2, 2), rapid.Int64()).Draw(t, "int")))
}

func numberBytes(v api.Value) []byte {
	if v.Kind == api.KindInt {
		return binary.LittleEndian.AppendUint64(nil, uint64(v.Int))
	}
	return binary.LittleEndian.AppendUint64(nil, math.Float64bits(v.Float))
}

// A table that grows within a batch, and keys that come up for the first time twice in one.
func TestBlockOfNewKeys(t *testing.T) {
	one := numberBytes(i64(1))
	var block []byte
	for i := range 20_000 {
		key := fmt.Appendf(nil, "%d", i/2)
		if i%5 == 0 {
			key = append(key, strings.Repeat("long", 10)...)
		}
		block = buckets.AppendFrame(block, buckets.FlagInt, key, one)
	}
	for _, reducer := range []string{"sum", "count", "none"} {
		compareBlocks(t, reducer, [][]byte{block, block})
	}
}

// Keys that differ in one word only, so many that some share a slot.
func TestBlockKeysStayApart(t *testing.T) {
	one := numberBytes(i64(1))
	for at := range 3 {
		var block []byte
		for i := range 5000 {
			key := []byte("a key of twenty bytes.")
			copy(key[8*at:], fmt.Sprintf("%04d", i%2500))
			block = buckets.AppendFrame(block, buckets.FlagInt, key, one)
		}
		table := newTable(t, "sum")
		if _, err := table.EmitBlock(block); err != nil || table.Len() != 2500 {
			t.Errorf("word %d: %d keys, %v; want 2500", at, table.Len(), err)
		}
		compareBlocks(t, "sum", [][]byte{block})
	}
}

// Sums that leave the range of an i64 on their way, upwards and downwards.
func TestBlockSumsAreWide(t *testing.T) {
	var block []byte
	for _, v := range []int64{math.MaxInt64, 1, math.MaxInt64, -3, math.MinInt64, math.MinInt64, -1, math.MinInt64, 5} {
		block = buckets.AppendFrame(block, buckets.FlagInt, []byte("k"), numberBytes(i64(v)))
	}
	// The key is known from the second block on.
	compareBlocks(t, "sum", [][]byte{block[:buckets.FrameHeader+9], block, block, block})
}

func TestBlockFaults(t *testing.T) {
	one := numberBytes(i64(1))
	sound := buckets.AppendFrame(nil, buckets.FlagInt, []byte("word"), one)
	pad := bytes.Repeat(sound, 40)
	for _, bad := range [][]byte{
		append(buckets.AppendFrame(nil, 0, []byte("word"), []byte("text")), pad...),
		append(buckets.AppendFrame(nil, buckets.FlagFloat, []byte("word"), one), pad...),
		append(buckets.AppendFrame(nil, buckets.FlagInt|buckets.FlagFloat, []byte("word"), one), pad...),
		append(buckets.AppendFrame(nil, buckets.FlagInt, make([]byte, buckets.MaxKey+1), one), pad...),
		append(buckets.AppendFrame(nil, buckets.FlagInt, []byte("word"), one[:7]), pad...),
		sound[:len(sound)-1],
		sound[:buckets.FrameHeader-1],
		append([]byte{4, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255}, pad...),
	} {
		block := append(bytes.Clone(pad), bad...)
		table := newTable(t, "sum")
		table.StartBucket(7)
		pairs, err := table.EmitBlock(block)
		if err == nil || pairs != 40 || !strings.Contains(err.Error(), "bucket 7, pair 40") {
			t.Errorf("%d pairs and %v, want 40 and an error at pair 40", pairs, err)
		}
		compareBlocks(t, "sum", [][]byte{pad, block})
	}
}

func TestBlockOfKnownKeysAllocatesNothing(t *testing.T) {
	one := numberBytes(i64(1))
	var block []byte
	for i := range 1000 {
		block = buckets.AppendFrame(block, buckets.FlagInt, fmt.Appendf(nil, "%0*d", i%40, i), one)
	}
	table := newTable(t, "sum")
	once := func() {
		if _, err := table.EmitBlock(block); err != nil {
			t.Fatal(err)
		}
	}
	once()
	if n := testing.AllocsPerRun(10, once); n != 0 {
		t.Errorf("%v allocations a block", n)
	}
}

func FuzzEmitBlock(f *testing.F) {
	one := numberBytes(i64(1))
	f.Add([]byte("\x00\x00\x00\x00"), uint8(0))
	f.Add(bytes.Repeat(buckets.AppendFrame(nil, buckets.FlagInt, []byte("key"), one), 40), uint8(0))
	f.Add(buckets.AppendFrame(buckets.AppendFrame(nil, buckets.FlagInt, bytes.Repeat([]byte("k"), 23), one), 0, nil, one), uint8(2))
	f.Fuzz(func(t *testing.T, block []byte, reducer uint8) {
		compareBlocks(t, families[int(reducer)%len(families)].name, [][]byte{block})
	})
}
