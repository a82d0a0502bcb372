package pmr_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pinion-mr/pinion/buckets"
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
		_, running := w.mover(a.k/mostDeliveries, a.k%mostDeliveries+1)
		return !running
	case expireReceived:
		return !slices.ContainsFunc(w.movers, func(m *mover) bool {
			return w.m.orders[m.order].to == a.i && slices.Contains(w.m.orders[m.order].buckets, uint16(a.k))
		})
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
	for o := range w.orders {
		if err := w.orderAtEnd(o); err != nil {
			return err
		}
	}
	for s, h := range w.storages {
		if h.machine == nil {
			continue
		}
		if len(h.machine.PMRs()) > 0 || len(h.machine.GateIDs()) > 0 || len(h.machine.TicketJobs()) > 0 || h.machine.Fencing() {
			return violation("D: something is left on " + storageID(s))
		}
		for b, c := range h.copies {
			owns := w.table().Owner(buckets.ID(b)).Storage == storageID(s)
			if c.joined != owns || c.loading || owns && c.records != w.recordsAt(w.end(), b) {
				return violation(fmt.Sprintf("B: at the end %s has %+v of bucket %d", storageID(s), c, b))
			}
		}
	}
	return nil
}

// orderAtEnd checks that an order has ended, and well if it had no rival.
func (w *world) orderAtEnd(o int) error {
	q, in := w.orders[o], w.m.orders[o]
	if in.takeover && !q.published {
		return nil
	}
	if !q.over || w.moving(o) {
		return violation(fmt.Sprintf("D: o%d has not ended", o+1))
	}
	if w.m.deliveries > 2 {
		return nil // it may have been tried often enough
	}
	if in.takeover && !w.m.gone || w.m.lapses > 0 && !in.takeover {
		return nil // somebody was back, or was not there
	}
	for _, b := range in.buckets {
		rival := false
		for r, other := range w.m.orders {
			rival = rival || r != o && slices.Contains(other.buckets, b) && (r > o || !in.after)
		}
		if owner := w.table().Owner(buckets.ID(b)).Storage; owner == "" || owner != storageID(in.to) && !rival {
			return violation(fmt.Sprintf("D: o%d has ended, and bucket %d belongs to %q", o+1, b, owner))
		}
	}
	return nil
}
