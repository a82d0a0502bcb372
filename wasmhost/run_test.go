package wasmhost

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

func TestMap(t *testing.T) {
	h := newHost(t, Config{})
	m := guest(t, h, "faults")
	longest := strings.Repeat("\x00", 65_535)
	distinct := make([]pair, 1000)
	for i := range distinct {
		b := string([]byte{byte(i), byte(i >> 8), 0, 0})
		distinct[i] = pair{b, b}
	}
	for name, want := range map[string][]pair{
		"all_kinds":     {{"k", "v"}, {"l", "w"}, {"k", "bad"}, {"k", "-5"}, {"k", "2.50"}},
		"echo":          {{"k0", "one"}, {"k1", ""}},
		"reuse":         distinct,
		"grow":          {{"k", "k"}, {"K", "K"}},
		"grow_all":      {{"k", "1012"}, {"k", "99904"}}, // as far as whole steps go
		"overwrite":     nil,
		"empty_outside": {{"", ""}},
		"last_bytes":    {{"\x00", "\x00\x00\x00\x00"}},
		"longest_key":   {{longest, "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := instance(t, m, Job{Function: name})
			var sink pairs
			figures, err := in.Map(t.Context(), 5, records("one", ""), &sink)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(sink.list, want) {
				t.Errorf("emitted %.200q, want %.200q", sink.list, want)
			}
			if figures.Records != 2 || figures.Bytes != 7 || figures.Pairs != uint64(len(want)) {
				t.Errorf("figures = %+v", figures)
			}
		})
	}
}

// The source's frames are not changed by a guest that overwrites its input.
func TestInputIsACopy(t *testing.T) {
	h := newHost(t, Config{})
	in := instance(t, guest(t, h, "faults"), Job{Function: "overwrite"})
	value := []byte("value")
	if _, err := in.Map(t.Context(), 0, &frames{list: []buckets.Frame{{Value: value}}}, &pairs{}); err != nil {
		t.Fatal(err)
	}
	if string(value) != "value" {
		t.Errorf("the value became %q", value)
	}
}

func TestBatches(t *testing.T) {
	h := newHost(t, Config{BatchBytes: 1000})
	in := instance(t, guest(t, h, "alloc_counts"), Job{})
	value := func(n int) string { return strings.Repeat("x", n-buckets.FrameHeader-2) }
	small := slices.Repeat([]string{value(400)}, 4) // two batches
	var sink pairs
	figures, err := in.Map(t.Context(), 0, records(append(small, value(1500), value(1999), value(400_000))...), &sink)
	if err != nil {
		t.Fatal(err)
	}
	// The last batch asks for twice what there was or what it needs, whichever is more.
	want := []pair{
		{"asked", "1000"},
		{"a", "1"},
		{"asked", "1000"},
		{"a", "1"},
		{"asked", "2000"},
		{"a", "2"},
		{"asked", "2000"},
		{"a", "2"},
		{"asked", "400000"},
		{"a", "3"},
	}
	if !reflect.DeepEqual(sink.list, want) || figures.Records != 7 {
		t.Errorf("emitted %v, want %v (%+v)", sink.list, want, figures)
	}
	// Twice is refused, but what is needed is not.
	sink = pairs{}
	if _, err := in.Map(t.Context(), 1, records(value(450_000)), &sink); err != nil {
		t.Fatal(err)
	}
	if want := []pair{{"asked", "450000"}, {"a", "5"}}; !reflect.DeepEqual(sink.list, want) {
		t.Errorf("emitted %v, want %v", sink.list, want)
	}
	_, err = in.Map(t.Context(), 2, records(value(600_000)), &sink)
	if err == nil || !strings.Contains(err.Error(), "pmr_alloc failed on bucket 2, record 0 of key \"k0\": refused to allocate 600000 bytes") {
		t.Errorf("Map = %v", err)
	}
}

func TestParamsAndEnd(t *testing.T) {
	h := newHost(t, Config{})
	m := guest(t, h, "hooks")
	in := instance(t, m, Job{
		Params:       map[string][]byte{"b": []byte("2"), "a": []byte("1"), "": nil},
		BucketParams: map[buckets.ID]map[string][]byte{1: {"a": []byte("own"), "c": []byte("3")}},
	})
	for _, b := range []buckets.ID{0, 1, 0} {
		var sink pairs
		if _, err := in.Map(t.Context(), b, records("x"), &sink); err != nil {
			t.Fatal(err)
		}
		want := []pair{{"", ""}, {"a", "1"}, {"b", "2"}, {"end", ""}}
		if b == 1 {
			want = []pair{{"", ""}, {"a", "own"}, {"b", "2"}, {"c", "3"}, {"end", ""}}
		}
		if !reflect.DeepEqual(sink.list, want) {
			t.Errorf("bucket %d: emitted %v, want %v", b, sink.list, want)
		}
	}
	var sink pairs // an empty bucket begins and ends, too
	if figures, err := in.Map(t.Context(), 2, records(), &sink); err != nil || figures.Records != 0 || len(sink.list) != 1 {
		t.Errorf("Map of an empty bucket = %+v, %v, %v", figures, sink.list, err)
	}
	if in := instance(t, m, Job{}); in.Broken() {
		t.Error("no params broke the instance")
	} else if _, err := in.Map(t.Context(), 0, records("x"), &pairs{}); err != nil {
		t.Error(err)
	}
}

func TestSinkAndSourceErrors(t *testing.T) {
	h := newHost(t, Config{})
	m := guest(t, h, "faults")
	in := instance(t, m, Job{Name: "m", Function: "echo"})
	mismatch := api.Errorf(api.CodeTypeMismatch, "sum takes numbers").With("key", "k0")
	_, err := in.Map(t.Context(), 9, records("a"), &pairs{fail: mismatch})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeTypeMismatch || e.Details["bucket"] != "9" || e.Details["key"] != "k0" ||
		e.Details["module"] != "m" || e.Message != "sum takes numbers" {
		t.Errorf("Map = %#v", err)
	}
	if len(mismatch.Details) != 1 {
		t.Errorf("the sink's own error was changed: %v", mismatch.Details)
	}
	if !in.Broken() {
		t.Error("the instance goes on")
	}
	if _, err := in.Map(t.Context(), 10, records("a"), &pairs{}); err == nil {
		t.Error("a broken instance ran")
	}

	lost := errors.New("lost")
	in = instance(t, m, Job{Function: "echo"})
	if _, err := in.Map(t.Context(), 0, records("a"), &pairs{fail: lost}); !errors.Is(err, lost) {
		t.Errorf("Map = %v", err)
	}
	in = instance(t, m, Job{Function: "echo"})
	if _, err := in.Map(t.Context(), 0, &frames{err: lost}, &pairs{}); !errors.Is(err, lost) {
		t.Errorf("Map = %v", err)
	}
}

// groupFrames makes frames of one key each letter: "aab" is two of a and one of b, with values 1, 2, 3.
func groupFrames(keys string) *frames {
	f := &frames{}
	for i := range keys {
		flags := buckets.FlagInt
		if i == 0 || keys[i-1] != keys[i] {
			flags |= buckets.FlagFirst
		}
		if i == len(keys)-1 || keys[i+1] != keys[i] {
			flags |= buckets.FlagLast
		}
		f.list = append(f.list, buckets.Frame{Flags: flags, Key: []byte(keys[i : i+1]), Value: []byte{byte(i + 1), 7: 0}})
	}
	return f
}

func TestGroup(t *testing.T) {
	for _, size := range []int{1, 50, 1000} { // one frame has 21 bytes
		h := newHost(t, Config{BatchBytes: size})
		in := instance(t, guest(t, h, "groups"), Job{Function: "sum"})
		var sink pairs
		figures, err := in.Group(t.Context(), "sum", groupFrames("aaaabbc"), &sink)
		if err != nil {
			t.Fatal(err)
		}
		want := []pair{{"a", "10"}, {"b", "11"}, {"c", "7"}}
		if !reflect.DeepEqual(sink.list, want) || figures.Records != 7 || figures.Pairs != 3 {
			t.Errorf("batches of %d: emitted %v, want %v (%+v)", size, sink.list, want, figures)
		}
		sink = pairs{}
		if _, err := in.Group(t.Context(), "echo", groupFrames("aab"), &sink); err != nil {
			t.Fatal(err)
		}
		if want := []pair{{"a", "1"}, {"a", "2"}, {"b", "3"}}; !reflect.DeepEqual(sink.list, want) {
			t.Errorf("echo emitted %v, want %v", sink.list, want)
		}
		_, err = in.Group(t.Context(), "other", groupFrames("ab"), &pairs{})
		if api.CodeOf(err) != api.CodeGuestFailed || !strings.Contains(err.Error(), `emitted key "zz", which is not in the batch`) {
			t.Errorf("Group = %v", err)
		}
	}
}

func TestGivenKeys(t *testing.T) {
	var g given
	if err := g.read(buckets.AppendFrame(buckets.AppendFrame(buckets.AppendFrame(nil, 0, []byte("a"), nil), 0, []byte("a"), nil), 0, []byte("b"), nil)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  string
		want bool
	}{{"b", true}, {"a", true}, {"c", false}, {"b", true}, {"", false}, {"a", true}} {
		if got := g.has([]byte(c.key)); got != c.want {
			t.Errorf("has(%q) = %v", c.key, got)
		}
	}
	if err := g.read([]byte("torn")); err == nil {
		t.Error("a torn batch was read")
	}
}

// A group function flushes before it returns: what it emits at the end has no batch.
func TestGroupEnd(t *testing.T) {
	h := newHost(t, Config{})
	in := instance(t, guest(t, h, "hooks"), Job{})
	_, err := in.Group(t.Context(), "reduce", groupFrames("a"), &pairs{})
	if err == nil || !strings.Contains(err.Error(), "pmr_end failed: emitted outside a batch") {
		t.Errorf("Group = %v", err)
	}
}

func TestCounters(t *testing.T) {
	h := newHost(t, Config{})
	m := guest(t, h, "faults")
	in := instance(t, m, Job{Function: "count"})
	for range 2 { // counts are those of one bucket
		figures, err := in.Map(t.Context(), 0, records("a"), &pairs{})
		if want := map[string]int64{"counter": 2, "count": 1}; err != nil || !reflect.DeepEqual(figures.Counters, want) {
			t.Errorf("counters = %v, %v", figures.Counters, err)
		}
	}
	for function, want := range map[string]string{
		"count_flood":    "and more names than guest-counters (64)",
		"count_overflow": `counter "counter" left the range of an i64`,
		"count_long":     "has 129 bytes; the limit is 128",
	} {
		in := instance(t, m, Job{Function: function})
		_, err := in.Map(t.Context(), 3, records("a"), &pairs{})
		if err == nil || !strings.Contains(err.Error(), want) || api.AsError(err).Details["bucket"] != "3" {
			t.Errorf("%s: %v", function, err)
		}
	}
}

func TestLogs(t *testing.T) {
	h := newHost(t, Config{MaxLogLines: 5})
	m := guest(t, h, "faults")
	var got []string
	logger := func(level slog.Level, message string) {
		got = append(got, fmt.Sprintf("%v %.40s %d", level, message, len(message)))
	}
	quota := h.NewQuota()
	run := func(function string) {
		t.Helper()
		in := instance(t, m, Job{Name: "m", Function: function, Logger: logger, Quota: quota})
		if _, err := in.Map(t.Context(), 0, records("a"), &pairs{}); err != nil {
			t.Fatal(err)
		}
	}
	run("log_long")
	run("log_flood")
	run("stdout_flood") // nothing is left
	if len(got) != 6 || !strings.HasPrefix(got[0], "ERROR bbb") || !strings.HasSuffix(got[0], " 4096") {
		t.Fatalf("logged %q", got)
	}
	want := []string{"DEBUG bad record 10", "INFO bad record 10", "WARN bad record 10", "ERROR bad record 10"}
	if !reflect.DeepEqual(got[1:5], want) || !strings.HasPrefix(got[5], `WARN module "m": further log lines`) {
		t.Errorf("logged %q", got[1:])
	}

	got, quota = nil, h.NewQuota()
	run("stdout_flood")
	if len(got) != 1 || !strings.HasPrefix(got[0], "INFO aaaa") || !strings.HasSuffix(got[0], " 4096") {
		t.Errorf("6 MB on stdout logged %q", got)
	}
}

func TestOutputQuota(t *testing.T) {
	h := newHost(t, Config{MaxOutputBytes: 5000})
	m := guest(t, h, "faults")
	quota := h.NewQuota()
	for i, function := range []string{"all_kinds", "reuse"} {
		in := instance(t, m, Job{Function: function, Quota: quota})
		_, err := in.Map(t.Context(), 0, records("a"), &pairs{})
		if i == 0 && err != nil {
			t.Fatal(err)
		}
		if i == 1 && (api.CodeOf(err) != api.CodeLimitExceeded || !strings.Contains(err.Error(), "guest-output (5000)")) {
			t.Errorf("Map = %v", err)
		}
	}
}

// Random numbers and the clock depend on job and bucket, not on what the instance did before.
func TestWorldIsFixed(t *testing.T) {
	h := newHost(t, Config{})
	m := guest(t, h, "faults")
	world := func(in *Instance, b buckets.ID) string {
		t.Helper()
		var sink pairs
		if _, err := in.Map(t.Context(), b, records("a"), &sink); err != nil {
			t.Fatal(err)
		}
		return sink.list[0].value
	}
	first, second := instance(t, m, Job{ID: "j", Function: "world"}), instance(t, m, Job{ID: "j", Function: "world"})
	a, b := world(first, 1), world(first, 2)
	if b2, a2 := world(second, 2), world(second, 1); a2 != a || b2 != b {
		t.Error("another order of buckets gives other random numbers or times")
	}
	other := world(instance(t, m, Job{ID: "k", Function: "world"}), 1)
	if a[:16] == b[:16] || a[:16] == other[:16] {
		t.Error("random numbers are the same in another bucket or job")
	}
}
