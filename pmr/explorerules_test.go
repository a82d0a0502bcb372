package pmr_test

import (
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// router steps a job's machine, enacts what it wants, and checks invariant A.
func (w *world) router(j int, now time.Duration, ev pmr.Event) {
	if w.jobs[j].machine == nil {
		return
	}
	c := &client{machine: w.jobs[j].machine.Clone()}
	w.jobs[j] = c
	wasFinished := c.machine.Phase() == pmr.Finished
	var mapped []code
	for _, e := range c.machine.Step(now, ev) {
		if _, ok := e.(pmr.SendRelease); wasFinished && !ok {
			fault("A: j%d does more than to release after its end", j+1)
		}
		switch e := e.(type) {
		case pmr.AppendCut:
			defer w.cut(j, e.Attempt) // at once: a slow cut is a late wake
		case pmr.SendPin:
			w.send(msg{kind: pinRequest, job: j, storage: number(e.Storage), attempt: e.Attempt, pos: [4]uint64{e.Cut, e.Age}})
		case pmr.SendMap:
			c := parseCode(e.PMR)
			mapped = append(mapped, c)
			w.send(msg{kind: mapRequest, job: j, storage: number(e.Storage), attempt: e.Attempt, pmr: c})
		case pmr.SendRelease:
			c := parseCode(e.PMR)
			w.send(msg{kind: release, job: j, storage: number(e.Storage), attempt: c.attempt(), pmr: c})
		case pmr.Finish:
			w.finished(j, now, e)
		}
	}
	if mapped != nil {
		w.covers(j, mapped)
	}
}

// cut appends a cut and tells the router who owned what there.
func (w *world) cut(j, attempt int) {
	owners := w.table()
	at := w.append(buckets.Cut{Job: jobID(j), Attempt: attempt})
	w.router(j, 0, pmr.CutFixed{Attempt: attempt, Cut: at, Owners: owners, SpaceKnown: true})
}

// covers is the first half of invariant A: what is mapped is every bucket exactly once, at one cut, in one
// attempt, each by its owner there.
func (w *world) covers(j int, mapped []code) {
	first := w.find(mapped[0])
	used := make([]int, w.m.buckets)
	for _, c := range mapped {
		t := w.find(c)
		if t.cut != first.cut || c.attempt() != first.code.attempt() || c.job() != j {
			fault("A: j%d uses %s at cut %d beside %s at cut %d", j+1, c.show(), t.cut, first.code.show(), first.cut)
		}
		for _, p := range w.pins(t) {
			used[p.Bucket]++
			if o := first.view.Owner(buckets.ID(p.Bucket)); number(o.Storage) != c.storage() || o.Generation != p.Generation {
				fault("A: %s maps bucket %d, which is %s's at its cut", c.show(), p.Bucket, o.Storage)
			}
		}
	}
	for b, n := range used {
		if (n != 1) != (w.m.wanted > 0 && b >= w.m.wanted) {
			fault("A: attempt %d of j%d uses bucket %d %d times", first.code.attempt(), j+1, b, n)
		}
	}
}

// finished is the second half: a job that is done names such PMRs, all of them have mapped to their end, and
// their output was there. A job ends with an error only if its time was over.
func (w *world) finished(j int, now time.Duration, f pmr.Finish) {
	if f.Err != nil {
		if now < always {
			fault("D: j%d ends before its time with %s", j+1, f.Err.Message)
		}
		return
	}
	var used []code
	for _, p := range f.Proof.Pinned {
		c := parseCode(p.PMR)
		used = append(used, c)
		if t := w.find(c); t == nil || t.gone || t.guest != ended || t.cut != f.Proof.Cut || c.attempt() != f.Proof.Attempts || storageID(c.storage()) != p.Storage {
			fault("A: the proof of j%d names %s, of which the truth is %+v", j+1, c.show(), t)
		}
	}
	if used == nil {
		fault("A: the proof of j%d is empty", j+1)
	}
	w.covers(j, used)
}

// collect fetches the output of all maps of a job, which is there or not.
func (w *world) collect(j int) {
	r := w.jobs[j].machine
	var lost *api.Error
	for s, h := range w.storages {
		id := r.PinOf(storageID(s))
		if id != "" && (h.machine == nil || h.machine.PMR(id) == nil || h.machine.PMR(id).State != pmr.StateMapped) {
			lost = api.Errorf(api.CodeLost, "the output is gone")
		}
	}
	w.router(j, 0, pmr.Collected{Attempt: r.Attempt(), Err: lost})
}

// storage steps a storage's machine and enacts what it wants. answer is told what the storage answers.
func (w *world) storage(s int, ev pmr.Event, answer func(ok bool)) {
	if !w.alive(s) {
		return
	}
	h := w.change(s)
	h.machine = h.machine.Clone()
	for _, e := range h.machine.Step(always, ev) {
		switch e := e.(type) {
		case pmr.Accept:
			if answer != nil {
				answer(true)
			}
		case pmr.Refuse:
			if answer != nil {
				answer(false)
			}
		case pmr.StartMap:
			w.started(parseCode(e.PMR))
		case pmr.Report:
			c := parseCode(e.PMR)
			w.send(msg{kind: mapEnd, job: c.job(), storage: s, attempt: c.attempt(), pmr: c})
		case pmr.Drop:
			w.dropped(parseCode(e.PMR))
		case pmr.OpenGate:
			w.granted(e.Gate, s)
		case pmr.SetFence:
			w.send(msg{kind: fence, storage: s})
		}
	}
}

// pin is a storage's work at a request: a PMR of what it has parked at the cut. Before, it makes sure that it has
// missed nothing.
func (w *world) pin(m msg) {
	if w.storages[m.storage].jumped {
		w.reload(m.storage)
	}
	parked, ok := w.storages[m.storage].parkedAt(m.pos[0])
	if !ok {
		w.fail(m, pinFailure)
		return
	}
	c := codeOf(m.storage, m.job, m.attempt, 0)
	for w.find(c) != nil {
		c++
	}
	t := &minted{code: c, cut: m.pos[0], view: w.viewAt(m.pos[0]), snapshot: w.m.snapshot && m.job == w.m.jobs-1}
	i, _ := w.index(c)
	w.truth = slices.Insert(w.truth, i, t)
	w.storage(m.storage, pmr.PinAsked{
		PMR: c.String(), Job: jobID(m.job), Router: routerID(m.job), TTL: time.Minute, Age: m.pos[1], Snapshot: t.snapshot,
	}, func(ok bool) {
		if !ok {
			w.note(c, func(t *minted) { t.gone = true })
			w.fail(m, pinFailure)
			return
		}
		w.keeps(t, parked)
		w.send(msg{kind: pinAnswer, job: m.job, storage: m.storage, attempt: m.attempt, pmr: c})
	})
}

// pins is what a PMR holds: of what its storage owned at the cut that which is wanted.
func (w *world) pins(t *minted) []api.BucketPin {
	var list []api.BucketPin
	for _, b := range t.view.Of(storageID(t.code.storage())) {
		if w.m.wanted > 0 && int(b) >= w.m.wanted {
			continue
		}
		list = append(list, api.BucketPin{Bucket: uint16(b), Generation: t.view.Owner(b).Generation})
	}
	return list
}

// inPlace reports whether no bucket may come to or leave the PMR's storage: its pin has not ended, or its
// guests run.
func (t *minted) inPlace() bool {
	return !t.snapshot && !t.gone && (t.guest == running || t.guest == unstarted && !t.late)
}

// started: a map begins once at most, on a PMR that exists and whose time is not over.
func (w *world) started(c code) {
	switch t := w.find(c); {
	case t == nil || t.gone:
		fault("D: the map of %s begins, which is gone", c.show())
	case t.guest != unstarted:
		fault("A: the map of %s begins twice", c.show())
	case t.late:
		fault("A: the map of %s begins, whose time is over: its attempt is void", c.show())
	}
	w.note(c, func(t *minted) { t.guest = running })
}

// dropped: a PMR whose guests run keeps its snapshot and its place.
func (w *world) dropped(c code) {
	if t := w.find(c); t == nil || t.gone || t.guest == running {
		fault("D: %s is dropped, of which the truth is %+v", c.show(), t)
	}
	w.note(c, func(t *minted) { t.gone = true })
}

// crash ends a storage with its guests and PMRs. What it has applied is on its disk, unless that is lost too.
func (w *world) crash(s int, disk bool) {
	h := w.change(s)
	h.machine, h.parked, h.fence = nil, nil, 0
	for b := range h.copies {
		if !disk || h.copies[b].loading {
			h.copies[b] = holding{}
		}
		h.copies[b].wanted = false
	}
	for _, t := range slices.Clone(w.truth) {
		if t.code.storage() == s && !t.gone {
			w.note(t.code, func(t *minted) {
				t.gone = true
				if t.guest == running {
					t.guest = unstarted
				}
			})
		}
	}
}

// restart begins with a fence, and with what was missed. Nothing is parked on the way.
func (w *world) restart(s int) {
	h := w.change(s)
	h.machine = w.newStorage()
	w.append(buckets.Fence{Storage: storageID(s)})
	w.catchUp(s)
	if w.storages[s].jumped {
		w.reload(s)
	}
	w.change(s).parked = nil
}

// back has a storage that was taken for dead be there again, behind a new fence.
func (w *world) back(s int) {
	w.change(s).presumed = false
	w.append(buckets.Fence{Storage: storageID(s)})
}

// lapse has a storage be taken for dead: what is on it is to be taken over.
func (w *world) lapse(s int) {
	w.change(s).presumed = true
	for o := range w.orders {
		if w.m.orders[o].takeover && w.m.orders[o].from == s {
			w.orders[o].published = true
		}
	}
}

// expire lets a deadline of a storage pass. A pin's is not noticed before a tick; for the others it is all one.
func (w *world) expire(a action) {
	h := w.change(a.i)
	h.machine = h.machine.Clone()
	switch a.do {
	case expirePMR:
		h.machine.ElapsePMR(a.pmr.String(), always)
		if w.find(a.pmr).guest == unstarted {
			w.note(a.pmr, func(t *minted) { t.late = true })
			return
		}
	case expireGate:
		h.machine.ElapseGate(gateID(a.k/mostDeliveries, a.k%mostDeliveries+1), always)
	case expireTicket:
		h.machine.ElapseTicket(jobID(a.k), always)
	case expireReceived:
		h.copies[a.k].wanted = false
		return
	case silence:
		h.machine.ElapseRouter(routerID(a.k), always)
	}
	w.storage(a.i, pmr.Tick{}, nil)
}
