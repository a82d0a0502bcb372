//go:build !wasip1

package main

import (
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/guest"
)

func TestCount(t *testing.T) {
	for name, c := range map[string]struct{ record, field, want string }{
		"text":      {`{"a":"x y","b":1}`, "a", "x y\t1"},
		"empty":     {`{"a":""}`, "a", "\t1"},
		"number":    {` { "a" : -1.5e3 , "b":2}`, "a", "-1.5e3\t1"},
		"true":      {`{"b":null,"a":true}`, "a", "true\t1"},
		"object":    {`{"a":{"x":[1,"]}"]},"b":2}`, "a", `{"x":[1,"]}"]}` + "\t1"},
		"escapes":   {`{"b":"\\\"","a":"\u0001\ud83d\ude00\/\\"}`, "a", "\x01😀/\\\t1"},
		"name":      {`{"\u0061\\":7}`, `a\`, "7\t1"},
		"nested":    {`{"b":{"c":1},"a":{"b":0,"c":{"d":"deep"}}}`, "a.c.d", "deep\t1"},
		"null":      {`{"a":null}`, "a", ""},
		"null way":  {`{"a":null}`, "a.b", ""},
		"missing":   {`{"aa":1,"b":[{"a":2}],"c":"a"}`, "a", ""},
		"no object": {`{}`, "a", ""},
	} {
		rows, err := guest.Try(count, map[string]string{"field": c.field}, c.record)
		if got := strings.Join(rows, "\n"); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, c.want)
		}
	}
	for record, want := range map[string]string{
		``: "ends within", `[1]`: "no JSON object at byte 0", `{"b":1}`: "", `{"a":1}`: "no JSON object at byte 5", `{"a"`: "no colon at byte 4",
		`{"a":`: "ends within", `{"a":}`: "no JSON value at byte 5", `{"a":{"b`: "ends within", `{"a":{"b":"x\"`: "ends within", `{a:1}`: "no JSON string at byte 1",
		`{"x":[1,{}`: "ends within", `{"a":{"b":"\q"}}`: "invalid character", `{"\q":1}`: "invalid character", `{"b":1`: "no JSON string at byte 6",
	} {
		rows, err := guest.Try(count, map[string]string{"field": "a.b"}, record)
		if want == "" && (err != nil || len(rows) > 0) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v; want %q", record, rows, err, want)
		}
	}
	if _, err := guest.Try(count, nil, "{}"); err == nil || !strings.Contains(err.Error(), "-p field=NAME") {
		t.Errorf("without a field: %v", err)
	}
}
