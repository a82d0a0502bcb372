package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Workers is a pool of places for guests to run in. Clients share it equally, and so do the jobs of a client: a
// guest that has had its place for a quantum gives it to whoever has had less, and waits itself. So a short job does
// not wait for a long one, and a guest that never ends takes no more than its share.
type Workers struct {
	size    int
	waiting atomic.Int32 // as queue.waiting

	mu     sync.Mutex
	free   int
	queue  fairQueue
	opened int // guests
}

// NewWorkers makes a pool of n places, at least one.
func NewWorkers(n int) *Workers {
	n = max(n, 1)
	return &Workers{size: n, free: n, queue: fairQueue{places: n}}
}

// Size is the number of places.
func (w *Workers) Size() int { return w.size }

// guestsPerPlace is how many guests there are for each place before maps get no more than one each. It bounds the
// memory of guests that wait: a pool has at most guestsPerPlace for each place and one for each map and each
// reduce under way, each with up to guest-memory.
const guestsPerPlace = 8

// admit counts a guest, or refuses it if it is not a map's first and there are many.
func (w *Workers) admit(first bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !first && w.opened >= guestsPerPlace*w.size {
		return false
	}
	w.opened++
	return true
}

// dismiss ends what admit has begun.
func (w *Workers) dismiss() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened--
}

// place is one guest's claim to a place. It belongs to one goroutine.
type place struct {
	pool  *Workers
	owner owner
	turn  chan struct{} // gets a token when the place is given
	held  bool
	since time.Time // of the turn

	call   time.Duration // how long the guest's present call has been in places, up to marked
	marked time.Time
}

func (w *Workers) place(o owner) *place {
	return &place{pool: w, owner: o, turn: make(chan struct{}, 1)}
}

// take waits for a place. It fails when ctx ends.
func (p *place) take(ctx context.Context) error {
	w := p.pool
	w.mu.Lock()
	now := time.Now()
	w.queue.enter(p, now)
	if w.free > 0 {
		w.free--
		w.pass(now)
	} else {
		w.waiting.Store(int32(w.queue.waiting))
	}
	w.mu.Unlock()
	return p.wait(ctx)
}

// yield gives the place up for a turn of those that wait, if it was held for long enough. It costs next to
// nothing while nobody waits. When ctx ends it fails, and the place may be lost.
func (p *place) yield(ctx context.Context) error {
	w := p.pool
	if !p.held {
		return ctx.Err()
	}
	if w.waiting.Load() == 0 {
		return nil
	}
	if p.used(p.since, time.Now()) < quantum {
		return nil
	}
	w.mu.Lock()
	now := time.Now()
	if w.queue.waiting == 0 {
		w.mu.Unlock()
		return nil
	}
	used := w.charge(p, now)
	w.queue.enter(p, now)
	w.queue.over(p.owner, used)
	w.pass(now)
	w.mu.Unlock()
	p.held = false
	return p.wait(ctx)
}

// begin says that the guest's call so far was short, whatever it took: it has asked for more to work on.
func (p *place) begin() {
	if p.held {
		p.call, p.marked = 0, time.Now()
	}
}

// batches is a source whose reader begins another call with each batch.
type batches struct {
	Source
	place *place
}

// Fill is buckets.Cursor's.
func (b batches) Fill(dst []byte, limit int) ([]byte, int, error) {
	b.place.begin()
	return b.Source.Fill(dst, limit)
}

// aside runs fn without the place, and waits for one again.
func (p *place) aside(ctx context.Context, fn func() error) error {
	p.leave()
	if err := fn(); err != nil {
		return err
	}
	return p.take(ctx)
}

// leave gives the place back, if it is held.
func (p *place) leave() {
	if !p.held {
		return
	}
	p.held = false
	w := p.pool
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.queue.over(p.owner, w.charge(p, now))
	w.pass(now)
}

// wait waits for the place to be given.
func (p *place) wait(ctx context.Context) error {
	select {
	case <-p.turn:
		p.held, p.since = true, time.Now()
		p.marked = p.since
		return nil
	case <-ctx.Done():
	}
	w := p.pool
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue.quit(p) {
		w.waiting.Store(int32(w.queue.waiting))
	} else {
		<-p.turn // it was given at the same moment
		w.queue.over(p.owner, 0)
		w.pass(time.Now())
	}
	return ctx.Err()
}

// used is what the guest has used of its place in a part of its turn.
func (p *place) used(from, to time.Time) time.Duration {
	call := p.call + to.Sub(p.marked)
	if p.marked.After(from) {
		return usedBy(call) + p.marked.Sub(from) // calls that were over before were short
	}
	return usedBy(call) - usedBy(call-to.Sub(from))
}

// charge ends the count of a turn. What a guest uses while nobody waits is free. It and pass are called with mu held.
func (w *Workers) charge(p *place, now time.Time) time.Duration {
	from, used := p.since, time.Duration(0)
	if w.queue.waiting > 0 {
		if w.queue.since.After(from) {
			from = w.queue.since
		}
		used = p.used(from, now)
	}
	p.call, p.marked = p.call+now.Sub(p.marked), now
	return used
}

// pass gives a place to the next of those that wait.
func (w *Workers) pass(now time.Time) {
	p := w.queue.next(now)
	w.waiting.Store(int32(w.queue.waiting))
	if p == nil {
		w.free++
		return
	}
	p.turn <- struct{}{}
}
