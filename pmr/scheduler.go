package pmr

import (
	"maps"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// Quotas are how many of one side a storage grants in a row while the other side waits. 0 is none: that side
// has to wait as soon as the other does. They may not both be 0.
type Quotas struct {
	Pins  int // while a gate waits
	Gates int // while refused pins are remembered
}

// Events of a Storage that are about gates. A gate is what a move asks for: a short time in which no
// map-reduce holds the storage's buckets in place.
type (
	// GateAsked asks for a gate, or renews one that waits or is held. Second says that the asker holds a gate
	// of another storage meanwhile; storages are asked in the order of their ids.
	GateAsked struct {
		Gate   string
		TTL    time.Duration // it ends by itself if it is not renewed for this long
		Second bool
	}
	// GateReleased gives a gate up. Unknown ones are ignored.
	GateReleased struct{ Gate string }
	// FenceSet says that the fence that SetFence asked for is in the log and applied.
	FenceSet struct{}
	// QuotasSet changes the quotas.
	QuotasSet struct{ Quotas Quotas }
)

// Effects of a Storage that are about gates.
type (
	// OpenGate grants a gate.
	OpenGate struct{ Gate string }
	// CloseGate ends one that was granted: it was released, or not renewed.
	CloseGate struct{ Gate string }
	// SetFence asks for a new fence, so that nothing that was meant for the gate that ended counts any more.
	// No pin that holds buckets in place and no gate is granted before FenceSet.
	SetFence struct{}
)

// scheduler shares a storage between map-reduces that hold its buckets in place and gates.
//
// A gate waits until none runs; meanwhile quota.Pins pins are granted, and the others refused. A refused pin
// is never kept waiting, which could block jobs and moves for each other; it leaves a ticket. After
// quota.Gates gates in a row that passed tickets, the jobs of these tickets come first, and with them all
// older jobs: the oldest of all is then favoured wherever it is refused, and is pinned everywhere at last.
// A gate whose asker holds another one does not wait for tickets, since their jobs may wait for that one.
type scheduler struct {
	quotas  Quotas
	waiting []*gate // first come first served, but those that are somebody's second before the others
	held    *gate
	fencing bool // a gate has ended, the new fence is not applied yet

	tickets map[string]ticket // by job
	pins    int               // granted in a row while a gate waited
	passed  int               // gates granted in a row while there were tickets
	favour  uint64            // jobs up to this age come before gates; 0 is none
}

type gate struct {
	GateAsked
	renewed time.Duration
}

type ticket struct {
	age     uint64
	expires time.Duration
}

// admit decides about a pin. A refused one leaves a ticket.
func (s *scheduler) admit(now, keep time.Duration, pin PinAsked) *api.Error {
	if pin.Snapshot {
		return nil // it holds nothing in place
	}
	left := ticket{age: pin.Age, expires: now + keep}
	if _, ok := s.tickets[pin.Job]; ok {
		s.tickets[pin.Job] = left // renewed, also if it is granted: another storage may refuse the job
	}
	var why string
	switch {
	case s.held != nil:
		why = "buckets are being handed over"
	case s.fencing:
		why = "buckets were handed over; its new fence is not set yet"
	case len(s.waiting) == 0 || pin.Age > 0 && pin.Age <= s.favour:
		return nil
	case s.pins < s.quotas.Pins:
		s.pins++
		return nil
	default:
		why = "a move waits for its turn"
	}
	if pin.Age > 0 {
		s.tickets[pin.Job] = left
	}
	return api.Errorf(api.CodeBusy, "%s", why)
}

// ask notes a gate, or renews it.
func (s *scheduler) ask(now time.Duration, ev GateAsked) {
	g := s.find(ev.Gate)
	if g == nil {
		g = &gate{}
		s.waiting = append(s.waiting, g)
	}
	g.GateAsked, g.renewed = ev, now
}

func (s *scheduler) find(id string) *gate {
	if s.held != nil && s.held.Gate == id {
		return s.held
	}
	if i := slices.IndexFunc(s.waiting, func(g *gate) bool { return g.Gate == id }); i >= 0 {
		return s.waiting[i]
	}
	return nil
}

func (s *scheduler) release(id string) []Effect {
	s.waiting = slices.DeleteFunc(s.waiting, func(g *gate) bool { return g.Gate == id })
	if s.held == nil || s.held.Gate != id {
		return nil
	}
	s.held, s.fencing = nil, true
	return []Effect{CloseGate{id}, SetFence{}}
}

// tick ends gates that were not renewed and forgets tickets that were not.
func (s *scheduler) tick(now time.Duration) []Effect {
	maps.DeleteFunc(s.tickets, func(_ string, t ticket) bool { return now >= t.expires })
	s.waiting = slices.DeleteFunc(s.waiting, func(g *gate) bool { return g.over(now) })
	if s.held != nil && s.held.over(now) {
		return s.release(s.held.Gate)
	}
	return nil
}

func (g *gate) over(now time.Duration) bool { return now >= g.renewed+g.TTL }

// serve grants the next gate if its turn has come.
func (s *scheduler) serve(now time.Duration, running int) []Effect {
	if len(s.waiting) == 0 {
		s.pins = 0
	}
	if s.favour > 0 && !s.owes(s.favour) {
		s.favour, s.passed = 0, 0
	}
	if len(s.waiting) == 0 || s.held != nil || s.fencing || running > 0 {
		return nil
	}
	// A gate whose asker holds another one comes before all that do not: those may have to wait for jobs that
	// wait for that other one.
	i := max(0, slices.IndexFunc(s.waiting, func(g *gate) bool { return g.Second }))
	next := s.waiting[i]
	if next.over(now) || !next.Second && s.jobsFirst() {
		return nil
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	s.held, s.pins = next, 0
	if len(s.tickets) > 0 {
		s.passed++
	} else {
		s.passed = 0
	}
	return []Effect{OpenGate{next.Gate}}
}

// jobsFirst reports whether gates have had their share and refused pins come next.
func (s *scheduler) jobsFirst() bool {
	if s.favour == 0 && len(s.tickets) > 0 && s.passed >= s.quotas.Gates {
		for _, t := range s.tickets {
			s.favour = max(s.favour, t.age)
		}
	}
	return s.favour > 0
}

// owes reports whether a ticket up to an age is left.
func (s *scheduler) owes(age uint64) bool {
	for _, t := range s.tickets {
		if t.age <= age {
			return true
		}
	}
	return false
}

// GateState is where a gate is.
type GateState int

// The states of a gate.
const (
	GateUnknown GateState = iota // never asked for, released, or not renewed in time
	GateWaiting
	GateHeld
)

// Gate tells where a gate is.
func (s *Storage) Gate(id string) GateState {
	switch g := s.gates.find(id); {
	case g == nil:
		return GateUnknown
	case g == s.gates.held:
		return GateHeld
	}
	return GateWaiting
}

// Gates counts the gates that wait, and tells which one is held: "" if none is.
func (s *Storage) Gates() (waiting int, held string) {
	if s.gates.held != nil {
		held = s.gates.held.Gate
	}
	return len(s.gates.waiting), held
}

// Tickets counts the refused pins that are remembered.
func (s *Storage) Tickets() int { return len(s.gates.tickets) }
