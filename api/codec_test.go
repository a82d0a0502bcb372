package api

import (
	"bytes"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func TestUnknownFields(t *testing.T) {
	for _, body := range []string{
		`{"module":"grep","modul":"x"}`,
		"\x82\xa6module\xa4grep\xa5modul\xa1x",
		"\x82\xa5modul\x92\x01\x81\x02\x03\xa6module\xa4grep",
	} {
		var strict JobRequest
		err := Decode([]byte(body), &strict, Strict)
		if CodeOf(err) != CodeBadRequest || !strings.Contains(err.Error(), "modul") {
			t.Errorf("%q strict: %v, want BAD_REQUEST naming the field", body, err)
		}
		var lenient JobRequest
		if err := Decode([]byte(body), &lenient, Lenient); err != nil || lenient.Module != "grep" {
			t.Errorf("%q lenient: %v, module %q", body, err, lenient.Module)
		}
	}
}

func TestEmptyBodyIsAnEmptyMessage(t *testing.T) {
	for _, body := range []string{"", " \n", "{}", " {}\n", "\x80"} {
		r := JobRequest{}
		if err := Decode([]byte(body), &r, Strict); err != nil || !reflect.DeepEqual(r, JobRequest{}) {
			t.Errorf("%q: %+v, %v", body, r, err)
		}
	}
}

// A value that its field cannot hold is refused by the field's name, never bent until it fits.
func TestRefusedMessages(t *testing.T) {
	for _, tc := range []struct {
		into any
		body string
		want string
	}{
		{&ReceiveRequest{}, "\x81\xa7buckets\x92\x01\xce\x00\x01\x00\x05", "field buckets[1] is 65541, out of the range of uint16"},
		{&ReceiveRequest{}, "\x81\xa7buckets\x91\xff", "field buckets[0] is -1, out of the range of uint16"},
		{&ReceiveRequest{}, "\x81\xa7buckets\xc4\x01\x05", "field buckets must be an array, not bytes"},
		{&ReceiveRequest{}, "\x81\xa7buckets\x91\xca\x3f\x80\x00\x00", "field buckets[0] must be an integer, not a float"},
		{&ReceiveRequest{}, `{"buckets":[65541]}`, "65541"},
		{&ReceiveRequest{}, `{"buckets":[-1]}`, "-1"},
		{&JobRequest{}, "\x81\xaatimeout_ms\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "field timeout_ms is 18446744073709551615, out of the range of int64"},
		{&JobRequest{}, "\x81\xaatimeout_ms\xc3", "field timeout_ms must be an integer, not a boolean"},
		{&JobRequest{}, "\x81\xa6module\x05", "field module must be a string, not an integer"},
		{&JobRequest{}, "\x81\xa6params\x81\xa1k\x81\xa1a\x01", "field params.k must be bytes, not a map"},
		{&JobRequest{}, "\x81\xa6params\x81\x07\xa1a", "field params has a key that is no string"},
		{&MapEnd{}, "\x81\xa7records\xd3\xff\xff\xff\xff\xff\xff\xff\xff", "field records is -1"},
		{&MapEnd{}, "\x81\xa5error\x81\xa7details\x81\xa1k\x01", "field error.details.k must be a string"},
		{&JobReply{}, "\x81\xa4rows\x92\x80\x81\xa3key\x01", "field rows[1].key must be bytes"},
		{&JobReply{}, "\x81\xa4rows\x91\x81\xa5value\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "does not fit an i64"},
		{&JobReply{}, "\x81\xa4rows\x91\x81\xa5value\x90", "a value is bytes or a number"},
		{&JobReply{}, `{"rows":[{"value":9223372036854775808}]}`, "9223372036854775808 does not fit an i64"},
		{&JobReply{}, `{"rows":[{"value":1e400}]}`, "1e400"},
		{&JobReply{}, `{"rows":[{"value":true}]}`, "bytes must be a string"},
		{&JobRequest{}, "\x91\x80", "a message is a msgpack map or a JSON object; this begins with byte 0x91"},
		{&JobRequest{}, `["module"]`, "begins with byte 0x5b"},
		{&JobRequest{}, "wordcount", "begins with byte 0x77"},
		{&JobRequest{}, "\x80\x80", "1 bytes follow the message"},
		{&JobRequest{}, `{} {}`, "more than one JSON value"},
		{&JobRequest{}, `{"module":`, "unexpected EOF"},
		{&JobRequest{}, "\x81\x01\x01", "the message has a key that is no string"},
		{&JobRequest{}, "\x81\xa6module\xa9word", "declared length exceeds data"},
		{JobRequest{}, "\x80", "a message is read into a pointer"},
	} {
		err := Decode([]byte(tc.body), tc.into, Strict)
		if CodeOf(err) != CodeBadRequest || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q into %T: %v, want BAD_REQUEST with %q", tc.body, tc.into, err, tc.want)
		}
	}
}

// What fits is read, however wide it was written.
func TestAcceptedForms(t *testing.T) {
	for body, want := range map[string]JobRequest{
		"\x81\xaatimeout_ms\xd3\x00\x00\x00\x00\x00\x00\x00\x05":                             {TimeoutMS: 5},
		"\x81\xaatimeout_ms\xcf\x7f\xff\xff\xff\xff\xff\xff\xff":                             {TimeoutMS: math.MaxInt64},
		"\x81\xaatimeout_ms\xd3\x80\x00\x00\x00\x00\x00\x00\x00":                             {TimeoutMS: math.MinInt64},
		"\x81\xaatimeout_ms\xc0":                                                             {},
		"\x81\xa6module\xc4\x01m":                                                            {Module: "m"},
		"\xde\x00\x01\xa6module\xd9\x01m":                                                    {Module: "m"},
		"\x81\xa6params\xdf\x00\x00\x00\x01\xa1k\xa1v":                                       {Params: map[string]Bytes{"k": Bytes("v")}},
		`{"params":{"k":1.50,"l":-3,"m":{"base64":"/w=="}}}`:                                 {Params: map[string]Bytes{"k": Bytes("1.50"), "l": Bytes("-3"), "m": {0xff}}},
		"\x83\xa1\xff\x01\xa6module\xa1m\xa5extra\xc7\x01\x05x":                              {Module: "m"},
		"\x81\xa6params\x82\xa1a\xc5\x00\x01x\xa1b\xda\x00\x01y":                             {Params: map[string]Bytes{"a": Bytes("x"), "b": Bytes("y")}},
		"\x82\xa6module\xa1a\xa6module\xa1b":                                                 {Module: "b"},
		"\x82\xa8attempts\xcc\x09\xa5limit\xcd\x01\x00":                                      {Attempts: 9, Limit: 256},
		"\x81\xa5extra" + strings.Repeat("\x91", 40) + "\x01":                                {},
		"\x81\xa5extra\xdc\x00\x02\xd4\x01\x02\xca\x00\x00\x00\x00":                          {},
		"\x82\xa5extra\xd8" + strings.Repeat("\x00", 17) + "\xa6module\xdb\x00\x00\x00\x01m": {Module: "m"},
	} {
		var got JobRequest
		if err := Decode([]byte(body), &got, Lenient); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", body, got, err, want)
		}
	}
}

func TestCheckMsgpack(t *testing.T) {
	deep := func(n int) string { return "\x81\xa1a" + strings.Repeat("\x91", n) + "\x01" }
	for name, tc := range map[string]struct {
		body string
		ok   bool
	}{
		"nothing":              {"", false},
		"empty map":            {"\x80", true},
		"63 levels":            {deep(63), true},
		"64 levels":            {deep(64), false},
		"a million levels":     {deep(1_000_000), false},
		"maps inside maps":     {strings.Repeat("\x81\xa1a", 1_000_000), false},
		"array of 4 billion":   {"\x81\xa1a\xdd\xff\xff\xff\xff", false},
		"map of 4 billion":     {"\xdf\xff\xff\xff\xff", false},
		"map inside":           {"\x81\xa1a\xdf\xff\xff\xff\xff", false},
		"bytes of 4 billion":   {"\x81\xa1a\xc6\xff\xff\xff\xff", false},
		"string of 4 billion":  {"\x81\xa1a\xdb\xff\xff\xff\xff", false},
		"ext of 4 billion":     {"\x81\xa1a\xc9\xff\xff\xff\xff\x01", false},
		"string a byte short":  {"\x81\xa1a\xa5abcd", false},
		"length cut off":       {"\x81\xa1a\xdb\x00\x00", false},
		"number cut off":       {"\x81\xa1a\xcf\x00\x00", false},
		"value missing":        {"\x81\xa1a", false},
		"a byte never used":    {"\x81\xa1a\xc1", false},
		"more than one":        {"\x80\x80", false},
		"array at the top":     {"\x90", false},
		"extension of 3 bytes": {"\x81\xa1a\xc7\x03\x01abc", true},
	} {
		var err error
		allocated := allocatedBy(func() { err = CheckMsgpack([]byte(tc.body)) })
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v, want ok %v", name, err, tc.ok)
		}
		if limit := uint64(len(tc.body)) + 16<<10; allocated > limit {
			t.Errorf("%s: %d bytes allocated for %d", name, allocated, len(tc.body))
		}
	}
}

// Decoding allocates in proportion to the body, whatever lengths it declares.
func TestDecodeBombs(t *testing.T) {
	for _, body := range []string{
		"\x81\xa4rows\xdd\xff\xff\xff\xff",
		"\x81\xa4rows\xdd\x00\x00\x00\x02\x80",
		"\x81\xa4rows\x91\x81\xa5value\xdd\xff\xff\xff\xff\x01",
		"\x81\xa4rows\x91\x81\xa5value" + strings.Repeat("\x91", 100_000),
		"\x81\xa4rows\x91\x81\xa3key\xc6\xff\xff\xff\xff",
		`{"rows":` + strings.Repeat("[", 100_000),
	} {
		var err error
		allocated := allocatedBy(func() { err = Decode([]byte(body), &JobReply{}, Lenient) })
		if CodeOf(err) != CodeBadRequest {
			t.Errorf("%.40q: %v, want BAD_REQUEST", body, err)
		}
		if limit := 20*uint64(len(body)) + 64<<10; allocated > limit {
			t.Errorf("%.40q: %d bytes allocated for %d", body, allocated, len(body))
		}
	}
}

func allocatedBy(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Whatever is accepted is written in both formats and read back as the same message.
func FuzzDecode(f *testing.F) {
	targets := []func() any{
		func() any { return &JobRequest{} }, func() any { return &JobReply{} }, func() any { return &MapEnd{} },
		func() any { return &PutRequest{} }, func() any { return &PinReply{} }, func() any { return &ClusterStatus{} },
	}
	for i := range targets {
		for _, m := range messages() {
			if reflect.TypeOf(m) != reflect.TypeOf(targets[i]()).Elem() {
				continue
			}
			for _, format := range []Format{JSON, Msgpack} {
				body, err := Encode(format, m)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(uint8(i), body)
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		target := targets[int(which)%len(targets)]
		first := target()
		if Decode(body, first, Strict) != nil {
			return
		}
		packed, err := Encode(Msgpack, first)
		if err != nil {
			t.Fatal(err)
		}
		second := target()
		if err := Decode(packed, second, Strict); err != nil {
			t.Fatalf("%x, from %q: %v", packed, body, err)
		}
		// Maps are written in any order, so JSON, which sorts them, is compared. It replaces what is
		// not UTF-8 in strings, in both.
		a, errA := Encode(JSON, first)
		b, errB := Encode(JSON, second)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Fatalf("%s (%v), then\n%s (%v)", a, errA, b, errB)
		}
	})
}
