package node_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus/busmem"
	"github.com/pinion-mr/pinion/pmr/node"
)

// stuckness says whether objects are stuck, and counts who has waited for one in vain.
type stuckness struct {
	atomic.Bool
	left atomic.Int64
}

// stuckObjects hand nothing out while they are stuck.
type stuckObjects struct {
	node.Objects
	stuck *stuckness
}

func (o stuckObjects) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	for o.stuck.Load() {
		if err := ctx.Err(); err != nil {
			o.stuck.left.Add(1)
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return o.Objects.Get(ctx, name)
}

// checkpointed is a settled cluster of two storages in which every bucket has a checkpoint, and s2 is stuck with
// loading while stuck says so.
func checkpointed(t *testing.T, stuck *stuckness, test func(t *testing.T, c *cluster, want map[string]int64)) {
	t.Helper()
	o := options{storages: 2, settings: eager, tweak: func(peer string, p *node.Ports) {
		if peer == "s2" {
			p.Checkpoints = stuckObjects{p.Checkpoints, stuck}
		}
	}}
	settled(t, o, func(t *testing.T, c *cluster) {
		for range 30 {
			c.put("", fill("a"), fill("b"), fill("c"), fill("d"))
		}
		c.await("there are checkpoints", func() bool { return len(c.inUse()) >= 4 })
		test(t, c, map[string]int64{"a": 30, "b": 30, "c": 30, "d": 30, fillWord: 120})
	})
}

// awaitStep waits until some order is at a step.
func (c *cluster) awaitStep(step string) api.MoveProgress {
	c.t.Helper()
	var p api.MoveProgress
	c.await("a move is at "+step, func() bool {
		var reply api.MovesReply
		if c.request("admin.moves", api.Empty{}, &reply) != nil || len(reply.Running) == 0 {
			return false
		}
		p = reply.Running[0]
		return p.Step == step
	})
	return p
}

// The destination dies while it receives, and stays away: the order is dropped, and its source keeps the buckets. Jobs
// have not noticed.
func TestADestinationThatDiesWhileItReceives(t *testing.T) {
	var stuck stuckness
	checkpointed(t, &stuck, func(t *testing.T, c *cluster, want map[string]int64) {
		bs := c.owning("s1", 2)
		stuck.Store(true)
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		c.awaitStep(api.StepReceive)
		c.expectJob(want)
		c.crash("s2")
		c.wantEnd("m1", "dropped", "storage s2 is not there")
		c.wantOwner("s1", bs...)
		stuck.Store(false)
		c.startStorage("s2")
		c.wantQuiet()
		c.expectJob(want)
	})
}

// It comes back in time, with nothing of what it had received: the order goes on from there.
func TestADestinationThatRestartsWhileItReceives(t *testing.T) {
	var stuck stuckness
	checkpointed(t, &stuck, func(t *testing.T, c *cluster, want map[string]int64) {
		bs := c.owning("s1", 2)
		stuck.Store(true)
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		c.awaitStep(api.StepReceive)
		c.crash("s2")
		stuck.Store(false)
		c.startStorage("s2")
		c.wantEnd("m1", "done", "")
		c.wantOwner("s2", bs...)
		c.wantQuiet()
		c.expectJob(want)
	})
}

// Nobody asks any more for what was received: it is forgotten, and what is being loaded is left.
func TestWhatNobodyWantsIsForgotten(t *testing.T) {
	var stuck stuckness
	checkpointed(t, &stuck, func(t *testing.T, c *cluster, want map[string]int64) {
		bs := c.owning("s1", 2)
		loaded := func() int {
			for _, s := range c.status().Storages {
				if s.Storage == "s2" {
					return s.Loaded
				}
			}
			return -1
		}
		ask := func(wait time.Duration) api.ReceiveReply {
			var reply api.ReceiveReply
			c.must(c.request("storage.s2.receive", api.ReceiveRequest{Order: "o", Buckets: bs, TTLMS: 10_000, WaitMS: wait.Milliseconds()}, &reply))
			return reply
		}
		stuck.Store(true)
		if r := ask(time.Second); r.Buckets[0].State != api.ReceiveLoading || r.Buckets[0].Total == 0 || r.Buckets[0].Bytes != 0 {
			t.Errorf("stuck: %+v", r)
		}
		time.Sleep(30 * time.Second)
		if stuck.left.Load() != 1 {
			t.Error("the load goes on though nobody asks")
		}
		stuck.Store(false)
		time.Sleep(time.Second)
		if n := loaded(); n != 2 {
			t.Errorf("s2 has loaded %d buckets though nobody asked", n)
		}
		r := ask(5 * time.Second)
		for r.Buckets[0].State != api.ReceiveReady {
			r = ask(5 * time.Second)
		}
		for range 10 {
			if c.expectJob(want); loaded() != 4 {
				t.Fatalf("s2 has loaded %d buckets", loaded())
			}
			time.Sleep(5 * time.Second)
			ask(0)
		}
		c.await("s2 has forgotten them", func() bool { return loaded() == 2 })
		c.wantOwner("s1", bs...)
		c.expectJob(want)
	})
}

// What comes too fast waits.
func TestTheBandwidthOfMoves(t *testing.T) {
	settings := api.Settings{Buckets: 4, CheckpointBytes: 64 << 10, DuplicateMS: 1000}
	settled(t, options{storages: 2, settings: settings}, func(t *testing.T, c *cluster) {
		large := strings.Repeat("y", 8<<10)
		for range 50 {
			c.put("", large, large, large, large)
		}
		c.await("all is in checkpoints", func() bool { return len(c.inUse()) >= 4 && c.status().Log.Bytes < 64<<10 })
		bs := c.owning("s1", 2)
		c.topology(api.TopologyRequest{Set: map[string]string{"move_bandwidth": "64KiB"}})
		time.Sleep(2 * time.Second)
		began := time.Now()
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		p := c.awaitStep(api.StepReceive)
		end := c.wantEnd("m1", "done", "")
		took, least := time.Since(began), time.Duration(end.Total)*time.Second/(64<<10)
		if took < least || took > 2*least || end.Total < 400_000 || p.Total > end.Total {
			t.Errorf("%d bytes came in %s, at 64 KiB a second", end.Total, took)
		}
		c.expectJob(map[string]int64{large: 200})
	})
}

// The source starts again between gate and activation: its new fence voids what was meant for the gate.
func TestASourceThatRestartsUnderItsGate(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		bs := c.owning("s1", 2)
		var held atomic.Bool
		held.Store(true)
		c.mem.SetFaults(busmem.Faults{Request: func(call busmem.Call) busmem.Fault {
			if strings.HasSuffix(call.Subject, ".activate") && held.CompareAndSwap(true, false) {
				return busmem.Fault{Delay: 3 * time.Second}
			}
			return busmem.Fault{}
		}})
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		c.await("it is to be activated", func() bool { return !held.Load() })
		c.crash("s1")
		c.startStorage("s1")
		c.awaitFence("s1", 2)
		if end := c.wantEnd("m1", "done", ""); end.Delivery != 2 {
			t.Errorf("it was done by delivery %d", end.Delivery)
		}
		c.wantOwner("s2", bs...)
		c.wantQuiet()
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
	})
}

// What is locked while its order waits for a gate stays, and the gate is not left behind.
func TestABucketThatIsLockedMeanwhile(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		bs := c.owning("s1", 2)
		mapping, free := c.block()
		job := c.background(wordCount)
		<-mapping
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		if p := c.awaitStep(api.StepGates); !strings.Contains(p.Waiting, "gate of s1") {
			t.Errorf("it waits for %q", p.Waiting)
		}
		c.topology(api.TopologyRequest{LockBuckets: bs[:1]})
		free()
		c.must(<-job)
		c.wantEnd("m1", "done", "is locked")
		c.wantOwner("s1", bs[0])
		c.wantOwner("s2", bs[1])
		c.publish(api.MoveOrder{ID: "m2", Src: "s1", Dst: "s2", Buckets: bs[:1]})
		c.wantEnd("m2", "dropped", "is locked")
		c.wantQuiet()
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
	})
}

// A map ends at the latest when it has held buckets for as long as any may. The move waits for that.
func TestAMoveBesideAMapWithoutEnd(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		bs := c.owning("s1", 2)
		mapping, free := c.block()
		long := wordCount
		long.TimeoutMS = time.Hour.Milliseconds()
		job := c.background(long)
		<-mapping
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		c.awaitStep(api.StepGates)
		time.Sleep(node.DefaultLongestHold) // the longest map that may hold buckets is over before the mover's patience is
		c.wantEnd("m1", "done", "")
		free()
		if err := <-job; err == nil {
			t.Error("a map held its buckets for longer than any may")
		}
		c.wantOwner("s2", bs...)
		c.wantQuiet()
	})
}

// A storage that is gone has its buckets taken over, and leaves them alone when it is back. One that is back before is
// left alone itself.
func TestATakeover(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
		want := map[string]int64{}
		for _, w := range strings.Split("abcdefghijkl", "") {
			want[w] = 1
		}
		bs := c.owning("s1", 6)
		c.publish(api.MoveOrder{ID: "early", Src: "s1", Dst: "s2", Buckets: bs, Takeover: true})
		c.wantEnd("early", "dropped", "storage s1 is back")
		c.crash("s1")
		time.Sleep(15 * time.Second) // its entry lapses
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs, Takeover: true})
		c.wantEnd("m1", "done", "")
		c.wantOwner("s2", bs...)
		c.expectJob(want)
		c.startStorage("s1")
		c.wantQuiet()
		c.expectJob(want)
	})
}

// The storage is back when the takeover is activated, and nobody has seen it yet: its fence is newer than the one that
// the takeover names.
func TestATakeoverOfAStorageThatIsBack(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		bs := c.owning("s1", 3)
		c.crash("s1")
		time.Sleep(15 * time.Second)
		var held atomic.Bool
		held.Store(true)
		c.mem.SetFaults(busmem.Faults{Request: func(call busmem.Call) busmem.Fault {
			if strings.HasSuffix(call.Subject, ".activate") && held.CompareAndSwap(true, false) {
				return busmem.Fault{Delay: 5 * time.Second}
			}
			return busmem.Fault{}
		}})
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs, Takeover: true})
		c.await("it is to be activated", func() bool { return !held.Load() })
		c.startStorage("s1")
		c.wantEnd("m1", "dropped", "storage s1 is back")
		c.wantOwner("s1", bs...)
		c.wantQuiet()
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
	})
}

// What is no activation is refused, and nothing is appended.
func TestActivationsThatAreRefused(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		b := c.owning("s1", 1)[0]
		gen := c.table().Owner(0).Generation
		before := c.taken()
		pin := []api.BucketPin{{Bucket: b, Generation: gen}}
		for _, x := range []struct {
			name string
			req  api.ActivateRequest
			code api.Code
		}{
			{"no bucket", api.ActivateRequest{Order: "o"}, api.CodeBadRequest},
			{"no such", api.ActivateRequest{Order: "o", Buckets: []api.BucketPin{{Bucket: 12}}}, api.CodeBadRequest},
			{"no fence", api.ActivateRequest{Order: "o", Buckets: pin}, api.CodeBadRequest},
			{"not received", api.ActivateRequest{Order: "o", Buckets: pin, FenceSrc: 1}, api.CodeBusy},
			{"no gate", api.ActivateRequest{Order: "o", Buckets: pin, FenceSrc: 1, Gate: "g"}, api.CodeBusy},
			{"another fence", api.ActivateRequest{Order: "o", Buckets: pin, FenceSrc: 1, FenceDst: 1 << 40, Gate: "g"}, api.CodeBusy},
		} {
			switch x.name {
			case "no gate":
				c.receive("s2", "o", b)
			case "another fence":
				c.receive("s2", "o", b)
				c.must(c.request("storage.s2.gate", api.GateRequest{Gate: "g", TTLMS: 10_000, WaitMS: 1000}, nil))
			}
			if err := c.request("storage.s2.activate", x.req, nil); api.CodeOf(err) != x.code {
				t.Errorf("%s: %v", x.name, err)
			}
		}
		if after := c.taken(); after["s1"]+after["s2"] != before["s1"]+before["s2"] {
			t.Errorf("ownership entries before %v, after %v", before, after)
		}
		for _, req := range []api.ReceiveRequest{{Buckets: []uint16{b}}, {TTLMS: 1000}, {TTLMS: 1000, Buckets: []uint16{12}}, {TTLMS: 1000, Buckets: []uint16{b}, Bandwidth: -1}} {
			if err := c.request("storage.s2.receive", req, nil); api.CodeOf(err) != api.CodeBadRequest {
				t.Errorf("%+v: %v", req, err)
			}
		}
	})
}

// A source that cannot make sure that it has missed nothing forgets nothing.
func TestNothingIsForgottenByAnUnverifiedTable(t *testing.T) {
	settled(t, options{storages: 2, settings: replicated}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		bs := c.owning("s1", 2)
		c.pastFor("s1")
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		c.wantEnd("m1", "done", "")
		loaded := func() int {
			for _, s := range c.status().Storages {
				if s.Storage == "s1" {
					return s.Loaded
				}
			}
			return -1
		}
		time.Sleep(10 * time.Second)
		if n := loaded(); n != 2 {
			t.Errorf("s1 has loaded %d buckets", n)
		}
		c.mem.SetFaults(busmem.Faults{})
		c.await("s1 has forgotten them", func() bool { return loaded() == 0 })
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
	})
}

// A destination that cannot make sure that it has missed nothing becomes no owner.
func TestNothingIsActivatedFromThePast(t *testing.T) {
	settled(t, options{storages: 2, settings: replicated}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		bs := c.owning("s1", 2)
		c.receive("s2", "o", bs...)
		c.pastFor("s2")
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		c.wantEnd("m1", "dropped", "")
		c.wantOwner("s1", bs...)
		c.mem.SetFaults(busmem.Faults{})
		c.publish(api.MoveOrder{ID: "m2", Src: "s1", Dst: "s2", Buckets: bs})
		c.wantEnd("m2", "done", "")
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
	})
}

// A router that stops gives its order back, and its gate: the next router goes on at once.
func TestARouterThatStopsGivesItsOrderBack(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		bs := c.owning("s1", 2)
		c.must(c.request("storage.s1.gate", api.GateRequest{Gate: "other", TTLMS: 60_000, WaitMS: 1000}, nil))
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		c.awaitStep(api.StepGates)
		c.startRouter("r2", 2)
		began := time.Now()
		c.stop("r1")
		c.nodes["r1"].ended <- nil
		c.await("the other router has the order", func() bool { return c.awaitStep(api.StepGates).Delivery == 2 })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("that took %s", took)
		}
		c.must(c.request("storage.s1.ungate", api.GateName{Gate: "other"}, nil))
		c.wantEnd("m1", "done", "")
		c.wantOwner("s2", bs...)
		c.wantQuiet()
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
	})
}

// onlyStuck hold back the objects of one bucket while they are stuck.
type onlyStuck struct {
	stuckObjects
	prefix string
}

func (o onlyStuck) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if !strings.HasPrefix(name, o.prefix) {
		return o.Objects.Get(ctx, name)
	}
	return o.stuckObjects.Get(ctx, name)
}

// A large bucket follows the log as soon as it is loaded, and does not wait for others of its order: the log could be
// purged past it meanwhile.
func TestLargeBucketsAreJoinedOneByOne(t *testing.T) {
	var stuck stuckness
	settings := api.Settings{Buckets: 4, CheckpointBytes: 64 << 10, DuplicateMS: 1000}
	o := options{storages: 2, settings: settings, tweak: func(peer string, p *node.Ports) {
		if peer == "s2" {
			p.Checkpoints = onlyStuck{stuckObjects{p.Checkpoints, &stuck}, "1-"}
		}
	}}
	settled(t, o, func(t *testing.T, c *cluster) {
		for i := range 50 {
			large := make([]byte, 100<<10)
			for j := range large {
				large[j] = byte('a' + (i*j+j*j/7)%26)
			}
			c.put("", string(large), string(large))
		}
		c.await("all is in checkpoints", func() bool { return len(c.inUse()) >= 2 && c.status().Log.Bytes < 64<<10 })
		stuck.Store(true)
		var reply api.ReceiveReply
		ask := func() {
			c.must(c.request("storage.s2.receive", api.ReceiveRequest{Order: "o", Buckets: []uint16{0, 1}, TTLMS: 60_000, WaitMS: 1000}, &reply))
		}
		for range 3 {
			ask()
		}
		if reply.Buckets[0].State != api.ReceiveReady || reply.Buckets[1].State != api.ReceiveLoading {
			t.Errorf("they are %+v", reply.Buckets)
		}
		stuck.Store(false)
		c.await("both are received", func() bool { ask(); return reply.Buckets[1].State == api.ReceiveReady })
	})
}
