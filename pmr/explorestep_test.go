package pmr_test

import (
	"fmt"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// action is one thing that may happen in a world.
type action struct {
	do   deed
	i, k int // message, job, driver or storage; of a storage's also the job
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
	askAgain
	giveUp // a driver
	lose
	double
	expirePMR
	expireGate
	expireTicket
	silence // a storage takes a router for dead
	deadline
	crashStorage
	crashRouter
	crashDriver
)

var deedNames = [...]string{
	"deliver", "guest ends", "begin", "collect", "learn of a lost map", "restart", "wake", "tick", "ask again", "give up", "lose", "double",
	"time passes of", "time passes of gate", "time passes of ticket", "router not heard by", "deadline or cancel",
	"crash of storage", "crash of router", "crash of driver",
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
	case restart, tick, crashStorage:
		return fmt.Sprintf("%s s%d", name, a.i+1)
	case askAgain, giveUp, crashDriver:
		return fmt.Sprintf("%s g%d", name, a.i+1)
	case expireGate:
		return fmt.Sprintf("%s g%d on s%d", name, a.k+1, a.i+1)
	}
	return fmt.Sprintf("%s s%d, j%d", name, a.i+1, a.k+1)
}

// useful lists what happens by itself and does no harm, in a fixed order; those after patient have to wait
// for time to pass.
func (w *world) useful() (now, patient []action) {
	for i := range w.msgs {
		now = append(now, action{do: deliver, i: i})
	}
	for _, t := range w.truth {
		if t.guest == running {
			now = append(now, action{do: guestEnds, pmr: t.code})
		}
	}
	for j, c := range w.jobs {
		now, patient = w.usefulOfJob(j, c.machine, now, patient)
	}
	for s, h := range w.storages {
		if h.machine == nil {
			now = append(now, action{do: restart, i: s})
			continue
		}
		for _, p := range h.machine.PMRs() {
			if p.State == pmr.StatePinned && p.Expired(always) {
				patient = append(patient, action{do: tick, i: s})
				break
			}
		}
	}
	for d := range w.drivers {
		if w.mayAskAgain(d) {
			patient = append(patient, action{do: askAgain, i: d})
		}
		if w.drivers[d].step == activates && !w.underWay(activation, d, 0) {
			patient = append(patient, action{do: giveUp, i: d})
		}
	}
	return now, patient
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

func (w *world) underWay(k kind, job, storage int) bool {
	for _, m := range w.msgs {
		if m.kind == k && m.job == job && m.storage == storage {
			return true
		}
	}
	return false
}

// mayAskAgain reports whether a driver that waits for a gate has reason to ask once more.
func (w *world) mayAskAgain(d int) bool {
	s := w.asked(d)
	if w.drivers[d].step >= activates || w.underWay(gateRequest, d, s) || w.underWay(gateAnswer, d, s) {
		return false
	}
	machine := w.storages[s].machine
	return machine != nil && machine.Gate(gateID(d)) != pmr.GateWaiting
}

// possible lists all that may happen, within the model's bounds.
func (w *world) possible() []action {
	list, patient := w.useful()
	for _, a := range patient {
		if a.do != wake || w.jobs[a.i].machine.Attempt() < w.m.attempts {
			list = append(list, a)
		}
	}
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
	for d := range w.drivers {
		if w.m.late && w.drivers[d].step != over {
			list = append(list, action{do: giveUp, i: d})
		}
	}
	return w.harm(list)
}

// What can be lost or doubled and make a difference: a failure that is told late is one that was lost, the end
// of a map is told until it is confirmed, and a fence is appended until that was done.
var (
	losable   = map[kind]bool{pinRequest: true, pinAnswer: true, mapRequest: true, release: true, gateRequest: true, gateAnswer: true, ungate: true, activation: true}
	doublable = map[kind]bool{pinRequest: true, pinAnswer: true, mapRequest: true, mapEnd: true, gateRequest: true, activation: true}
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
	if w.crashed >= w.m.crashes {
		return list
	}
	for s, h := range w.storages {
		if h.machine != nil {
			list = append(list, action{do: crashStorage, i: s})
		}
	}
	for j, c := range w.jobs {
		if c.machine != nil && c.machine.Phase() != pmr.Finished {
			list = append(list, action{do: crashRouter, i: j})
		}
	}
	for d := range w.drivers {
		if w.drivers[d].step != over {
			list = append(list, action{do: crashDriver, i: d})
		}
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
	case restart:
		w.append(buckets.Fence{Storage: storageID(a.i)})
		w.storages[a.i] = &host{machine: w.newStorage(), since: w.log}
		w.storages[a.i].write()
	case tick:
		w.storage(a.i, pmr.Tick{}, nil)
	case askAgain:
		w.askGate(a.i)
	case giveUp:
		w.leave(a.i)
	case expirePMR, expireGate, expireTicket, silence:
		w.expired++
		w.expire(a)
	case crashStorage:
		w.crashed++
		w.crash(a.i)
	case crashRouter:
		w.crashed++
		w.jobs[a.i] = &client{}
		w.jobs[a.i].write()
	case crashDriver:
		w.crashed++
		w.drivers[a.i] = driver{step: over}
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
		w.arriveGate(m)
	}
}

func (w *world) arriveGate(m msg) {
	machine := w.storages[m.storage].machine
	switch m.kind {
	case gateRequest:
		if machine == nil {
			return
		}
		held := machine.Gate(gateID(m.job)) == pmr.GateHeld
		w.storage(m.storage, pmr.GateAsked{Gate: gateID(m.job), TTL: time.Minute, Second: m.storage != w.order(m.job)[0]}, nil)
		if held {
			w.granted(m.job, m.storage)
		}
	case gateAnswer:
		d := &w.drivers[m.job]
		d.fences[d.step] = m.pos[0]
		d.step++
		if d.step == asksSecond {
			w.askGate(m.job)
		} else {
			w.activate(m.job)
		}
	case ungate:
		w.storage(m.storage, pmr.GateReleased{Gate: gateID(m.job)}, nil)
	case activation:
		w.activated(m)
	case fence:
		w.append(buckets.Fence{Storage: storageID(m.storage)})
		w.storage(m.storage, pmr.FenceSet{}, nil)
	}
}

// granted tells a driver that it holds a gate, and the storage's fence.
func (w *world) granted(d, s int) {
	w.send(msg{kind: gateAnswer, job: d, storage: s, pos: [4]uint64{w.table.Fence(storageID(s))}})
}

// activate sends the ownership entry of a move: the bucket's generation, and the fences of its owner and of the new
// one as the driver knows them.
func (w *world) activate(d int) {
	from, to := w.drivers[d].fences[0], w.drivers[d].fences[1]
	if w.order(d)[0] != w.m.owner(w.m.moves[d].bucket) {
		from, to = to, from
	}
	prev := w.table.Owner(buckets.ID(w.m.moves[d].bucket)).Generation
	w.send(msg{kind: activation, job: d, pos: [4]uint64{prev, from, to}})
}

// activated is the point of no return. It is the log that decides; here it is checked that no map-reduce minds.
func (w *world) activated(m msg) {
	move := w.m.moves[m.job]
	own := buckets.Own{Bucket: buckets.ID(move.bucket), Prev: m.pos[0], Owner: storageID(move.to), FenceSrc: m.pos[1], FenceDst: m.pos[2]}
	if w.append(own) {
		for _, t := range w.truth {
			if t.inPlace() && (t.code.storage() == move.to || t.code.storage() == w.m.owner(move.bucket)) {
				fault("C: bucket %d changes its owner while %s holds buckets in place", move.bucket, t.code.show())
			}
		}
	}
	if w.drivers[m.job].step == activates {
		w.leave(m.job) // it has seen the outcome
	}
}

// leave ends a driver, who releases what it may hold.
func (w *world) leave(d int) {
	for i, s := range w.order(d) {
		if step(i) <= w.drivers[d].step {
			w.send(msg{kind: ungate, job: d, storage: s})
		}
	}
	w.drivers[d] = driver{step: over}
}
