package pmr

import (
	"maps"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/buckets"
)

// What follows is for the explorer, which copies machines, compares them and lets single deadlines pass.

// Words takes what a machine is made of: plain numbers, and positions of the log, of which only the order counts.
type Words interface {
	Num(n int)
	Pos(p uint64)
	PMR(id string)
	View(v *buckets.View)
}

// Clone returns a copy that shares nothing that is ever changed.
func (s *Storage) Clone() *Storage {
	c := *s
	c.pmrs = make(map[string]*PMR, len(s.pmrs))
	for id, p := range s.pmrs {
		copied := *p
		c.pmrs[id] = &copied
	}
	c.heard, c.gates.tickets = maps.Clone(s.heard), maps.Clone(s.gates.tickets)
	c.gates.waiting = nil
	for _, g := range s.gates.waiting {
		copied := *g
		c.gates.waiting = append(c.gates.waiting, &copied)
	}
	if s.gates.held != nil {
		held := *s.gates.held
		c.gates.held = &held
	}
	return &c
}

// Write tells all that decides what the machine will do, given that no deadline but those that Elapse names
// ever passes.
func (s *Storage) Write(w Words, now time.Duration) {
	for _, p := range s.byID() {
		w.PMR(p.ID)
		w.Num(int(p.State)<<1 | bit(now >= p.expires && p.State != StateMapping && p.State != StateStopping))
	}
	g := &s.gates
	w.Num(-1)
	for _, x := range g.waiting {
		w.Num(gateNumber(x))
	}
	w.Num(-1)
	if g.held != nil {
		w.Num(gateNumber(g.held))
	}
	w.Num(-1 - bit(g.fencing))
	for _, job := range slices.Sorted(maps.Keys(g.tickets)) {
		w.Num(int(job[len(job)-1]))
		w.Pos(g.tickets[job].age)
	}
	w.Num(-1)
	w.Num(g.pins<<8 | g.passed)
	w.Pos(g.favour)
}

// gateNumber is of a gate called g and one letter.
func gateNumber(g *gate) int { return int(g.Gate[1])<<1 | bit(g.Second) }

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ElapsePMR lets the time of a pin or of output pass, ElapseRouter that of a router, ElapseGate that of a gate
// and ElapseTicket that of a job's ticket.
func (s *Storage) ElapsePMR(id string, now time.Duration) { s.pmrs[id].expires = now }

// ElapseRouter has the storage not have heard a router.
func (s *Storage) ElapseRouter(router string, now time.Duration) {
	s.heard[router] = now - s.cfg.Silence
}

// ElapseGate has a gate not have been renewed.
func (s *Storage) ElapseGate(id string, now time.Duration) {
	if g := s.gates.find(id); g != nil {
		g.renewed = now - g.TTL
	}
}

// ElapseTicket has a ticket not have been renewed.
func (s *Storage) ElapseTicket(job string, now time.Duration) {
	s.gates.tickets[job] = ticket{age: s.gates.tickets[job].age, expires: now}
}

// PMR returns one; nil if it is not there.
func (s *Storage) PMR(id string) *PMR { return s.pmrs[id] }

// Expired reports whether its time is over.
func (p *PMR) Expired(now time.Duration) bool { return now >= p.expires }

// GateIDs lists the gates, the held one first.
func (s *Storage) GateIDs() []string {
	var ids []string
	if s.gates.held != nil {
		ids = append(ids, s.gates.held.Gate)
	}
	for _, g := range s.gates.waiting {
		ids = append(ids, g.Gate)
	}
	return ids
}

// TicketJobs lists the jobs that left tickets.
func (s *Storage) TicketJobs() []string { return slices.Sorted(maps.Keys(s.gates.tickets)) }

// Fencing reports whether a fence is awaited.
func (s *Storage) Fencing() bool { return s.gates.fencing }

// Clone returns a copy that shares nothing that is ever changed.
func (r *Router) Clone() *Router {
	c := *r
	c.waitFor, c.pins = maps.Clone(r.waitFor), maps.Clone(r.pins)
	return &c
}

// Write tells all that decides what the machine will do, given that it never runs out of attempts. How long it
// pauses does not count.
func (r *Router) Write(w Words) {
	w.Num(int(r.phase))
	if r.phase == Finished {
		return
	}
	w.Num(r.attempt)
	w.Pos(r.age)
	if r.phase == Waiting {
		return
	}
	w.Pos(r.cut)
	if r.phase == Pinning {
		w.View(r.owners)
	}
	for _, storage := range slices.Sorted(maps.Keys(r.waitFor)) {
		w.Num(int(storage[1]))
	}
	w.Num(-1)
	for _, storage := range slices.Sorted(maps.Keys(r.pins)) {
		w.PMR(r.pins[storage].PMR)
	}
	w.Num(-1)
}

// WaitsFor reports whether the router waits for a storage in a phase of its present attempt.
func (r *Router) WaitsFor(storage string, phase Phase, attempt int) bool {
	return r != nil && r.phase == phase && r.attempt == attempt && r.waitFor[storage]
}

// PinOf is the PMR that the present attempt has on a storage; "" if it has none.
func (r *Router) PinOf(storage string) string { return r.pins[storage].PMR }

// Clone returns a copy that shares nothing that is ever changed.
func (m *Mover) Clone() *Mover {
	c := *m
	c.gates, c.left = slices.Clone(m.gates), slices.Clone(m.left)
	return &c
}

// Write tells all that decides what the machine will do, given its order and delivery, and that no time passes before
// it ends.
func (m *Mover) Write(w Words) {
	w.Num(int(m.step)<<8 | m.asking<<1 | bit(m.moved))
	for _, b := range m.going {
		w.Num(int(b))
	}
	w.Num(-1)
	for _, g := range m.gates {
		w.Num(bit(g.asked))
		w.Pos(g.fence)
	}
	w.Num(bit(m.failure != nil))
}
