package pmr_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// TestClusterScripts runs a router and storages on messages that the script delivers, loses and doubles by
// name. The oracle watches.
func TestClusterScripts(t *testing.T) {
	runScripts(t, "cluster", func() func(command) string { return (&clusterScript{}).do })
}

type clusterScript struct {
	c     *cluster
	times pmr.StorageConfig
}

func (s *clusterScript) do(c command) string {
	if c.name != "cluster" {
		s.c.trace.Reset()
	}
	switch c.name {
	case "cluster": // cluster buckets=8 s1=0-3 s2=4-7 [ttl, deadline, attempts, silence, retention]
		s.create(c)
		return quiet
	case "start":
		s.c.event(pmr.Started{})
	case "cancel":
		s.c.event(pmr.Canceled{Err: api.Errorf(api.CodeCanceled, "canceled")})
	case "deliver":
		s.messages(c, s.c.deliver)
	case "lose":
		s.messages(c, s.c.lose)
		return quiet
	case "double":
		s.messages(c, s.c.send)
		return quiet
	case "guest": // guest PMR ends | guest PMR fails CODE message
		s.c.guest(c.arg(0), parseError(c.rest(2)))
	case "kill", "restart", "lie":
		s.storage(c, s.c.storages[c.arg(0)])
		return quiet
	case "move": // move BUCKET STORAGE [fences=POSITION,POSITION]: the log gives the bucket to another storage
		if list, ok := c.opts["fences"]; ok {
			return s.activate(c, list)
		}
		s.c.log++
		s.c.own(uint16(c.number(0)), c.arg(1))
		return fmt.Sprintf("log    %s owns bucket %s since %d", c.arg(1), c.arg(0), s.c.log)
	case "gate": // gate STORAGE ID [second] [ttl=10s]: a move asks for a gate, or renews it
		s.c.storageEvent(s.c.storages[c.arg(0)], pmr.GateAsked{Gate: c.arg(1), TTL: c.duration("ttl", 10*time.Second), Second: c.rest(2) == "second"})
	case "ungate": // ungate STORAGE ID
		s.c.storageEvent(s.c.storages[c.arg(0)], pmr.GateReleased{Gate: c.arg(1)})
	case "gates": // gates ID..
		for _, id := range s.c.ids() {
			s.c.tracef("%-6s %s", id, showGates(s.c.storages[id].machine, c.args))
		}
	case "router-dies":
		s.c.router = nil
		return quiet
	case "pass": // pass DURATION: the router keeps its time, and everybody hears its heartbeat
		s.pass(parseDuration(c.t, c.arg(0)), true)
	case "pass-unheard": // the same, and nobody hears it
		s.pass(parseDuration(c.t, c.arg(0)), false)
	case "queue":
		names := make([]string, 0, len(s.c.queue))
		for _, m := range s.c.queue {
			names = append(names, m.name)
		}
		return strings.Join(names, " ")
	case "state":
		s.c.tracef("router %s", showRouter(s.c.router))
	case "pmrs":
		for _, id := range s.c.ids() {
			s.c.tracef("%-6s %s", id, showPMRs(s.c.storages[id].machine))
		}
	default:
		return c.unknown()
	}
	return s.c.trace.String()
}

// activate appends an ownership entry that names the fences of the bucket's owner and of the new one.
func (s *clusterScript) activate(c command, list string) string {
	src, dst, _ := strings.Cut(list, ",")
	s.c.log++
	verdict, err := s.c.table.Own(s.c.log, buckets.Own{
		Bucket: buckets.ID(c.number(0)), Prev: s.c.table.View().Owner(buckets.ID(c.number(0))).Generation, Owner: c.arg(1),
		FenceSrc: uint64(parseNumber(c.t, src)), FenceDst: uint64(parseNumber(c.t, dst)),
	})
	if verdict != buckets.Applied {
		return fmt.Sprintf("log    entry %d is void: %v", s.c.log, err)
	}
	return fmt.Sprintf("log    %s owns bucket %s since %d", c.arg(1), c.arg(0), s.c.log)
}

func (s *clusterScript) create(c command) {
	owned := map[string][]uint16{}
	for k, v := range c.opts {
		if strings.HasPrefix(k, "s") && len(k) == 2 {
			owned[k] = parseBuckets(c.t, v)
		}
	}
	s.times = storageConfig(c)
	s.c = newCluster(pmr.RouterConfig{
		Job: "j1", Space: "books", Deadline: c.duration("deadline", time.Minute),
		Attempts: c.option("attempts", 10), PinTTL: c.duration("ttl", 5*time.Second), Seed: 1,
		Wanted: wantedOf(c), Snapshot: c.opts["mode"] == "snapshot",
	}, s.times, c.option("buckets", 8), owned, func(fault string) { c.t.Errorf("the oracle: %s", fault) })
	if c.opts["fences"] == "yes" { // as every storage sets one before it serves
		for _, id := range s.c.ids() {
			s.c.log++
			s.c.table.Fence(s.c.log, buckets.Fence{Storage: id, Incarnation: "i1"})
		}
	}
}

func (s *clusterScript) messages(c command, do func(*message)) {
	for _, name := range c.args {
		m := s.c.find(name)
		if m == nil {
			c.t.Fatalf("%s: no message %s is under way", c.at, name)
		}
		do(m)
	}
}

func (s *clusterScript) storage(c command, st *storage) {
	if st == nil {
		c.t.Fatalf("%s: no storage %s", c.at, c.arg(0))
	}
	switch c.name {
	case "kill":
		s.c.kill(st.id)
	case "restart":
		s.c.start(st, s.times)
	case "lie": // lie STORAGE [without=BUCKETS] [with=BUCKETS@GENERATION]: what its next pin holds
		without := parseBuckets(c.t, c.opts["without"])
		var with []api.BucketPin
		if list, ok := c.opts["with"]; ok {
			with = parsePins(c.t, list)
		}
		st.lie = func(pins []api.BucketPin) []api.BucketPin {
			pins = slices.DeleteFunc(pins, func(p api.BucketPin) bool { return slices.Contains(without, p.Bucket) })
			return append(pins, with...)
		}
	}
}

// pass lets time go by, a second or less at a time.
func (s *clusterScript) pass(d time.Duration, heard bool) {
	for end := s.c.now + d; s.c.now < end; {
		s.c.pass(min(end, s.c.now+time.Second))
		for _, id := range s.c.ids() {
			if heard {
				s.c.beat(s.c.storages[id])
			}
			s.c.tick(s.c.storages[id])
		}
	}
}
