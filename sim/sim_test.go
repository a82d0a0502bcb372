package sim

import (
	"bytes"
	"flag"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pinion-mr/pinion/api"
)

var (
	firstSeed = flag.Uint64("sim.seed", 1, "first seed of TestSeeds")
	seeds     = flag.Int("sim.seeds", 60, "how many seeds TestSeeds runs")
	moves     = flag.Int("sim.moves", 40, "how many seeds TestMoves runs")
	trace     = flag.Bool("sim.trace", false, "print all that happens, and the logs of the nodes")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a run makes much garbage, and keeps little
	goleak.VerifyTestMain(m)
}

// TestSeeds runs seeds, on all processors. Enough of them must reach all that is to be tested.
func TestSeeds(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 10)
	}
	all := &tally{reached: map[string]int{}}
	t.Cleanup(func() { all.check(t, n, 1000, wanted) }) // after the parallel parts
	eachSeed(t, n, func(t *testing.T, seed uint64, dir string) { all.add(runSeed(t, seed, newPlan, nil, dir)) })
}

// eachSeed calls run for n seeds, on all processors, until one fails.
func eachSeed(t *testing.T, n int, run func(t *testing.T, seed uint64, dir string)) {
	for part := range runtime.GOMAXPROCS(0) {
		t.Run("part", func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for i := part; i < n && !t.Failed(); i += runtime.GOMAXPROCS(0) {
				run(t, *firstSeed+uint64(i), dir)
			}
		})
	}
}

// tally sums up what runs have come to.
type tally struct {
	mu          sync.Mutex
	picks, ties int
	reached     map[string]int // in how many runs
}

func (a *tally) add(w *world) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.picks, a.ties = a.picks+w.picks, a.ties+w.ties
	for what := range w.reached {
		a.reached[what]++
	}
}

// wanted is what seeds have to reach: kinds of faults, and ends of jobs.
var wanted = []string{
	"crash", "crash with the folder lost", "shutdown", "node that gave up", "pause", "cut off", "lag", "lie",
	"message lost", "message doubled", "message late", "entry stored in doubt", "entry lost in doubt", "entry late",
	"server without an answer", "slow guest", "guest hangs", "guest fails",
	"move", "activation late", "void claim", "takeover",
	"done", "done after a void attempt", "durable job done", "durable job done after a take that failed", "snapshot job done", "part of a space done",
	endedWith(api.CodeTimeout), endedWith(api.CodeCanceled), endedWith(api.CodeGuestFailed), endedWith(api.CodeUnavailable), endedWith(api.CodeLost),
}

func endedWith(code api.Code) string { return "ended with " + string(code) }

// check prints what n seeds have reached. From least seeds on that must be all that is wanted.
func (a *tally) check(t *testing.T, n, least int, wanted []string) {
	t.Logf("%d seeds from %d, %d picks, %d of them between things that look the same", n, *firstSeed, a.picks, a.ties)
	for _, what := range slices.Sorted(maps.Keys(a.reached)) {
		t.Logf("%6d seeds: %s", a.reached[what], what)
	}
	for _, what := range wanted {
		if n >= least && a.reached[what] < 3 && !t.Failed() {
			t.Errorf("%d seeds reached %q: the simulator must be made to reach it", a.reached[what], what)
		}
	}
}

// TestReplay: the same seed gives the same trace, byte by byte.
func TestReplay(t *testing.T) {
	n := 8
	if testing.Short() {
		n = 2
	}
	dir := t.TempDir()
	for seed := *firstSeed; seed < *firstSeed+uint64(n); seed++ {
		checkReplay(t, seed, newPlan, dir)
		checkReplay(t, seed, planOf(kindOfSeed(seed)), dir)
	}
}

func checkReplay(t *testing.T, seed uint64, draw func(*rand.Rand) plan, dir string) {
	first, second := runSeed(t, seed, draw, nil, dir), runSeed(t, seed, draw, nil, dir)
	if a, b := first.trace.Bytes(), second.trace.Bytes(); !bytes.Equal(a, b) {
		t.Fatalf("seed %d, %s, gave first\n%s\nand then\n%s", seed, first.plan, around(a, b), around(b, a))
	}
}

// around is the part of a trace where it begins to differ from another one.
func around(a, b []byte) []byte {
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	return a[max(0, at-1000):min(len(a), at+200)]
}

// runSeed runs a seed and reports what was wrong, which is also any output that is not the one wanted.
func runSeed(t *testing.T, seed uint64, draw func(*rand.Rand) plan, outputs map[string]string, dir string) *world {
	var w *world
	synctest.Test(t, func(t *testing.T) {
		logger := quiet
		if *trace {
			logger = slog.New(slog.NewTextHandler(t.Output(), nil))
		}
		w = newWorld(seed, draw, dir, logger)
		w.wantOutputs = outputs
		w.live()
	})
	if *trace {
		t.Logf("seed %d:\n%s", seed, w.trace.String())
	}
	if wrong := w.oracle.report(); len(wrong) > 0 {
		t.Errorf("seed %d, %s:\n%s\nall that happened: go test ./sim -run '%s' -sim.seed=%d -sim.seeds=1 -sim.moves=1 -sim.trace", seed, w.plan, strings.Join(wrong, "\n"), w.plan.test(), seed)
	}
	return w
}

// live is a run from the first node to the last.
func (w *world) live() {
	w.begin()
	if w.plan.kind == "" {
		w.harm()
	} else {
		w.unrest()
	}
	w.heal()
	w.end()
}

// begin starts all nodes, one after another, and waits until they serve.
func (w *world) begin() {
	for i, m := range w.machines {
		if w.comesLate(i) {
			continue
		}
		w.start(m)
		w.settle(w.between(1, time.Millisecond), never)
	}
	if !w.settle(time.Minute, w.served) {
		w.oracle.failf("the cluster does not come up")
	}
	if w.plan.kind != "" {
		w.fill(api.DefaultSpace, 20)
		return
	}
	for range 5 + w.rng.IntN(10) {
		w.write()
	}
}

func never() bool { return false }

// served reports whether every bucket has an owner.
func (w *world) served() bool {
	return len(w.oracle.view().Of("")) == 0
}

// harm has jobs come and records change while faults are made.
func (w *world) harm() {
	w.faulty = true
	for range w.plan.jobs {
		w.after(w.between(0, w.plan.chaos), func() { w.submit(w.between(6*time.Second, 25*time.Second)) })
	}
	for range 10 + w.rng.IntN(20) {
		w.after(w.between(0, w.plan.chaos), w.write)
	}
	for range 3 {
		w.after(w.between(0, w.plan.chaos), w.put)
	}
	for range w.plan.moves {
		w.after(w.between(0, w.plan.chaos), w.relocate)
	}
	for range w.plan.takeovers {
		w.after(w.between(0, w.plan.chaos), w.takeOver)
	}
	w.settle(w.plan.chaos, never)
}

// heal ends all faults. Every job must end then, nothing may be left pinned, and a last job must be right.
func (w *world) heal() {
	w.faulty = false
	w.tracef("all is healed")
	for _, m := range w.machines {
		if m.process == nil {
			continue
		}
		m.process.pausedTill, m.process.laggingTill = 0, 0
		w.reconnect(m.process)
	}
	if !w.settle(2*time.Minute, func() bool { return w.allOver() && w.allUp() }) {
		w.oracle.failf("some jobs have not ended, or nodes not started: %s", w.state())
	}
	if w.plan.kind != "" {
		w.compare()
	}
	last := len(w.jobs)
	w.settle(max(0, w.underWayTill-w.pool.now())+12*time.Second, never) // longer than a pin or a gate lives, or a router is silent
	for _, m := range w.machines {
		w.oracle.leftovers(m)
	}
	w.submit(20 * time.Second)
	if !w.settle(40*time.Second, w.allOver) || w.jobs[last].err != nil {
		w.oracle.failf("the last job did not get done: %s, %v", w.state(), w.jobs[last].err)
	}
}

func (w *world) allOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(w.jobs, func(j *job) bool { return !j.told }) && !slices.ContainsFunc(w.moves, func(m *move) bool { return !m.over })
}

func (w *world) allUp() bool {
	return len(w.due) == 0 && !slices.ContainsFunc(w.machines, func(m *machine) bool { return !m.up() })
}

func (w *world) state() string {
	s := ""
	for _, j := range w.jobs {
		if !j.told {
			s += j.id + " runs; "
		}
	}
	for _, m := range w.machines {
		if !m.up() {
			s += m.id + " is down; "
		}
	}
	return s
}

// end shuts all nodes down. Nothing may be left open.
func (w *world) end() {
	for _, m := range w.machines {
		if m.process != nil && !m.process.killed {
			m.process.killed = true
			m.process.stop()
		}
	}
	ended := func() bool {
		for _, p := range w.peers {
			if p.ended != nil && !p.hasEnded() {
				return false
			}
		}
		return true
	}
	if !w.settle(time.Minute, ended) {
		w.oracle.failf("a node does not end")
	}
	w.client.bus.Close()
	w.driver.bus.Close()
	w.settle(40*time.Second, never) // what was sent and not answered gives up
	for _, p := range w.peers {
		p.mu.Lock()
		if p.open != 0 {
			w.oracle.failf("%s: %d guests or programs are still open", p.peer, p.open)
		}
		p.mu.Unlock()
	}
	for _, m := range w.machines {
		if m.store != nil {
			if err := m.store.mem.Close(); err != nil {
				w.oracle.failf("%s: %v", m.id, err)
			}
		}
	}
}
