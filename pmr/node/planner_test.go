package node_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr/node"
)

// topology changes what the request names.
func (c *cluster) topology(req api.TopologyRequest) api.Topology {
	c.t.Helper()
	var reply api.TopologyReply
	c.must(c.request("admin.topology", req, &reply))
	return reply.Topology
}

// pause has the rebalancer leave buckets where a test puts them.
func (c *cluster) pause() {
	c.t.Helper()
	c.topology(api.TopologyRequest{Paused: new(true)})
}

// buckets tells how all buckets are.
func (c *cluster) buckets() []api.BucketInfo {
	c.t.Helper()
	var all []api.BucketInfo
	for req := (api.BucketsRequest{}); ; {
		var reply api.BucketsReply
		c.must(c.request("admin.buckets", req, &reply))
		all = append(all, reply.Buckets...)
		if reply.Next == 0 {
			return all
		}
		req.From = uint16(reply.Next)
	}
}

// owned counts the buckets of each storage.
func (c *cluster) owned() map[string]int {
	count := map[string]int{}
	for _, b := range c.buckets() {
		count[b.Owner]++
	}
	return count
}

func (c *cluster) awaitOwned(want map[string]int) {
	c.t.Helper()
	var got map[string]int
	for range 3000 {
		if got = c.owned(); maps.Equal(got, want) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Fatalf("the storages own %v, want %v", got, want)
}

// taken reads how many entries of ownership the log has of each storage.
func (c *cluster) taken() map[string]int {
	c.t.Helper()
	st, err := c.log.State(c.t.Context())
	c.must(err)
	count := map[string]int{}
	c.must(c.log.ReadTo(c.t.Context(), 1, st.Last, []string{"own.>"}, func(e api.LogEntry) error {
		var own struct {
			Owner string `json:"owner"`
		}
		c.must(api.Decode(e.Data, &own, api.Lenient))
		count[own.Owner]++
		return nil
	}))
	return count
}

var even = api.Settings{Buckets: 24}

func TestAStorageThatJoinsGetsItsShare(t *testing.T) {
	bubble(t, 2, even, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c")
		before := c.taken()
		c.startStorage("s3")
		c.awaitOwned(map[string]int{"s1": 8, "s2": 8, "s3": 8})
		time.Sleep(time.Minute)
		after := c.taken()
		if after["s3"] != 8 || after["s1"] != before["s1"] || after["s2"] != before["s2"] {
			t.Errorf("ownership entries before %v, after %v: more than the fewest moves", before, after)
		}
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1})
	})
}

func TestWeightsDrainAndUndo(t *testing.T) {
	bubble(t, 3, even, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c")
		c.topology(api.TopologyRequest{Weights: map[string]float64{"s1": 2}})
		c.awaitOwned(map[string]int{"s1": 12, "s2": 6, "s3": 6})
		c.topology(api.TopologyRequest{Weights: map[string]float64{"s3": 0}})
		c.awaitOwned(map[string]int{"s1": 16, "s2": 8})
		c.stop("s3")
		time.Sleep(5 * time.Minute)
		if st := c.status(); !st.Healthy || len(st.Gone) > 0 {
			t.Errorf("a drained storage that left is an alarm: %v", st.Problems)
		}
		c.startStorage("s3")
		time.Sleep(time.Minute)
		if n := c.owned()["s3"]; n != 0 {
			t.Errorf("it is back with weight 0 and owns %d", n)
		}
		c.topology(api.TopologyRequest{StartWeights: []string{"s1", "s3"}})
		c.awaitOwned(map[string]int{"s1": 8, "s2": 8, "s3": 8})
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1})
	})
}

func TestLocksHoldBucketsAndStorages(t *testing.T) {
	bubble(t, 2, even, func(t *testing.T, c *cluster) {
		var locked []uint16
		for _, b := range c.buckets() {
			if b.Owner == "s1" && len(locked) < 3 {
				locked = append(locked, b.Bucket)
			}
		}
		c.topology(api.TopologyRequest{LockBuckets: locked, LockStorages: []string{"s2"}, Weights: map[string]float64{"s1": 0}})
		c.startStorage("s3")
		c.awaitOwned(map[string]int{"s1": 3, "s2": 12, "s3": 9})
		for _, b := range c.buckets() {
			if want := slices.Contains(locked, b.Bucket) || b.Owner == "s2"; b.Locked != want || slices.Contains(locked, b.Bucket) && b.Owner != "s1" {
				t.Errorf("bucket %+v", b)
			}
		}
		var plan api.PlanReply
		c.must(c.request("admin.plan", api.Empty{}, &plan))
		if !plan.Balanced || len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], "storage s1 keeps") {
			t.Errorf("the plan is %+v", plan)
		}
		c.topology(api.TopologyRequest{UnlockBuckets: locked})
		c.awaitOwned(map[string]int{"s2": 12, "s3": 12})
	})
}

func TestPauseStopsMovesAndNothingElse(t *testing.T) {
	bubble(t, 2, even, func(t *testing.T, c *cluster) {
		c.pause()
		c.startStorage("s3")
		time.Sleep(time.Minute)
		if got := c.owned(); got["s3"] != 0 {
			t.Errorf("moved while paused: %v", got)
		}
		var plan api.PlanReply
		c.must(c.request("admin.plan", api.Empty{}, &plan))
		if plan.Balanced || !plan.Paused || len(plan.Orders) == 0 || plan.Orders[0].Dst != "s3" || plan.Orders[0].ID != "" {
			t.Errorf("the plan is %+v", plan)
		}
		c.crash("s1")
		c.nodes["s1"].ended <- nil
		c.awaitOwned(map[string]int{"s2": 12, "s3": 12}) // a takeover is no move: it goes to who has least
		c.topology(api.TopologyRequest{Paused: new(false), Weights: map[string]float64{"s2": 2}})
		c.awaitOwned(map[string]int{"s2": 16, "s3": 8})
	})
}

// A storage that is gone loses its buckets after the grace time and not before; its return is harmless.
func TestTakeoverAndReturn(t *testing.T) {
	bubble(t, 3, even, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		c.mem.Cut("s3")
		gone := func() []api.GoneStorage { return c.status().Gone }
		for len(gone()) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if g := gone()[0]; g.Storage != "s3" || g.Buckets != 8 || g.TakeoverMS < 18_000 || g.TakeoverMS > 20_000 {
			t.Errorf("gone is %+v", g)
		}
		if problems := fmt.Sprint(c.status().Problems); !strings.Contains(problems, "others take them over in") {
			t.Errorf("the problems are %s", problems)
		}
		lapsed := time.Now()
		time.Sleep(15 * time.Second)
		if got := c.owned(); got["s3"] != 8 {
			t.Errorf("15 s after it lapsed it owns %v", got)
		}
		c.awaitOwned(map[string]int{"s1": 12, "s2": 12})
		if took := time.Since(lapsed); took > 25*time.Second {
			t.Errorf("the takeover took %s", took)
		}
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
		c.mem.Heal("s3")
		c.awaitOwned(map[string]int{"s1": 8, "s2": 8, "s3": 8})
		c.await("all is well", func() bool { return c.status().Healthy })
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
	})
}

func TestAStorageThatIsBackInTimeKeepsItsBuckets(t *testing.T) {
	bubble(t, 3, even, func(t *testing.T, c *cluster) {
		before := c.taken()
		for range 3 {
			c.crash("s3")
			time.Sleep(25 * time.Second) // 12 s until it lapses, and less than the grace
			c.startStorage("s3")
			c.await("all is well", func() bool { return c.status().Healthy })
		}
		if after := c.taken(); !maps.Equal(before, after) {
			t.Errorf("ownership entries before %v, after %v", before, after)
		}
	})
}

func TestTheGraceIsASetting(t *testing.T) {
	bubble(t, 2, even, func(t *testing.T, c *cluster) {
		c.topology(api.TopologyRequest{Set: map[string]string{"takeover_grace": "10m"}})
		c.crash("s2")
		c.nodes["s2"].ended <- nil
		time.Sleep(9 * time.Minute)
		if got := c.owned(); got["s2"] != 12 {
			t.Errorf("after 9 min %v", got)
		}
		c.topology(api.TopologyRequest{Set: map[string]string{"takeover_grace": ""}})
		c.awaitOwned(map[string]int{"s1": 24})
	})
}

// Who plans may die: the next router goes on, and gives a storage that is gone the whole grace time again.
func TestAnotherRouterPlansOn(t *testing.T) {
	bubble(t, 3, even, func(t *testing.T, c *cluster) {
		c.startRouter("r2", 3)
		c.crash("s3")
		c.nodes["s3"].ended <- nil
		time.Sleep(25 * time.Second)
		c.crash("r1")
		c.nodes["r1"].ended <- nil
		c.awaitOwned(map[string]int{"s1": 12, "s2": 12})
		c.startStorage("s4")
		c.awaitOwned(map[string]int{"s1": 8, "s2": 8, "s4": 8})
		var moves api.MovesReply
		c.must(c.request("admin.moves", api.Empty{}, &moves))
		if !strings.HasPrefix(moves.Planner, "r2-") {
			t.Errorf("the planner is %q", moves.Planner)
		}
	})
}

func TestNobodyMayTakeOver(t *testing.T) {
	bubble(t, 2, even, func(t *testing.T, c *cluster) {
		c.topology(api.TopologyRequest{LockStorages: []string{"s1"}})
		c.crash("s2")
		c.nodes["s2"].ended <- nil
		time.Sleep(2 * time.Minute)
		if problems := fmt.Sprint(c.status().Problems); !strings.Contains(problems, "no other storage may take them") {
			t.Errorf("the problems are %s", problems)
		}
		c.topology(api.TopologyRequest{UnlockStorages: []string{"s1"}})
		c.awaitOwned(map[string]int{"s1": 24})
	})
}

// Orders that are dropped since something was locked meanwhile are planned anew soon after it is unlocked.
func TestDroppedOrdersArePlannedAnew(t *testing.T) {
	bubble(t, 2, api.Settings{Buckets: 240}, func(t *testing.T, c *cluster) {
		var pinned api.PinReply // it holds the first move up
		c.must(c.request("storage.s1.pin", api.PinRequest{Job: "j", Attempt: 1, Router: "nobody", Cut: c.cut("j"), TTLMS: 9000, Mode: "hold"}, &pinned))
		c.startStorage("s3")
		queued := func() api.MovesReply {
			var moves api.MovesReply
			c.must(c.request("admin.moves", api.Empty{}, &moves))
			return moves
		}
		c.await("moves are ordered ahead", func() bool { return len(queued().Queued) == 3 && len(queued().Running) == 1 })
		c.topology(api.TopologyRequest{LockStorages: []string{"s3"}})
		c.must(c.request("storage.s1.release", api.PMRRequest{PMR: pinned.PMR}, &api.Empty{}))
		c.await("the orders are dropped", func() bool { return len(queued().Queued)+len(queued().Running) == 0 })
		for _, m := range queued().Ended {
			if m.Order.Src != "" && (m.Outcome != "dropped" || !strings.Contains(m.Reason, "storage s3 is locked")) {
				t.Errorf("%s to %s ended with %s: %s", m.Order.Src, m.Order.Dst, m.Outcome, m.Reason)
			}
		}
		if got := c.owned(); got["s3"] != 0 {
			t.Errorf("s3 owns %d", got["s3"])
		}
		c.topology(api.TopologyRequest{UnlockStorages: []string{"s3"}})
		unlocked := time.Now()
		c.awaitOwned(map[string]int{"s1": 80, "s2": 80, "s3": 80})
		if took := time.Since(unlocked); took > 40*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// What is on its way is not ordered again, however long it takes.
func TestNothingIsOrderedTwice(t *testing.T) {
	bubble(t, 2, api.Settings{Buckets: 48}, func(t *testing.T, c *cluster) {
		var pinned api.PinReply // it holds the first move up
		c.must(c.request("storage.s1.pin", api.PinRequest{Job: "j", Attempt: 1, Router: "nobody", Cut: c.cut("j"), TTLMS: 9000, Mode: "hold"}, &pinned))
		before := c.taken()
		c.startStorage("s3")
		for range 6 {
			time.Sleep(time.Second)
			var moves api.MovesReply
			c.must(c.request("admin.moves", api.Empty{}, &moves))
			if n := len(moves.Running) + len(moves.Queued); n > 2 {
				t.Fatalf("%d orders for two pairs of storages: %+v", n, moves)
			}
		}
		c.awaitOwned(map[string]int{"s1": 16, "s2": 16, "s3": 16})
		if after := c.taken(); after["s3"] != 16 || after["s1"] != before["s1"] || after["s2"] != before["s2"] {
			t.Errorf("ownership entries before %v, after %v", before, after)
		}
	})
}

// losing loses the first order that it is given.
type losing struct {
	node.Orders
	lost *atomic.Int32
}

func (l losing) Publish(ctx context.Context, o api.MoveOrder) error {
	if l.lost.Add(1) == 1 {
		return nil
	}
	return l.Orders.Publish(ctx, o)
}

func TestALostOrderIsPlannedAnew(t *testing.T) {
	var lost atomic.Int32
	lost.Store(1)
	o := options{storages: 2, settings: even, tweak: func(peer string, p *node.Ports) {
		if peer == "r1" {
			p.Orders = losing{p.Orders, &lost}
		}
	}}
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		lost.Store(0)
		c.startStorage("s3")
		c.awaitOwned(map[string]int{"s1": 8, "s2": 8, "s3": 8})
	})
}
