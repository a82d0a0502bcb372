package main

import (
	"bytes"
	"testing"

	"github.com/pinion-mr/pinion/api"
)

func TestOnErrorFlag(t *testing.T) {
	for text, want := range map[string]onErrorFlag{"fail": {"fail", 0}, "skip": {"skip", 0}, "skip:1": {"skip", 1}, "skip:10000": {"skip", 10_000}} {
		var f onErrorFlag
		if err := f.Set(text); err != nil || f != want || f.String() != text {
			t.Errorf("%s: %+v, %v", text, f, err)
		}
	}
	for _, text := range []string{"", "fail:3", "skip:", "skip:0", "skip:-1", "skip:x", "ignore"} {
		var f onErrorFlag
		if err := f.Set(text); err == nil {
			t.Errorf("%q is taken as %+v", text, f)
		}
	}
}

func TestNotesOfSkippedRecordsAndFuel(t *testing.T) {
	var out bytes.Buffer
	s := &session{stderr: &out}
	st := api.JobStats{
		Skips: 3, Skipped: []api.SkippedRecord{{Bucket: 1, Record: 2, Key: api.Bytes("a\x1bb"), Reason: "no\tdate"}},
		Fuel: &api.Fuel{Total: 3_200_000_000, Bucket: 7, BucketMax: 41, PerRecord: 812.6},
	}
	s.noteSkipped(st)
	s.noteFuel(st)
	want := "warning: the function failed at 3 records, which the answer leaves out:\n" +
		"  bucket 1, record 2, key a\\x1bb: no\\tdate\n  and 2 more\n" +
		"fuel: 3.2 G steps, 812 steps a record; most in bucket 7: 41 steps\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	s.noteSkipped(api.JobStats{})
	s.noteFuel(api.JobStats{})
	if out.Len() > 0 || skippedText(api.JobStats{}) != "" || skippedText(st) != ", 3 records skipped" {
		t.Errorf("%q, %q", out.String(), skippedText(st))
	}
}
