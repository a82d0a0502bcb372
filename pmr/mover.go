package pmr

import (
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// MoverConfig tells a mover which delivery of an order it works on.
type MoverConfig struct {
	Gate     string        // the name of its gates: no other delivery, of whatever order, has it
	Delivery int           // how often the order was handed out, from 1
	Patience time.Duration // how long each of its gates is waited for, beyond the longest hold of its storage
}

// Times of a mover.
const (
	GateTTL    = 10 * time.Second
	ReceiveTTL = time.Minute // the destination forgets what it has received if it is not asked for so long

	gateRenewed    = GateTTL / 4
	receiveRenewed = ReceiveTTL / 4
	askPause       = 500 * time.Millisecond // before a storage is asked again that has not answered
	gateWait       = time.Second            // that an answer may take until the gate is granted
	receiveWait    = 2 * time.Second
	receiveSilence = 30 * time.Second // without progress; a change of leader takes up to 15 s
	gateSilence    = 20 * time.Second // without an answer
	againAfter     = time.Second

	// maxDeliveries bounds the tries of one order; the planner makes a new one of what is left.
	maxDeliveries = 5
)

// Events of a Mover, beside Canceled.
type (
	// Ordered hands it the order.
	Ordered struct{ Order api.MoveOrder }
	// Looked answers Look.
	Looked struct {
		Sight Sight
		Err   *api.Error
	}
	// Received answers AskReceive.
	Received struct {
		Buckets []api.Received
		Err     *api.Error
	}
	// Gated answers AskGate.
	Gated struct {
		Held    bool
		Fence   uint64
		Running int           // map-reduces that the gate waits for
		Longest time.Duration // that a map-reduce may hold buckets there
		Err     *api.Error
	}
	// Activated answers AskActivate. What it came to, only the log says.
	Activated struct{ Err *api.Error }
)

// Effects of a Mover. Of Look and those that ask there is one at a time, the last of a step; its answer is the next
// event.
type (
	// Look asks for a Sight.
	Look struct{}
	// AskReceive has the destination load buckets, or keep those that it has loaded.
	AskReceive struct {
		Dst         string
		Buckets     []uint16
		TTL         time.Duration
		Pause, Wait time.Duration // before it is asked; for the answer
	}
	// AskGate asks a storage for the gate, or renews it.
	AskGate struct {
		Storage, Gate string
		Second        bool // the other storage's gate is held meanwhile
		TTL           time.Duration
		Pause, Wait   time.Duration
	}
	// AskActivate has the destination append its ownership.
	AskActivate struct {
		Dst, Gate          string // no gate if the order needs none
		Buckets            []api.BucketPin
		FenceSrc, FenceDst uint64
	}
	// Ungate gives a gate up. Nobody waits for the answer.
	Ungate struct{ Storage, Gate string }
	// Done acknowledges the order: the log shows its outcome. Left says what did not fit any more, if anything.
	Done struct{ Left *api.Error }
	// Again gives the order back, to be delivered once more.
	Again struct {
		After  time.Duration
		Reason *api.Error
	}
	// Dropped ends an order that no longer fits, or that was tried often enough.
	Dropped struct{ Reason *api.Error }
)

// MoveStep is where a mover is.
type MoveStep int

// The steps, in order of progress.
const (
	MoveLooks MoveStep = iota
	MoveReceives
	MoveGates
	MoveChecks
	MoveActivates
	MoveConcludes
	MoveEnded
)

// String names the step as people are told it.
func (s MoveStep) String() string {
	return [...]string{api.StepLook, api.StepReceive, api.StepGates, api.StepActivate, api.StepActivate, api.StepActivate, api.StepEnded}[s]
}

// Mover works off one delivery of a move order: the destination receives the buckets, both storages grant a gate, the
// destination activates, and the log shows the outcome. Every step may be repeated, by this mover or by another one
// that got the order meanwhile: what counts is in the log, and an activation counts only under the gates that it
// names, which no two deliveries share.
//
//	m := pmr.NewMover(pmr.MoverConfig{Gate: "o1-7f3a", Delivery: 1, Patience: time.Minute})
//	effects := m.Step(0, pmr.Ordered{Order: order})         // Look
//	effects = m.Step(1, pmr.Looked{Sight: sight})           // AskReceive
//	effects = m.Step(2, pmr.Received{Buckets: ready})       // AskGate of the storage whose id comes first
//
// Orders without an owner that lives need no gates. Each bucket of an order stands for itself: one that another storage
// owns by now, or that is locked, is left out, and the others go.
type Mover struct {
	cfg   MoverConfig
	order api.MoveOrder
	step  MoveStep

	going []uint16 // buckets that the source still owns, as last seen
	moved bool     // the destination owns one
	left  []string // why buckets were left out

	received   []api.Received
	most       int64         // that was received of them
	progressed time.Duration // when it became more
	asked      time.Duration // when the destination was last asked for them

	gates   []gateOf      // in the order of the storages' ids; none if the order needs none
	waiting time.Duration // since when the next of them is waited for
	heard   time.Duration // when its storage has last answered
	asking  int           // which of them was asked last
	running int           // what the gate that is waited for has to wait for
	failure *api.Error
}

// gateOf is a mover's gate of a storage.
type gateOf struct {
	storage string
	asked   bool
	fence   uint64        // 0 while it is not held
	longest time.Duration // that a map-reduce may hold buckets there
	renewed time.Duration
}

// NewMover returns the machine of a delivery.
func NewMover(cfg MoverConfig) *Mover { return &Mover{cfg: cfg} }

// State tells where the mover is, and what for it waits, in words.
func (m *Mover) State() (step MoveStep, waiting string) { return m.step, m.waitsFor() }

// Step tells the machine what happened and returns what is to be done.
func (m *Mover) Step(now time.Duration, ev Event) []Effect {
	if m.step == MoveEnded {
		return nil
	}
	if ev, ok := ev.(Canceled); ok {
		return m.end(Again{Reason: ev.Err})
	}
	switch ev := ev.(type) {
	case Ordered:
		return m.ordered(ev.Order)
	case Looked:
		return m.looked(now, ev)
	case Received:
		return m.gotReceived(now, ev)
	case Gated:
		return m.gated(now, ev)
	case Activated:
		m.failure = ev.Err
		m.step = MoveConcludes
		return append(m.ungate(), Look{})
	}
	return nil
}

func (m *Mover) ordered(o api.MoveOrder) []Effect {
	m.order = o
	m.going = slices.Compact(slices.Sorted(slices.Values(o.Buckets)))
	switch {
	case o.Dst == "" || o.Dst == o.Src || len(m.going) == 0 || o.Takeover && o.Src == "":
		return m.end(Dropped{api.Errorf(api.CodeBadRequest, "an order of %d buckets from %q to %q", len(m.going), o.Src, o.Dst)})
	case o.NeedsGates() && len(m.going) > api.MostMoved:
		return m.end(Dropped{api.Errorf(api.CodeBadRequest, "the order moves %d buckets; it may move %d", len(m.going), api.MostMoved)})
	}
	if o.NeedsGates() {
		m.gates = []gateOf{{storage: min(o.Src, o.Dst)}, {storage: max(o.Src, o.Dst)}}
	}
	return []Effect{Look{}}
}

// looked decides whether the order still fits, before it is begun, before it is activated, and after that.
func (m *Mover) looked(now time.Duration, ev Looked) []Effect {
	if ev.Err != nil {
		return m.again(ev.Err)
	}
	if int(m.going[len(m.going)-1]) >= ev.Sight.Table.Len() {
		return m.end(Dropped{api.Errorf(api.CodeBadRequest, "the order names bucket %d; there are 0..%d", m.going[len(m.going)-1], ev.Sight.Table.Len()-1)})
	}
	m.sift(ev.Sight)
	unfit := m.unfit(ev.Sight)
	switch {
	case len(m.going) == 0 && !m.moved:
		return m.end(Dropped{m.leftOut()})
	case len(m.going) == 0:
		return m.end(Done{m.leftOut()})
	case unfit != nil:
		return m.end(Dropped{unfit})
	case m.step == MoveConcludes && m.failure != nil:
		return m.again(m.failure)
	case m.step == MoveConcludes:
		return m.again(api.Errorf(api.CodeBusy, "%s was activated, but a fence or a rival had passed it", buckets.Ranges(ids(m.going))))
	case m.step == MoveChecks:
		return m.activate(ev.Sight)
	case m.cfg.Delivery > maxDeliveries:
		return m.end(Dropped{api.Errorf(api.CodeUnavailable, "%d routers have worked on the order, and none has told its end", m.cfg.Delivery-1)})
	}
	m.step, m.progressed = MoveReceives, now
	return m.receive(now, 0, receiveWait)
}

func (m *Mover) receive(now, pause, wait time.Duration) []Effect {
	m.asked = now
	return []Effect{AskReceive{Dst: m.order.Dst, Buckets: m.going, TTL: ReceiveTTL, Pause: pause, Wait: wait}}
}

// gotReceived goes on when all is there. While gates are waited for, what has been received is only kept.
func (m *Mover) gotReceived(now time.Duration, ev Received) []Effect {
	if ev.Err == nil {
		m.received = ev.Buckets
	}
	if n := amount(m.received); n > m.most { // a destination that begins anew over and over makes no progress
		m.most, m.progressed = n, now
	}
	failed, ready := m.readiness()
	switch {
	case ev.Err != nil && m.step == MoveGates:
		return m.nextGate(now, askPause)
	case ev.Err == nil && failed != nil:
		return m.again(failed)
	case m.step == MoveGates && !ready:
		return m.again(api.Errorf(api.CodeBusy, "%s had to load again what it had received", m.order.Dst))
	case m.step == MoveGates:
		return m.nextGate(now, 0)
	case ev.Err == nil && ready && len(m.gates) == 0:
		m.step = MoveChecks
		return []Effect{Look{}}
	case ev.Err == nil && ready:
		m.step, m.waiting, m.heard = MoveGates, now, now
		return m.nextGate(now, 0)
	case now >= m.progressed+receiveSilence && ev.Err != nil:
		return m.again(ev.Err)
	case now >= m.progressed+receiveSilence:
		return m.again(api.Errorf(api.CodeTimeout, "%s has received nothing for %s", m.order.Dst, receiveSilence))
	}
	if ev.Err != nil {
		return m.receive(now, askPause, receiveWait)
	}
	return m.receive(now, 0, receiveWait)
}

// readiness tells whether all that is going was received, and what has failed.
func (m *Mover) readiness() (failed *api.Error, ready bool) {
	have := 0
	for _, b := range m.received {
		switch {
		case b.State == api.ReceiveFailed:
			failed = b.Error
		case b.State == api.ReceiveReady && slices.Contains(m.going, b.Bucket):
			have++
		}
	}
	return failed, have == len(m.going)
}

// amount is how much of buckets is there: their bytes, and one for each that is ready.
func amount(list []api.Received) (n int64) {
	for _, b := range list {
		n += b.Bytes
		if b.State == api.ReceiveReady {
			n++
		}
	}
	return n
}

// nextGate asks for the gate that is missing. What was got before is renewed meanwhile: the first gate, and what the
// destination has received.
func (m *Mover) nextGate(now, pause time.Duration) []Effect {
	first, second := &m.gates[0], &m.gates[1]
	missing := first
	if first.fence != 0 {
		missing = second
	}
	patience := missing.longest + m.cfg.Patience
	switch {
	case missing.fence == 0 && now >= m.waiting+patience:
		return m.end(Dropped{api.Errorf(api.CodeBusy, "storage %s was not free for the move for %s: %d map-reduces hold its buckets", missing.storage, patience, m.running).
			WithHint("long maps leave room for moves in mode %s", api.ModeSnapshot)})
	case now >= m.asked+receiveRenewed:
		return m.receive(now, pause, 0)
	case first.fence != 0 && second.fence == 0 && now >= first.renewed+gateRenewed:
		return m.ask(0, pause, 0)
	case first.fence == 0:
		return m.ask(0, pause, gateWait)
	case second.fence == 0:
		return m.ask(1, pause, gateWait)
	}
	m.step = MoveChecks
	return []Effect{Look{}}
}

func (m *Mover) ask(i int, pause, wait time.Duration) []Effect {
	m.asking = i
	m.gates[i].asked = true
	return []Effect{AskGate{Storage: m.gates[i].storage, Gate: m.cfg.Gate, Second: i == 1, TTL: GateTTL, Pause: pause, Wait: wait}}
}

func (m *Mover) gated(now time.Duration, ev Gated) []Effect {
	if m.step != MoveGates {
		return nil
	}
	g := &m.gates[m.asking]
	lost := g.fence != 0 && (ev.Err == nil && (!ev.Held || ev.Fence != g.fence) || now >= g.renewed+GateTTL)
	switch {
	case lost:
		return m.again(api.Errorf(api.CodeBusy, "the gate of %s has ended while that of the other storage was waited for", g.storage))
	case ev.Err != nil && g.fence == 0 && now >= m.heard+gateSilence:
		return m.again(ev.Err)
	case ev.Err != nil:
		return m.nextGate(now, askPause)
	case g.fence == 0: // what the other storage answers does not excuse this one
		m.heard, m.running, g.longest = now, ev.Running, ev.Longest
	}
	if ev.Held && g.fence == 0 {
		m.waiting, m.running = now, 0
	}
	if ev.Held {
		g.fence, g.renewed = ev.Fence, now
	}
	return m.nextGate(now, 0)
}

// activate names what has to be so still when the ownership entries come to stand in the log.
func (m *Mover) activate(s Sight) []Effect {
	ask := AskActivate{Dst: m.order.Dst}
	for _, g := range m.gates {
		if s.Table.Fence(g.storage) != g.fence {
			return m.again(api.Errorf(api.CodeBusy, "the gate of %s has ended", g.storage))
		}
		ask.Gate = m.cfg.Gate
		if g.storage == m.order.Dst {
			ask.FenceDst = g.fence
		}
	}
	if m.order.Src != "" {
		ask.FenceSrc = s.Table.Fence(m.order.Src)
	}
	for _, b := range m.going {
		ask.Buckets = append(ask.Buckets, api.BucketPin{Bucket: b, Generation: s.Table.Owner(buckets.ID(b)).Generation})
	}
	m.step = MoveActivates
	return []Effect{ask}
}

// again gives the order back, unless it was tried often enough.
func (m *Mover) again(reason *api.Error) []Effect {
	if m.cfg.Delivery >= maxDeliveries {
		return m.end(Dropped{reason})
	}
	return m.end(Again{After: againAfter, Reason: reason})
}

func (m *Mover) end(effect Effect) []Effect {
	m.step = MoveEnded
	return append(m.ungate(), effect)
}

// ungate gives up every gate that was asked for, also where the answer was lost.
func (m *Mover) ungate() []Effect {
	var effects []Effect
	for i := range m.gates {
		if g := &m.gates[i]; g.asked {
			g.asked, g.fence = false, 0
			effects = append(effects, Ungate{Storage: g.storage, Gate: m.cfg.Gate})
		}
	}
	return effects
}
