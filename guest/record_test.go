package guest

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"testing"

	"github.com/pinion-mr/pinion/buckets"
)

// The guest's own reading and writing of frames agrees with the engine's.
func TestFrames(t *testing.T) {
	value := binary.LittleEndian.AppendUint64(nil, math.Float64bits(2.5))
	b := append(appendFrame(nil, flagFloat|flagFirst, []byte("key"), len(value)), value...)
	if want := buckets.AppendFrame(nil, buckets.FlagFloat|buckets.FlagFirst, []byte("key"), value); !bytes.Equal(b, want) {
		t.Fatalf("frame is % x, want % x", b, want)
	}
	b = buckets.AppendFrame(b, buckets.FlagInt|buckets.FlagLast, nil, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	first, rest, err := cutRecord(b)
	if err != nil || string(first.Key) != "key" || !first.First() || first.Last() {
		t.Fatalf("first record is %+v, %v", first, err)
	}
	if f, ok := first.Float(); f != 2.5 || !ok {
		t.Errorf("Float = %v, %v", f, ok)
	}
	if _, ok := first.Int(); ok {
		t.Error("an f64 is an i64")
	}
	second, rest, err := cutRecord(rest)
	if err != nil || len(rest) != 0 || len(second.Key) != 0 || second.First() || !second.Last() {
		t.Fatalf("second record is %+v, %v", second, err)
	}
	if i, ok := second.Int(); i != -2 || !ok {
		t.Errorf("Int = %v, %v", i, ok)
	}
}

func TestTornFrames(t *testing.T) {
	b := buckets.AppendFrame(nil, 0, []byte("k"), []byte("v"))
	for n := range len(b) {
		if _, _, err := cutRecord(b[:n]); err == nil {
			t.Errorf("%d of %d bytes were read", n, len(b))
		}
	}
	binary.LittleEndian.PutUint32(b[4:], math.MaxUint32)
	binary.LittleEndian.PutUint32(b[8:], math.MaxUint32)
	if _, _, err := cutRecord(b); err == nil {
		t.Error("lengths of 8 GiB were read")
	}
}

func TestReadParams(t *testing.T) {
	b := buckets.AppendFrame(buckets.AppendFrame(nil, 0, []byte("a"), []byte("1")), 0, []byte("b"), nil)
	got, err := readParams(b)
	if want := map[string]string{"a": "1", "b": ""}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("readParams = %v, %v", got, err)
	}
	if _, err := readParams(b[:len(b)-1]); err == nil {
		t.Error("torn params were read")
	}
}
