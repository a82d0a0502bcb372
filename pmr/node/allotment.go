package node

import (
	"context"
	"slices"
	"sync"
)

// allotment shares out an amount of memory. Who asks first is served first, so that one who asks for much is not
// overtaken for ever. Each asks once for all that it needs: whoever waits holds nothing, and nobody waits in a circle.
type allotment struct {
	total int64

	mu      sync.Mutex
	used    int64
	waiting []*bidder // the first to come first
}

// bidder waits for its part.
type bidder struct {
	bytes   int64
	granted chan struct{}
}

func newAllotment(total int64) *allotment { return &allotment{total: total} }

// take waits for n bytes, at most the total, or for the end of ctx. The part is given back by free, once.
func (a *allotment) take(ctx context.Context, n int64) (free func(), err error) {
	b := &bidder{n, make(chan struct{})}
	a.mu.Lock()
	a.waiting = append(a.waiting, b)
	a.grant()
	a.mu.Unlock()
	select {
	case <-b.granted:
	case <-ctx.Done():
		if a.withdraw(b) {
			return nil, ctx.Err()
		}
	}
	return func() { a.give(n) }, nil
}

// withdraw takes one who waits out of the line. It reports false if the part was granted just now.
func (a *allotment) withdraw(b *bidder) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.waiting, b)
	if i < 0 {
		return false
	}
	a.waiting = slices.Delete(a.waiting, i, i+1)
	a.grant() // those behind may have waited for this one only
	return true
}

func (a *allotment) give(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= n
	a.grant()
}

// grant serves those who wait, in turn, while their parts fit; mu is held.
func (a *allotment) grant() {
	for len(a.waiting) > 0 && a.used+a.waiting[0].bytes <= a.total {
		b := a.waiting[0]
		a.waiting = slices.Delete(a.waiting, 0, 1)
		a.used += b.bytes
		close(b.granted)
	}
}

// inUse is how much of the total is taken.
func (a *allotment) inUse() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}
