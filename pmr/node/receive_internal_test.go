package node

import (
	"testing"
	"time"

	"github.com/pinion-mr/pinion/buckets"
)

// A load ends when nobody wants any of its buckets, and not before: a mover that has lapsed does not end what another one
// waits for.
func TestALoadEndsWithTheLastWhoWantsIt(t *testing.T) {
	a := arrivals{by: map[buckets.ID]*arrival{}, changed: make(chan struct{})}
	now := time.Now()
	a.want([]buckets.ID{1, 2}, now.Add(10*time.Second), 0)
	stopped, others := 0, 0
	a.begin([]buckets.ID{1, 2}, func() { stopped++ })
	a.want([]buckets.ID{3}, now.Add(10*time.Second), 0)
	a.begin([]buckets.ID{3}, func() { others++ })
	a.want([]buckets.ID{2}, now.Add(time.Minute), 0) // another mover's
	a.expire(now.Add(20 * time.Second))
	if stopped != 0 || others == 0 {
		t.Errorf("the load of what is wanted was stopped %d times, that of what is not %d times", stopped, others)
	}
	a.expire(now.Add(2 * time.Minute))
	if stopped == 0 {
		t.Error("a load goes on that nobody wants")
	}
	a.end([]buckets.ID{1, 2, 3}, nil)
	if a.expire(now.Add(2 * time.Minute)); len(a.by) != 0 {
		t.Errorf("%d buckets are kept in mind", len(a.by))
	}
}
