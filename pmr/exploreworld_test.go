package pmr_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// always is the time of every step of a storage in the explorer, where time stands still: a deadline passes
// when an action says so.
const always = time.Hour

// model is what an exploration is bounded by.
type model struct {
	name            string
	storages        int // 2 if it is 0
	buckets         int // in order and in equal parts the storages'
	jobs            int
	wanted          int    // so many of the first buckets by each job; 0 is all
	snapshot        bool   // the last job is one of mode snapshot
	moves           []move // each by a driver of its own
	attempts        int    // of each job
	losses, doubles int    // of messages, in all
	crashes         int    // of storages, routers and drivers, in all
	expiries        int    // of pins, output, gates, tickets and routers' voices, in all
	deadlines       int    // of jobs, in all; a cancel is the same
	late            bool   // a driver may give up at any time, while its activation is under way
	quotas          pmr.Quotas
	unordered       bool // drivers take the source's gate first: never so but to see what comes of it
	states          int  // where the search is cut off; 0 is nowhere
}

// move is of a bucket to another storage.
type move struct{ bucket, to int }

// owner is who owns a bucket at first.
func (m *model) owner(bucket int) int { return bucket * m.storages / m.buckets }

// wants are the buckets that each job names.
func (m *model) wants() (list []buckets.ID) {
	for b := range m.wanted {
		list = append(list, buckets.ID(b))
	}
	return list
}

// logEntry is an entry of the log that changes the table.
type logEntry struct {
	seq   uint64
	entry buckets.Entry
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
	m                                          *model
	log                                        uint64
	entries                                    []logEntry
	table                                      *buckets.View
	storages                                   []*host
	jobs                                       []*client
	drivers                                    []driver
	msgs                                       []msg     // sorted
	truth                                      []*minted // by code
	lost, doubled, crashed, expired, deadlined int
}

// host is a storage.
type host struct {
	machine *pmr.Storage // nil while it is dead
	since   uint64       // it holds no snapshot of an older cut
	words   words
}

// client is a router with its one job.
type client struct {
	machine *pmr.Router // nil once it has died
	words   words
}

// driver asks for the gates of a move, appends the ownership entry while it holds both, and ends.
type driver struct {
	step   step
	fences [2]uint64 // of the storages whose gates it was granted, in the order in which it asked
}

type step int

const (
	asksFirst step = iota
	asksSecond
	activates
	over
)

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

// msg is under way. For messages of gates, job is the driver.
type msg struct {
	kind                  kind
	job, storage, attempt int
	pmr                   code
	pos                   [4]uint64 // of a pin cut and age, of a grant the fence, of an activation prev and both fences
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
	gateRequest
	gateAnswer
	ungate
	activation
	fence
)

var kindNames = [...]string{"pin", "pinned", "no-pin", "map", "no-map", "ended", "release", "gate", "granted", "ungate", "activate", "fence"}

func (a msg) compare(b msg) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.job, b.job), cmp.Compare(a.storage, b.storage),
		cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.pmr, b.pmr), slices.Compare(a.pos[:], b.pos[:]))
}

func (a msg) show() string {
	who := fmt.Sprintf("j%d", a.job+1)
	if a.kind >= gateRequest {
		who = fmt.Sprintf("g%d", a.job+1)
	}
	switch a.kind {
	case fence:
		return fmt.Sprintf("fence of s%d", a.storage+1)
	case activation:
		return fmt.Sprintf("activation of %s, prev %d, fences %d and %d", who, a.pos[0], a.pos[1], a.pos[2])
	}
	s := fmt.Sprintf("%s %s s%d", kindNames[a.kind], who, a.storage+1)
	if a.kind < gateRequest {
		s += fmt.Sprintf(" attempt %d", a.attempt)
	}
	if a.pmr != 0 {
		s += " " + a.pmr.show()
	}
	return s
}

const (
	storageNames = "s1s2s3"
	jobNames     = "j1j2j3"
	routerNames  = "r1r2r3"
	gateNames    = "g1g2g3"
)

func storageID(s int) string { return storageNames[2*s : 2*s+2] }
func jobID(j int) string     { return jobNames[2*j : 2*j+2] }
func routerID(j int) string  { return routerNames[2*j : 2*j+2] }
func gateID(d int) string    { return gateNames[2*d : 2*d+2] }

// number is what the ids above are of.
func number(id string) int { return int(id[1] - '1') }

// newWorld is the state before the first job has begun.
func newWorld(m *model) *world {
	m.storages = max(m.storages, 2)
	w := &world{m: m}
	for b := range m.buckets {
		w.append(buckets.Own{Bucket: buckets.ID(b), Owner: storageID(m.owner(b))})
	}
	for s := range m.storages {
		w.append(buckets.Fence{Storage: storageID(s)})
		h := &host{machine: w.newStorage(), since: w.log}
		w.storages = append(w.storages, h)
		h.write()
	}
	for j := range m.jobs {
		w.jobs = append(w.jobs, &client{machine: pmr.NewRouter(pmr.RouterConfig{
			Job: jobID(j), Deadline: always, Attempts: 1 << 30, PinTTL: 5 * time.Second, Seed: uint64(j),
			Snapshot: m.snapshot && j == m.jobs-1, Wanted: m.wants(),
		})})
		w.jobs[j].write()
	}
	w.drivers = make([]driver, len(m.moves))
	for d := range m.moves {
		w.askGate(d)
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
	c.storages, c.jobs, c.drivers = slices.Clone(w.storages), slices.Clone(w.jobs), slices.Clone(w.drivers)
	c.msgs, c.truth = slices.Clone(w.msgs), slices.Clone(w.truth)
	return &c
}

// append puts an entry in the log.
func (w *world) append(e buckets.Entry) (applied bool) {
	w.log++
	before := w.table
	w.entries = append(slices.Clip(w.entries), logEntry{w.log, e})
	table := buckets.NewTable(w.m.buckets)
	for _, e := range w.entries {
		_, _ = table.Apply(e.seq, e.entry) // void is as good as applied, for the log
	}
	w.table = table.View()
	own, ok := e.(buckets.Own)
	return ok && before != nil && w.table.Owner(own.Bucket) != before.Owner(own.Bucket)
}

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
}

// holds reports whether a job's present attempt uses a PMR.
func (w *world) holds(c code) bool {
	r := w.jobs[c.job()].machine
	return r != nil && r.Phase() != pmr.Finished && r.PinOf(storageID(c.storage())) == c.String()
}

// futile reports that nobody will ever do anything on a message.
func (w *world) futile(m msg) bool {
	if m.kind >= gateRequest {
		return w.futileGate(m)
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

func (w *world) futileGate(m msg) bool {
	switch m.kind {
	case gateAnswer:
		d := w.drivers[m.job]
		return d.step >= activates || w.asked(m.job) != m.storage
	case ungate:
		machine := w.storages[m.storage].machine
		return machine == nil || machine.Gate(gateID(m.job)) == pmr.GateUnknown &&
			!slices.ContainsFunc(w.msgs, func(o msg) bool { return o.kind == gateRequest && o.job == m.job && o.storage == m.storage })
	case fence:
		return w.storages[m.storage].machine == nil
	}
	return false
}

// order is the order in which a driver asks for its gates.
func (w *world) order(d int) [2]int {
	from, to := w.m.owner(w.m.moves[d].bucket), w.m.moves[d].to
	if w.m.unordered {
		return [2]int{from, to}
	}
	return [2]int{min(from, to), max(from, to)}
}

// asked is the storage whose gate a driver waits for.
func (w *world) asked(d int) int { return w.order(d)[min(w.drivers[d].step, asksSecond)] }

func (w *world) askGate(d int) {
	w.send(msg{kind: gateRequest, job: d, storage: w.asked(d)})
}

// words is a machine as numbers; positions among them are marked.
type words struct {
	nums []uint64
	pos  []int // indices of positions in nums
}

func (w *words) Num(n int)     { w.nums = append(w.nums, uint64(n)) }
func (w *words) PMR(id string) { w.nums = append(w.nums, uint64(parseCode(id))) }
func (w *words) Pos(p uint64) {
	w.pos = append(w.pos, len(w.nums))
	w.nums = append(w.nums, p)
}

func (w *words) View(v *buckets.View) {
	for b := range v.Len() {
		o := v.Owner(buckets.ID(b))
		w.Num(number(o.Storage))
		w.Pos(o.Generation)
	}
}

func (w *words) add(o words) {
	for _, i := range o.pos {
		w.pos = append(w.pos, len(w.nums)+i)
	}
	w.nums = append(w.nums, o.nums...)
	w.Num(-2)
}

func (h *host) write() {
	h.words = words{}
	if h.machine != nil {
		h.machine.Write(&h.words, always)
		h.words.Pos(h.since)
	}
}

func (c *client) write() {
	c.words = words{}
	if c.machine != nil {
		c.machine.Write(&c.words)
	}
}

// hasher hashes worlds; two that differ only in the positions of the log, and not in their order, are one.
type hasher struct {
	words words
	all   []uint64
	bytes []byte
}

func (h *hasher) hash(w *world) uint64 {
	h.words.nums, h.words.pos = h.words.nums[:0], h.words.pos[:0]
	w.write(&h.words)
	h.all = h.all[:0]
	for _, i := range h.words.pos {
		h.all = append(h.all, h.words.nums[i])
	}
	slices.Sort(h.all)
	h.all = slices.Compact(h.all)
	for _, i := range h.words.pos {
		if h.words.nums[i] != 0 {
			rank, _ := slices.BinarySearch(h.all, h.words.nums[i])
			h.words.nums[i] = uint64(rank) + 1
		}
	}
	h.bytes = h.bytes[:0]
	for _, n := range h.words.nums {
		h.bytes = binary.LittleEndian.AppendUint64(h.bytes, n)
	}
	return xxhash.Sum64(h.bytes)
}

func (w *world) write(to *words) {
	to.Num(w.lost | w.doubled<<8 | w.crashed<<16 | w.expired<<24 | w.deadlined<<32)
	to.View(w.table)
	for s, h := range w.storages {
		to.Pos(w.table.Fence(storageID(s)))
		to.add(h.words)
	}
	for _, j := range w.jobs {
		to.add(j.words)
	}
	for _, d := range w.drivers {
		to.Num(int(d.step))
		to.Pos(d.fences[0])
		to.Pos(d.fences[1])
	}
	for _, m := range w.msgs {
		to.Num(int(m.kind) | m.job<<8 | m.storage<<16 | m.attempt<<24)
		to.Num(int(m.pmr))
		for _, p := range m.pos {
			to.Pos(p)
		}
		if m.kind == pinRequest {
			to.View(w.viewAt(m.pos[0]))
		}
	}
	to.Num(-2)
	for _, t := range w.truth {
		to.Num(int(t.code))
		to.Num(int(t.guest) | boolBit(t.gone)<<4 | boolBit(t.late)<<5)
		to.Pos(t.cut)
		to.View(t.view)
	}
}

func boolBit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// unanswered is what the explorer's network makes of a message that was lost.
func unanswered() *api.Error { return api.Errorf(api.CodeUnavailable, "no answer") }
