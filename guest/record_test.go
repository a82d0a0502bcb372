package guest

import (
	"encoding/binary"
	"math"
	"reflect"
	"testing"

	"github.com/pinion-mr/pinion/buckets"
)

// The guest reads frames as the engine writes them.
func TestRecord(t *testing.T) {
	value := binary.LittleEndian.AppendUint64(nil, math.Float64bits(2.5))
	b := buckets.AppendFrame(nil, buckets.FlagFloat|buckets.FlagFirst, []byte("key"), value)
	b = buckets.AppendFrame(b, buckets.FlagInt|buckets.FlagLast, nil, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	b = buckets.AppendFrame(b, 0, []byte("k"), []byte("8 bytes."))

	first := recordAt(b)
	if string(first.Key()) != "key" || string(first.Value()) != string(value) || !first.First() || first.Last() {
		t.Errorf("first record is %q %q", first.Key(), first.Value())
	}
	if f, ok := first.Float(); f != 2.5 || !ok {
		t.Errorf("Float = %v, %v", f, ok)
	}
	if _, ok := first.Int(); ok {
		t.Error("an f64 is an i64")
	}
	if n := firstFrame(b); n != frameHeader+3+8 {
		t.Fatalf("the first frame has %d bytes", n)
	}
	b = b[firstFrame(b):]
	second := recordAt(b)
	if len(second.Key()) != 0 || second.First() || !second.Last() {
		t.Errorf("second record is %q", second.Key())
	}
	if i, ok := second.Int(); i != -2 || !ok {
		t.Errorf("Int = %v, %v", i, ok)
	}
	b = b[firstFrame(b):]
	third := recordAt(b)
	_, isInt := third.Int()
	_, isFloat := third.Float()
	if isInt || isFloat || string(third.Value()) != "8 bytes." || firstFrame(b) != len(b) {
		t.Errorf("third record is %q: an i64 %v, an f64 %v", third.Value(), isInt, isFloat)
	}
}

// What is appended to a key or value must not run into the next one.
func TestRecordHasNoRoom(t *testing.T) {
	r := recordAt(buckets.AppendFrame(nil, 0, []byte("key"), []byte("value")))
	_ = append(r.Key(), "KEY"...)
	if string(r.Value()) != "value" || cap(r.Value()) != 5 {
		t.Errorf("the value is %q, with room for %d", r.Value(), cap(r.Value()))
	}
}

func TestTornFrames(t *testing.T) {
	b := buckets.AppendFrame(nil, 0, []byte("k"), []byte("v"))
	for n := range len(b) {
		if firstFrame(b[:n:n]) != 0 {
			t.Errorf("%d of %d bytes were read", n, len(b))
		}
	}
	binary.LittleEndian.PutUint32(b[4:], math.MaxUint32)
	binary.LittleEndian.PutUint32(b[8:], math.MaxUint32)
	if firstFrame(b) != 0 {
		t.Error("lengths of 8 GiB were read")
	}
	binary.LittleEndian.PutUint32(b[8:], 2)
	if firstFrame(b) != 0 {
		t.Error("lengths that are 1 in 32 bits were read")
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
