package pmr_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	exploreSize   = flag.String("explore", "", "what TestExploreAll searches: all, or large")
	exploreStates = flag.Int("explore.states", 0, "cut each search off at so many states; 0 is each model's own bound")
)

// TestExplore searches small models to their end. make explore searches larger ones.
func TestExplore(t *testing.T) {
	for _, m := range smallModels() {
		t.Run(m.name, func(t *testing.T) {
			if testing.Short() && m.states == 0 {
				m.states = 2000 // the race detector is slow
			}
			exploreOne(t, m)
		})
	}
}

// TestExploreAll is what make explore runs.
func TestExploreAll(t *testing.T) {
	models, ok := map[string][]*model{"all": allModels(), "large": largeModels()}[*exploreSize]
	if !ok {
		t.Skip("run by make explore")
	}
	for _, m := range models {
		t.Run(m.name, func(t *testing.T) { exploreOne(t, m) })
	}
}

func exploreOne(t *testing.T, m *model) {
	begin := time.Now()
	r := explore(m)
	if r.fault != nil {
		t.Fatalf("%v\nafter %v, by\n%s", r.fault, r, r.trace)
	}
	t.Logf("%s: %v in %.0f s", m, r, time.Since(begin).Seconds())
}

// explorer searches a model's worlds breadth first, so that the trace to what it finds is a shortest one.
//
// The machines are the real ones, with all their steps. Around them:
//   - Time stands still: that a deadline passes is an action, possible from the moment when the deadline is set,
//     whatever others there are. So every order in which deadlines can pass is searched, and some in which they
//     cannot. A retry's pause is over whenever its wake is chosen.
//   - Messages are a set: any may overtake any, be lost or be doubled. Whoever waits for an answer that cannot
//     come any more is told so, at any time from then on.
//   - The log is one. A storage applies what is appended at once, or, if the model has it slow, entry by entry and each
//     at any time; a pin waits for that. When a storage notices its fence is when it has applied it; before, the request
//     for it is under way.
//   - A storage that restarts has lost all but its disk, and perhaps that. It sets its fence at once, and applies what it
//     has missed; it has parked nothing of that.
//   - Gates are asked for, never renewed: an expiry is what comes of a renewal that was too late. The same is true of what
//     a destination has received.
//   - A mover sees the log's end as it is when it looks. That its sight comes late is that its next message does.
//   - An order is handed out again when no mover of it runs, and, as often as the model says, when one does.
//
// In models with data a storage holds the records of its buckets, as sets. It loads a bucket in two steps, from the last
// checkpoint and from what the log has after it; a purge may come between. What was purged before it was applied is
// passed over, and noticed when a pin or an activation asks, or some time. Checkpoints are written by all who believe to
// own something, right before a purge. How they are written, and how a position is verified, is the shell's: its tests
// have that.
//
// Two worlds that differ in the positions of the log but not in their order are one, since positions are only
// compared. Left out are storages that lie about their pins, guests that fail, locks, and attempts and deliveries beyond
// the model's bounds (the fair ways have none): scripts and seeds have those.
//
// Of each world a hash of 64 bits is kept. With N worlds one is overlooked with a chance of N*N/2^65.
type explorer struct {
	m     *model
	nodes []node // in the order in which they were found
	seen  seen
	edges int
}

// node tells how a world was reached.
type node struct {
	parent int32
	choice uint16 // of the parent's possible actions
}

// result is what an exploration came to.
type result struct {
	states, edges, depth int
	exhausted            bool
	fault                error
	trace                string
}

func (r result) String() string {
	s := fmt.Sprintf("%d states, %d steps, depth %d", r.states, r.edges, r.depth)
	if !r.exhausted {
		s += ", lower bound, not exhausted"
	}
	return s
}

func explore(m *model) result {
	defer debug.SetGCPercent(debug.SetGCPercent(300)) // most of what is made is thrown away at once
	e := &explorer{m: m}
	limit := cmp.Or(*exploreStates, m.states, math.MaxInt32)
	root := newWorld(m)
	e.seen.add((&hasher{}).hash(root), reached)
	e.nodes = append(e.nodes, node{parent: -1})
	for depth, layer := 0, []*world{root}; ; depth++ {
		next, f := e.layer(layer, limit)
		r := result{states: len(e.nodes), edges: e.edges, depth: depth, exhausted: len(next) == 0 && len(e.nodes) < limit}
		if f != nil {
			r.fault, r.trace = f.error, e.trace(f)
			return r
		}
		if len(next) == 0 || len(e.nodes) >= limit {
			return r
		}
		layer = next
	}
}

// found is an invariant that does not hold: after a last action, or on a world's fair way to the end.
type found struct {
	error
	at   int32
	last string
	fair []string
}

// child is a world that one step leads to.
type child struct {
	*world
	hash uint64
	from node
}

// layer takes every possible step from the worlds of one depth, whose nodes are the last ones. Workers take
// parts of them; what they find is put together in the order of the worlds, so that each run is the same.
func (e *explorer) layer(worlds []*world, limit int) (next []*world, _ *found) {
	const part = 64
	first := len(e.nodes) - len(worlds)
	for len(worlds) > 0 && len(e.nodes) < limit {
		parts := make([]expansion, runtime.GOMAXPROCS(0))
		var work sync.WaitGroup
		for i := range parts {
			n := min(part, len(worlds))
			mine, at := worlds[:n], int32(first)
			worlds, first = worlds[n:], first+n
			work.Go(func() { parts[i] = e.expand(mine, at) })
		}
		work.Wait()
		for _, p := range parts {
			if p.found != nil {
				return nil, p.found
			}
			e.edges += p.edges
			for _, c := range p.children {
				if len(e.nodes) < limit && e.seen.add(c.hash, reached) {
					e.nodes = append(e.nodes, c.from)
					next = append(next, c.world)
				}
			}
		}
	}
	return next, nil
}

// expansion is what comes of some worlds: children that were not seen before this layer.
type expansion struct {
	children []child
	edges    int
	found    *found
}

func (e *explorer) expand(worlds []*world, first int32) (x expansion) {
	h := &hasher{}
	for i, w := range worlds {
		at := first + int32(i)
		worlds[i] = nil
		if x.found = e.settle(h, w, at); x.found != nil {
			return x
		}
		for choice, a := range w.possible() {
			n, err := w.after(a)
			if err != nil {
				x.found = &found{error: err, at: at, last: w.show(a)}
				return x
			}
			x.edges++
			if hash := h.hash(n); !e.seen.has(hash, reached) {
				x.children = append(x.children, child{n, hash, node{at, uint16(choice)}})
			}
		}
	}
	return x
}

// longest is how many steps a fair way to the end may take.
const longest = 600

// settle is the second half of invariant D: from every world, once nothing goes wrong any more and everybody
// gets to act, every job ends well, every order comes to its aim unless another one is in its way, and on every storage
// is what it owns, whole, and nothing else. That is: two fixed
// fair orders, one the reverse of the other, come to such an end within so many steps. What somebody still holds
// does not expire on the way, so nobody's progress rests on that. Fairness in general, over all orders, is not
// searched for cycles.
//
// A way that runs into that of another world need not be gone to its end again.
func (e *explorer) settle(h *hasher, w *world, at int32) *found {
	for _, order := range []mark{forward, backward} {
		var way []uint64
		for n := w; n != nil; {
			hash := h.hash(n)
			if e.seen.has(hash, order) {
				break
			}
			way = append(way, hash)
			next, _, err := n.fair(order, false)
			if err == nil && len(way) > longest {
				err = violation("D: no end in sight")
			}
			if err != nil {
				return &found{error: err, at: at, fair: fairTrace(w, order)}
			}
			n = next
		}
		for _, hash := range way {
			e.seen.add(hash, order)
		}
	}
	return nil
}

// fairTrace tells a fair way, as far as it need be told.
func fairTrace(w *world, order mark) (lines []string) {
	for n := w; n != nil && len(lines) < 80; {
		next, line, err := n.fair(order, true)
		lines = append(lines, line)
		if err != nil {
			break
		}
		n = next
	}
	return lines
}

// trace tells how to come to what was found.
func (e *explorer) trace(f *found) string {
	var choices []uint16
	for at := f.at; e.nodes[at].parent >= 0; at = e.nodes[at].parent {
		choices = append(choices, e.nodes[at].choice)
	}
	w, lines := newWorld(e.m), []string(nil)
	for i := len(choices) - 1; i >= 0; i-- {
		a := w.possible()[choices[i]]
		lines = append(lines, w.show(a))
		w, _ = w.after(a)
	}
	if f.last != "" {
		lines = append(lines, f.last)
	}
	if f.fair != nil {
		lines = append(append(lines, "from here on nothing goes wrong any more:"), f.fair...)
	}
	return strings.Join(lines, "\n")
}

// mark says what was done with a world.
type mark uint8

const (
	reached  mark = 1 << iota
	forward       // its fair way was gone
	backward      // and the other one
)

// seen is the set of hashes with their marks.
type seen struct {
	shards [64]struct {
		sync.Mutex
		marks map[uint64]mark
	}
}

func (s *seen) has(hash uint64, m mark) bool {
	shard := &s.shards[hash%64]
	shard.Lock()
	defer shard.Unlock()
	return shard.marks[hash]&m != 0
}

// add reports whether the mark is new.
func (s *seen) add(hash uint64, m mark) bool {
	shard := &s.shards[hash%64]
	shard.Lock()
	defer shard.Unlock()
	if shard.marks == nil {
		shard.marks = map[uint64]mark{}
	}
	old := shard.marks[hash]
	shard.marks[hash] = old | m
	return old&m == 0
}

// String tells the bounds, but those that are zero.
func (m *model) String() string {
	s := fmt.Sprintf("%d storages, %d buckets, %d jobs of up to %d attempts", m.storages, m.buckets, m.jobs, m.attempts)
	if len(m.orders) > 0 {
		s += fmt.Sprintf(", %d orders of up to %d deliveries", len(m.orders), max(m.deliveries, 1))
	}
	for _, bound := range []struct {
		n    int
		what string
	}{
		{m.losses, "lost"},
		{m.doubles, "doubled"},
		{m.rivals, "rival movers"},
		{m.crashes, "crashes"},
		{m.expiries, "expiries"},
		{m.deadlines, "deadlines"},
		{m.lapses, "taken for dead"},
		{m.writes, "writes"},
		{m.purges, "purges"},
		{len(m.slow), "slow storages"},
		{boolBit(m.late), "impatient movers"},
	} {
		if bound.n > 0 {
			s += fmt.Sprintf(", %d %s", bound.n, bound.what)
		}
	}
	return s
}
