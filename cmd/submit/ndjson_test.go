package main

import (
	"strings"
	"testing"
)

func TestKeyField(t *testing.T) {
	for _, tc := range []struct{ line, key, fault string }{
		{`{"id":"abc"}`, "abc", ""},
		{`{"id":""}`, "", ""},
		{`{"id":"a\tb\ud83d\ude02"}`, "a\tb😂", ""},
		{`{"id":1}`, "1", ""},
		{`{"id":-1.50e2}`, "-1.50e2", ""},
		{`{"id":9007199254740993}`, "9007199254740993", ""},
		{`{"x":1}`, "", `no field "id"`},
		{`[1]`, "", "the line is no object"},
		{` "id"`, "", "the line is no object"},
		{`{"id":null}`, "", "is null; it must be a string or a number"},
		{`{"id":{"a":1}}`, "", "must be a string or a number"},
		{`{"id":true}`, "", "is true"},
		{`{"id":"\ud83d"}`, "", "half of a surrogate pair"},
	} {
		r, err := newJSONLines("id").parse([]byte(tc.line))
		switch {
		case tc.fault != "":
			if err == nil || !strings.Contains(err.Error(), tc.fault) {
				t.Errorf("%s: %v, want %q", tc.line, err, tc.fault)
			}
		case err != nil || !r.keyed || string(r.key) != tc.key || string(r.value) != tc.line:
			t.Errorf("%s: %+v, %v; want key %q", tc.line, r, err, tc.key)
		}
	}
}

func TestBlankLines(t *testing.T) {
	for _, line := range []string{"", " ", "\t ", "\r"} {
		if r, err := newJSONLines("id").parse([]byte(line)); err != nil || !r.blank {
			t.Errorf("%q: %+v, %v", line, r, err)
		}
	}
}
