//go:build wasip1

// Command go finds the sessions of users: events of one user of which none comes later than a gap after the one before. A
// record is a time in seconds, a space, the user, and whatever follows a further space:
//
//	1772352000 omar /cart
//
// Parameter gap: in seconds, 1800 if it is not given. Use it with reduce module: a user has a row for each session, in
// order of time, with its first second, its last, and the number of its events.
//
// The events of a user are spread over buckets, so map only tells times by user. The reduce function has them together:
// the times of one user, 8 bytes each, must fit the guest's memory.
package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/pinion-mr/pinion/guest"
)

var gap int64

func init() {
	guest.OnBegin(func() error {
		gap = 1800
		given, ok := guest.LookupParam("gap")
		if !ok {
			return nil
		}
		var err error
		if gap, err = strconv.ParseInt(given, 10, 64); err != nil || gap < 1 {
			return fmt.Errorf("the parameter gap must be a number of seconds; it is %q", given)
		}
		return nil
	})
}

//go:wasmexport map
func times(ptr, size uint32) uint32 {
	return guest.Batch(ptr, size, func(r guest.Record) error {
		second, rest, _ := bytes.Cut(r.Value(), []byte(" "))
		user, _, _ := bytes.Cut(rest, []byte(" "))
		t, err := strconv.ParseInt(string(second), 10, 64)
		if err != nil || len(user) == 0 {
			return fmt.Errorf("a record must begin with a time in seconds, a space and a user; this one is %q", r.Value())
		}
		guest.EmitInt(user, t)
		return nil
	})
}

// seen are the times of the present user: its pairs may come in several batches.
var seen []int64

//go:wasmexport reduce
func sessions(ptr, size uint32) uint32 {
	for r := range guest.Records(ptr, size) {
		if r.First() {
			seen = seen[:0]
		}
		t, _ := r.Int()
		seen = append(seen, t)
		if r.Last() {
			slices.Sort(seen)
			emitSessions(r.Key())
		}
	}
	return guest.Flush()
}

func emitSessions(user []byte) {
	begin := 0
	for i := range seen {
		if i+1 == len(seen) || seen[i+1]-seen[i] > gap {
			guest.Emit(user, fmt.Appendf(nil, "%d %d %d", seen[begin], seen[i], i+1-begin))
			begin = i + 1
		}
	}
}

func main() {}
