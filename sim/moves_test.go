package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus/busmem"
)

// kindOfMoves is what happens to the cluster in a run of TestMoves, beside the jobs.
type kindOfMoves string

// The kinds.
const (
	noMoves       kindOfMoves = "no moves"
	randomMoves   kindOfMoves = "random moves"
	growAndDrain  kindOfMoves = "a storage comes, another one is drained"
	killedStorage kindOfMoves = "a storage is gone for longer than the grace"
	killedMovers  kindOfMoves = "random moves, routers killed"
)

var kindsOfMoves = []kindOfMoves{randomMoves, growAndDrain, killedStorage, killedMovers}

// TestMoves runs each seed twice, without moves and with moves: what the jobs give is the same, byte by byte.
func TestMoves(t *testing.T) {
	n := *moves
	if testing.Short() {
		n = min(n, 8)
	}
	all := &tally{reached: map[string]int{}}
	t.Cleanup(func() { all.check(t, n, 400, wantedOfMoves) }) // after the parallel parts
	eachSeed(t, n, func(t *testing.T, seed uint64, dir string) {
		still := runSeed(t, seed, planOf(noMoves), nil, dir)
		all.add(runSeed(t, seed, planOf(kindOfSeed(seed)), still.outputs, dir))
	})
}

func kindOfSeed(seed uint64) kindOfMoves { return kindsOfMoves[seed%uint64(len(kindsOfMoves))] }

// wantedOfMoves is what seeds of TestMoves have to reach.
var wantedOfMoves = []string{
	"move planned", "move ordered by the driver", "takeover planned", "order late", "order doubled", "void claim", "activation late", "slow load", "router killed",
	"storage killed", "source killed", "storage that lost its folder", "storage stopped", "storage cut off", "output compared", "output compared while buckets move",
	"message lost", "message doubled", "message late",
}

// planOf draws a plan. The cluster and its records are the same for all kinds.
func planOf(kind kindOfMoves) func(*rand.Rand) plan {
	return func(rng *rand.Rand) plan {
		p := plan{
			kind: kind, storages: 3, routers: 2, parallel: 1 + rng.IntN(2), buckets: 6 + rng.IntN(7), checkpoints: rng.IntN(3) == 0,
			chaos: time.Duration(12+rng.IntN(8)) * time.Second, jobs: 4 + rng.IntN(5), moves: 6 + rng.IntN(10),
		}
		if rng.IntN(2) == 0 {
			p.loss, p.doubling, p.slowness = chance(rng, 0.02), chance(rng, 0.05), chance(rng, 0.2)
		}
		switch kind {
		case noMoves:
			p.loss, p.doubling, p.slowness = 0, 0, 0
		case growAndDrain:
			p.late, p.moves = 1, p.moves/4
		case killedStorage:
			p.chaos, p.moves = p.chaos+25*time.Second, p.moves/3
		case killedMovers:
			p.trouble = 60 + rng.IntN(140)
		}
		return p
	}
}

// String tells a plan in a few words.
func (p plan) String() string {
	if p.kind == "" {
		return fmt.Sprintf("%d storages", p.storages)
	}
	return string(p.kind)
}

// test is the test that runs such plans.
func (p plan) test() string {
	if p.kind == "" {
		return "TestSeeds$"
	}
	return "TestMoves$"
}

// calm reports whether nothing happens that may make a job fail: moves may not.
func (p plan) calm() bool {
	return p.loss+p.doubling+p.slowness == 0 && (p.kind == noMoves || p.kind == randomMoves || p.kind == growAndDrain)
}

// comesLate reports whether a machine is not started with the others: the last storages.
func (w *world) comesLate(i int) bool {
	return i < w.plan.storages && i >= w.plan.storages-w.plan.late
}

// takeoverGrace is how long a storage may be gone after its member entry has lapsed.
const takeoverGrace = 3 * time.Second

// otherSpace is where records change while buckets move. Those of the default space do not.
const otherSpace = "other"

// batch is a batch of records: the same for each kind of moves, drawn beside what else happens.
func (w *world) batch(space string, i int) (b buckets.ID, frames []byte) {
	rng := rand.New(rand.NewPCG(w.seed, uint64(i)+1))
	b = buckets.ID(rng.IntN(w.settings.Buckets))
	for range 1 + rng.IntN(4) {
		key := fmt.Sprintf("k%d", rng.IntN(60))
		for buckets.Of([]byte(key), w.settings.Buckets) != b {
			key = fmt.Sprintf("k%d", rng.IntN(1000))
		}
		if rng.IntN(5) == 0 {
			frames = buckets.AppendFrame(frames, buckets.FlagDelete, []byte(key), nil)
		} else {
			frames = buckets.AppendFrame(frames, 0, []byte(key), []byte(fmt.Sprintf("%c %c", 'a'+rng.IntN(6), 'a'+rng.IntN(6))))
		}
	}
	return b, frames
}

// fill appends the next of the batches of a space.
func (w *world) fill(space string, n int) {
	for range n {
		b, frames := w.batch(space, w.written)
		w.store(b, map[string]string{api.HeaderSpace: space}, frames)
	}
}

// unrest has jobs come, and records of the other space, while what the kind says happens.
func (w *world) unrest() {
	w.faulty = w.plan.kind != noMoves
	for range 15 {
		w.after(w.between(0, w.plan.chaos), func() { w.fill(otherSpace, 1) })
	}
	for range w.plan.jobs {
		w.after(w.between(0, w.plan.chaos), func() { w.compute(outputs[w.rng.IntN(len(outputs))], api.DefaultSpace) })
	}
	if w.faulty {
		for range w.plan.moves {
			w.after(w.between(0, w.plan.chaos), w.order)
		}
		locked := uint16(w.rng.IntN(w.settings.Buckets))
		w.setTopology(fmt.Sprintf("grace of %v, bucket %d locked", takeoverGrace, locked), func(t *api.Topology) {
			t.TakeoverGraceMS = takeoverGrace.Milliseconds()
			if w.plan.kind == randomMoves || w.plan.kind == killedMovers {
				t.LockedBuckets = []uint16{locked}
			}
		})
	}
	switch w.plan.kind {
	case growAndDrain:
		w.after(w.between(0, w.plan.chaos/2), func() { w.start(w.machines[w.plan.storages-1]) })
		drained := w.machines[w.rng.IntN(w.plan.storages-1)].id
		w.after(w.between(0, w.plan.chaos), func() {
			w.setTopology("drain "+drained, func(t *api.Topology) { t.Weights = map[string]float64{drained: 0} })
		})
	case killedStorage:
		w.after(w.between(0, 8*time.Second), w.loseStorage)
	}
	w.settle(w.plan.chaos, never)
}

// loseStorage has a storage be gone for longer than the grace: dead, stopped or cut off.
func (w *world) loseStorage() {
	m := w.machines[w.rng.IntN(w.plan.storages)]
	p, now := m.process, w.pool.now()
	if !m.up() {
		return
	}
	d := 12*time.Second + takeoverGrace + w.between(3*time.Second, 12*time.Second)
	for range 4 { // rivals of the planner's orders, which come at about the same time
		w.after(10*time.Second+takeoverGrace+w.between(0, 6*time.Second), func() {
			o := api.MoveOrder{Src: m.id, Dst: w.someStorage(), Takeover: true, Reason: "the driver wants it"}
			for _, b := range w.oracle.view().Of(m.id) {
				o.Buckets = append(o.Buckets, uint16(b))
			}
			if o.Dst != m.id && len(o.Buckets) > 0 {
				w.send(o, false)
			}
		})
	}
	switch w.rng.IntN(4) {
	case 0, 1:
		lose := w.rng.IntN(3) == 0
		w.kill(m, lose)
		w.did("storage killed", true)
		w.did("storage that lost its folder", lose)
		w.after(d, func() { w.start(m) })
	case 2:
		p.pausedTill = now + d
		w.tracef("%s is stopped until %v", p.peer, p.pausedTill)
		w.did("storage stopped", true)
	default:
		p.cutTill = now + d
		w.mem.Cut(p.peer)
		w.tracef("%s is cut off until %v", p.peer, p.cutTill)
		w.did("storage cut off", true)
		w.after(d, func() { w.reconnect(p) })
	}
}

// crashSource has the owner of a bucket be killed, and start again, while a claim to the bucket is on its way: in runs in
// which storages die, sometimes.
func (w *world) crashSource(claim *op) {
	if w.plan.kind != killedStorage || w.rng.IntN(2) == 0 {
		return
	}
	var b buckets.ID
	if _, err := fmt.Sscanf(claim.label, "own.%d", &b); err != nil {
		return
	}
	id := w.oracle.view().Owner(b).Storage
	w.after(w.between(1, 500*time.Millisecond), func() {
		for _, m := range w.machines {
			if m.id == id && m.up() {
				lose := w.rng.IntN(3) == 0 // what it owns it must load again, while jobs ask for it
				w.kill(m, lose)
				w.did("source killed", true)
				w.did("storage that lost its folder", lose)
				w.after(w.between(1, 500*time.Millisecond), func() { w.start(m) })
			}
		}
	})
}

// killMover kills a router, which is a mover and perhaps the planner.
func (w *world) killMover(m *machine) {
	if m.store != nil {
		return
	}
	w.kill(m, false)
	w.did("router killed", true)
	w.after(w.between(10*time.Millisecond, 6*time.Second), func() { w.start(m) })
}

// outputs are what jobs compute.
var outputs = []string{"words", "records", "most"}

// compute has a client run a job whose output is compared.
func (w *world) compute(output, space string) {
	j := &job{id: fmt.Sprintf("j%d", len(w.jobs)+1), acked: w.acked(), durable: w.rng.IntN(3) == 0, output: output + " of " + space}
	j.req = api.JobRequest{Job: j.id, Module: "words", Reduce: "sum", Space: space, Proof: true, TimeoutMS: 60_000, WaitMS: clientWaits.Milliseconds()}
	switch output {
	case "records":
		j.req.Module, j.req.Reduce = "", "none"
	case "most":
		j.req.Sort = "-value"
	}
	if w.rng.IntN(2) == 0 {
		j.req.Mode = api.ModeSnapshot
		w.mu.Lock()
		w.snapshots[j.id] = true
		w.mu.Unlock()
	}
	w.launch(j)
}

// keepOutput keeps what a job gave, or compares it with what it gave without moves.
func (w *world) keepOutput(j *job) {
	if j.output == "" {
		return
	}
	body, err := api.Encode(api.Msgpack, j.reply.Rows)
	w.must(err)
	wanted, before := w.wantOutputs, w.outputs[j.output]
	w.outputs[j.output] = string(body)
	switch {
	case before != "" && before != string(body):
		w.oracle.failf("job %s: %s was %q, and is %q", j.id, j.output, before, body)
	case wanted != nil && wanted[j.output] != string(body):
		w.oracle.failf("job %s: %s is %q, and without moves it is %q", j.id, j.output, body, wanted[j.output])
	}
	w.did("output compared", wanted != nil)
	w.did("output compared while buckets move", wanted != nil && w.faulty)
}

// compare waits until all moves are over, and has all outputs computed once more. None is missing.
func (w *world) compare() {
	if !w.settle(5*time.Minute, w.atRest) {
		w.oracle.failf("moves do not end: %s", w.unrestful())
	}
	for _, output := range outputs {
		for _, space := range []string{api.DefaultSpace, otherSpace} {
			w.compute(output, space)
		}
	}
	if !w.settle(2*time.Minute, w.allOver) {
		w.oracle.failf("jobs do not end: %s", w.state())
	}
	for _, j := range w.jobs[len(w.jobs)-2*len(outputs):] {
		if j.err != nil {
			w.oracle.failf("job %s ended with %s after all was over: %s", j.id, j.err.Code, j.err.Message)
		}
	}
}

// unrestful says why the cluster is not at rest.
func (w *world) unrestful() string {
	s := ""
	for name, q := range map[string]*busmem.Queue{"moves": w.driverOrders.moves, "takeovers": w.driverOrders.takeovers} {
		n, err := q.Len(context.Background())
		w.must(err)
		s += fmt.Sprintf("%d orders of %s; ", n, name)
	}
	view := w.oracle.view()
	for _, m := range w.machines {
		if m.store != nil {
			s += fmt.Sprintf("%s owns %s and holds %s; ", m.id, buckets.Ranges(view.Of(m.id)), buckets.Ranges(m.store.joined()))
		}
	}
	return s
}
