package sim

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/bus/busmem"
	"github.com/pinion-mr/pinion/pmr/node"
)

// plan is what a seed fixes before anything runs.
type plan struct {
	kind                       kindOfMoves // of TestMoves
	storages, routers, buckets int
	late                       int           // how many of the storages do not come at once
	parallel                   int           // move orders that are worked on at a time
	checkpoints                bool          // buckets are written to the checkpoint store, and the log is purged
	chaos                      time.Duration // how long faults are made
	jobs, moves, takeovers     int
	loss, doubling, slowness   float64 // of messages: chances
	trouble                    int     // one node in trouble at about so many picks; 0: none
}

func newPlan(rng *rand.Rand) plan {
	return plan{
		storages: 2 + rng.IntN(2), routers: 2, parallel: 1, buckets: 6 + rng.IntN(7), checkpoints: rng.IntN(4) == 0,
		chaos: time.Duration(10+rng.IntN(15)) * time.Second, jobs: 3 + rng.IntN(5), moves: max(0, rng.IntN(16)-3), takeovers: max(0, rng.IntN(6)-2),
		loss: chance(rng, 0.04), doubling: chance(rng, 0.06), slowness: chance(rng, 0.25), trouble: 50 + rng.IntN(200),
	}
}

// chance is none for one seed in four, else up to a most.
func chance(rng *rand.Rand, most float64) float64 {
	if rng.IntN(4) == 0 {
		return 0
	}
	return rng.Float64() * most
}

// world is one run of a seed. Its methods are called by the goroutine of the simulator, but for those that say so.
type world struct {
	seed     uint64
	rng      *rand.Rand
	plan     plan
	settings api.Settings
	dir      string
	logger   *slog.Logger

	mem      *busmem.Cluster
	pool     *pool
	oracle   *oracle
	client   *process
	driver   *process   // of moves
	machines []*machine // by id
	faulty   bool       // faults are made
	due      []action   // by time
	jobs     []*job
	moves    []*move
	written  int // batches of records

	driverLog    log
	driverOrders orders
	topology     *busmem.KV        // as administrators change it
	sent         int               // orders of the driver
	outputs      map[string]string // of jobs, by what they compute
	wantOutputs  map[string]string // those of the run without moves
	underWayTill time.Duration     // when the last late message arrives

	trace   bytes.Buffer
	reached map[string]int // what the run has come to: faults, and ends of jobs
	picks   int
	ties    int // pairs of waiting ops that look the same, seen at picks

	mu        sync.Mutex // of what follows, which nodes and clients use too
	peers     map[string]*process
	aliases   map[string]string // of routers
	requests  map[string]string // labels by tag
	lastAck   uint64
	snapshots map[string]bool // jobs that hold no bucket in place
	orders    map[string]api.MoveOrder
}

// action is something that the simulator does at a time.
type action struct {
	at time.Duration
	do func()
}

func newWorld(seed uint64, draw func(*rand.Rand) plan, dir string, logger *slog.Logger) *world {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := &world{
		seed: seed, rng: rng, plan: draw(rng), dir: dir, logger: logger, mem: busmem.New(busmem.Config{MaxPayload: 1 << 20}), pool: newPool(),
		reached: map[string]int{}, peers: map[string]*process{}, aliases: map[string]string{}, requests: map[string]string{}, snapshots: map[string]bool{},
		orders: map[string]api.MoveOrder{}, outputs: map[string]string{},
	}
	wanted := api.Settings{Buckets: w.plan.buckets}
	if w.plan.checkpoints {
		wanted.CheckpointBytes, wanted.DuplicateMS = 1024, 1000
	}
	var err error
	w.settings, err = node.NewSettings(wanted, 1<<20)
	w.must(err)
	truth := w.mem.Connect("oracle")
	entries, err := truth.CreateLog(context.Background(), bus.LogConfig{DuplicateWindow: time.Duration(w.settings.DuplicateMS) * time.Millisecond})
	w.must(err)
	w.oracle = &oracle{w: w, log: entries, pmrs: map[string]*pin{}, ended: map[string]api.JobRecord{}, table: buckets.NewTable(w.settings.Buckets), owners: newOwners()}
	w.client, w.driver = w.outside("client"), w.outside("driver")
	driverLog, err := w.driver.bus.Log(context.Background())
	w.must(err)
	w.driverLog = log{driverLog, gated{w, w.driver}}
	w.connectDriver(truth)
	w.mem.SetFaults(busmem.Faults{Request: w.onSend, Reply: w.onAnswer, Append: w.onAppend})
	for i := range w.plan.storages {
		m := &machine{id: fmt.Sprintf("s%d", i+1)}
		m.store = newFolder(m)
		w.machines = append(w.machines, m)
	}
	for i := range w.plan.routers {
		w.machines = append(w.machines, &machine{id: fmt.Sprintf("r%d", i+1)})
	}
	return w
}

// outside makes a process that is no node, and to which nothing happens but to its messages.
func (w *world) outside(name string) *process {
	p := &process{id: name, peer: name, bus: w.mem.Connect(name), dead: make(chan struct{})}
	w.peers[name] = p
	return p
}

// must ends the run at a mistake of the simulator itself.
func (w *world) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("the simulator itself failed: %v", err))
	}
}

func (w *world) tracef(format string, args ...any) {
	fmt.Fprintf(&w.trace, "%11.6f ", w.pool.now().Seconds())
	fmt.Fprintf(&w.trace, format, args...)
	w.trace.WriteByte('\n')
}

// did counts what the run has come to.
func (w *world) did(what string, yes bool) {
	if yes {
		w.reached[what]++
	}
}

// after plans an action.
func (w *world) after(d time.Duration, do func()) {
	at := w.pool.now() + d
	i, _ := slices.BinarySearchFunc(w.due, at, func(a action, at time.Duration) int {
		if a.at <= at {
			return -1
		}
		return 1
	})
	w.due = slices.Insert(w.due, i, action{at, do})
}

// between draws a time.
func (w *world) between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.rng.Int64N(int64(to-from)))
}

// settle lets the cluster run until ok or for a time, and reports whether ok.
func (w *world) settle(most time.Duration, ok func() bool) bool {
	end := w.pool.now() + most
	for {
		synctest.Wait()
		w.oracle.follow()
		w.endings()
		w.revive()
		if ok() {
			return true
		}
		now := w.pool.now()
		if len(w.due) > 0 && w.due[0].at <= now {
			do := w.due[0].do
			w.due = w.due[1:]
			do()
			continue
		}
		if w.pick() {
			continue
		}
		if now >= end {
			return false
		}
		w.rest(min(end, w.nextChange()) - now)
	}
}

// rest lets time pass until something is to be picked.
func (w *world) rest(most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-w.pool.news:
	case <-timer.C:
	}
}

// nextChange is when an action is due, or an op that is held can go on.
func (w *world) nextChange() time.Duration {
	next := w.pool.now() + time.Hour
	if len(w.due) > 0 {
		next = w.due[0].at
	}
	held, _ := w.pool.waiting(func(*op) bool { return true })
	for _, o := range held {
		next = min(next, w.heldTill(o))
	}
	return next
}

// The patience of a process that is cut off with writes and reads, as that of package bus.
const (
	writePatience = 15 * time.Second
	readPatience  = 5 * time.Second
)

// heldTill is when an op can go on, of a process that is stopped, slow or cut off.
func (w *world) heldTill(o *op) time.Duration {
	p := o.who
	held := time.Duration(0)
	switch o.kind {
	case opSend, opAnswer: // delayed or lost on their way
		return 0
	case opEntry:
		held = max(p.laggingTill, p.cutTill)
	case opAppend:
		held = min(p.cutTill, o.at+writePatience)
	case opLog, opKV, opObject, opQueue:
		held = min(p.cutTill, o.at+readPatience)
	}
	return max(held, p.pausedTill)
}

// pick lets one op go on, and reports whether there was one.
func (w *world) pick() bool {
	now := w.pool.now()
	ops, ties := w.pool.waiting(func(o *op) bool { return w.heldTill(o) <= now })
	if len(ops) == 0 {
		return false
	}
	w.ties += ties
	w.picks++
	o := ops[w.rng.IntN(len(ops))]
	if w.faulty && w.plan.trouble > 0 && w.rng.IntN(w.plan.trouble) == 0 {
		w.trouble()
		return true // it may have taken the op with it
	}
	v := w.verdict(o)
	w.tracef("%s %s %s%s", o.who.peer, o.kind, o.label, v)
	w.pool.release(o, v)
	return true
}
