package pmr_test

import (
	"slices"
	"strings"

	"github.com/pinion-mr/pinion/pmr"
)

// fair takes the next step of a world in which nothing goes wrong any more: the first thing that can happen by
// itself, or the last, and if there is none, a round in which time passes for everybody. next is nil at the end
// of all. What was done is told if it is asked for.
func (w *world) fair(order mark, tell bool) (next *world, line string, err error) {
	if now, _ := w.useful(); len(now) > 0 {
		a := now[0]
		if order == backward {
			a = now[len(now)-1]
		}
		if tell {
			line = w.show(a)
		}
		next, err = w.after(a)
		return next, line, err
	}
	round := w.round(order)
	if len(round) == 0 {
		return nil, "the end", w.atEnd()
	}
	next = w
	for _, a := range round {
		if next != w && !slices.Contains(next.round(order), a) {
			continue // what came before in this round has settled it
		}
		if tell {
			line = strings.Join([]string{line, next.show(a)}, "; ")
		}
		if next, err = next.after(a); err != nil {
			return nil, line, err
		}
	}
	return next, line, nil
}

// round is what time does for everybody when nothing else happens: those who wait try again, and what nobody
// cares for any more expires. What somebody still holds does not: nobody may depend on that.
func (w *world) round(order mark) []action {
	_, round := w.useful()
	for _, a := range w.expiries(nil) {
		if w.orphaned(a) {
			round = append(round, a)
		}
	}
	if order == backward {
		slices.Reverse(round)
	}
	return round
}

// orphaned reports whether an expiry is of something that nobody will use or release any more.
func (w *world) orphaned(a action) bool {
	switch a.do {
	case expirePMR:
		return !w.holds(a.pmr)
	case silence:
		for _, p := range w.storages[a.i].machine.PMRs() {
			if c := parseCode(p.ID); c.job() == a.k && p.State == pmr.StateMapping && w.holds(c) {
				return false
			}
		}
		return true
	case expireGate:
		d := w.drivers[a.k]
		return d.step == over || w.order(a.k)[1] == a.i && d.step == asksFirst
	case expireTicket:
		r := w.jobs[a.k].machine
		return r == nil || r.Phase() == pmr.Finished
	}
	return false
}

// atEnd checks that nothing is left when nothing can happen any more.
func (w *world) atEnd() error {
	for j, c := range w.jobs {
		if c.machine != nil && c.machine.Phase() != pmr.Finished {
			return violation("D: " + jobID(j) + " is stuck in phase " + c.machine.Phase().String())
		}
	}
	for d := range w.drivers {
		if w.drivers[d].step != over {
			return violation("D: the driver of " + gateID(d) + " is stuck")
		}
	}
	for s, h := range w.storages {
		if len(h.machine.PMRs()) > 0 || len(h.machine.GateIDs()) > 0 || len(h.machine.TicketJobs()) > 0 || h.machine.Fencing() {
			return violation("D: something is left on " + storageID(s))
		}
	}
	return nil
}
