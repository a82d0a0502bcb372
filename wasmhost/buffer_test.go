package wasmhost

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/buckets"
)

// watched notes of each batch whether it was asked for in the guest's memory.
type watched struct {
	frames
	in     *Instance
	inside []bool
}

func (w *watched) Fill(dst []byte, limit int) ([]byte, int, error) {
	memory, _ := w.in.memory.Read(w.in.buffer, 1)
	w.inside = append(w.inside, w.in.buffer != 0 && &dst[:1][0] == &memory[0])
	return w.frames.Fill(dst, limit)
}

// Batches are written into the guest's buffer, all but the first and one that is larger, and what the guest does to
// them harms nobody.
func TestBatchesInTheBuffer(t *testing.T) {
	m := guest(t, newHost(t, Config{BatchBytes: 40}), "scribbles")
	in := instance(t, m, Job{})
	large := strings.Repeat("x", 200)
	source := &watched{frames: *records("1", "22", "3", large, "1", "333", "44444444", "12345", "66666666"), in: in}
	source.in.batch = make([]byte, 0, 64)
	var sink pairs
	_, err := in.Map(t.Context(), 0, source, &sink)
	want := []pair{{"k0", "1"}, {"k1", "22"}, {"k2", "3"}, {"k3", large}, {"k4", "1"}, {"k5", "333"}, {"k6", "44444444"}, {"k7", "12345"}}
	if !reflect.DeepEqual(sink.list, want) {
		t.Errorf("the guest got %v, want %v", sink.list, want)
	}
	var failed *GuestError
	if !errors.As(err, &failed) || string(failed.Key) != "k7" || failed.Record != 7 {
		t.Errorf("Map = %#v, want a failure at k7", err)
	}
	for i, inside := range source.inside {
		if inside != (i > 0) {
			t.Errorf("batch %d: in the guest's buffer: %v", i, inside)
		}
	}
	if len(source.inside) < 6 {
		t.Errorf("%d batches", len(source.inside))
	}
}

// The keys that a group function may emit are those that it was given, whatever it does to its buffer.
func TestGroupKeepsItsBatch(t *testing.T) {
	m := guest(t, newHost(t, Config{BatchBytes: 40}), "scribbles")
	in := instance(t, m, Job{})
	source := &watched{in: in}
	source.in.batch = make([]byte, 0, 64)
	for _, key := range []string{"k0", "k1", "k2", "k3", "k4", "k5"} {
		source.list = append(source.list, buckets.Frame{Flags: buckets.FlagFirst | buckets.FlagLast, Key: []byte(key), Value: []byte("v")})
	}
	var sink pairs
	if _, err := in.Group(t.Context(), "reduce", source, &sink); err != nil {
		t.Fatal(err)
	}
	if want := []pair{{"k0", ""}, {"k2", ""}, {"k4", ""}}; !reflect.DeepEqual(sink.list, want) {
		t.Errorf("emitted %v, want %v", sink.list, want)
	}
}
