package wasmhost

import (
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/pinion-mr/pinion/buckets"
)

// writer is an instance of a command of which only the output is used.
func writer(t *testing.T, frames, numeric bool, sink Sink) *Instance {
	t.Helper()
	h := &Host{config: Config{}.withDefaults()}
	return &Instance{
		module: &Module{host: h, entry: &entry{}}, config: h.config, job: Job{Quota: h.NewQuota(), Numeric: numeric},
		command: &command{frames: frames}, run: &run{sink: sink}, phase: phaseBatch, running: t.Context(),
	}
}

// Output gives the same pairs and the same end however it is cut, and never takes more memory than it has.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("a\t1\nb\t2.5\nlast"), uint16(3), false)
	f.Add([]byte("\n\t\n\n"), uint16(1), false)
	f.Add(buckets.AppendFrame(buckets.AppendFrame(nil, 0, []byte("k"), []byte("v")), buckets.FlagInt, nil, make([]byte, 8)), uint16(13), true)
	f.Add([]byte("\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"), uint16(5), true)
	f.Fuzz(func(t *testing.T, out []byte, cut uint16, frames bool) {
		var whole, parts pairs
		a, b := writer(t, frames, true, &whole), writer(t, frames, true, &parts)
		at := min(int(cut), len(out))
		errA := a.writeOutput(out)
		if errA == nil {
			errA = a.finishOutput()
		}
		errB := b.writeOutput(out[:at])
		if errB == nil {
			errB = b.writeOutput(out[at:])
		}
		if errB == nil {
			errB = b.finishOutput()
		}
		if !reflect.DeepEqual(whole.list, parts.list) || (errA == nil) != (errB == nil) {
			t.Errorf("whole: %q, %v; cut at %d: %q, %v", whole.list, errA, at, parts.list, errB)
		}
	})
}

// A block is taken in parts of whole frames.
func TestWholeFrames(t *testing.T) {
	frame := buckets.AppendFrame(nil, 0, []byte("k"), make([]byte, 87)) // 100 bytes
	var block []byte
	for range 10 {
		block = append(block, frame...)
	}
	for limit, want := range map[int]int{1: 100, 100: 100, 101: 200, 899: 900, 1000: 1000, 5000: 1000} {
		if got := wholeFrames(block, limit); got != want {
			t.Errorf("limit %d: %d bytes, want %d", limit, got, want)
		}
	}
	binary.LittleEndian.PutUint32(block[304:], 1<<31) // frame 3 is none
	if got := wholeFrames(block, 500); got != 300 {
		t.Errorf("before a bad frame: %d bytes", got)
	}
	if got := wholeFrames(block[300:], 500); got != 700 {
		t.Errorf("at a bad frame: %d bytes", got)
	}
}
