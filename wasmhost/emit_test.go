package wasmhost

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// blocks is a BlockSink that keeps everything.
type blocks struct {
	pairs
	sizes []int // of the blocks
}

var _ BlockSink = (*blocks)(nil)

func (s *blocks) EmitBlock(block []byte) (n int, err error) {
	s.sizes = append(s.sizes, len(block))
	for len(block) > 0 {
		f, rest, err := buckets.CutFrame(block)
		if err == nil {
			err = s.Emit(f.Flags, f.Key, f.Value)
		}
		if err != nil {
			return n, err
		}
		n, block = n+1, rest
	}
	return n, nil
}

// batch is a Source of one batch, whatever it has.
type batch struct {
	bytes []byte
	done  bool
}

func (b *batch) Fill(dst []byte, _ int) ([]byte, int, error) {
	if b.done {
		return dst, 0, nil
	}
	b.done = true
	return append(dst, b.bytes...), 1, nil
}

// emitBoth has a guest emit a block to a sink that takes pairs and to one that takes blocks. What they get, the
// figures and the errors must be the same.
func emitBoth(t testing.TB, m *Module, job Job, block []byte) (*blocks, error) {
	t.Helper()
	job.Function = "echo"
	run := func(sink Sink) (Figures, error) {
		job.Quota = nil
		in, err := m.Instance(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		return in.Map(t.Context(), 5, &batch{bytes: block}, sink)
	}
	slow, fast := &pairs{}, &blocks{}
	want, wantErr := run(slow)
	got, err := run(fast)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) || api.CodeOf(err) != api.CodeOf(wantErr) {
		t.Fatalf("a sink of blocks: error %v, one of pairs %v", err, wantErr)
	}
	// A block that is over a limit as a whole is refused as a whole.
	if api.CodeOf(err) != api.CodeLimitExceeded && !reflect.DeepEqual(fast.list, slow.list) {
		t.Fatalf("a sink of blocks got %d pairs, one of pairs %d", len(fast.list), len(slow.list))
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("figures with a sink of blocks %+v, with one of pairs %+v", got, want)
	}
	return fast, err
}

func TestEmitBlock(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "faults")
	sound := buckets.AppendFrame(nil, buckets.FlagInt, []byte("key"), make([]byte, 8))
	sound = buckets.AppendFrame(sound, 0, nil, []byte("value"))
	sound = buckets.AppendFrame(sound, buckets.FlagFloat, []byte("other key"), make([]byte, 8))
	longest := buckets.AppendFrame(bytes.Clone(sound), 0, make([]byte, buckets.MaxKey), nil)
	sink, err := emitBoth(t, m, Job{}, longest)
	if err != nil || len(sink.sizes) != 1 || sink.sizes[0] != len(longest) || len(sink.list) != 4 {
		t.Errorf("blocks of %v with %d pairs, %v; want one of %d with 4", sink.sizes, len(sink.list), err, len(longest))
	}
	for _, c := range []struct {
		name string
		bad  []byte
		want string
	}{
		{"flags", buckets.AppendFrame(nil, buckets.FlagFirst, []byte("x"), nil), `flags 1; 0, 4 (i64) and 8 (f64) are allowed (key "x")`},
		{"both", buckets.AppendFrame(nil, buckets.FlagInt|buckets.FlagFloat, []byte("x"), make([]byte, 8)), "flags 12;"},
		{"short", buckets.AppendFrame(nil, buckets.FlagInt, []byte("x"), make([]byte, 7)), `a number of 7 bytes`},
		{"long", buckets.AppendFrame(nil, buckets.FlagFloat, []byte("x"), make([]byte, 9)), `a number of 9 bytes`},
		{"key", buckets.AppendFrame(nil, 0, make([]byte, buckets.MaxKey+1), nil), "a key of 65536 bytes; the limit is 65535"},
		{"torn", sound[:buckets.FrameHeader+3], fmt.Sprintf("byte %d begins no frame", len(sound))},
		{"header", sound[:buckets.FrameHeader-1], fmt.Sprintf("byte %d begins no frame", len(sound))},
		{"huge", bytes.Repeat([]byte{255}, 12), fmt.Sprintf("byte %d begins no frame", len(sound))},
	} {
		block := append(bytes.Clone(sound), c.bad...)
		if len(c.bad) >= buckets.FrameHeader && c.name != "torn" { // what comes after is not looked at
			block = append(block, sound...)
		}
		sink, err := emitBoth(t, m, Job{}, block)
		if api.CodeOf(err) != api.CodeGuestFailed || !strings.Contains(err.Error(), c.want) || len(sink.list) != 3 {
			t.Errorf("%s: %d pairs and %v, want 3 and %q", c.name, len(sink.list), err, c.want)
		}
	}
}

// The host takes a large block in pieces, but counts its bytes from the beginning.
func TestEmitBlockOfManyPieces(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "faults")
	block := bytes.Repeat(buckets.AppendFrame(nil, 0, []byte("key"), make([]byte, 985)), 100)
	sink, err := emitBoth(t, m, Job{}, append(block, 1, 2, 3))
	if err == nil || !strings.Contains(err.Error(), "byte 100000 begins no frame") || len(sink.list) != 100 {
		t.Errorf("%d pairs and %v, want 100 and byte 100000", len(sink.list), err)
	}
}

func TestEmitBlockOfAnything(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "faults")
	rapid.Check(t, func(rt *rapid.T) {
		// The first frame must be whole: the host looks at its key before the guest runs.
		block := buckets.AppendFrame(nil, 0, []byte("first"), nil)
		for range rapid.IntRange(0, 8).Draw(rt, "pairs") {
			flags := rapid.SampledFrom([]uint32{0, 0, 4, 4, 4, 8, 8, 1, 12, 1 << 31}).Draw(rt, "flags")
			value := make([]byte, rapid.SampledFrom([]int{8, 8, 8, 8, 8, 0, 7, 9}).Draw(rt, "value"))
			block = buckets.AppendFrame(block, flags, make([]byte, rapid.IntRange(0, 3).Draw(rt, "key")), value)
		}
		if rapid.IntRange(0, 3).Draw(rt, "torn") == 0 {
			block = block[:rapid.IntRange(17, len(block)).Draw(rt, "bytes")]
		}
		_, _ = emitBoth(t, m, Job{}, block)
	})
}

// The quota counts keys and values, and nothing else, to the byte.
func TestEmitBlockQuota(t *testing.T) {
	block := bytes.Repeat(buckets.AppendFrame(nil, 0, []byte("key"), []byte("value")), 10)
	if _, err := emitBoth(t, guest(t, newHost(t, Config{MaxOutputBytes: 80}), "faults"), Job{}, block); err != nil {
		t.Error(err)
	}
	sink, err := emitBoth(t, guest(t, newHost(t, Config{MaxOutputBytes: 79}), "faults"), Job{}, block)
	if api.CodeOf(err) != api.CodeLimitExceeded || len(sink.list) > 0 {
		t.Errorf("%d pairs and %v, want LIMIT_EXCEEDED before any", len(sink.list), err)
	}
}

// An error of the sink ends the guest's call, with the place added.
func TestEmitBlockSinkFails(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "faults")
	block := buckets.AppendFrame(nil, 0, []byte("key"), nil)
	refused := errors.New("refused")
	in := instance(t, m, Job{Function: "echo"})
	if _, err := in.Map(t.Context(), 5, &batch{bytes: block}, &blocks{pairs: pairs{fail: refused}}); !errors.Is(err, refused) || !in.Broken() {
		t.Errorf("error %v, broken %v", err, in.Broken())
	}
	in = instance(t, m, Job{Function: "echo", Name: "mine"})
	_, err := in.Map(t.Context(), 5, &batch{bytes: block}, &blocks{pairs: pairs{fail: api.Errorf(api.CodeTypeMismatch, "no")}})
	if e := api.AsError(err); e.Code != api.CodeTypeMismatch || e.Details["bucket"] != "5" || e.Details["module"] != "mine" {
		t.Errorf("error %v with %v", err, e.Details)
	}
}

// A block that is emitted where nothing may be is refused, whatever the sink.
func TestEmitBlockOutsideABatch(t *testing.T) {
	in := instance(t, guest(t, newHost(t, Config{}), "init_emits"), Job{})
	sink := &blocks{}
	_, err := in.Map(t.Context(), 0, records("a"), sink)
	if api.CodeOf(err) != api.CodeGuestFailed || !strings.Contains(err.Error(), "emitted outside a batch") || len(sink.list) > 0 {
		t.Errorf("%d pairs and %v", len(sink.list), err)
	}
}

// In Group every key is compared with those of the batch, so a block is taken apart.
func TestGroupTakesBlocksApart(t *testing.T) {
	in := instance(t, guest(t, newHost(t, Config{}), "faults"), Job{Function: "echo"})
	sink := &blocks{}
	source := &frames{list: []buckets.Frame{{Key: []byte("k"), Value: []byte("v")}}} // without flags the frame may be emitted
	if _, err := in.Group(t.Context(), "echo", source, sink); err != nil {
		t.Fatal(err)
	}
	if len(sink.sizes) > 0 || len(sink.list) != 1 {
		t.Errorf("blocks of %v and %d pairs, want no block and 1 pair", sink.sizes, len(sink.list))
	}
}
