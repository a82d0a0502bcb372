package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestBytesInJSON(t *testing.T) {
	for _, tc := range []struct {
		in   Bytes
		want string
	}{
		{nil, `""`},
		{Bytes(""), `""`},
		{Bytes("a<b>&c"), `"a<b>&c"`},
		{Bytes("\x00\n\"\\"), `"\u0000\n\"\\"`},
		{Bytes("é☃𝄞"), `"é☃𝄞"`},
		{Bytes("\xff"), `{"base64":"/w=="}`},
		{Bytes("a\xed\xa0\x80"), `{"base64":"Ye2ggA=="}`}, // a surrogate is no UTF-8
		{Bytes(`{"base64":"/w=="}`), `"{\"base64\":\"/w==\"}"`},
	} {
		got, err := tc.in.MarshalJSON()
		if err != nil || string(got) != tc.want {
			t.Errorf("%q as JSON is %s (%v), want %s", tc.in, got, err, tc.want)
		}
		var back Bytes
		if err := json.Unmarshal(got, &back); err != nil || !bytes.Equal(back, tc.in) {
			t.Errorf("%s read back is %q (%v)", got, back, err)
		}
	}
}

func TestBytesRefused(t *testing.T) {
	for _, s := range []string{
		`true`, `[1]`, `{}`, `{"base64":null}`, `{"base64":1}`, `{"base64":"!"}`, `{"base64":"/w=="," x":1}`, `{"base32":"x"}`,
	} {
		var b Bytes
		if err := json.Unmarshal([]byte(s), &b); err == nil {
			t.Errorf("%s was read as %q", s, b)
		}
	}
}

func TestValueText(t *testing.T) {
	for _, tc := range []struct {
		v    Value
		text string
		json string
	}{
		{Value{}, "", `""`},
		{IntValue(math.MinInt64), "-9223372036854775808", "-9223372036854775808"},
		{FloatValue(3), "3.0", "3.0"},
		{FloatValue(1e21), "1e+21", "1e+21"},
		{FloatValue(math.Copysign(0, -1)), "-0.0", "-0.0"},
		{FloatValue(math.Inf(1)), "+Inf", `"+Inf"`},
		{FloatValue(math.Inf(-1)), "-Inf", `"-Inf"`},
		{FloatValue(math.NaN()), "NaN", `"NaN"`},
		{BytesValue([]byte("17")), "17", `"17"`},
	} {
		if got := tc.v.Text(); got != tc.text {
			t.Errorf("text of %+v is %q, want %q", tc.v, got, tc.text)
		}
		if got, err := tc.v.MarshalJSON(); err != nil || string(got) != tc.json {
			t.Errorf("JSON of %+v is %s (%v), want %s", tc.v, got, err, tc.json)
		}
	}
}

// A value keeps kind and bits in both formats (JSON has no infinities; NaN is any NaN).
func TestValuesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(
			rapid.Map(rapid.Int64(), IntValue),
			rapid.Map(rapid.Float64(), FloatValue),
			rapid.Map(rapid.SliceOf(rapid.Byte()), BytesValue),
			rapid.Map(rapid.String(), func(s string) Value { return BytesValue([]byte(s)) }),
		).Draw(t, "value")
		for _, f := range []Format{JSON, Msgpack} {
			if f == JSON && math.IsInf(v.Float, 0) {
				continue
			}
			body, err := Encode(f, Row{Key: Bytes("k"), Value: v})
			if err != nil {
				t.Fatal(err)
			}
			var row Row
			if err := Decode(body, &row, Strict); err != nil {
				t.Fatal(err)
			}
			got := row.Value
			if got.Kind != v.Kind || got.Int != v.Int || !bytes.Equal(got.Bytes, v.Bytes) ||
				math.Float64bits(got.Float) != math.Float64bits(v.Float) {
				t.Fatalf("%s: %+v came back as %+v", f, v, got)
			}
		}
	})
}

func TestErrorsAreMatchedByCode(t *testing.T) {
	err := fmt.Errorf("pin: %w", Errorf(CodeBusy, "storage %s is busy", "s1").WithHint("again in %d ms", 50).With("storage", "s1"))
	if !errors.Is(err, &Error{Code: CodeBusy}) || errors.Is(err, &Error{Code: CodeNoCut}) ||
		errors.Is(err, &Error{Code: CodeBusy, Message: "another"}) {
		t.Errorf("%v is not matched by its code alone", err)
	}
	if got := err.Error(); got != "pin: storage s1 is busy (again in 50 ms)" {
		t.Errorf("text %q", got)
	}
	if e := AsError(err); e.Details["storage"] != "s1" || CodeOf(err) != CodeBusy {
		t.Errorf("%+v", e)
	}
	if other := errors.New("x"); CodeOf(nil) != "" || CodeOf(other) != CodeInternal || AsError(other).Message != "x" {
		t.Error("an error without a code is not INTERNAL")
	}
}
