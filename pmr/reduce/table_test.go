package reduce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

func newTable(t testing.TB, reducer string) *Table {
	t.Helper()
	r, err := Parse(reducer)
	if err != nil {
		t.Fatal(err)
	}
	return NewTable(r, 0)
}

// emit gives a value to a table as a guest would.
func emit(t *Table, key string, v api.Value) error {
	var number [8]byte
	switch v.Kind {
	case api.KindInt:
		binary.LittleEndian.PutUint64(number[:], uint64(v.Int))
		return t.Emit(buckets.FlagInt, []byte(key), number[:])
	case api.KindFloat:
		binary.LittleEndian.PutUint64(number[:], math.Float64bits(v.Float))
		return t.Emit(buckets.FlagFloat, []byte(key), number[:])
	}
	return t.Emit(0, []byte(key), v.Bytes)
}

func i64(i int64) api.Value   { return api.IntValue(i) }
func f64(f float64) api.Value { return api.FloatValue(f) }
func text(s string) api.Value { return api.BytesValue([]byte(s)) }
func line(r api.Row) string   { return fmt.Sprintf("%q %s %s", r.Key, r.Value.Kind, r.Value.Text()) }

// lines writes rows so that tests can compare them; -0.0 and 0.0 differ.
func lines(t testing.TB, table *Table, s Sort, limit int) []string {
	t.Helper()
	rows, err := table.Rows(s, limit)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, 0, rows.Len())
	for i := range rows.Len() {
		out = append(out, line(rows.Row(i)))
	}
	return out
}

func TestReducers(t *testing.T) {
	for _, tc := range []struct {
		reducer string
		values  []api.Value
		want    string // kind and text of the row
	}{
		{"count", []api.Value{i64(5), f64(math.NaN()), text("x")}, "i64 3"},
		{"sum", []api.Value{i64(-5), i64(7)}, "i64 2"},
		{"sum", []api.Value{i64(math.MaxInt64), i64(1), i64(-1)}, "i64 9223372036854775807"},
		{"sum", []api.Value{i64(math.MinInt64), i64(-1), i64(1)}, "i64 -9223372036854775808"},
		{"sum", []api.Value{f64(0.1), f64(0.2), f64(0.3), f64(-0.6)}, "f64 2.7755575615628914e-17"},
		{"sum", []api.Value{f64(1), f64(1e100), f64(1), f64(-1e100)}, "f64 2.0"},
		{"sum", []api.Value{f64(math.MaxFloat64), f64(math.MaxFloat64), f64(-math.MaxFloat64)}, "f64 1.7976931348623157e+308"},
		{"sum", []api.Value{f64(math.Copysign(0, -1))}, "f64 0.0"},
		{"sum", []api.Value{f64(math.Inf(1)), f64(-1e308)}, "f64 +Inf"},
		{"min", []api.Value{i64(3), i64(-4), i64(9)}, "i64 -4"},
		{"max", []api.Value{i64(3), i64(-4), i64(9)}, "i64 9"},
		{"min", []api.Value{f64(0), f64(math.Copysign(0, -1)), f64(0)}, "f64 -0.0"},
		{"max", []api.Value{f64(math.Copysign(0, -1)), f64(0), f64(math.Copysign(0, -1))}, "f64 0.0"},
		{"max", []api.Value{f64(math.Inf(-1)), f64(-7)}, "f64 -7.0"},
		{"min", []api.Value{text("b"), text("abc"), text("ab")}, "bytes ab"},
		{"max", []api.Value{text("10"), text("9"), text("")}, "bytes 9"},
		{"min", []api.Value{text("\xff"), text("\x00")}, "bytes \x00"},
	} {
		table := newTable(t, tc.reducer)
		for _, v := range tc.values {
			if err := emit(table, "k", v); err != nil {
				t.Fatalf("%s: %v", tc.reducer, err)
			}
		}
		if got := lines(t, table, ByKey, 0); len(got) != 1 || got[0] != `"k" `+tc.want {
			t.Errorf("%s of %v = %q, want %q", tc.reducer, tc.values, got, tc.want)
		}
		if table.Len() != 1 || table.Pairs() != uint64(len(tc.values)) {
			t.Errorf("%s: %d keys of %d pairs", tc.reducer, table.Len(), table.Pairs())
		}
	}
}

func TestKeysMayDifferInType(t *testing.T) {
	for _, reducer := range []string{"sum", "min", "max"} {
		table := newTable(t, reducer)
		for range 2 {
			for _, e := range []struct {
				key   string
				value api.Value
			}{{"i", i64(1)}, {"f", f64(0.5)}, {"j", i64(2)}} {
				if err := emit(table, e.key, e.value); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := []string{`"f" f64 0.5`, `"i" i64 1`, `"j" i64 2`}
		if reducer == "sum" {
			want = []string{`"f" f64 1.0`, `"i" i64 2`, `"j" i64 4`}
		}
		if got := lines(t, table, ByKey, 0); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", reducer, got, want)
		}
	}
}

func TestRefusedPairs(t *testing.T) {
	nan := f64(math.NaN())
	for _, tc := range []struct {
		reducer string
		first   []api.Value
		bad     api.Value
		code    api.Code
		message string
	}{
		{"sum", nil, text("2024-01-05"), api.CodeTypeMismatch, `sum takes numbers, got bytes "2024-01-05"`},
		{"sum", []api.Value{i64(1)}, text("7"), api.CodeTypeMismatch, `sum takes numbers, got bytes "7"`},
		{"sum", []api.Value{i64(1)}, f64(1), api.CodeTypeMismatch, "got f64 after i64"},
		{"sum", []api.Value{f64(1)}, i64(1), api.CodeTypeMismatch, "got i64 after f64"},
		{"sum", nil, nan, api.CodeTypeMismatch, "NaN"},
		{"min", []api.Value{i64(1)}, nan, api.CodeTypeMismatch, "NaN"},
		{"max", []api.Value{f64(1)}, nan, api.CodeTypeMismatch, "NaN"},
		{"min", []api.Value{i64(1)}, f64(1), api.CodeTypeMismatch, "got f64 after i64"},
		{"max", []api.Value{text("1")}, i64(1), api.CodeTypeMismatch, "got i64 after bytes"},
		{"max", []api.Value{f64(1)}, text("1"), api.CodeTypeMismatch, "got bytes after f64"},
	} {
		table := newTable(t, tc.reducer)
		table.StartBucket(17)
		for _, v := range tc.first {
			if err := emit(table, "k", v); err != nil {
				t.Fatal(err)
			}
		}
		err := emit(table, "k", tc.bad)
		if api.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.message) {
			t.Errorf("%s: %v, want %s %q", tc.reducer, err, tc.code, tc.message)
			continue
		}
		place := fmt.Sprintf(`reduce %s: key "k", bucket 17, pair %d: `, tc.reducer, len(tc.first))
		if e := api.AsError(err); !strings.HasPrefix(e.Message, place) || e.Details["bucket"] != "17" || e.Hint == "" {
			t.Errorf("%s: %+v, want the place %q and a hint", tc.reducer, e, place)
		}
		if again := emit(table, "other", i64(1)); !errors.Is(again, err) {
			t.Errorf("%s: the table goes on after %v", tc.reducer, err)
		}
		if _, again := table.Rows(ByKey, 0); !errors.Is(again, err) {
			t.Errorf("%s: the table has rows after %v", tc.reducer, err)
		}
	}
}

func TestRefusedFrames(t *testing.T) {
	for _, tc := range []struct {
		flags uint32
		key   int
		value int
		code  api.Code
	}{
		{buckets.FlagInt, 1, 7, api.CodeTypeMismatch},
		{buckets.FlagFloat, 1, 9, api.CodeTypeMismatch},
		{buckets.FlagInt | buckets.FlagFloat, 1, 8, api.CodeTypeMismatch},
		{0, buckets.MaxKey + 1, 0, api.CodeRecordTooBig},
	} {
		table := newTable(t, "count")
		err := table.Emit(tc.flags, make([]byte, tc.key), make([]byte, tc.value))
		if api.CodeOf(err) != tc.code {
			t.Errorf("flags %d, key %d, value %d: %v, want %s", tc.flags, tc.key, tc.value, err, tc.code)
		}
		if len(err.Error()) > 400 {
			t.Errorf("a message of %d bytes", len(err.Error()))
		}
	}
}

func TestSumLeavesItsRange(t *testing.T) {
	for _, values := range [][]api.Value{
		{i64(math.MaxInt64), i64(1)},
		{i64(math.MinInt64), i64(-1)},
		{f64(math.MaxFloat64), f64(math.MaxFloat64)},
		{f64(math.Inf(1)), f64(math.Inf(-1))},
	} {
		table := newTable(t, "sum")
		for _, key := range []string{"z", "bad", "y"} {
			for _, v := range values {
				if err := emit(table, key, v); err != nil {
					t.Fatal(err)
				}
			}
		}
		_, err := table.Rows(ByKey, 1)
		if api.CodeOf(err) != api.CodeOverflow || !strings.Contains(err.Error(), `key "bad"`) {
			t.Errorf("sum of %v: %v, want OVERFLOW naming the first key", values, err)
		}
	}
}

func TestMergeRefusesMixedTypes(t *testing.T) {
	for _, reducer := range []string{"sum", "min", "max"} {
		a, b := newTable(t, reducer), newTable(t, reducer)
		if err := errors.Join(emit(a, "k", i64(1)), emit(b, "k", f64(1))); err != nil {
			t.Fatal(err)
		}
		state, err := b.AppendState(nil)
		if err != nil {
			t.Fatal(err)
		}
		c := newTable(t, reducer)
		if err := emit(c, "k", i64(1)); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{"Merge": a.Merge(b), "MergeState": c.MergeState(state)} {
			if api.CodeOf(err) != api.CodeTypeMismatch || !strings.Contains(err.Error(), `key "k"`) {
				t.Errorf("%s %s: %v, want TYPE_MISMATCH naming the key", reducer, name, err)
			}
		}
	}
	a, b := newTable(t, "sum"), newTable(t, "count")
	if err := a.Merge(b); err == nil {
		t.Error("tables of sum and count were merged")
	}
}

// A guest's memory is reused after every call: a table must not keep any of it.
func TestEmitCopies(t *testing.T) {
	for _, reducer := range []string{"none", "min", "max"} {
		table := newTable(t, reducer)
		key, value := []byte("a key that is longer than a row holds"), []byte("value")
		short := []byte("short")
		if err := errors.Join(table.Emit(0, key, value), table.Emit(0, short, value)); err != nil {
			t.Fatal(err)
		}
		// For min and max these replace what was kept.
		better := map[string][]byte{"min": []byte("least"), "max": []byte("wrong")}[reducer]
		if better != nil {
			if err := table.Emit(0, short, better); err != nil {
				t.Fatal(err)
			}
		}
		copy(better, "ZZZZ")
		copy(key, "XXXX")
		copy(short, "YYYY")
		copy(value, "ZZZZ")
		shortest := map[string]string{"none": "value", "min": "least", "max": "wrong"}[reducer]
		want := []string{`"a key that is longer than a row holds" bytes value`, `"short" bytes ` + shortest}
		if got := lines(t, table, ByKey, 0); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", reducer, got, want)
		}
	}
}

// Keys around the sizes at which they are stored otherwise, alike but for one byte, must stay apart.
func TestKeysStayApart(t *testing.T) {
	table := newTable(t, "count")
	want := map[string]bool{}
	for size := range 70 {
		for at := range max(size, 1) {
			for _, c := range []byte{0, 1, 'x'} {
				key := make([]byte, size)
				if size > 0 {
					key[at] = c
				}
				want[string(key)] = true
				if err := table.Emit(0, key, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	rows, err := table.Rows(ByKey, 0)
	if err != nil {
		t.Fatal(err)
	}
	if rows.Len() != len(want) || table.Len() != len(want) {
		t.Fatalf("%d rows of %d keys, want %d", rows.Len(), table.Len(), len(want))
	}
	last := ""
	for i := range rows.Len() {
		key := string(rows.Row(i).Key)
		if !want[key] || i > 0 && key <= last {
			t.Fatalf("row %d has key %q after %q", i, key, last)
		}
		last = key
	}
}

func TestMemoryLimit(t *testing.T) {
	const limit = 1 << 20
	long := strings.Repeat("v", 100)
	for _, tc := range []struct {
		reducer string
		key     func(i int) string
		value   func(i int) api.Value
	}{
		{"count", func(i int) string { return fmt.Sprint(i) }, func(int) api.Value { return i64(1) }},
		{"sum", func(i int) string { return fmt.Sprint(i) }, func(int) api.Value { return f64(1.5) }},
		{"sum", func(i int) string { return long + fmt.Sprint(i) }, func(int) api.Value { return i64(1) }},
		{"none", func(int) string { return "k" }, func(int) api.Value { return text(long) }},
		{"max", func(int) string { return "k" }, func(i int) api.Value { return text(strings.Repeat("v", i*4000)) }},
	} {
		r, err := Parse(tc.reducer)
		if err != nil {
			t.Fatal(err)
		}
		table := NewTable(r, limit)
		i := 0
		for err = nil; err == nil && i < 1_000_000; i++ {
			err = emit(table, tc.key(i), tc.value(i))
		}
		e := api.AsError(err)
		if err == nil || e.Code != api.CodeLimitExceeded || e.Details["setting"] != "aggregation-memory" ||
			!strings.Contains(e.Message, "aggregation-memory") || e.Hint == "" {
			t.Errorf("%s: after %d pairs: %v, want LIMIT_EXCEEDED naming aggregation-memory", tc.reducer, i, err)
		}
		if table.Bytes() > 3*limit {
			t.Errorf("%s: %d bytes used with a limit of %d", tc.reducer, table.Bytes(), limit)
		}
	}
	// Merging is held to the limit too.
	count, err := Parse("count")
	if err != nil {
		t.Fatal(err)
	}
	big, small := newTable(t, "count"), NewTable(count, limit)
	for i := range 100_000 {
		if err := emit(big, fmt.Sprint(i), i64(1)); err != nil {
			t.Fatal(err)
		}
	}
	state, err := big.AppendState(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := small.MergeState(state); api.CodeOf(err) != api.CodeLimitExceeded {
		t.Errorf("MergeState: %v, want LIMIT_EXCEEDED", err)
	}
	small = NewTable(count, limit)
	if err := small.Merge(big); api.CodeOf(err) != api.CodeLimitExceeded {
		t.Errorf("Merge: %v, want LIMIT_EXCEEDED", err)
	}
}

func TestEmitOfAKnownKeyAllocatesNothing(t *testing.T) {
	key, long := []byte("word"), []byte("a key that is longer than a row holds")
	value := make([]byte, 8)
	for _, tc := range []struct {
		reducer string
		flags   uint32
	}{
		{"count", 0},
		{"sum", buckets.FlagInt},
		{"sum", buckets.FlagFloat},
		{"min", 0},
		{"max", buckets.FlagInt},
	} {
		table := newTable(t, tc.reducer)
		once := func() {
			if err := errors.Join(table.Emit(tc.flags, key, value), table.Emit(tc.flags, long, value)); err != nil {
				t.Fatal(err)
			}
		}
		once()
		if n := testing.AllocsPerRun(100, once); n != 0 {
			t.Errorf("%s, flags %d: %v allocations a pair", tc.reducer, tc.flags, n)
		}
	}
}

// What an f64 sum keeps beyond its row is counted: a list of words and its header.
func TestMemoryOfExactSumsIsCounted(t *testing.T) {
	const keys = 10_000
	ints, floats := newTable(t, "sum"), newTable(t, "sum")
	for i := range keys {
		key := fmt.Sprint(i)
		if err := errors.Join(emit(ints, key, i64(1)), emit(floats, key, f64(1))); err != nil {
			t.Fatal(err)
		}
	}
	const words, header = 3 * 8, 40
	if more := floats.Bytes() - ints.Bytes(); more < keys*(words+header) {
		t.Errorf("%d keys take %d bytes more as f64 than as i64, want %d at least", keys, more, keys*(words+header))
	}
}

// Every key takes its row of 32 bytes at least, and its slot of 8.
func TestMemoryOfKeysIsCounted(t *testing.T) {
	const keys = 10_000
	table := newTable(t, "count")
	for i := range keys {
		if err := emit(table, fmt.Sprint(i), i64(1)); err != nil {
			t.Fatal(err)
		}
	}
	if table.Bytes() < keys*40 {
		t.Errorf("%d keys take %d bytes", keys, table.Bytes())
	}
}

// A count that would leave its range stays at the end of it, however often more is added.
func TestCountLeavesItsRange(t *testing.T) {
	state := func(count uint64) []byte {
		b := append([]byte{StateVersion, 5}, "count"...)
		b = append(b, 1, 1, 1, 'k') // one pair of one key
		return binary.AppendUvarint(b, count)
	}
	table := newTable(t, "count")
	for _, count := range []uint64{math.MaxInt64 - 1, 1, math.MaxInt64} {
		if err := table.MergeState(state(count)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := table.Rows(ByKey, 0); api.CodeOf(err) != api.CodeOverflow {
		t.Errorf("a count of 2^64: %v, want OVERFLOW", err)
	}
}
