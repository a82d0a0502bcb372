package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// Times of orders.
const (
	orderKeptAlive = 5 * time.Second // between two words that an order is still worked on
	gatePatience   = time.Minute     // beyond the longest hold of the gate's storage
	parallelEvery  = time.Minute     // between two settings of how many moves are worked on: a router that starts resets it
	ungateWithin   = 5 * time.Second // then the gate's own time ends it
	ungateTry      = 2 * time.Second
	ungatedWithin  = time.Minute // of an activation that has no gates, and perhaps many buckets
)

// keptMoves is how many deliveries that have ended a router tells of.
const keptMoves = 64

// moveBook is what a router tells of the orders that it works on, and of those that it has worked on.
type moveBook struct {
	mu        sync.Mutex
	running   []*movement        // in the order of their beginnings
	ended     []api.MoveProgress // the latest last
	endings   []time.Time        // of these
	bandwidth atomic.Int64       // what a storage may receive, of the topology
	parallel  int                // as last set
	set       time.Time          // when that was; both are owned by followTopology
}

// Moves tells of the orders that this router works on, and of the last ones that it has worked on, by their beginnings.
func (r *Router) Moves() []api.MoveProgress {
	b := &r.moves
	b.mu.Lock()
	defer b.mu.Unlock()
	list := slices.Clone(b.ended)
	for i, at := range b.endings {
		list[i].EndedMS = time.Since(at).Milliseconds()
		list[i].AgeMS += list[i].EndedMS
	}
	for _, m := range b.running {
		list = append(list, m.progress())
	}
	return list
}

func (b *moveBook) begin(m *movement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = append(b.running, m)
}

func (b *moveBook) end(m *movement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = slices.DeleteFunc(b.running, func(o *movement) bool { return o == m })
	b.ended = append(b.ended, m.progress())
	b.endings = append(b.endings, time.Now())
	if surplus := len(b.ended) - keptMoves; surplus > 0 {
		b.ended, b.endings = slices.Delete(b.ended, 0, surplus), slices.Delete(b.endings, 0, surplus)
	}
}

// work takes move orders off their queues, as many at a time as the topology says.
func (r *Router) work(ctx context.Context) {
	var follows sync.WaitGroup
	defer follows.Wait()
	follows.Go(func() { every(ctx, refreshEvery, func() { r.followTopology(ctx) }) })
	for ctx.Err() == nil {
		err := r.ports.Orders.Consume(ctx, r.move)
		if ctx.Err() == nil {
			r.logger.Warn("cannot take move orders; trying again", "reason", err)
			_ = sleep(ctx, refreshEvery)
		}
	}
}

// followTopology has the queue hand out as many moves at a time as are wanted. A failure is no news: it asks again.
func (r *Router) followTopology(ctx context.Context) {
	t, _, err := loadTopology(ctx, r.ports.State)
	if err != nil {
		return
	}
	r.moves.bandwidth.Store(t.MoveBandwidth)
	n := parallelMoves(t)
	if n == r.moves.parallel && time.Since(r.moves.set) < parallelEvery {
		return
	}
	if r.ports.Orders.SetParallel(ctx, n) == nil {
		r.moves.parallel, r.moves.set = n, time.Now()
	}
}

// movement is one delivery of an order that is worked on.
type movement struct {
	r     *Router
	d     OrderDelivery
	gate  string
	began time.Time
	loose sync.WaitGroup // gates that are being given up

	mu       sync.Mutex
	machine  *pmr.Mover
	received api.ReceiveReply
	outcome  string
	reason   string
}

// move works off one delivery of an order.
func (r *Router) move(ctx context.Context, d OrderDelivery) {
	m := &movement{r: r, d: d, gate: newID(), began: time.Now()}
	m.machine = pmr.NewMover(pmr.MoverConfig{Gate: m.gate, Delivery: d.Deliveries, Patience: gatePatience})
	r.moves.begin(m)
	defer m.loose.Wait()
	defer r.moves.end(m)
	alive, stop := context.WithCancel(ctx)
	defer stop()
	go every(alive, orderKeptAlive, func() { _ = d.InProgress() })
	for ev := pmr.Event(pmr.Ordered{Order: d.Order}); ev != nil; {
		ev = m.perform(ctx, m.step(ev))
		if ev != nil && ctx.Err() != nil {
			ev = pmr.Canceled{Err: api.Errorf(api.CodeUnavailable, "router %s is stopping", r.ID())}
		}
	}
}

func (m *movement) step(ev pmr.Event) []pmr.Effect {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machine.Step(time.Since(m.began), ev)
}

// perform performs effects, and returns the answer to the last of them; nil at the end.
func (m *movement) perform(ctx context.Context, effects []pmr.Effect) pmr.Event {
	for _, effect := range effects {
		switch e := effect.(type) {
		case pmr.Ungate:
			m.loose.Go(func() { m.ungate(context.WithoutCancel(ctx), e) })
		case pmr.Look:
			return m.look(ctx)
		case pmr.AskReceive:
			return m.receive(ctx, e)
		case pmr.AskGate:
			return m.askGate(ctx, e)
		case pmr.AskActivate:
			return m.activate(ctx, e)
		default:
			m.settle(ctx, e)
		}
	}
	return nil
}

// look sees the table as it is at the log's end, and after it what is alive and locked.
func (m *movement) look(ctx context.Context) pmr.Event {
	err := m.r.verifyEnd(ctx)
	var s sight
	if err == nil {
		s, err = m.r.look(ctx)
	}
	if err != nil {
		return pmr.Looked{Err: api.AsError(err)}
	}
	m.r.moves.bandwidth.Store(s.topology.MoveBandwidth) // what was set before the order was made holds for it
	seen := pmr.Sight{Table: s.view, LockedBuckets: s.topology.LockedBuckets, LockedStorages: s.topology.LockedStorages}
	for _, member := range s.storages {
		seen.Alive = append(seen.Alive, member.ID)
	}
	return pmr.Looked{Sight: seen}
}

func (m *movement) receive(ctx context.Context, ask pmr.AskReceive) pmr.Event {
	req := api.ReceiveRequest{
		Order: m.d.Order.ID, Buckets: ask.Buckets, TTLMS: ask.TTL.Milliseconds(), WaitMS: ask.Wait.Milliseconds(),
		Bandwidth: m.r.moves.bandwidth.Load(),
	}
	var reply api.ReceiveReply
	if err := m.request(ctx, ask.Pause, ask.Wait+answerWithin, ask.Dst, "receive", req, &reply); err != nil {
		return pmr.Received{Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.received = reply
	return pmr.Received{Buckets: reply.Buckets}
}

func (m *movement) askGate(ctx context.Context, ask pmr.AskGate) pmr.Event {
	req := api.GateRequest{Gate: ask.Gate, TTLMS: ask.TTL.Milliseconds(), WaitMS: ask.Wait.Milliseconds(), Second: ask.Second}
	var reply api.GateReply
	if err := m.request(ctx, ask.Pause, ask.Wait+answerWithin, ask.Storage, "gate", req, &reply); err != nil {
		return pmr.Gated{Err: err}
	}
	return pmr.Gated{Held: reply.State == gateHeld, Fence: reply.Fence, Running: reply.Running, Longest: millis(reply.LongestHoldMS)}
}

func (m *movement) activate(ctx context.Context, ask pmr.AskActivate) pmr.Event {
	req := api.ActivateRequest{Order: m.d.Order.ID, Gate: ask.Gate, Buckets: ask.Buckets, FenceSrc: ask.FenceSrc, FenceDst: ask.FenceDst}
	within := pmr.GateTTL
	if ask.Gate == "" {
		within = ungatedWithin
	}
	return pmr.Activated{Err: m.request(ctx, 0, within, ask.Dst, "activate", req, &api.ActivateReply{})}
}

// request asks a storage, after a pause.
func (m *movement) request(ctx context.Context, pause, within time.Duration, storage, verb string, in, out any) *api.Error {
	if pause > 0 && sleep(ctx, pause) != nil {
		return api.AsError(ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := m.r.ports.Peers.Request(ctx, "storage."+storage+"."+verb, in, out); err != nil {
		return api.AsError(err)
	}
	return nil
}

// ungate gives a gate up, again for a time if the storage does not hear it.
func (m *movement) ungate(ctx context.Context, e pmr.Ungate) {
	ctx, cancel := context.WithTimeout(ctx, ungateWithin)
	defer cancel()
	for m.request(ctx, 0, ungateTry, e.Storage, "ungate", api.GateName{Gate: e.Gate}, &api.Empty{}) != nil {
		if sleep(ctx, ungateTry/4) != nil {
			return
		}
	}
}

// settle ends the delivery.
func (m *movement) settle(ctx context.Context, effect pmr.Effect) {
	log := m.r.logger.With("order", m.d.Order.ID, "from", m.d.Order.Src, "to", m.d.Order.Dst)
	ctx = context.WithoutCancel(ctx) // a router that stops gives its orders back
	var err error
	switch e := effect.(type) {
	case pmr.Done:
		m.setOutcome(api.OutcomeDone, e.Left)
		log.Info("a move order is done", "buckets", buckets.Ranges(bucketIDs(m.d.Order.Buckets)), "in", time.Since(m.began).Round(time.Millisecond), "but", m.reason)
		err = m.d.Ack(ctx)
	case pmr.Again:
		m.setOutcome(api.OutcomeAgain, e.Reason)
		log.Warn("a move order failed; it is tried again", "reason", e.Reason)
		_ = sleep(ctx, e.After) // a delay of the queue's own would hold back all orders, and for good if it is lost
		err = m.d.Nak(0)
	case pmr.Dropped:
		m.setOutcome(api.OutcomeDropped, e.Reason)
		log.Warn("a move order was dropped", "reason", e.Reason)
		err = m.d.Term(e.Reason.Message)
	default:
		err = fmt.Errorf("node: a mover's effect %T", effect)
	}
	if err != nil {
		log.Warn("cannot settle a move order; it comes again", "reason", err)
	}
}

func (m *movement) setOutcome(outcome string, reason *api.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcome = outcome
	if reason != nil {
		m.reason = reason.Error()
	}
}

func (m *movement) progress() api.MoveProgress {
	m.mu.Lock()
	defer m.mu.Unlock()
	step, waiting := m.machine.State()
	p := api.MoveProgress{
		Order: m.d.Order, Step: step.String(), Waiting: waiting, Delivery: m.d.Deliveries,
		Outcome: m.outcome, Reason: m.reason, AgeMS: time.Since(m.began).Milliseconds(),
	}
	for _, b := range m.received.Buckets {
		p.Bytes += b.Bytes
		p.Total += b.Total
	}
	return p
}
