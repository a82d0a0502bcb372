//go:build !wasip1

package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"unsafe"
)

// Try runs a function of a guest over one bucket of values, so that a test needs neither an engine nor
// WebAssembly. It exists where GOOS is not wasip1. The records' keys are 0, 1 and so on. It returns what was
// emitted as rows, "key TAB value", sorted:
//
//	rows, err := guest.Try(words, nil, "to be", "or not to be")
//	// be 2, not 1, or 1, to 2
//
// The error is that of [Fail] or of the guest's function. Log lines go to os.Stderr. [Try] is for one
// goroutine at a time.
func Try(function func(ptr, size uint32) uint32, params map[string]string, values ...string) (rows []string, err error) {
	tried = nil
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			rows, err = nil, errors.New(string(e))
		default:
			panic(e)
		}
	}()
	begin(tryParams(params))
	for i, v := range values {
		key := strconv.Itoa(i)
		frame := tryFrame(nil, key, v)
		copy(alloc(uint32(len(frame))), frame)
		if code := function(0, uint32(len(frame))); code != 0 {
			return nil, fmt.Errorf("guest: record %d: the function returned %d", i, code)
		}
	}
	end()
	slices.Sort(tried)
	return tried, nil
}

func tryParams(params map[string]string) (frames []byte) {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		frames = tryFrame(frames, name, params[name])
	}
	return frames
}

func tryFrame(dst []byte, key, value string) []byte {
	dst = binary.NativeEndian.AppendUint32(dst, 0)
	dst = binary.NativeEndian.AppendUint32(dst, uint32(len(key)))
	dst = binary.NativeEndian.AppendUint32(dst, uint32(len(value)))
	return append(append(dst, key...), value...)
}

// tried is what a guest emitted under [Try].
var tried []string

// failure is the panic of [Fail] under [Try].
type failure string

func hostEmit(ptr unsafe.Pointer, size uint32) {
	for b := unsafe.Slice((*byte)(ptr), size); len(b) > 0; {
		r := recordAt(b)
		value := string(r.Value())
		if i, ok := r.Int(); ok {
			value = strconv.FormatInt(i, 10)
		} else if f, ok := r.Float(); ok {
			value = strconv.FormatFloat(f, 'g', -1, 64)
		}
		tried = append(tried, string(r.Key())+"\t"+value)
		b = b[firstFrame(b):]
	}
}

func hostLog(_ uint32, ptr unsafe.Pointer, size uint32) {
	_, _ = fmt.Fprintf(os.Stderr, "%s\n", unsafe.Slice((*byte)(ptr), size))
}

func hostCount(unsafe.Pointer, uint32, int64) {}

func hostFail(ptr unsafe.Pointer, size uint32) { panic(failure(unsafe.Slice((*byte)(ptr), size))) }
