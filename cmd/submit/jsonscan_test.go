package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestScan(t *testing.T) {
	many := func(last string) string {
		var b strings.Builder
		for i := range 100 {
			fmt.Fprintf(&b, `"k%d":%d,`, i, i)
		}
		return "{" + b.String() + last + ":0}"
	}
	for _, tc := range []struct{ line, fault string }{
		{`{"a":1,"b":[true,false,null,-0.5e-3,"x\n\u00e9\ud83d\ude02",{}],"c":{"a":1}}`, ""},
		{` [ 1 , 2 ] `, ""},
		{`"text"`, ""},
		{`0`, ""},
		{`-0`, ""},
		{`1e308`, ""},
		{`1e-999`, ""},
		{`18446744073709551616`, ""},
		{`{"a":"\ud83d"}`, ""}, // kept as it is written
		{`{"i":2,"v":NaN}`, "NaN is not JSON; a value should be here (column 12)"},
		{`{"v":Infinity}`, "Infinity is not JSON"},
		{`{"v":-Infinity}`, "-Infinity is not JSON"},
		{`{"v":1e999}`, "the number 1e999 is beyond the range of a 64-bit float (column 6)"},
		{`[` + strings.Repeat("9", 400) + `]`, "beyond the range"},
		{`{"i":2}{"i":3}`, "a second JSON value begins on the line; each needs a line of its own (column 8)"},
		{`{"i":5} {"i":6}`, "(column 9)"},
		{`{"i":5},`, `, follows the JSON value (column 8)`},
		{`{"i":5`, "the line ends where a comma or } should be"},
		{`{"a":1,"a":"b"}`, `the object has the key "a" twice (column 8)`},
		{`{"a":1,"\u0061":2}`, "twice"},
		{`{"a":{"b":1},"c":{"b":1,"b":2}}`, `key "b" twice`},
		{`[{"a":1},{"a":1}]`, ""},
		{many(`"k101"`), ""},
		{many(`"k7"`), `key "k7" twice`},
		{`{"\ud800":1,"\ud801":2}`, ""}, // they differ as written
		{"{\"a\":\"\xff\"}", "byte 0xff is not UTF-8 (column 7)"},
		{"{\"a\":\"\t\"}", "control character 0x09"},
		{`{"a":"x`, "a string does not end on this line"},
		{`{"a":"\x"}`, "is no escape"},
		{`{"a":"\u12g4"}`, "is no escape"},
		{`"\u12`, "is no escape"},
		{`"\u+123"`, "is no escape"},
		{`{a:1}`, "a is not JSON; a key in quotes should be here"},
		{`{'a':1}`, "a key in quotes should be here"},
		{`{"a":1,}`, "a key in quotes should be here"},
		{`[1,]`, "a value should be here"},
		{`01`, "needless 0"},
		{`1.`, "a digit should be"},
		{`1e`, "a digit should be"},
		{`-`, "a value should be"},
		{`+1`, "a value should be"},
		{`nul`, "nul is not JSON"},
		{`trueish`, "ish follows"},
		{strings.Repeat("[", 600) + strings.Repeat("]", 600), "nested more than 512 deep"},
		{`{"a" 1}`, "a colon should be here"},
	} {
		var s jsonScanner
		err := s.scan([]byte(tc.line))
		if tc.fault == "" && err != nil || tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)) {
			t.Errorf("%.60s: got %v, want %q", tc.line, err, tc.fault)
		}
	}
}

func TestScanFindsTheOutermostField(t *testing.T) {
	s := jsonScanner{field: []byte("id")}
	for line, want := range map[string]string{
		`{"x":{"id":1},"id" : 17 ,"y":2}`: "17",
		`{"\u0069d":"a\"b"}`:              `"a\"b"`,
		`{"x":1}`:                         "",
		`[{"id":1}]`:                      "",
		`{"id":{"id":3}}`:                 `{"id":3}`,
	} {
		if err := s.scan([]byte(line)); err != nil || string(s.found) != want {
			t.Errorf("%s: found %q, %v; want %q", line, s.found, err, want)
		}
	}
}

// The scanner takes what encoding/json takes, but for what it is stricter about.
func FuzzScan(f *testing.F) {
	for _, line := range []string{`{"a":[1,-2.5e3,"\u00e9\\"],"b":null}`, `{"a":1,"a":2}`, `1e999`, `"\ud800"`, `[[[]]]`, ` true `, `{"":{}}`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var s jsonScanner
		err := s.scan(line)
		valid := json.Valid(line)
		if err == nil && (!valid || !utf8.Valid(line)) {
			t.Fatalf("takes %q", line)
		}
		if err != nil && valid {
			for _, stricter := range []string{"twice", "beyond the range", "not UTF-8", "nested"} {
				if strings.Contains(err.Error(), stricter) {
					return
				}
			}
			t.Fatalf("refuses %q: %v", line, err)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	line := []byte(`{"id":"12345678","type":"PushEvent","actor":{"id":1234,"login":"somebody"},"payload":{"size":3,"head":"0123456789abcdef0123456789abcdef"},"created_at":"2026-01-01T00:00:00Z"}`)
	s := jsonScanner{field: []byte("id")}
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if err := s.scan(line); err != nil {
			b.Fatal(err)
		}
	}
}
