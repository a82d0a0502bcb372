//go:build !wasip1

package guest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// With a key of any size, from the input or not, each kind of pair arrives whole.
func TestEmit(t *testing.T) {
	text := strings.Repeat("0123456789", 4)
	for n := range len(text) {
		rows, err := Try(func(ptr, size uint32) uint32 {
			for r := range Records(ptr, size) {
				own := slices.Clone(r.Value()[:n])
				Emit(r.Value()[:n], r.Value())
				EmitInt(own, -5)
				EmitFloat(r.Value()[len(text)-n:], 0.5)
			}
			return Flush()
		}, nil, text)
		want := []string{text[:n] + "\t" + text, text[:n] + "\t-5", text[len(text)-n:] + "\t0.5"}
		slices.Sort(want)
		if err != nil || !slices.Equal(rows, want) {
			t.Errorf("%d bytes: got %q, %v; want %q", n, rows, err, want)
		}
	}
}

// Blocks are flushed when they are full, and a pair may be larger than a block.
func TestEmitMuch(t *testing.T) {
	large := strings.Repeat("x", 3*blockSize)
	rows, err := Try(func(ptr, size uint32) uint32 {
		return Batch(ptr, size, func(r Record) error {
			for i := range 20_000 {
				EmitInt(strconv.AppendInt(nil, int64(i), 10), int64(i))
			}
			Emit([]byte("large"), r.Value())
			EmitInt([]byte("after"), 1)
			return nil
		})
	}, nil, large)
	if err != nil || len(rows) != 20_002 || rows[20_000] != "after\t1" || rows[20_001] != "large\t"+large {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

// Nothing is written behind the block, however full it is.
func TestEmitStaysInBlock(t *testing.T) {
	defer func(b block) { out = b }(out)
	const size = 300
	memory := bytes.Repeat([]byte{'#'}, size+100)
	for n := range 40 {
		out = block{bytes: memory[:size:size]}
		_, err := Try(func(ptr, size uint32) uint32 {
			var counter Counter
			for r := range Records(ptr, size) {
				for range 50 {
					EmitInt(r.Value(), 1)
					counter.Add(r.Value(), 1)
					counter.flush()
					EmitInt(nil, 1)
					Emit(r.Value(), nil)
				}
			}
			return 0
		}, nil, strings.Repeat("k", n))
		if err != nil || strings.Trim(string(memory[size:]), "#") != "" {
			t.Fatalf("keys of %d bytes: %v, behind the block is %q", n, err, memory[size:])
		}
	}
}

func TestFailures(t *testing.T) {
	if _, err := Try(func(ptr, size uint32) uint32 {
		return Batch(ptr, size, func(Record) error { return errors.New("line has 3 fields") })
	}, nil, "x"); err == nil || err.Error() != "line has 3 fields" {
		t.Errorf("an error of the function: %v", err)
	}
	if _, err := Try(func(_, size uint32) uint32 { return Batch(0, size-1, func(Record) error { return nil }) }, nil, "x"); !errors.Is(err, errFrame) && err.Error() != errFrame.Error() {
		t.Errorf("a torn batch: %v", err)
	}
	if _, err := Try(func(uint32, uint32) uint32 { return 7 }, nil, "x"); err == nil {
		t.Error("a result of 7 is no error")
	}
}

func TestHooksAndParams(t *testing.T) {
	defer func() { onBegin, onEnd = nil, nil }()
	var seen []string
	OnBegin(func() error { seen = append(seen, "begin "+Param("p")); return nil })
	OnEnd(func() error { EmitInt([]byte("end"), int64(len(seen))); return nil })
	for range 2 {
		rows, err := Try(func(_, _ uint32) uint32 { seen = append(seen, "map"); return 0 }, map[string]string{"p": "1"}, "a", "b")
		if err != nil || !slices.Equal(rows, []string{fmt.Sprint("end\t", len(seen))}) {
			t.Errorf("rows are %q, %v", rows, err)
		}
	}
	if v, ok := LookupParam("p"); v != "1" || !ok {
		t.Errorf("parameter p is %q, %v", v, ok)
	}
	if v, ok := LookupParam("q"); v != "" || ok {
		t.Errorf("parameter q is %q, %v", v, ok)
	}
	if want := strings.Repeat("begin 1,map,map,", 2); strings.Join(seen, ",")+"," != want {
		t.Errorf("got %q", seen)
	}
	OnBegin(func() error { return errors.New("the parameter gap is missing") })
	if _, err := Try(nil, nil); err == nil || err.Error() != "the parameter gap is missing" {
		t.Errorf("an error before the first record: %v", err)
	}
}

// A counter's pairs add up to what was added, whatever the keys and however they collide.
func TestCounterAgainstMap(t *testing.T) {
	key := rapid.OneOf(rapid.StringN(0, 40, 40), rapid.StringMatching(`[ab]{0,3}`), rapid.StringMatching(`(key|x)?[a-z]{6,30}`))
	rapid.Check(t, func(rt *rapid.T) {
		keys := rapid.SliceOfN(key, 0, 50).Draw(rt, "keys")
		foreign := rapid.Bool().Draw(rt, "keys are copies")
		want := map[string]int64{}
		var counter Counter
		rows, err := Try(func(ptr, size uint32) uint32 {
			for r := range Records(ptr, size) {
				k := r.Value()
				if foreign {
					k = slices.Clone(k)
				}
				counter.Add(k, int64(len(k))-3)
				want[string(k)] += int64(len(k)) - 3
			}
			return Flush()
		}, nil, keys...)
		if err != nil {
			rt.Fatal(err)
		}
		if got := sums(rt, rows); !maps.Equal(got, want) || len(rows) > len(keys) {
			rt.Fatalf("got %v, want %v", got, want)
		}
	})
}

func sums(t interface{ Fatal(...any) }, rows []string) map[string]int64 {
	got := map[string]int64{}
	for _, row := range rows {
		at := strings.LastIndexByte(row, '\t')
		n, err := strconv.ParseInt(row[at+1:], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		got[row[:at]] += n
	}
	return got
}

// More keys than slots: sums are pushed out, and nothing is lost.
func TestCounterEvicts(t *testing.T) {
	var counter Counter
	const keys = 3 * slotCount
	for range 2 { // the second bucket begins with an empty counter
		rows, err := Try(func(ptr, size uint32) uint32 {
			for i := range 2 * keys {
				counter.Add(strconv.AppendInt([]byte("a key of some size "), int64(i%keys), 10), 1)
			}
			return 0
		}, nil, "")
		got := sums(t, rows)
		if err != nil || len(got) != keys || len(rows) <= keys || len(rows) > 2*keys {
			t.Fatalf("%d keys in %d rows, %v", len(got), len(rows), err)
		}
		for k, n := range got {
			if n != 2 {
				t.Fatalf("%s is %d", k, n)
			}
		}
	}
}

// A key in the place of another one is told apart from it, also where they differ in one part only.
func TestCounterOfLikeKeys(t *testing.T) {
	var counter Counter
	want := map[string]int64{}
	var text strings.Builder
	for i := range 100_000 {
		key := fmt.Sprintf("o%07d", i*i%99_991)
		for _, k := range []string{key + "x", key, key[:i%8], "12345678" + key + "1234567812345678", "1234567812345678" + key + "12345678"} {
			if k != "" {
				want[k]++
				text.WriteString(k + " ")
			}
		}
	}
	rows, err := Try(func(ptr, size uint32) uint32 {
		for r := range Records(ptr, size) {
			for w := range Words(r.Value()) {
				counter.Add(w, 1)
			}
		}
		return 0
	}, nil, text.String())
	if got := sums(t, rows); err != nil || !maps.Equal(got, want) || len(rows) == len(got) {
		t.Errorf("%d sums of %d keys in %d rows differ, %v", len(got), len(want), len(rows), err)
	}
}

// A sum that would leave 64 bits is emitted in parts: the engine adds up exactly.
func TestCounterDoesNotOverflow(t *testing.T) {
	for _, key := range []string{"k", "a key that is longer"} {
		var counter Counter
		rows, err := Try(func(ptr, size uint32) uint32 {
			for r := range Records(ptr, size) {
				counter.Add(r.Value(), math.MaxInt64)
				counter.Add(r.Value(), 1)
				counter.Add(slices.Clone(r.Value()), math.MinInt64)
				counter.Add(r.Value(), -2)
			}
			return 0
		}, nil, key)
		want := []string{key + "\t-2", key + "\t-9223372036854775807", key + "\t9223372036854775807"}
		if err != nil || !slices.Equal(rows, want) {
			t.Errorf("got %q, %v; want %q", rows, err, want)
		}
	}
}

// What a counter held when a bucket failed is not emitted in the next one.
func TestCounterForgets(t *testing.T) {
	var counter Counter
	for _, fail := range []bool{true, false} {
		rows, err := Try(func(ptr, size uint32) uint32 {
			counter.Add([]byte("k"), 1)
			if fail {
				Fail("stop")
			}
			return 0
		}, nil, "")
		if fail != (err != nil) || !fail && !slices.Equal(rows, []string{"k\t1"}) {
			t.Errorf("got %q, %v", rows, err)
		}
	}
}
