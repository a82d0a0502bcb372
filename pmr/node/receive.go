package node

import (
	"context"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Bounds of a request to receive.
const (
	mostReceiveTTL  = 10 * time.Minute
	mostReceiveWait = 5 * time.Second
)

// Receive begins to load buckets in the background, or keeps those that are loaded, and tells how far they are. Jobs
// do not see them, and writers do not wait for them.
func (s *Storage) Receive(ctx context.Context, req api.ReceiveRequest) (api.ReceiveReply, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return api.ReceiveReply{}, err
	}
	defer leave()
	bs, err := s.existing(req.Buckets)
	if err != nil {
		return api.ReceiveReply{}, err
	}
	ttl := time.Duration(req.TTLMS) * time.Millisecond
	if ttl <= 0 || ttl > mostReceiveTTL || req.Bandwidth < 0 {
		return api.ReceiveReply{}, api.Errorf(api.CodeBadRequest, "ttl_ms is %d and bandwidth %d; they must be 1 to %d and at least 0", req.TTLMS, req.Bandwidth, mostReceiveTTL.Milliseconds())
	}
	s.arrivals.want(bs, time.Now().Add(ttl), req.Bandwidth)
	s.loadArrivals(s.applier.unjoined(bs))
	ctx, cancel := context.WithTimeout(ctx, min(millis(req.WaitMS), mostReceiveWait))
	defer cancel()
	for {
		changed := s.arrivals.next()
		reply, settled := s.howFar(bs)
		if settled || ctx.Err() != nil {
			return reply, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// loadArrivals loads those of the buckets that nobody loads yet and whose failure has been told.
func (s *Storage) loadArrivals(bs []buckets.ID) {
	ctx, stop := context.WithCancel(s.life)
	bs = s.arrivals.begin(bs, stop)
	if len(bs) == 0 {
		stop()
		return
	}
	s.logger.Debug("receiving buckets", "buckets", buckets.Ranges(bs))
	s.work.Go(func() {
		err := s.applier.Join(ctx, bs, &s.arrivals)
		stopped := ctx.Err() != nil
		stop()
		s.arrivals.end(bs, err)
		if err != nil && !stopped {
			s.logger.Warn("cannot receive buckets", "buckets", buckets.Ranges(bs), "reason", err)
		}
	})
}

// howFar tells how far buckets are, and whether nothing is left to wait for. A failure is told once.
func (s *Storage) howFar(bs []buckets.ID) (reply api.ReceiveReply, settled bool) {
	absent := map[buckets.ID]bool{}
	for _, b := range s.applier.unjoined(bs) {
		absent[b] = true
	}
	settled = true
	for _, b := range bs {
		r := s.arrivals.tell(b, absent[b])
		settled = settled && r.State != api.ReceiveLoading
		reply.Buckets = append(reply.Buckets, r)
	}
	return reply, settled
}

// arrivals are the buckets that are on their way to a storage: loaded or being loaded while it does not own them. They
// are kept while a mover asks for them. As an intake it counts what comes, and slows it down.
type arrivals struct {
	mu      sync.Mutex
	by      map[buckets.ID]*arrival
	changed chan struct{} // closed when a load ends
	rate    int64         // bytes per second that may come, in all; 0: any
	paid    time.Time     // until when the bytes that have come use the rate up
}

// arrival is one bucket on its way.
type arrival struct {
	until  time.Time // a mover wants it
	kept   int       // activations under way
	load   *load     // nil if there is none
	got    int64
	total  int64
	failed *api.Error // of the last load, until it is told
}

// load is one for the buckets that were asked for together.
type load struct{ stop context.CancelFunc }

var _ intake = (*arrivals)(nil)

func (a *arrivals) of(b buckets.ID) *arrival {
	if a.by[b] == nil {
		a.by[b] = &arrival{}
	}
	return a.by[b]
}

func (a *arrivals) want(bs []buckets.ID, until time.Time, rate int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rate = rate
	for _, b := range bs {
		x := a.of(b)
		x.until = later(x.until, until)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// keep has buckets stay until the returned function is called.
func (a *arrivals) keep(bs []buckets.ID) (done func()) {
	count := func(n int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, b := range bs {
			a.of(b).kept += n
		}
	}
	count(1)
	return func() { count(-1) }
}

// arrived ends that a bucket is wanted: the storage owns it, and when it gives it away it is to forget it.
func (a *arrivals) arrived(b buckets.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of(b).until = time.Time{}
}

// needed reports whether a bucket must not be forgotten although somebody else owns it.
func (a *arrivals) needed(b buckets.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.by[b]
	return x != nil && x.needed(time.Now())
}

func (x *arrival) needed(now time.Time) bool { return x.kept > 0 || now.Before(x.until) }

// begin notes a load of those of the buckets that nobody loads and whose last failure was told, and returns them.
func (a *arrivals) begin(bs []buckets.ID, stop context.CancelFunc) []buckets.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	var begun []buckets.ID
	l := &load{stop: stop}
	for _, b := range bs {
		if x := a.of(b); x.load == nil && x.failed == nil {
			x.load, x.got, x.total = l, 0, 0
			begun = append(begun, b)
		}
	}
	return begun
}

func (a *arrivals) end(bs []buckets.ID, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range bs {
		x := a.of(b)
		x.load = nil
		if err != nil {
			x.failed = api.AsError(err)
		}
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// next is closed when a load ends.
func (a *arrivals) next() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// tell tells how far a bucket is.
func (a *arrivals) tell(b buckets.ID, absent bool) api.Received {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.of(b)
	r := api.Received{Bucket: uint16(b), State: api.ReceiveReady, Bytes: x.got, Total: x.total}
	failed := x.failed
	x.failed = nil
	switch {
	case absent && failed != nil:
		r.State, r.Error = api.ReceiveFailed, failed
	case absent:
		r.State = api.ReceiveLoading
	}
	return r
}

// expire forgets buckets that nobody has asked for in time; a load of nothing else is stopped.
func (a *arrivals) expire(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted := map[*load]bool{}
	for _, x := range a.by {
		wanted[x.load] = wanted[x.load] || x.needed(now)
	}
	for b, x := range a.by {
		switch {
		case x.needed(now):
		case x.load == nil:
			delete(a.by, b)
		case !wanted[x.load]: // another mover may wait for some of its buckets
			x.load.stop()
		}
	}
}

func (a *arrivals) expect(b buckets.ID, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of(b).total += n
}

// take counts bytes that came, and waits as long as they use the rate up.
func (a *arrivals) take(ctx context.Context, b buckets.ID, n int) error {
	a.mu.Lock()
	a.of(b).got += int64(n)
	wait := time.Duration(0)
	if a.rate > 0 {
		now := time.Now()
		a.paid = later(a.paid, now).Add(time.Duration(float64(n) / float64(a.rate) * float64(time.Second)))
		wait = a.paid.Sub(now)
	}
	a.mu.Unlock()
	if wait < time.Millisecond {
		return nil
	}
	return sleep(ctx, wait)
}
