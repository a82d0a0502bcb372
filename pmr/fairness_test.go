package pmr_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/pmr"
)

// Jobs and gates always wait at one storage. Then the quotas say how long: from its first refusal on a job sees at
// most so many gates granted as the gates' quota is, and from when it is the first of the queue a gate sees at most
// as many pins granted as the pins' quota and the jobs are. Jobs have only one storage here, so none is refused
// elsewhere. A side whose quota is 0 has no bound.
func TestNeitherSideWaitsForever(t *testing.T) {
	for _, q := range []pmr.Quotas{{Pins: 8, Gates: 4}, {Pins: 1, Gates: 1}, {Pins: 3, Gates: 1}, {Pins: 0, Gates: 2}, {Pins: 2, Gates: 0}} {
		t.Run(fmt.Sprintf("pins=%d,gates=%d", q.Pins, q.Gates), func(t *testing.T) {
			for seed := range uint64(20) {
				s := newSaturation(q, seed)
				for range 3000 {
					s.step()
				}
				if s.mostGates > q.Gates {
					t.Errorf("seed %d: a job saw %d gates", seed, s.mostGates)
				}
				if bound := q.Pins + len(s.jobs); q.Gates > 0 && s.mostPins > bound {
					t.Errorf("seed %d: a gate saw %d pins, over %d", seed, s.mostPins, bound)
				}
				if s.jobsDone < 50 || q.Gates > 0 && s.gatesDone < 50 {
					t.Errorf("seed %d: only %d jobs and %d gates were done", seed, s.jobsDone, s.gatesDone)
				}
			}
		})
	}
}

// saturation is a storage at which everybody asks again as soon as it is done.
type saturation struct {
	rng     *rand.Rand
	machine *pmr.Storage
	now     time.Duration
	age     uint64
	minted  int
	jobs    []*waitingJob
	gates   []string // in the order in which they asked; the first may be held
	held    bool

	pinsSeen            int // by the gate that is the first of the queue
	mostPins, mostGates int
	jobsDone, gatesDone int
}

type waitingJob struct {
	age    uint64
	pmr    string // "" if it is not pinned
	maps   bool
	waits  bool // it was refused
	passed int  // gates granted since
}

func newSaturation(q pmr.Quotas, seed uint64) *saturation {
	s := &saturation{
		rng:     rand.New(rand.NewPCG(seed, 0)),
		machine: pmr.NewStorage(pmr.StorageConfig{Silence: time.Hour, Retention: time.Hour, Ticket: time.Minute, Quotas: q}),
	}
	for range 5 {
		s.jobs = append(s.jobs, s.newJob())
	}
	for range 3 {
		s.askGate()
	}
	return s
}

func (s *saturation) newJob() *waitingJob {
	s.age++
	return &waitingJob{age: s.age}
}

func (s *saturation) askGate() {
	s.minted++
	s.gates = append(s.gates, fmt.Sprintf("g%d", s.minted))
	s.tell(pmr.GateAsked{Gate: s.gates[len(s.gates)-1], TTL: time.Hour})
}

// step lets one of all do what it can.
func (s *saturation) step() {
	s.now += time.Millisecond
	if s.rng.IntN(3) > 0 {
		i := s.rng.IntN(len(s.jobs))
		s.stepJob(i)
		return
	}
	if s.held {
		over := s.gates[0]
		s.gates, s.held = s.gates[1:], false
		s.gatesDone++
		s.tell(pmr.GateReleased{Gate: over})
		s.askGate()
		s.tell(pmr.FenceSet{})
	}
}

func (s *saturation) stepJob(i int) {
	switch j := s.jobs[i]; {
	case j.pmr == "":
		s.minted++
		id := fmt.Sprintf("p%d", s.minted)
		effects := s.tell(pmr.PinAsked{PMR: id, Job: fmt.Sprintf("j%d", j.age), Router: "r1", TTL: time.Hour, Age: j.age})
		if _, refused := effects[0].(pmr.Refuse); refused {
			j.waits = true
			return
		}
		j.pmr, j.waits = id, false
		if !s.held {
			s.pinsSeen++
			s.mostPins = max(s.mostPins, s.pinsSeen)
		}
	case !j.maps:
		j.maps = true
		s.tell(pmr.MapAsked{PMR: j.pmr})
	default:
		s.tell(pmr.MapOver{PMR: j.pmr})
		s.tell(pmr.ReleaseAsked{PMR: j.pmr})
		s.jobsDone++
		s.jobs[i] = s.newJob()
	}
}

// tell steps the machine and counts who passes whom.
func (s *saturation) tell(ev pmr.Event) []pmr.Effect {
	effects := s.machine.Step(s.now, ev)
	if slices.ContainsFunc(effects, func(e pmr.Effect) bool { _, ok := e.(pmr.OpenGate); return ok }) {
		s.held, s.pinsSeen = true, 0
		for _, j := range s.jobs {
			if j.waits {
				j.passed++
				s.mostGates = max(s.mostGates, j.passed)
			}
		}
	}
	return effects
}
