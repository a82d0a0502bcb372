package node

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// quantum is how long a guest keeps its place while others wait.
const quantum = 10 * time.Millisecond

// Workers is a pool of places for guests to run in, first come first served. A guest that has had its place
// for longer than a quantum gives it to the one that waits longest and waits itself, so that every guest gets
// the same share, however long its buckets take and whether it ever ends.
type Workers struct {
	size    int
	waiting atomic.Int32 // as long as queue

	mu    sync.Mutex
	free  int
	queue []*place
}

// NewWorkers makes a pool of n places, at least one.
func NewWorkers(n int) *Workers { return &Workers{size: max(n, 1), free: max(n, 1)} }

// Size is the number of places.
func (w *Workers) Size() int { return w.size }

// place is one guest's claim to a place. It belongs to one goroutine.
type place struct {
	pool  *Workers
	turn  chan struct{} // gets a token when the place is given
	held  bool
	since time.Time
}

func (w *Workers) place() *place { return &place{pool: w, turn: make(chan struct{}, 1)} }

// take waits for a place. It fails when ctx ends.
func (p *place) take(ctx context.Context) error {
	w := p.pool
	w.mu.Lock()
	if w.free > 0 {
		w.free--
		w.mu.Unlock()
		p.held, p.since = true, time.Now()
		return nil
	}
	w.enqueue(p)
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
	if w.waiting.Load() == 0 || time.Since(p.since) < quantum {
		return nil
	}
	w.mu.Lock()
	if len(w.queue) == 0 {
		w.mu.Unlock()
		return nil
	}
	w.enqueue(p)
	w.pass()
	w.mu.Unlock()
	p.held = false
	return p.wait(ctx)
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
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	p.pool.pass()
}

func (p *place) wait(ctx context.Context) error {
	select {
	case <-p.turn:
		p.held, p.since = true, time.Now()
		return nil
	case <-ctx.Done():
	}
	w := p.pool
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.queue, p); i >= 0 {
		w.queue = slices.Delete(w.queue, i, i+1)
		w.waiting.Add(-1)
	} else {
		<-p.turn // it was given at the same moment
		w.pass()
	}
	return ctx.Err()
}

// enqueue and pass are called with mu held.
func (w *Workers) enqueue(p *place) {
	w.queue = append(w.queue, p)
	w.waiting.Add(1)
}

// pass gives a place to the first of those that wait.
func (w *Workers) pass() {
	if len(w.queue) == 0 {
		w.free++
		return
	}
	first := w.queue[0]
	w.queue = slices.Delete(w.queue, 0, 1)
	w.waiting.Add(-1)
	first.turn <- struct{}{}
}
