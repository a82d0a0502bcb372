package reduce

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
)

// The form of a state is fixed: storages and routers of different builds exchange it.
func TestStateForm(t *testing.T) {
	for _, tc := range []struct {
		reducer string
		values  []api.Value
		want    string
	}{
		{"count", []api.Value{i64(9), text("x")}, "0105" + "636f756e74" + "0201" + "016b" + "02"},
		{"sum", []api.Value{i64(-3)}, "0103" + "73756d" + "0101" + "016b" + "00" + "05"},
		{"sum", []api.Value{i64(math.MaxInt64), i64(1)}, "0103" + "73756d" + "0201" + "016b" + "01" + "02" + "ffffffffffffffffff01"},
		{"sum", []api.Value{f64(math.SmallestNonzeroFloat64)}, "0103" + "73756d" + "0101" + "016b" + "02" + "000001" + "0100000000000000"},
		{"sum", []api.Value{f64(-1)}, "0103" + "73756d" + "0101" + "016b" + "02" + "001001" + "000000000000fcff"},
		{"min", []api.Value{text("xy")}, "0103" + "6d696e" + "0101" + "016b" + "00" + "02" + "7879"},
		{"max", []api.Value{f64(1)}, "0103" + "6d6178" + "0101" + "016b" + "02" + "000000000000f03f"},
		{"none", []api.Value{i64(1), text("x")}, "0104" + "6e6f6e65" + "0201" + "016b" + "02" +
			"0900" + "01" + "0100000000000000" + "0901" + "00" + "01" + "78"},
		{"module:f", nil, "0108" + "6d6f64756c653a66" + "0000"},
	} {
		table := newTable(t, tc.reducer)
		table.StartBucket(9)
		for _, v := range tc.values {
			if err := emit(table, "k", v); err != nil {
				t.Fatal(err)
			}
		}
		got, err := table.AppendState(nil)
		if err != nil {
			t.Fatal(err)
		}
		if hex.EncodeToString(got) != tc.want {
			t.Errorf("%s of %v:\n%x, want\n%s", tc.reducer, tc.values, got, tc.want)
		}
	}
}

func TestStateIsReadWholeOrRefused(t *testing.T) {
	for _, reducer := range []string{"count", "sum", "min", "none"} {
		table := newTable(t, reducer)
		err := errors.Join(emit(table, "a", i64(1)), emit(table, "a", i64(2)), emit(table, "b", f64(1)))
		if err != nil {
			t.Fatal(err)
		}
		state, err := table.AppendState(nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range state {
			if err := newTable(t, reducer).MergeState(state[:n]); api.CodeOf(err) != api.CodeInternal {
				t.Errorf("%s: %d of %d bytes: %v, want INTERNAL", reducer, n, len(state), err)
			}
		}
		for name, tc := range map[string]struct {
			state []byte
			want  string
		}{
			"a byte more":     {append(bytes.Clone(state), 0), "1 bytes after its end"},
			"another version": {append([]byte{2}, state[1:]...), "version 2, this engine reads 1"},
			"the other order": {bytes.Replace(bytes.Replace(state, []byte("\x01a"), []byte("\x01c"), 1), []byte("\x01b"), []byte("\x01a"), 1), `key "a" after "c"`},
			"a key twice":     {bytes.Replace(state, []byte("\x01b"), []byte("\x01a"), 1), `key "a" after "a"`},
		} {
			if err := newTable(t, reducer).MergeState(tc.state); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %s: %v, want %q", reducer, name, err, tc.want)
			}
		}
		if err := newTable(t, "max").MergeState(state); err == nil || !strings.Contains(err.Error(), `reduce "`+reducer+`", wanted max`) {
			t.Errorf("a state of %s in a table of max: %v", reducer, err)
		}
	}
}

// A few bytes may declare billions of keys, pairs or bytes; nothing is allocated for them.
func TestStateBombs(t *testing.T) {
	huge := "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
	for name, state := range map[string]string{
		"keys":   "\x01\x05count\x01" + huge,
		"key":    "\x01\x05count\x01\x01" + huge + "k",
		"pairs":  "\x01\x04none\x01\x01\x01k" + huge,
		"value":  "\x01\x04none\x01\x01\x01k\x01\x00\x00\x00" + huge,
		"bucket": "\x01\x04none\x01\x01\x01k\x01\x80\x80\x04\x00\x01",
		"words":  "\x01\x03sum\x01\x01\x01k\x02\x00\x00\xff",
		"low":    "\x01\x03sum\x01\x01\x01k\x02\x00\xff\x00",
		"kind":   "\x01\x03min\x01\x01\x01k\x03",
		"NaN":    "\x01\x03min\x01\x01\x01k\x02\x00\x00\x00\x00\x00\x00\xf8\x7f",
		"none":   "\x01\x04none\x01\x01\x01k\x00",
		"zero":   "\x01\x05count\x01\x01\x01k\x00",
	} {
		reducer := state[2 : 2+state[1]]
		table := newTable(t, reducer)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := table.MergeState([]byte(state))
		runtime.ReadMemStats(&after)
		if api.CodeOf(err) != api.CodeInternal {
			t.Errorf("%s: %v, want INTERNAL", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes allocated for %d bytes of state", name, n, len(state))
		}
	}
}

// Whatever is read is written back in canonical form, which is read as the same again.
func FuzzMergeState(f *testing.F) {
	names := []string{"sum", "count", "min", "max", "none"}
	for i, reducer := range names {
		table := newTable(f, reducer)
		table.StartBucket(3)
		for _, key := range []string{"a", "a key that is longer than a row holds"} {
			if err := errors.Join(emit(table, key, i64(math.MaxInt64)), emit(table, key, i64(math.MaxInt64))); err != nil {
				f.Fatal(err)
			}
		}
		if err := errors.Join(emit(table, "f", f64(1e300)), emit(table, "f", f64(-1e-300))); err != nil {
			f.Fatal(err)
		}
		state, err := table.AppendState(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), state)
	}
	f.Fuzz(func(t *testing.T, which uint8, state []byte) {
		reducer := names[int(which)%len(names)]
		table := newTable(t, reducer)
		if table.MergeState(state) != nil {
			if err := table.Emit(0, nil, nil); err == nil {
				t.Fatal("a table that failed goes on")
			}
			return
		}
		first, err := table.AppendState(nil)
		if err != nil {
			t.Fatal(err)
		}
		again := newTable(t, reducer)
		if err := again.MergeState(first); err != nil {
			t.Fatal(err)
		}
		second, err := again.AppendState(nil)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%v\n%x, then\n%x", err, first, second)
		}
		if rows, err := table.Rows(ByValue, 0); err == nil {
			for i := range rows.Len() {
				_ = rows.Row(i).Value.Text()
			}
		}
		if err := table.Merge(again); err != nil {
			t.Fatal(err)
		}
	})
}
