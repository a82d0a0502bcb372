package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

func TestCommand(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "command")
	if !m.Command() || m.Functions() != nil {
		t.Errorf("Command = %v, functions %v", m.Command(), m.Functions())
	}
	two := []string{"a\t1", "b"}
	for _, c := range []struct {
		function string
		records  []string
		numeric  bool
		want     []pair
	}{
		{"map", two, false, []pair{{"a", "1"}, {"b", ""}}},
		{"map", []string{"", "\t", "a\tb\tc", "\xff"}, false, []pair{{"", ""}, {"", ""}, {"a", "b\tc"}, {"\xff", ""}}},
		{"bytewise", two, false, []pair{{"a", "1"}, {"b", ""}}},
		{"map", []string{"a\t1", "b\t-2.5", "c\t1e3", "d\tx", "e\t 1"}, true, []pair{{"a", "1"}, {"b", "-2.50"}, {"c", "1000.00"}, {"d", "x"}, {"e", " 1"}}},
		{"args", two, false, []pair{{"m\x00args\x00", ""}}},
		{"vars", two, false, []pair{{"A=1\x00b=2\x00", ""}}},
		{"ignore", two, false, []pair{{"k", "1"}}},
		{"ignore", nil, false, []pair{{"k", "1"}}},
		{"no newline", two, false, []pair{{"k", "1"}}},
		{"zero", two, false, []pair{{"k", "1"}}},
	} {
		t.Run(c.function, func(t *testing.T) {
			in := instance(t, m, Job{Name: "m", Function: c.function, Numeric: c.numeric, Params: map[string][]byte{"b": []byte("2"), "A": []byte("1")}})
			for b := range buckets.ID(3) { // a program each
				var sink pairs
				figures, err := in.Map(t.Context(), b, records(c.records...), &sink)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(sink.list, c.want) || figures.Pairs != uint64(len(c.want)) {
					t.Errorf("wrote %q, want %q (%+v)", sink.list, c.want, figures)
				}
				if figures.Records != uint64(len(c.records)) { // also those that the program did not read
					t.Errorf("figures = %+v", figures)
				}
			}
			if in.MemoryBytes() != 0 {
				t.Error("a program's memory is kept after its end")
			}
		})
	}
}

// However the batches fall and whatever a read takes, the program gets every record once.
func TestCommandInput(t *testing.T) {
	var values []string
	var want []pair
	for i := range 3000 {
		v := fmt.Sprintf("key %d\t%s", i, strings.Repeat("x", i%300))
		values = append(values, v)
		key, value, _ := strings.Cut(v, "\t")
		want = append(want, pair{key, value})
	}
	for _, size := range []int{1, 1000, 1 << 20} {
		in := instance(t, guest(t, newHost(t, Config{BatchBytes: size}), "command"), Job{})
		var sink pairs
		figures, err := in.Map(t.Context(), 0, records(values...), &sink)
		if err != nil || figures.Records != 3000 || !reflect.DeepEqual(sink.list, want) {
			t.Errorf("batches of %d: %v, %+v, %d pairs", size, err, figures, len(sink.list))
		}
	}
}

func TestCommandFrames(t *testing.T) {
	m := guest(t, newHost(t, Config{BatchBytes: 40}), "command")
	params := map[string][]byte{"PINION_FORMAT": []byte("frames")}
	for _, function := range []string{"map", "bytewise"} {
		in := instance(t, m, Job{Function: function, Params: params})
		var sink pairs
		if _, err := in.Map(t.Context(), 0, records("a\nb", "", "\t"), &sink); err != nil {
			t.Fatal(err)
		}
		if want := []pair{{"k0", "a\nb"}, {"k1", ""}, {"k2", "\t"}}; !reflect.DeepEqual(sink.list, want) {
			t.Errorf("wrote %q, want %q", sink.list, want)
		}
		sink = pairs{}
		if _, err := in.Group(t.Context(), function, groupFrames("aab"), &sink); err != nil {
			t.Fatal(err)
		}
		if want := []pair{{"a", "1"}, {"a", "2"}, {"b", "3"}}; !reflect.DeepEqual(sink.list, want) {
			t.Errorf("wrote %q, want %q", sink.list, want)
		}
	}
	in := instance(t, m, Job{Function: "fragment", Params: params})
	if _, err := in.Map(t.Context(), 0, records("a"), &pairs{}); err == nil || !strings.Contains(err.Error(), "ended in the middle of a frame: 4 bytes") {
		t.Errorf("Map = %v", err)
	}
	in = instance(t, m, Job{Function: "xxx", Params: params})
	if _, err := in.Map(t.Context(), 0, records("a"), &pairs{}); api.CodeOf(err) != api.CodeLimitExceeded || !strings.Contains(err.Error(), "a frame (key of 1633771873") {
		t.Errorf("Map = %v", err)
	}
}

func TestCommandGroups(t *testing.T) {
	m := guest(t, newHost(t, Config{BatchBytes: 50}), "command")
	source := func() *frames {
		f := groupFrames("aabc")
		f.list[3].Flags = f.list[3].Flags&^buckets.FlagInt | buckets.FlagFloat
		f.list[3].Value = floatBytes(0.5)
		f.list = append(f.list, buckets.Frame{Flags: buckets.FlagFirst | buckets.FlagLast, Key: []byte("d"), Value: []byte("text")})
		return f
	}
	for _, c := range []struct {
		numeric bool
		want    []pair
	}{
		{false, []pair{{"a", "1"}, {"a", "2"}, {"b", "3"}, {"c", "0.5"}, {"d", "text"}}},
		{true, []pair{{"a", "1"}, {"a", "2"}, {"b", "3"}, {"c", "0.50"}, {"d", "text"}}},
	} {
		in := instance(t, m, Job{Numeric: c.numeric})
		var sink pairs
		if _, err := in.Group(t.Context(), "reduce", source(), &sink); err != nil || !reflect.DeepEqual(sink.list, c.want) {
			t.Errorf("wrote %q, %v; want %q", sink.list, err, c.want)
		}
		if _, err := in.Map(t.Context(), 0, records("a map writes any key"), &sink); err != nil {
			t.Error(err)
		}
		_, err := in.Group(t.Context(), "other", source(), &sink)
		if api.CodeOf(err) != api.CodeGuestFailed || !strings.Contains(err.Error(), `wrote key "zz", which it has not been given`) {
			t.Errorf("Group = %v", err)
		}
	}
}

func floatBytes(f float64) []byte {
	bits := math.Float64bits(f)
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(bits >> (8 * i))
	}
	return b
}

func TestKeySet(t *testing.T) {
	s := newKeySet()
	for i := range 1000 {
		s.add(fmt.Append(nil, i))
		s.add(fmt.Append(nil, i))
	}
	for _, i := range []int{0, 1, 1, 7, 500, 3, 999, 0} {
		if !s.has(fmt.Append(nil, i)) {
			t.Errorf("%d is missing", i)
		}
	}
	if s.has([]byte("1000")) {
		t.Error("1000 is there")
	}
	s.add([]byte("1000"))
	if !s.has([]byte("1000")) || len(s.hashes) != 1001 {
		t.Error("1000 is missing")
	}
}

func TestCommandFaults(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "command")
	for _, c := range []struct {
		function string
		records  []string
		code     api.Code
		want     string
		record   string
	}{
		{"exit", []string{"a", "b"}, api.CodeGuestFailed, "exit failed on bucket 4, records 0 to 1: exited with status 3: last words", "0"},
		{"trap", []string{"a"}, api.CodeGuestFailed, "trap trapped on bucket 4: unreachable", ""},
		{"map", []string{"a", "b\nc", "d"}, api.CodeGuestFailed, `on bucket 4, record 1 of key "k1": the record's value holds a newline`, "1"},
		{"xxx", []string{"a"}, api.CodeLimitExceeded, "wrote a line of more than 16 MiB", ""},
		{"map", []string{"a\t99999999999999999999"}, api.CodeGuestFailed, `the value 99999999999999999999 of key "a" does not fit`, "0"},
		{"map", []string{"a\t1e999"}, api.CodeGuestFailed, `the value 1e999 of key "a" does not fit`, "0"},
		{"map", []string{strings.Repeat("k", 65_536)}, api.CodeGuestFailed, "emitted a key of 65536 bytes; the limit is 65535", "0"},
	} {
		in := instance(t, m, Job{Name: "m", Function: c.function, Numeric: true})
		_, err := in.Map(t.Context(), 4, records(c.records...), &pairs{})
		if api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.function, err, c.want)
		}
		if e := api.AsError(err); e.Details["record"] != c.record || e.Details["bucket"] != "4" {
			t.Errorf("%s: details %v", c.function, e.Details)
		}
		if !in.Broken() {
			t.Errorf("%s: the instance goes on", c.function)
		}
	}
	in := instance(t, m, Job{Function: "map"})
	_, err := in.Map(t.Context(), 4, records("a\nb"), &pairs{})
	if e := api.AsError(err); !strings.Contains(e.Hint, "PINION_FORMAT=frames") {
		t.Errorf("hint is %q", e.Hint)
	}
	stopped(t, "loop was stopped on bucket 4: exceeded its time limit", func(ctx context.Context) error {
		in, err := m.Instance(ctx, Job{Function: "loop"})
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = in.Map(ctx, 4, records("a"), &pairs{})
		return err
	})
	lost := errors.New("lost")
	in = instance(t, m, Job{})
	if _, err := in.Map(t.Context(), 0, &frames{err: lost}, &pairs{}); !errors.Is(err, lost) {
		t.Errorf("Map = %v", err)
	}
	in = instance(t, m, Job{})
	if _, err := in.Map(t.Context(), 0, records("a"), &pairs{fail: lost}); !errors.Is(err, lost) {
		t.Errorf("Map = %v", err)
	}
	in = instance(t, m, Job{})
	if _, err := in.Group(t.Context(), "reduce", &frames{list: []buckets.Frame{{Key: []byte("a\tb")}}}, &pairs{}); err == nil ||
		!strings.Contains(err.Error(), "the record's key holds a tab or a newline") {
		t.Errorf("Group = %v", err)
	}
}

// One record at a time, a failure names the record that was read last.
func TestCommandRecord(t *testing.T) {
	in := instance(t, guest(t, newHost(t, Config{BatchBytes: 1}), "command"), Job{Function: "trap"})
	_, err := in.Map(t.Context(), 4, records("a", "b", "c"), &pairs{})
	if err == nil || !strings.Contains(err.Error(), `on bucket 4, record 1 of key "k1": unreachable`) {
		t.Errorf("Map = %v", err)
	}
}

func TestCommandReports(t *testing.T) {
	var got []string
	in := instance(t, guest(t, newHost(t, Config{}), "command"), Job{Function: "stderr", Logger: func(level slog.Level, message string) {
		got = append(got, level.String()+" "+message)
	}})
	figures, err := in.Map(t.Context(), 0, records("a"), &pairs{})
	if err != nil || !reflect.DeepEqual(figures.Counters, map[string]int64{"words,long ones": 3}) {
		t.Errorf("counters %v, %v", figures.Counters, err)
	}
	if want := []string{"INFO busy", "WARN reporter:counter:bad", "WARN the command ended before it had read all records of bucket 0", "WARN plain"}; !reflect.DeepEqual(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

func TestCommandBucketParams(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "command")
	in := instance(t, m, Job{Function: "vars", Params: map[string][]byte{"A": []byte("1")}, BucketParams: map[buckets.ID]map[string][]byte{1: {"A": []byte("own")}}})
	for b, want := range []string{"A=1\x00", "A=own\x00", "A=1\x00"} {
		var sink pairs
		if _, err := in.Map(t.Context(), buckets.ID(b), records("x"), &sink); err != nil {
			t.Fatal(err)
		}
		if len(sink.list) != 1 || sink.list[0].key != want {
			t.Errorf("bucket %d ran with %q, want %q", b, sink.list, want)
		}
	}
}

func TestCommandParams(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "command")
	for name, value := range map[string]string{"": "x", "a=b": "x", "a": "\x00", "a\x00": "", "PINION_FORMAT": "json"} {
		if _, err := m.Instance(t.Context(), Job{Params: map[string][]byte{name: []byte(value)}}); api.CodeOf(err) != api.CodeBadRequest {
			t.Errorf("param %q: %v", name, err)
		}
	}
}

// A program sees the same random numbers each time it runs over a bucket.
func TestCommandWorld(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "command")
	seen := map[string]bool{}
	for range 2 {
		in := instance(t, m, Job{ID: "j", Function: "world"})
		for b := range buckets.ID(2) {
			var sink pairs
			if _, err := in.Map(t.Context(), b, records("a"), &sink); err != nil {
				t.Fatal(err)
			}
			seen[fmt.Sprint(sink.list)] = true
		}
	}
	if len(seen) != 2 {
		t.Errorf("%d different outputs of 2 buckets", len(seen))
	}
}

func TestIsDecimal(t *testing.T) {
	for text, want := range map[string]bool{
		"0": true, "-1": true, "007": true, "1.5": true, ".5": true, "5.": true, "-.5e-3": true, "1E9": true, "1e+9": true,
		"": false, "-": false, ".": false, "+1": false, " 1": false, "1 ": false, "0x1": false, "1e": false, "e5": false,
		"1_000": false, "NaN": false, "inf": false, "1.2.3": false, "1e5.5": false, "--1": false,
	} {
		if got := isDecimal([]byte(text)); got != want {
			t.Errorf("isDecimal(%q) = %v", text, got)
		}
	}
}

// The fuel of a bucket is that of its program alone.
func TestCommandFuel(t *testing.T) {
	in := instance(t, guest(t, newHost(t, Config{}), "command"), Job{})
	fuel := map[uint64]bool{}
	for range 3 {
		figures, err := in.Map(t.Context(), 0, records("a", strings.Repeat("b", 10_000)), &pairs{})
		if err != nil {
			t.Fatal(err)
		}
		fuel[figures.Fuel] = true
	}
	if len(fuel) != 1 || fuel[0] {
		t.Errorf("fuel differs: %v", fuel)
	}
}
