package pmr_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// always is the time of every step of a storage in the explorer, where time stands still: a deadline passes
// when an action says so.
const always = time.Hour

// model is what an exploration is bounded by.
type model struct {
	name     string
	storages int // 2 if it is 0
	buckets  int // in order and in equal parts the storages'
	free     int // so many of the last buckets have no owner at first
	jobs     int
	wanted   int  // so many of the first buckets by each job; 0 is all
	snapshot bool // the last job is one of mode snapshot
	orders   []order
	attempts int // of each job

	deliveries int   // of each order, one after the other; 1 if it is 0
	losses     int   // of messages, in all
	doubles    int   // of messages, in all
	rivals     int   // deliveries while an order's mover still runs, or after it was done, in all
	crashes    int   // of storages, routers and movers, in all
	expiries   int   // of pins, output, gates, tickets, what was received and routers' voices, in all
	deadlines  int   // of jobs, in all; a cancel is the same
	lapses     int   // storages that are taken for dead, in all; takeovers are ordered from then on
	late       bool  // a mover may lose patience at any time, whatever it has asked for
	slow       []int // storages that apply the log each at its own pace; the others apply what is appended at once
	gone       bool  // no storage but the source of a takeover crashes, and it stays away

	data   bool // storages load, hold and forget what is in buckets; else they always have what they need
	writes int  // of records of the first order's bucket, in all
	purges int  // of the log, in all

	quotas pmr.Quotas
	states int // where the search is cut off; 0 is nowhere
}

// order is one of the queue: buckets to another storage.
type order struct {
	buckets  []uint16
	from, to int  // from nobody is a first assignment
	takeover bool // from is taken for dead
	after    bool // it is ordered once the one before it is over
}

// nobody owns a bucket that was not assigned yet.
const nobody = -1

// owner is who owns a bucket at first.
func (m *model) owner(bucket int) int {
	if bucket >= m.buckets-m.free {
		return nobody
	}
	return bucket * m.storages / (m.buckets - m.free)
}

// wants are the buckets that each job names.
func (m *model) wants() (list []buckets.ID) {
	for b := range m.wanted {
		list = append(list, buckets.ID(b))
	}
	return list
}

// code names a PMR: storage, job, attempt and how often this pin was asked for before.
type code uint32

func codeOf(storage, job, attempt, copies int) code {
	return code(storage<<24 | job<<16 | attempt<<8 | copies)
}

func (c code) storage() int { return int(c >> 24) }
func (c code) job() int     { return int(c >> 16 & 0xff) }
func (c code) attempt() int { return int(c >> 8 & 0xff) }

// String is the id that the machines see.
func (c code) String() string { return string(binary.BigEndian.AppendUint32(nil, uint32(c))) }

func parseCode(id string) code {
	if id == "" {
		return 0
	}
	return code(binary.BigEndian.Uint32([]byte(id)))
}

// show is how a trace names it.
func (c code) show() string {
	s := fmt.Sprintf("s%d.j%d.%d", c.storage()+1, c.job()+1, c.attempt())
	for range c & 0xff {
		s += "+"
	}
	return s
}

// world is one state of the whole. What it points to never changes; an action copies what it changes.
type world struct {
	m         *model
	log       []*entry // at positions 1, 2, ...
	purged    uint64   // up to here; the log begins after it
	manifests []manifest
	storages  []*host
	jobs      []*client
	orders    []queued
	movers    []*mover  // by order and delivery
	msgs      []msg     // sorted
	truth     []*minted // by code

	lost, doubled, rivalled, crashed, expired, deadlined, lapsed, written, purges int
}

// host is a storage.
type host struct {
	machine  *pmr.Storage // nil while it is dead
	at       uint64       // it has applied the log up to here
	fence    uint64       // its own last one that it has applied
	parked   []parkedCut  // for pins that are under way
	copies   []holding    // by bucket; none if the model has no data
	jumped   bool         // it has passed over what was purged, and does not know
	presumed bool         // it is taken for dead
	words    words
}

// client is a router with its one job.
type client struct {
	machine *pmr.Router // nil once it has died
	words   words
}

// minted is what became of a PMR. It is kept for as long as anything speaks of it.
type minted struct {
	code     code
	cut      uint64
	view     *buckets.View
	snapshot bool
	gone     bool // dropped, or died with its storage
	late     bool // its time as a pin is over
	guest    guest
}

type guest int

const (
	unstarted guest = iota
	running
	ended
)

// msg is under way. In those of moves, job is the order and attempt the delivery.
type msg struct {
	kind                  kind
	job, storage, attempt int
	pmr                   code
	set                   int       // which of the order's buckets; of an answer whether it is good
	pos                   [4]uint64 // of a pin cut and age, of a grant the fence, of an activation both fences and the generations
}

type kind int

const (
	pinRequest kind = iota
	pinAnswer
	pinFailure // also that there is no answer
	mapRequest
	mapFailure
	mapEnd
	release
	fence
	receiveRequest
	gateRequest
	gateAnswer
	ungate
	activation
	ownership // an entry that is being appended, and those of the same activation after it
	activationAnswer
)

var kindNames = [...]string{"pin", "pinned", "no-pin", "map", "no-map", "ended", "release", "fence", "receive", "gate", "granted", "ungate", "activate", "own", "activated"}

func (a msg) compare(b msg) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.job, b.job), cmp.Compare(a.storage, b.storage),
		cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.pmr, b.pmr), cmp.Compare(a.set, b.set), slices.Compare(a.pos[:], b.pos[:]))
}

func (a msg) show() string {
	s := fmt.Sprintf("%s s%d", kindNames[a.kind], a.storage+1)
	switch {
	case a.kind == fence:
		return s
	case a.kind >= receiveRequest:
		s += " " + showDelivery(a.job, a.attempt)
	default:
		s += fmt.Sprintf(" j%d attempt %d", a.job+1, a.attempt)
	}
	if a.pmr != 0 {
		s += " " + a.pmr.show()
	}
	if a.kind == activation || a.kind == ownership {
		s += fmt.Sprintf(" fences %d and %d, prev %d", a.pos[0], a.pos[1], a.pos[2])
	}
	return s
}

const (
	storageNames = "s1s2s3"
	jobNames     = "j1j2j3"
	routerNames  = "r1r2r3"
)

func storageID(s int) string { return storageNames[2*s : 2*s+2] }
func jobID(j int) string     { return jobNames[2*j : 2*j+2] }
func routerID(j int) string  { return routerNames[2*j : 2*j+2] }

// number is what the ids above are of.
func number(id string) int { return int(id[1] - '1') }

// newWorld is the state before the first job has begun.
func newWorld(m *model) *world {
	m.storages = max(m.storages, 2)
	w := &world{m: m, manifests: make([]manifest, m.buckets), orders: make([]queued, len(m.orders))}
	for b := range m.buckets {
		if s := m.owner(b); s != nobody {
			w.append(buckets.Own{Bucket: buckets.ID(b), Owner: storageID(s)})
		}
	}
	for s := range m.storages {
		w.append(buckets.Fence{Storage: storageID(s)})
	}
	for s := range m.storages {
		h := &host{machine: w.newStorage(), at: w.end(), fence: w.table().Fence(storageID(s))}
		for b := 0; m.data && b < m.buckets; b++ {
			h.copies = append(h.copies, holding{joined: m.owner(b) == s})
		}
		w.storages = append(w.storages, h)
	}
	for j := range m.jobs {
		w.jobs = append(w.jobs, &client{machine: pmr.NewRouter(pmr.RouterConfig{
			Job: jobID(j), Deadline: always, Attempts: 1 << 30, PinTTL: 5 * time.Second, Seed: uint64(j),
			Snapshot: m.snapshot && j == m.jobs-1, Wanted: m.wants(),
		})})
	}
	w.tidy()
	return w
}

func (w *world) newStorage() *pmr.Storage {
	return pmr.NewStorage(pmr.StorageConfig{Silence: time.Minute, Retention: time.Minute, Ticket: time.Minute, Quotas: w.m.quotas})
}

// copy returns a world that an action may change.
func (w *world) copy() *world {
	c := *w
	c.storages, c.jobs, c.orders, c.movers = slices.Clone(w.storages), slices.Clone(w.jobs), slices.Clone(w.orders), slices.Clone(w.movers)
	c.msgs, c.truth, c.manifests = slices.Clone(w.msgs), slices.Clone(w.truth), slices.Clone(w.manifests)
	return &c
}

// change returns a storage that an action may change, but for its machine.
func (w *world) change(s int) *host {
	h := *w.storages[s]
	h.parked, h.copies, h.words = slices.Clone(h.parked), slices.Clone(h.copies), words{}
	w.storages[s] = &h
	return &h
}

// alive reports whether a storage runs.
func (w *world) alive(s int) bool { return w.storages[s].machine != nil }

func (w *world) find(c code) *minted {
	if i, ok := w.index(c); ok {
		return w.truth[i]
	}
	return nil
}

func (w *world) index(c code) (int, bool) {
	return slices.BinarySearchFunc(w.truth, c, func(t *minted, c code) int { return cmp.Compare(t.code, c) })
}

// note changes what is known of a PMR.
func (w *world) note(c code, change func(*minted)) {
	i, _ := w.index(c)
	t := *w.truth[i]
	change(&t)
	w.truth[i] = &t
}

func (w *world) send(m msg) { w.msgs = append(w.msgs, m) }

// tidy forgets what can no longer make a difference, so that states that are the same look the same.
func (w *world) tidy() {
	w.msgs = slices.DeleteFunc(w.msgs, w.futile)
	slices.SortFunc(w.msgs, msg.compare)
	w.truth = slices.DeleteFunc(w.truth, func(t *minted) bool {
		return t.gone && !slices.ContainsFunc(w.msgs, func(m msg) bool { return m.pmr == t.code }) && !w.holds(t.code)
	})
	for s := range w.storages {
		futile := func(p parkedCut) bool { return !w.pinsAt(s, p.cut) }
		if slices.ContainsFunc(w.storages[s].parked, futile) {
			h := w.change(s)
			h.parked = slices.DeleteFunc(h.parked, futile)
		}
		w.storages[s].write()
	}
	for _, c := range w.jobs {
		c.write()
	}
}

// pinsAt reports whether a pin at a cut is on its way to a storage.
func (w *world) pinsAt(s int, cut uint64) bool {
	for _, m := range w.msgs {
		if m.kind == pinRequest && m.storage == s && m.pos[0] == cut {
			return true
		}
	}
	return false
}

// holds reports whether a job's present attempt uses a PMR.
func (w *world) holds(c code) bool {
	r := w.jobs[c.job()].machine
	return r != nil && r.Phase() != pmr.Finished && r.PinOf(storageID(c.storage())) == c.String()
}

// futile reports that nobody will ever do anything on a message.
func (w *world) futile(m msg) bool {
	if m.kind >= fence {
		return w.futileOfMove(m)
	}
	r, storage := w.jobs[m.job].machine, storageID(m.storage)
	there := m.pmr != 0 && w.find(m.pmr) != nil && !w.find(m.pmr).gone
	switch m.kind {
	case pinAnswer:
		return r == nil || !there && !r.WaitsFor(storage, pmr.Pinning, m.attempt) || r.PinOf(storage) == m.pmr.String()
	case pinFailure:
		return !r.WaitsFor(storage, pmr.Pinning, m.attempt)
	case mapRequest:
		return !there && !r.WaitsFor(storage, pmr.Mapping, m.attempt)
	case mapFailure:
		return !r.WaitsFor(storage, pmr.Mapping, m.attempt)
	case mapEnd:
		return !r.WaitsFor(storage, pmr.Mapping, m.attempt) || !w.holds(m.pmr)
	case release:
		return !there
	}
	return false
}

// unanswered is what the explorer's network makes of a message that was lost.
func unanswered() *api.Error { return api.Errorf(api.CodeUnavailable, "no answer") }
