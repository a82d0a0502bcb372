package pmr

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// StorageConfig holds a storage's times and quotas.
type StorageConfig struct {
	Silence   time.Duration // a router not heard for this long has lost its PMRs
	Retention time.Duration // how long output is kept for fetching after the map
	Ticket    time.Duration // a refused pin is remembered for this long
	Quotas    Quotas
}

// Events of a Storage.
type (
	// PinAsked says that a pin was asked for and that its snapshot is held. PMR is a new id, minted for
	// this request and used for nothing else before. Age is the position of the job's first cut; a job
	// whose age is unknown, 0, leaves no ticket. Snapshot says that buckets may leave meanwhile, since the
	// snapshot keeps what is mapped.
	PinAsked struct {
		PMR, Job, Router string
		TTL              time.Duration
		Age              uint64
		Snapshot         bool
	}
	// MapAsked asks for the map of a PMR.
	MapAsked struct{ PMR string }
	// MapOver says that no guest of the PMR runs any more and that its output is complete, or that it
	// failed.
	MapOver struct{ PMR string }
	// ReleaseAsked gives a PMR up.
	ReleaseAsked struct{ PMR string }
	// Heard is a router's heartbeat.
	Heard struct{ Router string }
)

// Effects of a Storage.
type (
	// Accept answers the request.
	Accept struct{ PMR string }
	// Refuse answers it with an error.
	Refuse struct {
		PMR string
		Err *api.Error
	}
	// StartMap runs the map on the PMR's snapshot.
	StartMap struct{ PMR string }
	// StopMap stops its guests. MapOver follows when they are dead.
	StopMap struct{ PMR string }
	// Report tells the router that the map is over, again and again until it confirms or the PMR is
	// dropped.
	Report struct{ PMR string }
	// Drop frees the PMR's snapshot and output.
	Drop struct{ PMR string }
)

// State is how far a PMR is.
type State int

// The states, in order of progress.
const (
	StatePinned   State = iota // holds its snapshot until it expires
	StateMapping               // never expires
	StateStopping              // given up; its guests are not dead yet
	StateMapped                // keeps output until it is released or expires
)

// String names the state as the status shows it.
func (s State) String() string {
	return [...]string{"pinned", "mapping", "stopping", "mapped"}[s]
}

// PMR is one pin-map-reduce object.
type PMR struct {
	ID, Job, Router string
	State           State
	Snapshot        bool          // it holds no bucket in place
	expires         time.Duration // of StatePinned and StateMapped
}

// Storage is the set of a storage's PMRs, and the gates between which they run.
type Storage struct {
	cfg   StorageConfig
	pmrs  map[string]*PMR
	heard map[string]time.Duration // by router
	gates scheduler
}

// NewStorage returns a storage without PMRs and gates.
func NewStorage(cfg StorageConfig) *Storage {
	return &Storage{
		cfg: cfg, pmrs: map[string]*PMR{}, heard: map[string]time.Duration{},
		gates: scheduler{quotas: cfg.Quotas, tickets: map[string]ticket{}},
	}
}

// PMRs lists the PMRs by id.
func (s *Storage) PMRs() []PMR {
	list := make([]PMR, 0, len(s.pmrs))
	for _, id := range slices.Sorted(maps.Keys(s.pmrs)) {
		list = append(list, *s.pmrs[id])
	}
	return list
}

// Running counts the map-reduces that hold buckets in place: pinned ones, and those whose guests live. A
// gate is granted at zero.
func (s *Storage) Running() int {
	n := 0
	for _, p := range s.pmrs {
		if p.State != StateMapped && !p.Snapshot {
			n++
		}
	}
	return n
}

// Step tells the machine what happened at a time and returns what is to be done.
func (s *Storage) Step(now time.Duration, ev Event) []Effect {
	effects := s.step(now, ev)
	return append(effects, s.gates.serve(now, s.Running())...)
}

func (s *Storage) step(now time.Duration, ev Event) []Effect {
	switch ev := ev.(type) {
	case PinAsked:
		s.hear(now, ev.Router)
		if err := s.gates.admit(now, s.cfg.Ticket, ev); err != nil {
			return []Effect{Refuse{ev.PMR, err}}
		}
		s.pmrs[ev.PMR] = &PMR{ID: ev.PMR, Job: ev.Job, Router: ev.Router, Snapshot: ev.Snapshot, expires: now + ev.TTL}
		return []Effect{Accept{ev.PMR}}
	case GateAsked:
		s.gates.ask(now, ev)
	case GateReleased:
		return s.gates.release(ev.Gate)
	case FenceSet:
		s.gates.fencing = false
	case QuotasSet:
		s.gates.quotas = ev.Quotas
	case MapAsked:
		return s.mapAsked(now, ev.PMR)
	case MapOver:
		return s.mapOver(now, ev.PMR)
	case ReleaseAsked:
		if p := s.pmrs[ev.PMR]; p != nil {
			return s.giveUp(p)
		}
	case Heard:
		s.hear(now, ev.Router)
	case Tick:
		return s.tick(now)
	}
	return nil
}

// mapAsked starts the map if the PMR still exists. A pin that has expired stays expired, even if no Tick
// has removed it yet: the router may already have been told so elsewhere.
func (s *Storage) mapAsked(now time.Duration, id string) []Effect {
	p := s.pmrs[id]
	if p == nil || p.State == StateStopping || p.State == StatePinned && now >= p.expires {
		return []Effect{Refuse{id, api.Errorf(api.CodePMRExpired, "the pin %.8s is gone", id)}}
	}
	s.hear(now, p.Router)
	if p.State != StatePinned {
		return []Effect{Accept{id}} // asked before
	}
	p.State = StateMapping
	delete(s.gates.tickets, p.Job) // a map is asked for once the job is pinned everywhere
	return []Effect{StartMap{id}, Accept{id}}
}

func (s *Storage) mapOver(now time.Duration, id string) []Effect {
	p := s.pmrs[id]
	switch {
	case p == nil:
		return nil
	case p.State == StateStopping:
		delete(s.pmrs, id)
		return []Effect{Drop{id}}
	}
	p.State = StateMapped
	p.expires = now + s.cfg.Retention
	return []Effect{Report{id}}
}

// giveUp frees a PMR, but one whose guests run only after they are dead: until then the pin holds.
func (s *Storage) giveUp(p *PMR) []Effect {
	switch p.State {
	case StateMapping:
		p.State = StateStopping
		return []Effect{StopMap{p.ID}}
	case StateStopping:
		return nil
	}
	delete(s.pmrs, p.ID)
	return []Effect{Drop{p.ID}}
}

func (s *Storage) hear(now time.Duration, router string) { s.heard[router] = now }

func (s *Storage) tick(now time.Duration) []Effect {
	var effects []Effect
	for _, p := range s.byID() {
		silent := now >= s.heard[p.Router]+s.cfg.Silence
		expired := (p.State == StatePinned || p.State == StateMapped) && now >= p.expires
		if silent || expired {
			effects = append(effects, s.giveUp(p)...)
		}
	}
	maps.DeleteFunc(s.heard, func(_ string, at time.Duration) bool { return now >= at+s.cfg.Silence })
	return append(effects, s.gates.tick(now)...)
}

func (s *Storage) byID() []*PMR {
	return slices.SortedFunc(maps.Values(s.pmrs), func(a, b *PMR) int { return cmp.Compare(a.ID, b.ID) })
}
