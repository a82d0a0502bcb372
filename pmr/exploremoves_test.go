package pmr_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// queued is what became of an order.
type queued struct {
	delivered int  // so often
	over      bool // it was acknowledged, or dropped
	published bool // a takeover's source was taken for dead
}

// mover works on a delivery of an order.
type mover struct {
	order, delivery int
	machine         *pmr.Mover
	asks            pmr.Effect // what it waits for
	words           words
}

// impatience is a time at which a mover does not wait any longer for what it has asked for at 0.
const impatience = 30 * time.Minute

// mostDeliveries is how often an order can be delivered in a world: one more than a mover accepts, and some rivals.
const mostDeliveries = 8

func showDelivery(o, delivery int) string { return fmt.Sprintf("o%d.%d", o+1, delivery) }

// gateID is the name of the gates of a delivery: each has its own.
func gateID(o, delivery int) string { return "g" + string(rune('1'+o*mostDeliveries+delivery-1)) }

func (w *world) mover(o, delivery int) (int, bool) {
	return slices.BinarySearchFunc(w.movers, [2]int{o, delivery}, func(m *mover, at [2]int) int {
		return cmp.Or(cmp.Compare(m.order, at[0]), cmp.Compare(m.delivery, at[1]))
	})
}

// moving reports whether an order's mover runs.
func (w *world) moving(o int) bool {
	return slices.ContainsFunc(w.movers, func(m *mover) bool { return m.order == o })
}

// waiting reports whether the queue has an order to hand out.
func (w *world) waiting(o int) bool {
	in := w.m.orders[o]
	return !w.orders[o].over && !w.moving(o) && (!in.takeover || w.orders[o].published) && (!in.after || w.orders[o-1].over)
}

// handOut delivers an order.
func (w *world) handOut(o int) {
	w.orders[o].delivered++
	delivery := w.orders[o].delivered
	if delivery > mostDeliveries {
		fault("D: o%d is delivered again and again", o+1)
	}
	i, _ := w.mover(o, delivery)
	w.movers = slices.Insert(w.movers, i, &mover{order: o, delivery: delivery, machine: pmr.NewMover(pmr.MoverConfig{
		Gate: gateID(o, delivery), Delivery: delivery, Patience: always,
	})})
	in := w.m.orders[o]
	out := api.MoveOrder{ID: "o", Dst: storageID(in.to), Buckets: in.buckets, Takeover: in.takeover}
	if in.from != nobody {
		out.Src = storageID(in.from)
	}
	w.move(i, 0, pmr.Ordered{Order: out})
}

// move steps a mover and enacts what it wants.
func (w *world) move(i int, now time.Duration, ev pmr.Event) {
	m := *w.movers[i]
	m.machine, m.asks = m.machine.Clone(), nil
	w.movers[i] = &m
	for ev != nil {
		effects := m.machine.Step(now, ev)
		if len(effects) == 0 {
			fault("D: %s does nothing on %T", showDelivery(m.order, m.delivery), ev)
		}
		ev = nil
		for _, e := range effects {
			ev = w.enact(&m, e)
		}
	}
	m.words = words{}
	m.machine.Write(&m.words)
	if step, _ := m.machine.State(); step == pmr.MoveEnded {
		w.movers = slices.Delete(w.movers, i, i+1)
	}
}

// enact performs an effect of a mover. Some are answered at once: a sight of the log is as good as one that comes
// late, since the mover does nothing meanwhile.
func (w *world) enact(m *mover, effect pmr.Effect) (answer pmr.Event) {
	to := msg{job: m.order, attempt: m.delivery}
	switch e := effect.(type) {
	case pmr.Look:
		return pmr.Looked{Sight: w.sight()}
	case pmr.AskReceive:
		if !w.m.data && w.alive(w.m.orders[m.order].to) {
			return received(e.Buckets, api.ReceiveReady)
		}
		to.kind, to.storage, to.set = receiveRequest, number(e.Dst), w.setOf(m.order, e.Buckets)
	case pmr.AskGate:
		to.kind, to.storage, to.set = gateRequest, number(e.Storage), boolBit(e.Second)
	case pmr.AskActivate:
		to.kind, to.storage, to.pos = activation, number(e.Dst), [4]uint64{e.FenceSrc, e.FenceDst}
		for i, b := range e.Buckets {
			to.set |= w.setOf(m.order, []uint16{b.Bucket})
			to.pos[2+i] = b.Generation
		}
		to.set |= boolBit(e.Gate != "") * gatedSet
	case pmr.Ungate:
		w.send(msg{kind: ungate, job: m.order, attempt: m.delivery, storage: number(e.Storage)})
		return nil
	default: // Done, Again, Dropped
		_, again := e.(pmr.Again)
		w.orders[m.order].over = w.orders[m.order].over || !again
		return nil
	}
	m.asks = effect
	w.send(to)
	return nil
}

// gatedSet marks an activation that is made under gates.
const gatedSet = 1 << 8

// setOf says which buckets of an order are meant, and members lists them.
func (w *world) setOf(o int, list []uint16) (set int) {
	for i, b := range w.m.orders[o].buckets {
		set |= boolBit(slices.Contains(list, b)) << i
	}
	return set
}

func (w *world) members(o, set int) (list []uint16) {
	for i, b := range w.m.orders[o].buckets {
		if set>>i&1 == 1 {
			list = append(list, b)
		}
	}
	return list
}

func received(list []uint16, state string) pmr.Event {
	var answer pmr.Received
	for _, b := range list {
		r := api.Received{Bucket: b, State: state}
		if state == api.ReceiveFailed {
			r.Error = unanswered()
		}
		answer.Buckets = append(answer.Buckets, r)
	}
	return answer
}

func (w *world) sight() pmr.Sight {
	s := pmr.Sight{Table: w.table()}
	for i, h := range w.storages {
		if !h.presumed {
			s.Alive = append(s.Alive, storageID(i))
		}
	}
	return s
}

// hears reports whether the destination can tell a mover that it has received all.
func (w *world) hears(m *mover) bool {
	ask, ok := m.asks.(pmr.AskReceive)
	return ok && w.alive(number(ask.Dst)) && w.has(number(ask.Dst), ask.Buckets)
}

// tellFailure tells movers that a bucket that they wait for could not be loaded.
func (w *world) tellFailure(s, b int) {
	for _, m := range slices.Clone(w.movers) {
		if ask, ok := m.asks.(pmr.AskReceive); ok && number(ask.Dst) == s && slices.Contains(ask.Buckets, uint16(b)) {
			i, _ := w.mover(m.order, m.delivery)
			w.move(i, 0, received([]uint16{uint16(b)}, api.ReceiveFailed))
		}
	}
}

// unansweredMove tells a mover that what it has asked for is not answered.
func (w *world) unansweredMove(i int, now time.Duration) {
	switch w.movers[i].asks.(type) {
	case pmr.AskReceive:
		w.move(i, now, pmr.Received{Err: unanswered()})
	case pmr.AskGate:
		w.move(i, now, pmr.Gated{Err: unanswered()})
	case pmr.AskActivate:
		w.move(i, now, pmr.Activated{Err: unanswered()})
	}
}

// usefulOfMover lists what a mover does by itself; it asks again or loses patience if no answer can come.
func (w *world) usefulOfMover(i int, now, patient []action) ([]action, []action) {
	m := w.movers[i]
	under := func(k kind) bool {
		return slices.ContainsFunc(w.msgs, func(o msg) bool { return o.kind == k && o.job == m.order && o.attempt == m.delivery })
	}
	switch ask := m.asks.(type) {
	case pmr.AskReceive:
		h := w.storages[number(ask.Dst)]
		switch {
		case w.hears(m):
			now = append(now, action{do: hear, i: i})
		case under(receiveRequest):
		case h.machine == nil:
			patient = append(patient, action{do: loseHope, i: i})
		case slices.ContainsFunc(ask.Buckets, func(b uint16) bool { return !h.copies[b].joined && !h.copies[b].loading }):
			patient = append(patient, action{do: askAgain, i: i})
		}
	case pmr.AskGate:
		switch machine := w.storages[number(ask.Storage)].machine; {
		case under(gateRequest), under(gateAnswer):
		case machine == nil:
			patient = append(patient, action{do: loseHope, i: i})
		case machine.Gate(ask.Gate) != pmr.GateWaiting:
			patient = append(patient, action{do: askAgain, i: i})
		}
	case pmr.AskActivate:
		if !under(activation) && !under(ownership) && !under(activationAnswer) {
			patient = append(patient, action{do: loseHope, i: i})
		}
	}
	return now, patient
}

// arriveOfMove is the work of a storage, or of a mover, at a message of a move.
func (w *world) arriveOfMove(m msg) {
	h := w.storages[m.storage]
	i, _ := w.mover(m.job, m.attempt)
	switch m.kind {
	case fence:
		w.append(buckets.Fence{Storage: storageID(m.storage)})
	case receiveRequest:
		w.receive(m)
	case gateRequest:
		if h.machine == nil {
			return
		}
		gate := gateID(m.job, m.attempt)
		held := h.machine.Gate(gate) == pmr.GateHeld
		w.storage(m.storage, pmr.GateAsked{Gate: gate, TTL: time.Minute, Second: m.set == 1}, nil)
		if held {
			w.granted(gate, m.storage)
		}
	case gateAnswer:
		w.move(i, 0, pmr.Gated{Held: true, Fence: m.pos[0]})
	case ungate:
		w.storage(m.storage, pmr.GateReleased{Gate: gateID(m.job, m.attempt)}, nil)
	case activation:
		if h.machine != nil {
			w.activate(m)
		}
	case ownership:
		w.own(m)
	case activationAnswer:
		answer := pmr.Activated{}
		if m.set == 0 {
			answer.Err = api.Errorf(api.CodeBusy, "refused")
		}
		w.move(i, 0, answer)
	}
}

// granted tells whoever waits for a gate that it is held, and the storage's fence.
func (w *world) granted(gate string, s int) {
	for _, m := range w.movers {
		if ask, ok := m.asks.(pmr.AskGate); ok && ask.Gate == gate && number(ask.Storage) == s {
			w.send(msg{kind: gateAnswer, job: m.order, attempt: m.delivery, storage: s, pos: [4]uint64{w.storages[s].fence}})
		}
	}
}

// receive is a storage's work when a mover asks it to load buckets.
func (w *world) receive(m msg) {
	if !w.alive(m.storage) {
		return
	}
	for _, b := range w.members(m.job, m.set) {
		if w.m.data {
			h := w.change(m.storage)
			h.copies[b].wanted = true
			if !h.copies[b].joined && !h.copies[b].loading {
				w.load(m.storage, int(b))
			}
		}
	}
}

// activate is the destination's work: it applies all that is in the log, looks whether all is as it must be, and
// begins to append.
func (w *world) activate(m msg) {
	w.catchUp(m.storage)
	if w.storages[m.storage].jumped {
		w.reload(m.storage)
	}
	h := w.storages[m.storage]
	answer := msg{kind: activationAnswer, job: m.job, attempt: m.attempt, storage: m.storage}
	gated := m.set&gatedSet != 0
	held := h.machine.Gate(gateID(m.job, m.attempt)) == pmr.GateHeld && m.pos[1] == h.fence
	if gated && !held || !w.has(m.storage, w.members(m.job, m.set)) {
		w.send(answer)
		return
	}
	m.kind, m.pos[1] = ownership, cmp.Or(m.pos[1], h.fence)
	w.send(m)
}

// activates reports whether a storage is about to append its ownership of a bucket.
func (w *world) activates(s, b int) bool {
	return slices.ContainsFunc(w.msgs, func(m msg) bool {
		return m.kind == ownership && m.storage == s && slices.Contains(w.members(m.job, m.set), uint16(b))
	})
}

// own is the point of no return: the first of the buckets' entries comes to stand in the log. It is the log that
// decides; here it is checked that no map-reduce minds.
func (w *world) own(m msg) {
	list := w.members(m.job, m.set)
	b, to := buckets.ID(list[0]), m.storage
	before := w.table().Owner(b)
	at := w.append(buckets.Own{Bucket: b, Prev: m.pos[2], Owner: storageID(to), FenceSrc: m.pos[0], FenceDst: m.pos[1]})
	if w.log[at-1].changed {
		w.minded(m, int(b), before)
	}
	m.set &^= w.setOf(m.job, list[:1])
	m.pos[2], m.pos[3] = m.pos[3], 0
	switch {
	case !w.alive(to):
	case len(list) > 1:
		w.send(m)
	default:
		w.send(msg{kind: activationAnswer, job: m.job, attempt: m.attempt, storage: to, set: 1})
	}
}

// minded is invariant C. A takeover needs no leave, but of a storage that is there.
func (w *world) minded(m msg, b int, before buckets.Owner) {
	o := w.m.orders[m.job]
	for _, t := range w.truth {
		from := before.Storage == storageID(t.code.storage())
		if o.takeover && from && w.storages[t.code.storage()].presumed {
			continue
		}
		if t.inPlace() && (from || t.code.storage() == m.storage && o.from != nobody && !o.takeover) {
			fault("C: bucket %d changes its owner while %s holds buckets in place", b, t.code.show())
		}
	}
}

// futileOfMove reports that nobody will ever do anything on a message.
func (w *world) futileOfMove(m msg) bool {
	machine := w.storages[m.storage].machine
	i, running := w.mover(m.job, m.attempt)
	switch m.kind {
	case fence:
		return machine == nil
	case gateAnswer:
		ask, ok := pmr.AskGate{}, false
		if running {
			ask, ok = w.movers[i].asks.(pmr.AskGate)
		}
		return !ok || number(ask.Storage) != m.storage
	case activationAnswer:
		if !running {
			return true
		}
		_, ok := w.movers[i].asks.(pmr.AskActivate)
		return !ok
	case ungate:
		return machine == nil || machine.Gate(gateID(m.job, m.attempt)) == pmr.GateUnknown &&
			!slices.ContainsFunc(w.msgs, func(o msg) bool {
				return o.kind == gateRequest && o.job == m.job && o.attempt == m.attempt && o.storage == m.storage
			})
	}
	return false
}
