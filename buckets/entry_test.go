package buckets

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"pgregory.net/rapid"
)

const testBuckets = 16

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := api.Encode(api.Msgpack, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// keyIn returns a key of a bucket that begins with prefix.
func keyIn(b ID, prefix string) []byte {
	for i := 0; ; i++ {
		if key := fmt.Appendf(nil, "%s%d", prefix, i); Of(key, testBuckets) == b {
			return key
		}
	}
}

// each writes a decoded record entry as text.
func each(r Records) []string {
	var out []string
	r.Each(func(key, value []byte, del bool) {
		out = append(out, fmt.Sprintf("%s=%s %v", KeyText(key), value, del))
	})
	return out
}

func TestDecodeOwnershipEntries(t *testing.T) {
	own := Own{Bucket: 7, Prev: 12, Owner: "s1", Move: "m", FenceSrc: 3, FenceDst: 4}
	for _, tc := range []struct {
		subject string
		data    []byte
		want    Entry
	}{
		{OwnSubject(7), encode(t, own), own},
		{OwnSubject(0), []byte(`{"bucket":0,"owner":"s2","unknown":1}`), Own{Owner: "s2"}},
		{FenceSubject("s1"), encode(t, Fence{Storage: "s1", Incarnation: "i"}), Fence{Storage: "s1", Incarnation: "i"}},
		{SubjectCut, encode(t, Cut{Job: "j", Attempt: 2}), Cut{Job: "j", Attempt: 2}},
		{SubjectCut, nil, Cut{}},
	} {
		got, err := Decode(api.LogEntry{Seq: 5, Subject: tc.subject, Data: tc.data}, testBuckets)
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, %v; want %+v", tc.subject, got, err, tc.want)
		}
	}
}

func TestDecodeRecords(t *testing.T) {
	key, other := keyIn(3, "k"), keyIn(3, "o")
	assigned := AppendAssigned(nil, 2, 0, 3)
	batch := AppendFrame(nil, 0, key, []byte("v"))
	batch = AppendFrame(batch, FlagAssign, nil, []byte("w"))
	batch = AppendFrame(batch, FlagDelete, other, nil)
	batch = AppendFrame(batch, FlagDelete, assigned, nil)
	batch = AppendFrame(batch, FlagAssign, nil, []byte("x"))
	for _, tc := range []struct {
		header map[string]string
		data   []byte
		space  string
		want   []string
	}{
		{nil, batch, "default", []string{
			string(key) + "=v false", "#9.1.3=w false", string(other) + "= true", "#2.0.3= true", "#9.4.3=x false",
		}},
		{map[string]string{api.HeaderSpace: "logs"}, AppendFrame(nil, 0, key, nil), "logs", []string{string(key) + "= false"}},
		{map[string]string{api.HeaderKey: string(key)}, []byte("body"), "default", []string{string(key) + "=body false"}},
		{map[string]string{api.HeaderKey: string(key)}, nil, "default", []string{string(key) + "= false"}},
	} {
		got, err := Decode(api.LogEntry{Seq: 9, Subject: RecSubject(3), Header: tc.header, Data: tc.data}, testBuckets)
		if err != nil {
			t.Errorf("%v: %v", tc.header, err)
			continue
		}
		r := got.(Records)
		if r.Bucket != 3 || r.Space != tc.space || !slices.Equal(each(r), tc.want) {
			t.Errorf("%v: bucket %d, space %s, %q; want %q", tc.header, r.Bucket, r.Space, each(r), tc.want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := AppendFrame(nil, 0, keyIn(3, "k"), []byte("v"))
	with := func(flags uint32, key, value []byte) []byte {
		return AppendFrame(slices.Clone(good), flags, key, value)
	}
	long := make([]byte, MaxKey+1)
	for _, tc := range []struct {
		subject string
		header  map[string]string
		data    []byte
		want    string
	}{
		{"rec.3", nil, nil, "neither a frame nor the header Pinion-Key"},
		{"rec.16", nil, good, `"16" is not a bucket of 0..15`},
		{"rec.03", nil, good, `"03" is not a bucket`},
		{"rec.-1", nil, good, "is not a bucket"},
		{"rec.65539", nil, good, "is not a bucket"}, // 3 in 16 bits
		{"rec", nil, good, "is not a bucket"},
		{"rec.4", nil, good, "belongs to bucket 3, not 4"},
		{"rec.3", nil, good[:len(good)-1], "record 0: frame of key"},
		{"rec.3", nil, append(slices.Clone(good), 0), "record 1: frame header needs 12 bytes, 1 are left"},
		{"rec.3", nil, with(0, keyIn(4, "k"), nil), "record 1: key"},
		{"rec.3", nil, with(FlagAssign, []byte("k"), nil), "record 1: a record whose key is assigned brings a key of 1 bytes"},
		{"rec.3", nil, with(FlagDelete, keyIn(3, "k"), []byte("v")), "record 1: a deletion brings a value of 1 bytes"},
		{"rec.3", nil, with(FlagDelete|FlagAssign, nil, nil), "record 1: unknown flags 0x3"},
		{"rec.3", nil, with(FlagInt, keyIn(3, "k"), make([]byte, 8)), "record 1: unknown flags 0x4"},
		{"rec.3", nil, with(0, AppendAssigned(nil, 1, 0, 3), nil), "record 1: key #1.0.3 has the form of assigned keys"},
		{"rec.3", nil, with(FlagDelete, AppendAssigned(nil, 1, 0, 4), nil), "belongs to bucket 4, not 3"},
		{"rec.3", nil, with(0, long, nil), "record 1: key of 65536 bytes; the limit is 65535"},
		{"rec.3", map[string]string{api.HeaderSpace: "a b"}, good, "a space's name"},
		{"rec.3", map[string]string{api.HeaderKey: string(keyIn(4, "k"))}, nil, "header Pinion-Key: key"},
		{"rec.3", map[string]string{api.HeaderKey: string(AppendAssigned(nil, 1, 0, 3))}, nil, "has the form of assigned keys"},
		{"own.7", nil, encode(t, Own{Bucket: 8, Owner: "s1"}), "ownership of bucket 8 on subject own.7"},
		{"own.7", nil, encode(t, Own{Bucket: 7}), "cannot be an owner"},
		{"own.16", nil, encode(t, Own{Bucket: 16, Owner: "s1"}), "is not a bucket"},
		{"own.7", nil, []byte("\x81\xa6bucket\xce\x00\x01\x00\x07"), "65543, out of the range"},
		{"own.7", nil, []byte("garbage"), "cannot read the message"},
		{"fence.s1", nil, encode(t, Fence{Storage: "s2"}), `fence of storage "s2" on subject fence.s1`},
		{"fence.", nil, nil, "fence of storage"},
		{"fence.s1", nil, []byte{0xc1}, "cannot read the message"},
		{"cut", nil, []byte("{"), "cannot read the message"},
		{"else.1", nil, nil, `unknown subject "else.1"`},
		{"", nil, nil, `unknown subject ""`},
	} {
		e, err := Decode(api.LogEntry{Seq: 9, Subject: tc.subject, Header: tc.header, Data: tc.data}, testBuckets)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %v: %+v, %v; want %q", tc.subject, tc.header, e, err, tc.want)
		} else if len(err.Error()) > 300 {
			t.Errorf("%s: a message of %d bytes", tc.subject, len(err.Error()))
		}
	}
}

func TestDigestTellsEntriesApart(t *testing.T) {
	entry := func(subject, space, key, data string) api.LogEntry {
		return api.LogEntry{Subject: subject, Header: map[string]string{api.HeaderSpace: space, api.HeaderKey: key}, Data: []byte(data)}
	}
	seen := map[uint64]int{}
	for i, e := range []api.LogEntry{
		entry("rec.1", "", "", ""), entry("rec.1", "a", "", ""), entry("rec.1", "", "a", ""), entry("rec.1", "", "", "a"),
		entry("rec.", "1", "", ""), entry("rec.1", "ab", "c", ""), entry("rec.1", "a", "bc", ""), entry("rec.1", "a", "b", "c"),
	} {
		d := Digest(e)
		if j, ok := seen[d]; ok {
			t.Errorf("entries %d and %d have one digest", j, i)
		}
		seen[d] = i
		if e.Seq = 99; Digest(e) != d {
			t.Errorf("entry %d: the position is in the digest", i)
		}
	}
	if Digest(api.LogEntry{Subject: "rec.1"}) != Digest(entry("rec.1", "", "", "")) {
		t.Error("absent headers differ from empty ones")
	}
}

func TestPositionKnowsItsEntry(t *testing.T) {
	at := time.Date(2024, 5, 1, 12, 0, 0, 123, time.UTC)
	e := api.LogEntry{Seq: 5, Time: at, Subject: "rec.1", Data: []byte("x")}
	p := PositionOf(e)
	same := e
	same.Time = at.In(time.FixedZone("east", 3600))
	if !p.Same(same) {
		t.Error("the same entry in another time zone is not known")
	}
	for name, change := range map[string]func(e *api.LogEntry){
		"seq": func(e *api.LogEntry) { e.Seq++ }, "time": func(e *api.LogEntry) { e.Time = e.Time.Add(1) },
		"data": func(e *api.LogEntry) { e.Data = []byte("y") },
	} {
		other := e
		if change(&other); p.Same(other) {
			t.Errorf("an entry with another %s is taken for the same", name)
		}
	}
}

func TestHeaderKeyOK(t *testing.T) {
	for key, want := range map[string]bool{
		"a": true, "a b": true, "~!": true, strings.Repeat("x", 1024): true, strings.Repeat("x", 1025): false,
		"": false, " a": false, "a ": false, "a\tb": false, "a\r": false, "a\n": false, "\x00": false, "\x7f": false, "é": false,
	} {
		if HeaderKeyOK([]byte(key)) != want {
			t.Errorf("HeaderKeyOK(%.20q) = %v", key, !want)
		}
	}
}

// Whatever an applier accepts belongs to its bucket, and all records of the entry are seen.
func FuzzDecodeEntry(f *testing.F) {
	f.Add("rec.3", "", "", AppendFrame(AppendFrame(nil, 0, keyIn(3, "k"), []byte("v")), FlagAssign, nil, []byte("w")))
	f.Add("rec.3", "logs", string(keyIn(3, "k")), []byte("body"))
	f.Add("own.7", "", "", []byte(`{"bucket":7,"owner":"s1"}`))
	f.Add("fence.s1", "", "", []byte(`{"storage":"s1"}`))
	f.Add("cut", "", "", []byte{0x80})
	f.Fuzz(func(t *testing.T, subject, space, key string, data []byte) {
		header := map[string]string{}
		if space != "" {
			header[api.HeaderSpace] = space
		}
		if key != "" {
			header[api.HeaderKey] = key
		}
		e, err := Decode(api.LogEntry{Seq: 9, Subject: subject, Header: header, Data: data}, testBuckets)
		if err != nil {
			return
		}
		switch e := e.(type) {
		case Records:
			n := 0
			e.Each(func(key, _ []byte, _ bool) {
				n++
				if Of(key, testBuckets) != e.Bucket || len(key) > MaxKey {
					t.Fatalf("key %x in bucket %d", key, e.Bucket)
				}
			})
			if n == 0 || CheckSpace(e.Space) != nil {
				t.Fatalf("%d records of space %q", n, e.Space)
			}
		case Own:
			if e.Bucket >= testBuckets || e.Owner == "" {
				t.Fatalf("%+v", e)
			}
		case Fence:
			if e.Storage == "" {
				t.Fatalf("%+v", e)
			}
		}
	})
}

func TestBatchesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := ID(rapid.IntRange(0, testBuckets-1).Draw(t, "bucket"))
		seq := rapid.Uint64Range(1, 1<<60).Draw(t, "seq")
		var data []byte
		var want []string
		for i := range rapid.IntRange(1, 8).Draw(t, "records") {
			value := rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "value")
			key := keyIn(b, rapid.StringN(0, 3, 5).Draw(t, "prefix"))
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				data = AppendFrame(data, 0, key, value)
				want = append(want, fmt.Sprintf("%s=%s false", key, value))
			case 1:
				data = AppendFrame(data, FlagAssign, nil, value)
				want = append(want, fmt.Sprintf("#%d.%d.%d=%s false", seq, i, b, value))
			default:
				data = AppendFrame(data, FlagDelete, key, nil)
				want = append(want, fmt.Sprintf("%s= true", key))
			}
		}
		e, err := Decode(api.LogEntry{Seq: seq, Subject: RecSubject(b), Data: data}, testBuckets)
		if err != nil {
			t.Fatal(err)
		}
		if got := each(e.(Records)); !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}
