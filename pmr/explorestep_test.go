package pmr_test

import (
	"fmt"
	"slices"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// action is one thing that may happen in a world.
type action struct {
	do   deed
	i, k int // message, job, order, mover or storage; of a storage's also the job, the bucket or the gate
	pmr  code
}

type deed int

const (
	deliver deed = iota
	guestEnds
	begin   // a job's first attempt
	collect // what was mapped
	learn   // that a storage does not know of a map any more
	restart
	wake // the next attempt
	tick
	apply   // the next entry
	load    // a bucket's checkpoint
	join    // the bucket that was loaded
	forget  // a bucket of somebody else
	notice  // that something was missed
	back    // after it was taken for dead
	handOut // an order
	hear    // that all was received
	askAgain
	loseHope // a mover, of an answer
	rival    // an order is handed out although it was before
	lose
	double
	expirePMR
	expireGate
	expireTicket
	expireReceived
	silence // a storage takes a router for dead
	deadline
	lapse // a storage is taken for dead
	write
	purge
	crashStorage
	loseStorage // with its disk
	crashRouter
	crashMover
)

var deedNames = [...]string{
	"deliver", "guest ends", "begin", "collect", "learn of a lost map", "restart", "wake", "tick", "apply", "load", "join", "forget", "gap noticed by", "back",
	"hand out", "received all", "ask again", "no answer to", "hand out also", "lose", "double", "time passes of", "time passes of gate",
	"time passes of ticket", "time passes of received bucket", "router not heard by", "deadline or cancel", "taken for dead:", "write",
	"purge", "crash of storage", "loss of storage", "crash of router", "crash of mover",
}

// show tells an action as a trace does.
func (w *world) show(a action) string {
	name := deedNames[a.do]
	switch a.do {
	case deliver, lose, double:
		return fmt.Sprintf("%s %s", name, w.msgs[a.i].show())
	case guestEnds, expirePMR:
		return fmt.Sprintf("%s %s", name, a.pmr.show())
	case begin, collect, wake, deadline, crashRouter:
		return fmt.Sprintf("%s j%d", name, a.i+1)
	case restart, tick, apply, notice, back, lapse, crashStorage, loseStorage:
		return fmt.Sprintf("%s s%d", name, a.i+1)
	case load, join, forget, expireReceived:
		return fmt.Sprintf("%s s%d, bucket %d", name, a.i+1, a.k)
	case handOut, rival:
		return fmt.Sprintf("%s o%d", name, a.i+1)
	case hear, askAgain, loseHope, crashMover:
		return fmt.Sprintf("%s %s", name, showDelivery(w.movers[a.i].order, w.movers[a.i].delivery))
	case write, purge:
		return name
	case expireGate:
		return fmt.Sprintf("%s %s on s%d", name, showDelivery(a.k/mostDeliveries, a.k%mostDeliveries+1), a.i+1)
	}
	return fmt.Sprintf("%s s%d, j%d", name, a.i+1, a.k+1)
}

// useful lists what happens by itself and does no harm, in a fixed order; those after patient have to wait
// for time to pass.
func (w *world) useful() (now, patient []action) {
	for i, m := range w.msgs {
		if m.kind != pinRequest || !w.alive(m.storage) || w.storages[m.storage].at >= m.pos[0] {
			now = append(now, action{do: deliver, i: i})
		}
	}
	for _, t := range w.truth {
		if t.guest == running {
			now = append(now, action{do: guestEnds, pmr: t.code})
		}
	}
	for j, c := range w.jobs {
		now, patient = w.usefulOfJob(j, c.machine, now, patient)
	}
	for s := range w.storages {
		now, patient = w.usefulOfStorage(s, now, patient)
	}
	for o := range w.orders {
		if w.waiting(o) {
			now = append(now, action{do: handOut, i: o})
		}
	}
	for i := range w.movers {
		now, patient = w.usefulOfMover(i, now, patient)
	}
	return now, patient
}

func (w *world) usefulOfStorage(s int, now, patient []action) ([]action, []action) {
	h := w.storages[s]
	switch {
	case h.machine == nil && w.m.gone:
		if !h.presumed {
			patient = append(patient, action{do: lapse, i: s})
		}
		return now, patient
	case h.machine == nil:
		return append(now, action{do: restart, i: s}), patient
	case h.presumed:
		now = append(now, action{do: back, i: s})
	}
	if h.at < w.end() {
		now = append(now, action{do: apply, i: s})
	}
	if h.jumped {
		patient = append(patient, action{do: notice, i: s})
	}
	for _, p := range h.machine.PMRs() {
		if p.State == pmr.StatePinned && p.Expired(always) {
			patient = append(patient, action{do: tick, i: s})
			break
		}
	}
	return w.usefulOfCopies(s, now), patient
}

func (w *world) usefulOfJob(j int, r *pmr.Router, now, patient []action) ([]action, []action) {
	if r == nil {
		return now, patient
	}
	switch r.Phase() {
	case pmr.Waiting:
		if r.Attempt() == 0 {
			now = append(now, action{do: begin, i: j})
		} else {
			patient = append(patient, action{do: wake, i: j})
		}
	case pmr.Mapping:
		for s, h := range w.storages {
			if r.WaitsFor(storageID(s), pmr.Mapping, r.Attempt()) && (h.machine == nil || h.machine.PMR(r.PinOf(storageID(s))) == nil) {
				patient = append(patient, action{do: learn, i: s, k: j})
			}
		}
	case pmr.Collecting:
		now = append(now, action{do: collect, i: j})
	}
	return now, patient
}

// possible lists all that may happen, within the model's bounds.
func (w *world) possible() []action {
	list, patient := w.useful()
	list = slices.DeleteFunc(append(list, patient...), func(a action) bool {
		return a.do == wake && w.jobs[a.i].machine.Attempt() >= w.m.attempts ||
			a.do == handOut && w.orders[a.i].delivered >= max(w.m.deliveries, 1)
	})
	for i, m := range w.msgs {
		if w.lost < w.m.losses && losable[m.kind] {
			list = append(list, action{do: lose, i: i})
		}
		if w.doubled < w.m.doubles && doublable[m.kind] && (i == 0 || w.msgs[i-1] != m) {
			list = append(list, action{do: double, i: i})
		}
	}
	if w.expired < w.m.expiries {
		list = w.expiries(list)
	}
	for i := range w.movers {
		if w.m.late && !slices.Contains(list, action{do: loseHope, i: i}) {
			list = append(list, action{do: loseHope, i: i})
		}
	}
	return w.harm(list)
}

// What can be lost or doubled and make a difference: a failure that is told late is one that was lost, the end
// of a map is told until it is confirmed, and a fence is appended until that was done.
var (
	losable   = map[kind]bool{pinRequest: true, pinAnswer: true, mapRequest: true, release: true, receiveRequest: true, gateRequest: true, gateAnswer: true, ungate: true, activation: true, ownership: true, activationAnswer: true}
	doublable = map[kind]bool{pinRequest: true, pinAnswer: true, mapRequest: true, mapEnd: true, receiveRequest: true, gateRequest: true, activation: true, ownership: true}
)

func (w *world) expiries(list []action) []action {
	for s, h := range w.storages {
		if h.machine == nil {
			continue
		}
		for _, p := range h.machine.PMRs() {
			switch c := parseCode(p.ID); {
			case p.State == pmr.StatePinned && !p.Expired(always), p.State == pmr.StateMapped:
				list = append(list, action{do: expirePMR, i: s, pmr: c})
			case p.State == pmr.StateMapping:
				list = append(list, action{do: silence, i: s, k: c.job()})
			}
		}
		for _, g := range h.machine.GateIDs() {
			list = append(list, action{do: expireGate, i: s, k: number(g)})
		}
		for b, c := range h.copies {
			if c.wanted {
				list = append(list, action{do: expireReceived, i: s, k: b})
			}
		}
		for _, j := range h.machine.TicketJobs() {
			list = append(list, action{do: expireTicket, i: s, k: number(j)})
		}
	}
	return list
}

func (w *world) harm(list []action) []action {
	if w.deadlined < w.m.deadlines {
		for j, c := range w.jobs {
			if c.machine != nil && c.machine.Phase() != pmr.Finished {
				list = append(list, action{do: deadline, i: j})
			}
		}
	}
	if w.rivalled < w.m.rivals {
		for o, q := range w.orders {
			if q.delivered > 0 && (q.over || w.moving(o)) {
				list = append(list, action{do: rival, i: o})
			}
		}
	}
	if w.lapsed < w.m.lapses {
		for s, h := range w.storages {
			if !h.presumed && w.leaves(s) {
				list = append(list, action{do: lapse, i: s})
			}
		}
	}
	if w.written < w.m.writes {
		list = append(list, action{do: write})
	}
	if w.mayPurge() {
		list = append(list, action{do: purge})
	}
	return w.crashes(list)
}

// leaves reports whether a storage's buckets are taken over if it is taken for dead.
func (w *world) leaves(s int) bool {
	for _, in := range w.m.orders {
		if in.takeover && in.from == s {
			return true
		}
	}
	return false
}

func (w *world) crashes(list []action) []action {
	if w.crashed >= w.m.crashes {
		return list
	}
	for s, h := range w.storages {
		if h.machine == nil || w.m.gone && !w.leaves(s) {
			continue
		}
		list = append(list, action{do: crashStorage, i: s})
		if w.m.data {
			list = append(list, action{do: loseStorage, i: s})
		}
	}
	for j, c := range w.jobs {
		if c.machine != nil && c.machine.Phase() != pmr.Finished {
			list = append(list, action{do: crashRouter, i: j})
		}
	}
	for i := range w.movers {
		list = append(list, action{do: crashMover, i: i})
	}
	return list
}

// after returns the world after an action, and what must never be.
func (w *world) after(a action) (next *world, fault error) {
	n := w.copy()
	defer func() {
		if f, ok := recover().(violation); ok {
			fault = f
		}
		n.tidy()
	}()
	n.perform(a)
	return n, nil
}

// violation is what an invariant says. It is thrown, since any step may find it.
type violation string

func (v violation) Error() string { return string(v) }

func fault(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }

func (w *world) perform(a action) {
	switch a.do {
	case deliver, lose, double:
		w.message(a)
	case guestEnds:
		w.note(a.pmr, func(t *minted) { t.guest = ended })
		w.storage(a.pmr.storage(), pmr.MapOver{PMR: a.pmr.String()}, nil)
	case begin:
		w.router(a.i, 0, pmr.Started{})
	case wake:
		w.router(a.i, w.jobs[a.i].machine.Wake(), pmr.Tick{})
	case deadline:
		w.deadlined++
		w.router(a.i, always, pmr.Tick{})
	case collect:
		w.collect(a.i)
	case learn:
		w.router(a.k, 0, pmr.StorageLost{Attempt: w.jobs[a.k].machine.Attempt(), Storage: storageID(a.i), Err: unanswered()})
	case tick:
		w.storage(a.i, pmr.Tick{}, nil)
	case expirePMR, expireGate, expireTicket, expireReceived, silence:
		w.expired++
		w.expire(a)
	case crashStorage, loseStorage:
		w.crashed++
		w.crash(a.i, a.do == crashStorage)
	case crashRouter:
		w.crashed++
		w.jobs[a.i] = &client{}
	default:
		w.performOfMove(a)
	}
}

func (w *world) performOfMove(a action) {
	switch a.do {
	case restart:
		w.restart(a.i)
	case apply:
		w.apply(a.i)
	case load:
		w.load(a.i, a.k)
	case join:
		w.join(a.i, a.k)
	case forget:
		w.forget(a.i, a.k)
	case notice:
		w.reload(a.i)
	case back:
		w.back(a.i)
	case lapse:
		if w.alive(a.i) {
			w.lapsed++ // one that is gone will be
		}
		w.lapse(a.i)
	case handOut:
		w.handOut(a.i)
	case rival:
		w.rivalled++
		w.handOut(a.i)
	case hear:
		w.move(a.i, 0, received(w.movers[a.i].asks.(pmr.AskReceive).Buckets, api.ReceiveReady))
	case askAgain:
		w.unansweredMove(a.i, 0)
	case loseHope:
		w.unansweredMove(a.i, impatience)
	case write:
		w.append(buckets.Records{Bucket: buckets.ID(w.m.orders[0].buckets[0])})
	case purge:
		w.purge()
	case crashMover:
		w.crashed++
		w.movers = slices.Delete(w.movers, a.i, a.i+1)
	}
}

func (w *world) message(a action) {
	m := w.msgs[a.i]
	switch a.do {
	case double:
		w.doubled++
		w.send(m)
		return
	case lose:
		w.lost++
	}
	w.msgs = append(w.msgs[:a.i:a.i], w.msgs[a.i+1:]...)
	if a.do == deliver {
		w.arrive(m)
		return
	}
	switch m.kind { // whoever waits for an answer loses patience
	case pinRequest, pinAnswer:
		w.fail(m, pinFailure)
	case mapRequest:
		w.fail(m, mapFailure)
	}
}

func (w *world) fail(m msg, k kind) {
	w.send(msg{kind: k, job: m.job, storage: m.storage, attempt: m.attempt})
}

func (w *world) arrive(m msg) {
	id, storage := m.pmr.String(), storageID(m.storage)
	switch m.kind {
	case pinRequest:
		w.pin(m)
	case pinAnswer:
		t := w.find(m.pmr)
		w.router(m.job, 0, pmr.Pinned{Attempt: m.attempt, Storage: storage, Pin: api.PinReply{PMR: id, Storage: storage, Buckets: w.pins(t), HasSpace: true}})
	case pinFailure:
		w.router(m.job, 0, pmr.PinFailed{Attempt: m.attempt, Storage: storage, Err: unanswered()})
	case mapRequest:
		if w.storages[m.storage].machine == nil {
			w.fail(m, mapFailure)
			return
		}
		w.storage(m.storage, pmr.MapAsked{PMR: id}, func(ok bool) {
			if !ok {
				w.fail(m, mapFailure)
			}
		})
	case mapFailure:
		w.router(m.job, 0, pmr.MapRefused{Attempt: m.attempt, Storage: storage, Err: api.Errorf(api.CodePMRExpired, "gone")})
	case mapEnd:
		w.router(m.job, 0, pmr.MapEnded{Storage: storage, PMR: id})
	case release:
		w.storage(m.storage, pmr.ReleaseAsked{PMR: id}, nil)
	default:
		w.arriveOfMove(m)
	}
}
