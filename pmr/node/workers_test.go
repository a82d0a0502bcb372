package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
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
		looping := w.place(owner{})
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
				p := w.place(owner{})
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

// goodJobs runs jobs of six guests, so many at once, each some time after the one before, and returns how many are done
// in five seconds.
func goodJobs(t *testing.T, w *Workers, at time.Duration) int {
	const clients, guests, work = 8, 6, 12 * time.Millisecond
	until := time.Now().Add(5 * time.Second)
	done := make([]int, clients)
	var all sync.WaitGroup
	for i := range done {
		all.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				var job sync.WaitGroup
				for range guests {
					job.Go(func() {
						p := w.place(owner{job: fmt.Sprint(i, n)})
						if err := p.take(t.Context()); err != nil {
							t.Error(err)
						}
						if err := guestOf(t.Context(), p, work, time.Millisecond); err != nil {
							t.Error(err)
						}
						p.leave()
					})
				}
				job.Wait()
				done[i]++
				time.Sleep(at)
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range done {
		sum += n
	}
	return sum
}

// Eight short jobs at a time lose no more to one that loops in as many guests than its share, a ninth, also if they are
// not always ready.
func TestGoodJobsBesideALoop(t *testing.T) {
	for _, pause := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			w := NewWorkers(2)
			alone := goodJobs(t, w, pause)
			ctx, cancel := context.WithCancel(t.Context())
			var loop sync.WaitGroup
			for range 6 {
				loop.Go(func() {
					p := w.place(owner{job: "loop"})
					defer p.leave()
					if p.take(ctx) == nil {
						_ = guestOf(ctx, p, time.Hour, time.Millisecond/2)
					}
				})
			}
			time.Sleep(time.Second)
			beside := goodJobs(t, w, pause)
			cancel()
			loop.Wait()
			t.Logf("jobs with pauses of %s: %d, beside the loop %d, loss %.1f %%", pause, alone, beside, 100*(1-float64(beside)/float64(alone)))
			if 9*beside < 8*alone {
				t.Errorf("with pauses of %s %d jobs are done, beside the loop %d", pause, alone, beside)
			}
			expectFree(t, w)
		})
	}
}

// What a guest uses while nobody waits is free; it costs nothing later.
func TestTimeAloneIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorkers(1)
		ctx, cancel := context.WithCancel(t.Context())
		var ran [2]atomic.Int64 // ms
		var both sync.WaitGroup
		run := func(i int) {
			both.Go(func() {
				p := w.place(owner{client: fmt.Sprint(i)})
				defer p.leave()
				for err := p.take(ctx); err == nil && ctx.Err() == nil; err = p.yield(ctx) {
					p.begin()
					time.Sleep(time.Millisecond)
					ran[i].Add(1)
				}
			})
		}
		run(0)
		time.Sleep(5 * time.Second)
		alone := ran[0].Load()
		run(1)
		time.Sleep(time.Second)
		cancel()
		both.Wait()
		if first, second := ran[0].Load()-alone, ran[1].Load(); first < 475 || second < 475 {
			t.Errorf("one has run for %d ms of a second, the other for %d", first, second)
		}
		expectFree(t, w)
	})
}

// A job whose calls are long gets less than one whose calls are short, but its bounded part.
func TestLongCallsCostMore(t *testing.T) {
	for _, c := range []struct{ call, least, most time.Duration }{
		{50 * time.Millisecond, 4500 * time.Millisecond, 5500 * time.Millisecond},
		{time.Hour, 2000 * time.Millisecond, 2500 * time.Millisecond}, // about a fifth, but for its first second
	} {
		synctest.Test(t, func(t *testing.T) {
			w := NewWorkers(1)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			ran := [2]time.Duration{}
			var both sync.WaitGroup
			for i, call := range []time.Duration{c.call, 5 * time.Millisecond} {
				both.Go(func() {
					p := w.place(owner{job: fmt.Sprint(i)})
					defer p.leave()
					for err := p.take(ctx); err == nil && ctx.Err() == nil; err = p.yield(ctx) {
						if ran[i]%call == 0 {
							p.begin()
						}
						time.Sleep(time.Millisecond / 2)
						ran[i] += time.Millisecond / 2
					}
				})
			}
			both.Wait()
			if ran[0] < c.least || ran[0] > c.most {
				t.Errorf("with calls of %s a job has run for %s of 10 s, the other for %s", c.call, ran[0], ran[1])
			}
			expectFree(t, w)
		})
	}
}

// Each batch that is read begins another call.
func TestABatchBeginsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewWorkers(1).place(owner{})
		if err := p.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		in := newSource(noFrames{}, nil)
		in.place = p
		for _, reader := range []Source{in, batches{noFrames{}, p}} {
			time.Sleep(time.Minute)
			if _, _, err := reader.Fill(nil, 1); err != nil || p.used(p.marked, time.Now()) != 0 || p.call != 0 {
				t.Errorf("%T: the call has taken %s; %v", reader, p.call, err)
			}
			if marked := time.Since(p.marked); marked != 0 {
				t.Errorf("%T: the call began %s ago", reader, marked)
			}
		}
	})
}

// noFrames is a cursor at its end.
type noFrames struct{}

func (noFrames) Fill(dst []byte, _ int) ([]byte, int, error) { return dst, 0, nil }

func (noFrames) Close() error { return nil }

func expectFree(t *testing.T, w *Workers) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.free != w.size || w.queue.waiting != 0 || w.waiting.Load() != 0 || len(w.queue.clients) != 0 {
		t.Errorf("%d of %d places are free, %d wait (%d counted), of %d clients", w.free, w.size, w.queue.waiting, w.waiting.Load(), len(w.queue.clients))
	}
}

func TestPlacesAreGivenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorkers(1)
		first := w.place(owner{})
		if err := first.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		var order []int
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				p := w.place(owner{})
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
		p := w.place(owner{})
		if err := p.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := p.yield(t.Context()); err != nil || !p.held {
			t.Fatal("the place is lost, and nobody waited")
		}
		p.since = time.Now()
		p.begin()
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() { waited <- w.place(owner{}).take(ctx) }()
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
		p, other := w.place(owner{}), w.place(owner{})
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
		holder, late := w.place(owner{}), w.place(owner{})
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
		w.queue.over(holder.owner, 0)
		w.pass(time.Now())
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
		p := w.place(owner{})
		if err := p.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := p.aside(t.Context(), func() error {
			other := w.place(owner{})
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
					p := w.place(owner{})
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
