package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// onErrorFlag says what is done about a record at which the function fails: fail, or skip:N for up to N.
type onErrorFlag struct {
	mode string
	max  int // 0: the default
}

// String is what Set reads.
func (f *onErrorFlag) String() string {
	if f.max == 0 {
		return f.mode
	}
	return f.mode + ":" + strconv.Itoa(f.max)
}

// Set reads fail, skip or skip:N.
func (f *onErrorFlag) Set(text string) error {
	mode, number, numbered := strings.Cut(text, ":")
	n, err := strconv.Atoi(number)
	switch {
	case mode == api.OnErrorFail && !numbered, mode == api.OnErrorSkip && !numbered:
		*f = onErrorFlag{mode: mode}
	case mode == api.OnErrorSkip && err == nil && n > 0:
		*f = onErrorFlag{mode, n}
	default:
		return fmt.Errorf("%q is not one of fail, skip, skip:N with N from 1 on", text)
	}
	return nil
}

// Type names the value in the help.
func (f *onErrorFlag) Type() string { return "fail|skip[:N]" }

// noteSkipped lists the records that a job left out.
func (s *session) noteSkipped(st api.JobStats) {
	if st.Skips == 0 {
		return
	}
	s.note("warning: the function failed at %s, which the answer leaves out:", exactly(st.Skips, "record"))
	for _, r := range st.Skipped {
		s.note("  bucket %d, record %d, key %s: %s", r.Bucket, r.Record,
			appendEscaped(nil, []byte(buckets.KeyText(r.Key)), printable), appendEscaped(nil, []byte(r.Reason), printable))
	}
	if more := st.Skips - uint64(len(st.Skipped)); more > 0 {
		s.note("  and %d more", more)
	}
}

// skippedText ends the line about what an answer covers.
func skippedText(st api.JobStats) string {
	if st.Skips == 0 {
		return ""
	}
	return fmt.Sprintf(", %s skipped", exactly(st.Skips, "record"))
}

// noteFuel tells the work of a job's guests.
func (s *session) noteFuel(st api.JobStats) {
	if f := st.Fuel; f != nil {
		s.note("fuel: %s, %s a record; most in bucket %d: %s", count(f.Total, "step"), count(uint64(f.PerRecord), "step"),
			f.Bucket, count(f.BucketMax, "step"))
	}
}
