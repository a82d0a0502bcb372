package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// guestOf works for a time in steps, and gives its place to others as a guest does.
func guestOf(ctx context.Context, p *place, work, step time.Duration) error {
	for done := time.Duration(0); done < work; done += step {
		time.Sleep(step)
		if err := ctx.Err(); err != nil { // as the host does
			return err
		}
		if err := p.yield(ctx); err != nil {
			return err
		}
	}
	return nil
}

// A guest that never ends takes no more than its share of a place.
func TestALoopingGuestTakesItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const good, work = 8, 100 * time.Millisecond
		w := NewWorkers(1)
		ctx, cancel := context.WithCancel(t.Context())
		looping := w.place()
		looped := make(chan error)
		began := time.Now()
		go func() {
			if err := looping.take(ctx); err != nil {
				t.Error(err)
			}
			err := guestOf(ctx, looping, time.Hour, time.Millisecond)
			looping.leave()
			looped <- err
		}()
		synctest.Wait()
		var jobs sync.WaitGroup
		for range good {
			jobs.Go(func() {
				p := w.place()
				if err := p.take(ctx); err != nil {
					t.Error(err)
				}
				if err := guestOf(ctx, p, work, time.Millisecond); err != nil {
					t.Error(err)
				}
				p.leave()
			})
		}
		jobs.Wait()
		// Nine share the place until the eight are through: nine times the work, and a turn's rest.
		if took := time.Since(began); took > (good+1)*work+2*quantum {
			t.Errorf("the good jobs took %s", took)
		}
		cancel()
		if err := <-looped; !errors.Is(err, context.Canceled) {
			t.Errorf("the looping guest ended with %v", err)
		}
		expectFree(t, w)
	})
}

func expectFree(t *testing.T, w *Workers) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.free != w.size || len(w.queue) != 0 || w.waiting.Load() != 0 {
		t.Errorf("%d of %d places are free, %d wait (%d counted)", w.free, w.size, len(w.queue), w.waiting.Load())
	}
}

func TestPlacesAreGivenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorkers(1)
		first := w.place()
		if err := first.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		var order []int
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				p := w.place()
				if err := p.take(t.Context()); err != nil {
					t.Error(err)
				}
				order = append(order, i) // under the place
				p.leave()
			})
			synctest.Wait()
		}
		first.leave()
		all.Wait()
		for i, n := range order {
			if i != n {
				t.Fatalf("order %v", order)
			}
		}
		expectFree(t, w)
	})
}

// Within its quantum, and while nobody waits, a guest keeps its place.
func TestYieldKeepsThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorkers(1)
		p := w.place()
		if err := p.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := p.yield(t.Context()); err != nil || !p.held {
			t.Fatal("the place is lost, and nobody waited")
		}
		p.since = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() { waited <- w.place().take(ctx) }()
		synctest.Wait()
		time.Sleep(quantum - 1)
		if err := p.yield(t.Context()); err != nil || !p.held {
			t.Fatal("the place is lost within the quantum")
		}
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that waited: %v", err)
		}
		p.leave()
		p.leave() // twice is once
		expectFree(t, w)
	})
}

// A guest that waits to go on, and whose job ends, holds nothing any more.
func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorkers(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p, other := w.place(), w.place()
		if err := p.take(ctx); err != nil {
			t.Fatal(err)
		}
		taken := make(chan error, 1)
		go func() { taken <- other.take(t.Context()) }()
		synctest.Wait()
		time.Sleep(quantum)
		if err := p.yield(ctx); !errors.Is(err, context.DeadlineExceeded) || p.held {
			t.Errorf("the wait ended with %v, held %v", err, p.held)
		}
		if err := p.yield(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a place: %v", err)
		}
		p.leave()
		if err := <-taken; err != nil {
			t.Fatal(err)
		}
		other.leave()
		expectFree(t, w)
	})
}

// A place that is given at the moment at which a wait ends goes on to the next.
func TestAPlaceGivenTooLateIsNotLost(t *testing.T) {
	w := NewWorkers(1)
	for range 200 {
		holder, late := w.place(), w.place()
		if err := holder.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error, 1)
		go func() { waited <- late.take(ctx) }()
		for w.waiting.Load() == 0 {
			runtime.Gosched()
		}
		w.mu.Lock() // the wait cannot leave the queue
		cancel()
		w.pass()
		w.mu.Unlock()
		holder.held = false
		if err := <-waited; err == nil {
			late.leave()
		}
		expectFree(t, w)
	}
}

func TestAsideGivesThePlaceUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorkers(1)
		p := w.place()
		if err := p.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := p.aside(t.Context(), func() error {
			other := w.place()
			defer other.leave()
			return other.take(t.Context())
		})
		if err != nil || !p.held {
			t.Errorf("%v, held %v", err, p.held)
		}
		failure := errors.New("no module")
		if err := p.aside(t.Context(), func() error { return failure }); !errors.Is(err, failure) || p.held {
			t.Errorf("%v, held %v", err, p.held)
		}
		expectFree(t, w)
	})
}

// Whatever guests do and whenever they are cancelled, no place is lost or given twice.
func TestNoPlaceIsLostOrDoubled(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			const size = 3
			w := NewWorkers(size)
			rng := rand.New(rand.NewPCG(seed, 1))
			held := make(chan struct{}, size)
			enter := func() {
				select {
				case held <- struct{}{}:
				default:
					t.Errorf("seed %d: more than %d places are held", seed, size)
				}
			}
			var all sync.WaitGroup
			for range 40 {
				limit, work := time.Duration(rng.IntN(200))*time.Millisecond, rng.IntN(60)
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					p := w.place()
					defer p.leave()
					if p.take(ctx) != nil {
						return
					}
					for range work {
						enter()
						time.Sleep(time.Millisecond)
						<-held
						if p.yield(ctx) != nil {
							return
						}
					}
				})
			}
			all.Wait()
			expectFree(t, w)
		})
	}
}
