package pmr_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr"
)

var (
	firstSeed = flag.Uint64("sim.seed", 1, "first seed of TestClusterSeeds")
	seeds     = flag.Int("sim.seeds", 400, "how many seeds TestClusterSeeds runs")
)

// TestClusterChaos lets rapid choose what happens next, so that a failure comes back as a short trace.
func TestClusterChaos(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		index := rapid.IntRange(0, 999)
		s := newSimulation(rapid.Uint64().Draw(rt, "seed"), func(n int) int { return index.Draw(rt, "choice") % n }, func(trace string) { rt.Fatal(trace) })
		s.run(rapid.IntRange(0, 200).Draw(rt, "steps"))
	})
}

// TestClusterSeeds runs the same from numbered seeds, and checks that they reach what they are to test.
// A failure names its seed: go test -run TestClusterSeeds -sim.seed=N -sim.seeds=1.
func TestClusterSeeds(t *testing.T) {
	reached := map[string]int{}
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := newSimulation(seed, rng.IntN, func(trace string) { t.Fatalf("seed %d: %s", seed, trace) })
		s.run(150)
		s.count(reached)
	}
	t.Logf("seeds %d to %d reached %v", *firstSeed, *firstSeed+uint64(*seeds)-1, reached)
	if *seeds < 400 {
		return
	}
	for _, what := range []string{
		"done", "done after a void attempt", "done despite a crash", "done despite a lie", "router died", "PMR never mapped", "map stopped", "map killed",
		string(api.CodeTimeout), string(api.CodeCanceled), string(api.CodeGuestFailed), string(api.CodePMRExpired), string(api.CodeCoverage),
		string(api.CodeLost), string(api.CodeNoCut),
	} {
		if reached[what] < 3 {
			t.Errorf("%d runs reached %q; the simulation must be made to reach it", reached[what], what)
		}
	}
}

// TestClusterReplay: the same seed gives the same trace, byte by byte.
func TestClusterReplay(t *testing.T) {
	trace := func() string {
		s := newSimulation(7, rand.New(rand.NewPCG(7, 0)).IntN, func(trace string) { t.Fatal(trace) })
		s.run(150)
		return s.c.trace.String()
	}
	if first, second := trace(), trace(); first != second {
		t.Errorf("seed 7 gave\n%s\nand then\n%s", first, second)
	}
}

// simulation is a cluster to which choose lets things happen.
type simulation struct {
	c             *cluster
	times         pmr.StorageConfig
	choose        func(n int) int
	fail          func(string)
	failed        map[api.Code]int // why attempts were given up
	crashes, lies int
	routerDied    bool
}

func newSimulation(seed uint64, choose func(int) int, fail func(trace string)) *simulation {
	s := &simulation{
		times:  pmr.StorageConfig{Silence: 10 * time.Second, Retention: 15 * time.Second},
		choose: choose, failed: map[api.Code]int{},
	}
	s.fail = func(fault string) { fail(fault + "\n" + s.c.trace.String()) }
	s.c = newCluster(pmr.RouterConfig{Job: "j1", Deadline: time.Minute, Attempts: 3, PinTTL: 5 * time.Second, Seed: seed},
		s.times, 6, map[string][]uint16{"s1": {0, 1}, "s2": {2, 3}, "s3": {4, 5}}, s.fail)
	return s
}

// run begins a job, does harm for so many steps, heals, and demands that everything ends.
func (s *simulation) run(steps int) {
	s.c.event(pmr.Started{})
	for range steps {
		s.step()
		s.watch()
	}
	s.heal()
}

func (s *simulation) watch() {
	if s.c.router != nil {
		if e := s.c.router.LastFailure(); e != nil {
			s.failed[e.Code]++
		}
	}
}

// step does one thing, mostly a useful one.
func (s *simulation) step() {
	c := s.c
	switch p := s.choose(1000); {
	case p < 520:
		s.message(c.deliver)
	case p < 560:
		s.message(c.lose)
	case p < 600:
		s.message(c.send)
	case p < 700:
		s.guest()
	case p < 800:
		c.pass(c.now + time.Duration(1+s.choose(100))*time.Millisecond)
	case p < 820:
		c.pass(c.now + time.Duration(1+s.choose(6))*time.Second)
	case p < 880:
		c.tick(s.anyStorage())
	case p < 940:
		c.beat(s.anyStorage())
	case p < 990:
		s.harm()
	case p < 991:
		c.event(pmr.Canceled{Err: api.Errorf(api.CodeCanceled, "canceled")})
	case p < 992:
		c.router, s.routerDied = nil, true
	}
}

// harm restarts a storage, makes one lie about its next pin, or moves a bucket.
func (s *simulation) harm() {
	st, c := s.anyStorage(), s.c
	switch p := s.choose(10); {
	case !st.alive:
		c.start(st, s.times)
	case p < 3:
		c.tracef("%-6s is killed", st.id)
		c.kill(st.id)
		s.crashes++
	case p < 6:
		s.lies++
		kind := s.choose(4)
		st.lie = func(pins []api.BucketPin) []api.BucketPin { return falsified(kind, pins) }
	case p < 8:
		c.log++
		c.own(uint16(s.choose(c.table.View().Len())), st.id)
	}
}

// falsified is a pin that a faulty storage holds: a bucket doubled, lost, lost with another one doubled, or
// of another generation.
func falsified(kind int, pins []api.BucketPin) []api.BucketPin {
	if len(pins) < 2 {
		return pins
	}
	pins = slices.Clone(pins)
	switch kind {
	case 0:
		return append(pins, pins[0])
	case 1:
		return pins[1:]
	case 2:
		pins[1] = pins[0]
	default:
		pins[0].Generation++
	}
	return pins
}

func (s *simulation) message(do func(*message)) {
	if n := len(s.c.queue); n > 0 {
		do(s.c.queue[s.choose(n)])
	}
}

func (s *simulation) anyStorage() *storage {
	return s.c.storages[s.c.ids()[s.choose(len(s.c.storages))]]
}

func (s *simulation) runningGuests() []string {
	var ids []string
	for _, st := range s.c.storages {
		for id := range st.guests {
			if st.alive {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

func (s *simulation) guest() {
	if ids := s.runningGuests(); len(ids) > 0 {
		var err *api.Error
		if s.choose(60) == 0 {
			err = api.Errorf(api.CodeGuestFailed, "unreachable")
		}
		s.c.guest(ids[s.choose(len(ids))], err)
	}
}

// heal brings everybody back, loses nothing any more and lets enough time go by. Then the job and every PMR
// must have ended, and no storage may remember one.
func (s *simulation) heal() {
	c := s.c
	for _, id := range c.ids() {
		c.storages[id].lie = nil
		if !c.storages[id].alive {
			c.start(c.storages[id], s.times)
		}
	}
	for end := c.now + c.cfg.Deadline + s.times.Silence + s.times.Retention; c.now < end; c.pass(c.now + 500*time.Millisecond) {
		for len(c.queue) > 0 {
			c.deliver(c.queue[0])
			s.watch()
		}
		for _, id := range s.runningGuests() {
			c.guest(id, nil)
		}
		for _, id := range c.ids() {
			c.beat(c.storages[id])
			c.tick(c.storages[id])
		}
	}
	if !c.oracle.finished && !s.routerDied {
		s.fail("the job has not ended")
	}
	for id, p := range c.oracle.pmrs {
		if !p.ended {
			s.fail(fmt.Sprintf("%s was never dropped", id))
		}
	}
	for _, id := range c.ids() {
		if list := c.storages[id].machine.PMRs(); len(list) > 0 {
			s.fail(fmt.Sprintf("%s still holds %v", id, list))
		}
	}
}

// count adds what this run has reached.
func (s *simulation) count(reached map[string]int) {
	o := s.c.oracle
	mark := func(what string, yes bool) {
		if yes {
			reached[what]++
		}
	}
	done := o.finished && o.result.Err == nil
	mark("done", done)
	mark("done after a void attempt", done && o.result.Proof.Attempts > 1)
	mark("done despite a crash", done && s.crashes > 0)
	mark("done despite a lie", done && s.failed[api.CodeCoverage] > 0)
	mark("router died", s.routerDied)
	if o.finished && o.result.Err != nil {
		s.failed[o.result.Err.Code]++
	}
	for code := range s.failed {
		reached[string(code)]++
	}
	mark("map stopped", strings.Contains(s.c.trace.String(), "StopMap"))
	for _, p := range o.pmrs {
		mark("PMR never mapped", !p.started)
		mark("map killed", p.started && !p.over)
	}
}
