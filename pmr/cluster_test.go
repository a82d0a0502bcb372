package pmr_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// cluster is one router, some storages and the messages between them, which wait until somebody delivers
// or loses them. It does what pmr/node does, without a clock or a network: nothing in it decides anything.
// Whatever the machines want done is checked by the oracle first.
type cluster struct {
	now    time.Duration
	cfg    pmr.RouterConfig
	router *pmr.Router // nil once it has died
	oracle *oracle

	log      uint64 // last position
	table    *buckets.Table
	cuts     map[uint64]*buckets.View
	storages map[string]*storage
	minted   int

	queue []*message
	trace strings.Builder
}

// storage is a storage machine and what pmr/node keeps around it.
type storage struct {
	id          string
	machine     *pmr.Storage
	alive       bool
	incarnation int
	since       uint64 // log position at its start: it holds no snapshot of an older cut
	lie         func([]api.BucketPin) []api.BucketPin
	guests      map[string]bool // PMRs whose guests run
	unconfirmed map[string]*api.Error
}

// message is under way. Its name is what scripts call it: kind.storage.attempt or kind.pmr.
type message struct {
	name, to string
	arrive   func()
	lost     *message // what the one who waits for an answer will be told if there is none
}

func newCluster(cfg pmr.RouterConfig, times pmr.StorageConfig, n int, owned map[string][]uint16, fail func(string)) *cluster {
	c := &cluster{
		cfg: cfg, router: pmr.NewRouter(cfg), table: buckets.NewTable(n),
		cuts: map[uint64]*buckets.View{}, storages: map[string]*storage{},
	}
	c.oracle = &oracle{c: c, fail: fail, pmrs: map[string]*truth{}}
	for _, id := range slices.Sorted(maps.Keys(owned)) {
		c.storages[id] = &storage{id: id}
		for _, b := range owned[id] {
			c.log++
			c.own(b, id)
		}
	}
	for _, id := range c.ids() {
		c.start(c.storages[id], times)
	}
	return c
}

func (c *cluster) ids() []string { return slices.Sorted(maps.Keys(c.storages)) }

func (c *cluster) tracef(format string, args ...any) { fmt.Fprintf(&c.trace, format+"\n", args...) }

// own gives a bucket to a storage at the log's last position.
func (c *cluster) own(b uint16, id string) {
	prev := c.table.View().Owner(buckets.ID(b)).Generation
	if _, err := c.table.Own(c.log, buckets.Own{Bucket: buckets.ID(b), Prev: prev, Owner: id}); err != nil {
		c.oracle.fail(err.Error())
	}
}

func (c *cluster) start(s *storage, times pmr.StorageConfig) {
	s.machine = pmr.NewStorage(times)
	s.alive, s.incarnation, s.since = true, s.incarnation+1, c.log
	s.guests, s.unconfirmed = map[string]bool{}, map[string]*api.Error{}
}

// kill ends a storage, its guests and its PMRs. Who waits for one of its maps hears of it some time.
func (c *cluster) kill(id string) {
	s := c.storages[id]
	s.alive = false
	for _, p := range s.machine.PMRs() {
		t := c.oracle.killed(p.ID)
		if p.State == pmr.StateMapping {
			c.send(c.silent(id, t.attempt))
		}
	}
}

// send puts a message on its way, under a name that no other one has.
func (c *cluster) send(m *message) {
	sent := *m
	for c.find(sent.name) != nil {
		sent.name += "+"
	}
	c.queue = append(c.queue, &sent)
}

func (c *cluster) find(name string) *message {
	for _, m := range c.queue {
		if m.name == name {
			return m
		}
	}
	return nil
}

func (c *cluster) deliver(m *message) {
	c.queue = slices.DeleteFunc(c.queue, func(q *message) bool { return q == m })
	if s := c.storages[m.to]; s != nil && !s.alive || m.to == "router" && c.router == nil {
		c.tracef("%-6s is dead", m.to)
		c.sendLost(m)
		return
	}
	m.arrive()
}

func (c *cluster) lose(m *message) {
	c.queue = slices.DeleteFunc(c.queue, func(q *message) bool { return q == m })
	c.sendLost(m)
}

func (c *cluster) sendLost(m *message) {
	if m.lost != nil {
		c.send(m.lost)
	}
}

// event steps the router and enacts what it wants.
func (c *cluster) event(ev pmr.Event) {
	if c.router == nil {
		return
	}
	effects := c.router.Step(c.now, ev)
	c.oracle.routerWants(effects)
	for _, e := range effects {
		c.tracef("router %s", showEffect(e))
		switch e := e.(type) {
		case pmr.AppendCut:
			c.send(&message{
				name: fmt.Sprintf("cut.%d", e.Attempt), to: "log", arrive: func() { c.cut(e.Attempt) },
				lost: c.toRouter(fmt.Sprintf("nocut.%d", e.Attempt), pmr.CutFailed{Attempt: e.Attempt, Err: api.Errorf(api.CodeUnavailable, "the log has no leader")}),
			})
		case pmr.SendPin:
			c.send(&message{
				name: fmt.Sprintf("pin.%s.%d", e.Storage, e.Attempt), to: e.Storage, arrive: func() { c.pin(e) },
				lost: c.unanswered(e),
			})
		case pmr.SendMap:
			c.send(&message{
				name: fmt.Sprintf("map.%s.%d", e.Storage, e.Attempt), to: e.Storage, arrive: func() { c.startMap(e) },
				lost: c.silent(e.Storage, e.Attempt),
			})
		case pmr.SendRelease:
			c.send(&message{
				name: "release." + e.PMR, to: e.Storage,
				arrive: func() { c.storageEvent(c.storages[e.Storage], pmr.ReleaseAsked{PMR: e.PMR}) },
			})
		case pmr.Collect:
			c.send(&message{
				name: fmt.Sprintf("collect.%d", e.Attempt), to: "router", arrive: func() { c.event(pmr.Collected{Attempt: e.Attempt}) },
				lost: c.toRouter(fmt.Sprintf("uncollected.%d", e.Attempt), pmr.Collected{Attempt: e.Attempt, Err: api.Errorf(api.CodeLost, "the output is gone")}),
			})
		}
	}
}

func (c *cluster) toRouter(name string, ev pmr.Event) *message {
	return &message{name: name, to: "router", arrive: func() { c.event(ev) }}
}

// unanswered is the end of the router's patience with a pin request.
func (c *cluster) unanswered(e pmr.SendPin) *message {
	return c.toRouter(fmt.Sprintf("unanswered.%s.%d", e.Storage, e.Attempt),
		pmr.PinFailed{Attempt: e.Attempt, Storage: e.Storage, Err: api.Errorf(api.CodeUnavailable, "%s does not answer", e.Storage)})
}

// silent is the end of its patience with a map.
func (c *cluster) silent(id string, attempt int) *message {
	return c.toRouter(fmt.Sprintf("silent.%s.%d", id, attempt),
		pmr.StorageLost{Attempt: attempt, Storage: id, Err: api.Errorf(api.CodeLost, "%s has fallen silent", id)})
}

func (c *cluster) cut(attempt int) {
	c.log++
	c.cuts[c.log] = c.table.View()
	c.event(pmr.CutFixed{Attempt: attempt, Cut: c.log, Owners: c.cuts[c.log], SpaceKnown: true})
}

// pin is a storage's work at a pin request: it mints a PMR of what it owned at the cut.
func (c *cluster) pin(e pmr.SendPin) {
	s := c.storages[e.Storage]
	if e.Cut <= s.since {
		c.send(c.toRouter(fmt.Sprintf("nopin.%s.%d", s.id, e.Attempt),
			pmr.PinFailed{Attempt: e.Attempt, Storage: s.id, Err: api.Errorf(api.CodeNoCut, "%s holds no snapshot of cut %d", s.id, e.Cut)}))
		return
	}
	c.minted++
	reply := api.PinReply{
		PMR: fmt.Sprintf("%s-%d", s.id, c.minted), Storage: s.id, Incarnation: fmt.Sprintf("i%d", s.incarnation), HasSpace: true,
	}
	for _, b := range c.cuts[e.Cut].Of(s.id) {
		if e.Buckets != nil && !slices.Contains(e.Buckets, b) {
			continue
		}
		reply.Buckets = append(reply.Buckets, api.BucketPin{Bucket: uint16(b), Generation: c.cuts[e.Cut].Owner(b).Generation})
	}
	if s.lie != nil {
		reply.Buckets, s.lie = s.lie(reply.Buckets), nil
	}
	c.oracle.created(e, reply)
	asked := pmr.PinAsked{PMR: reply.PMR, Job: c.cfg.Job, Router: "r1", TTL: e.TTL, Age: e.Age, Snapshot: e.Snapshot}
	for _, effect := range c.storageEvent(s, asked) {
		if no, ok := effect.(pmr.Refuse); ok {
			c.oracle.refused(reply.PMR)
			m := c.toRouter(fmt.Sprintf("busy.%s.%d", s.id, e.Attempt), pmr.PinFailed{Attempt: e.Attempt, Storage: s.id, Err: no.Err})
			m.lost = c.unanswered(e)
			c.send(m)
			return
		}
	}
	answer := c.toRouter(fmt.Sprintf("pinned.%s.%d", s.id, e.Attempt), pmr.Pinned{Attempt: e.Attempt, Storage: s.id, Pin: reply})
	answer.lost = c.unanswered(e)
	c.send(answer)
}

func (c *cluster) startMap(e pmr.SendMap) {
	for _, effect := range c.storageEvent(c.storages[e.Storage], pmr.MapAsked{PMR: e.PMR}) {
		if no, ok := effect.(pmr.Refuse); ok {
			m := c.toRouter(fmt.Sprintf("refused.%s.%d", e.Storage, e.Attempt), pmr.MapRefused{Attempt: e.Attempt, Storage: e.Storage, Err: no.Err})
			m.lost = c.silent(e.Storage, e.Attempt)
			c.send(m)
		}
	}
}

// storageEvent steps a storage and enacts what it wants; answers are the caller's affair.
func (c *cluster) storageEvent(s *storage, ev pmr.Event) []pmr.Effect {
	effects := s.machine.Step(c.now, ev)
	for _, e := range effects {
		c.tracef("%-6s %s", s.id, showEffect(e))
		switch e := e.(type) {
		case pmr.StartMap:
			c.oracle.started(e.PMR)
			s.guests[e.PMR] = true
		case pmr.Report:
			c.sendReport(s, e.PMR)
		case pmr.Drop:
			c.oracle.dropped(e.PMR)
			delete(s.unconfirmed, e.PMR)
		case pmr.SetFence:
			c.send(&message{name: "fence." + s.id, to: s.id, arrive: func() {
				c.log++
				c.table.Fence(c.log, buckets.Fence{Storage: s.id, Incarnation: fmt.Sprintf("i%d", s.incarnation)})
				c.storageEvent(s, pmr.FenceSet{})
			}})
		}
	}
	return effects
}

func (c *cluster) sendReport(s *storage, id string) {
	err := s.unconfirmed[id]
	c.send(&message{name: "ended." + id, to: "router", arrive: func() {
		delete(s.unconfirmed, id)
		c.event(pmr.MapEnded{Storage: s.id, PMR: id, Err: err})
	}})
}

// guest ends the guests of a PMR; they also end this way after StopMap.
func (c *cluster) guest(id string, err *api.Error) {
	s := c.storages[c.oracle.pmrs[id].storage]
	if !s.alive || !s.guests[id] {
		c.oracle.fail("there is no guest of " + id)
		return
	}
	delete(s.guests, id)
	s.unconfirmed[id] = err
	c.oracle.over(id, err)
	c.storageEvent(s, pmr.MapOver{PMR: id})
}

// beat is the router's heartbeat as a storage hears it; with it, ends that nobody confirmed are told again.
func (c *cluster) beat(s *storage) {
	if !s.alive || c.router == nil {
		return
	}
	c.storageEvent(s, pmr.Heard{Router: "r1"})
	for _, p := range s.machine.PMRs() {
		if _, ok := s.unconfirmed[p.ID]; ok && p.State == pmr.StateMapped && c.find("ended."+p.ID) == nil {
			c.sendReport(s, p.ID)
		}
	}
}

// pass lets time go by up to a moment. The router is told whenever it wanted to be, the storages are not.
func (c *cluster) pass(to time.Duration) {
	for c.router != nil && !c.oracle.finished && c.router.Wake() <= to {
		c.now = max(c.now, c.router.Wake())
		c.event(pmr.Tick{})
		if !c.oracle.finished && c.router.Wake() <= c.now {
			c.oracle.failf("the tick that was due did nothing")
			break
		}
	}
	c.now = to
}

// tick tells a storage the time.
func (c *cluster) tick(s *storage) {
	if s.alive {
		c.storageEvent(s, pmr.Tick{})
	}
}
