package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus/busmem"
	"github.com/pinion-mr/pinion/pmr/node"
)

// settled is a paused cluster of storages s1..sn that each own a part of the buckets: only what a test orders moves.
func settled(t *testing.T, o options, test func(t *testing.T, c *cluster)) {
	t.Helper()
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		c.topology(api.TopologyRequest{Paused: new(true), Set: map[string]string{"takeover_grace": "1h"}})
		test(t, c)
	})
}

// publish queues an order as it is.
func (c *cluster) publish(o api.MoveOrder) api.MoveOrder {
	c.t.Helper()
	o.Reason = "a test wants it"
	orders, err := openOrders(c.t.Context(), c.client)
	c.must(err)
	c.must(orders.Publish(c.t.Context(), o))
	return o
}

// ended is the end of an order, as a router tells it; ok is false as long as there is none.
func (c *cluster) ended(id string) (p api.MoveProgress, ok bool) {
	var reply api.MovesReply
	if c.request("admin.moves", api.Empty{}, &reply) != nil {
		return p, false
	}
	for _, p := range reply.Ended {
		if p.Order.ID == id && p.Outcome != "again" {
			return p, true
		}
	}
	return p, false
}

// wantEnd waits for an order's end.
func (c *cluster) wantEnd(id, outcome, reason string) api.MoveProgress {
	c.t.Helper()
	var end api.MoveProgress
	c.await("order "+id+" ends", func() bool {
		p, ok := c.ended(id)
		end = p
		return ok
	})
	if end.Outcome != outcome || !strings.Contains(end.Reason, reason) {
		c.t.Errorf("order %s ended %s: %q, want %s: %q", id, end.Outcome, end.Reason, outcome, reason)
	}
	return end
}

// table reads who owns what from the log.
func (c *cluster) table() *buckets.View {
	c.t.Helper()
	st, err := c.log.State(c.t.Context())
	c.must(err)
	table := c.savedTable()
	c.must(c.log.ReadTo(c.t.Context(), table.Seq()+1, st.Last, buckets.TableSubjects(), func(e api.LogEntry) error {
		entry, err := buckets.Decode(e, c.settings.Buckets)
		c.must(err)
		_, _ = table.Apply(e.Seq, entry)
		return nil
	}))
	return table.View()
}

func (c *cluster) wantOwner(storage string, bs ...uint16) {
	c.t.Helper()
	view := c.table()
	for _, b := range bs {
		if owner := view.Owner(buckets.ID(b)).Storage; owner != storage {
			c.t.Errorf("bucket %d belongs to %q, want %q", b, owner, storage)
		}
	}
}

// wantQuiet waits until nothing of moves is left anywhere: no gate, no leftover, no bucket that is not loaded.
func (c *cluster) wantQuiet() {
	c.t.Helper()
	c.await("nothing of moves is left", func() bool {
		st := c.status()
		for _, s := range st.Storages {
			if s.Gate != "" || s.GatesWaiting > 0 || s.Owned != s.Loaded {
				return false
			}
		}
		return st.Healthy
	})
}

// owning lists the first n buckets of a storage.
func (c *cluster) owning(storage string, n int) []uint16 {
	c.t.Helper()
	var list []uint16
	for _, b := range c.table().Of(storage)[:n] {
		list = append(list, uint16(b))
	}
	return list
}

func TestAMoveAndItsProgress(t *testing.T) {
	settled(t, options{storages: 2, settings: eager}, func(t *testing.T, c *cluster) {
		c.put("", slices.Repeat([]string{fill("a"), fill("b"), fill("c"), fill("d")}, 30)...)
		c.await("there are checkpoints", func() bool { return len(c.manifests()) == 4 })
		bs := c.owning("s1", 2)
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		end := c.wantEnd("m1", "done", "")
		if end.Delivery != 1 || end.Step != api.StepEnded || end.Bytes < 6000 || end.Bytes != end.Total {
			t.Errorf("it ended as %+v", end)
		}
		c.wantOwner("s2", 0, 1, 2, 3)
		c.wantQuiet()
		c.expectJob(map[string]int64{"a": 30, "b": 30, "c": 30, "d": 30, fillWord: 120})
	})
}

// Each job counts what was acknowledged when it began, and nothing that came after it, while buckets go to and fro.
func TestMovesUnderJobsAndWrites(t *testing.T) {
	settled(t, options{storages: 3, settings: small}, func(t *testing.T, c *cluster) {
		c.must(c.request("admin.topology", api.TopologyRequest{Set: map[string]string{"parallel_moves": "3"}}, nil))
		var offered, acknowledged atomic.Int64
		var over atomic.Bool
		var busy sync.WaitGroup
		busy.Go(func() {
			for i := 0; !over.Load(); i++ {
				offered.Add(1)
				frame := buckets.AppendFrame(nil, buckets.FlagAssign, nil, []byte("w"))
				_, err := c.log.Append(context.Background(), buckets.RecSubject(buckets.ID(i%12)), nil, frame, "")
				c.must(err)
				acknowledged.Add(1)
				time.Sleep(10 * time.Millisecond)
			}
		})
		c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
			time.Sleep(10 * time.Millisecond)
			return ctx.Err()
		})
		jobs := atomic.Int64{}
		for _, mode := range []string{api.ModeHold, api.ModeHold, api.ModeSnapshot} {
			busy.Go(func() {
				for !over.Load() {
					from := acknowledged.Load()
					req := wordCount
					req.Mode = mode
					counts, _, err := c.job(req)
					if err != nil || counts["w"] < from || counts["w"] > offered.Load() {
						t.Errorf("a job in mode %s counted %d; %d were there at its start, %d at its end: %v", mode, counts["w"], from, offered.Load(), err)
					}
					jobs.Add(1)
				}
			})
		}
		storages := []string{"s1", "s2", "s3"}
		for i := range 40 {
			b := uint16(i % 12)
			src := c.table().Owner(buckets.ID(b)).Storage
			dst := storages[(slices.Index(storages, src)+1+i%2)%3]
			id := fmt.Sprint("m", i)
			c.publish(api.MoveOrder{ID: id, Src: src, Dst: dst, Buckets: []uint16{b}})
			if i%3 == 2 { // some of them at the same time
				c.wantEnd(id, "done", "")
			}
		}
		c.wantEnd("m39", "done", "")
		over.Store(true)
		busy.Wait()
		c.wantQuiet()
		c.expectJob(map[string]int64{"w": acknowledged.Load()})
		if jobs.Load() < 20 {
			t.Errorf("only %d jobs ran", jobs.Load())
		}
	})
}

// A reader asks whoever owned the bucket last, and finds who owns it now.
func TestReadsFollowTheirBuckets(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		b := c.owning("s1", 1)[0]
		key := keyIn(buckets.ID(b), 12, 0)
		_, err := c.log.Append(t.Context(), buckets.RecSubject(buckets.ID(b)), nil, buckets.AppendFrame(nil, 0, key, []byte("v")), "")
		c.must(err)
		var over atomic.Bool
		var reading sync.WaitGroup
		reads := 0
		reading.Go(func() {
			for ; !over.Load(); reads++ {
				var reply api.GetReply
				if err := c.request("record.get", api.KeyRequest{Key: key}, &reply); err != nil || string(reply.Value) != "v" {
					t.Errorf("read %d: %q, %v", reads, reply.Value, err)
				}
				time.Sleep(time.Millisecond)
			}
		})
		src, dst := "s1", "s2"
		for i := range 6 {
			id := fmt.Sprint("m", i)
			c.publish(api.MoveOrder{ID: id, Src: src, Dst: dst, Buckets: []uint16{b}})
			c.wantEnd(id, "done", "")
			src, dst = dst, src
		}
		over.Store(true)
		reading.Wait()
		if reads < 100 {
			t.Errorf("only %d reads", reads)
		}
	})
}

// A bucket that was moved away stays in the snapshots that were taken before, though its source has forgotten it.
func TestASnapshotJobKeepsABucketThatHasLeft(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
		mapping, free := c.block()
		type result struct {
			counts map[string]int64
			err    error
		}
		done := make(chan result, 1)
		go func() {
			req := wordCount
			req.Mode = api.ModeSnapshot
			counts, _, err := c.job(req)
			done <- result{counts, err}
		}()
		<-mapping
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: c.owning("s1", 6)})
		c.wantEnd("m1", "done", "")
		began := time.Now()
		c.wantQuiet() // s1 has forgotten all it had
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("s1 kept what it had given away for %s", took)
		}
		free()
		r := <-done
		c.must(r.err)
		for w, n := range r.counts {
			if n != 1 {
				t.Errorf("%s was counted %d times", w, n)
			}
		}
		if len(r.counts) != 12 {
			t.Errorf("%d words were counted", len(r.counts))
		}
	})
}

// Two movers of one order share nothing but what the destination receives.
func TestTwoMoversOfOneOrder(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		c.startRouter("r2", 2)
		c.topology(api.TopologyRequest{Set: map[string]string{"parallel_moves": "2"}})
		time.Sleep(2 * time.Second)
		names := map[string]bool{}
		var mu sync.Mutex
		c.mem.SetFaults(busmem.Faults{Request: func(call busmem.Call) busmem.Fault {
			if strings.HasSuffix(call.Subject, ".gate") {
				var req api.GateRequest
				c.must(api.Decode(call.Body, &req, api.Strict))
				mu.Lock()
				defer mu.Unlock()
				names[req.Gate] = true
			}
			return busmem.Fault{Delay: 50 * time.Millisecond}
		}})
		before := c.taken()
		bs := c.owning("s1", 3)
		orders, err := openOrders(t.Context(), c.client)
		c.must(err)
		c.must(orders.SetParallel(t.Context(), 2))
		body, err := api.Encode(api.JSON, api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		c.must(err)
		for i := range 2 { // as if the first mover were thought to be dead
			c.must(orders.moves.Publish(t.Context(), body, fmt.Sprint("copy", i)))
		}
		c.await("both have ended", func() bool {
			var reply api.MovesReply
			c.must(c.request("admin.moves", api.Empty{}, &reply))
			return len(reply.Running) == 0 && len(reply.Ended) == 4 // with the first assignments
		})
		c.mem.SetFaults(busmem.Faults{})
		c.wantOwner("s2", bs...)
		if got := c.taken()["s2"] - before["s2"]; got != 3 || len(names) != 2 {
			t.Errorf("%d ownership entries of 3 buckets, gates of %d names", got, len(names))
		}
		c.wantQuiet()
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
	})
}

// A mover is cut off for good at each of its messages in turn, before it arrives or before it is answered. The next
// router finishes the order. Whatever was under way, a bucket has one owner and nothing is left behind.
func TestAMoverThatVanishesAtEachOfItsMessages(t *testing.T) {
	for _, answered := range []bool{false, true} {
		for at := 1; ; at++ {
			reached := false
			t.Run(fmt.Sprintf("answered=%v/at=%d", answered, at), func(t *testing.T) {
				settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
					reached = c.vanish(at, answered)
				})
			})
			if !reached {
				if at < 6 {
					t.Errorf("a move has only %d messages", at-1)
				}
				break
			}
		}
	}
}

// vanish cuts the first mover off at its message of a number, and reports whether there was one.
func (c *cluster) vanish(at int, answered bool) bool {
	c.put("", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
	var count atomic.Int64
	cutAt := func(call busmem.Call, peer string) busmem.Fault {
		_, verb, _ := strings.Cut(strings.TrimPrefix(call.Subject, "storage."), ".")
		if !strings.HasPrefix(call.Subject, "storage.") || !slices.Contains([]string{"receive", "gate", "activate", "ungate"}, verb) || peer != "r1" && !answered {
			return busmem.Fault{}
		}
		if count.Add(1) == int64(at) {
			c.mem.Cut("r1")
			return busmem.Fault{Drop: true}
		}
		return busmem.Fault{}
	}
	faults := busmem.Faults{Request: func(call busmem.Call) busmem.Fault { return cutAt(call, call.From) }}
	if answered {
		faults = busmem.Faults{Reply: func(call busmem.Call) busmem.Fault { return cutAt(call, "") }}
	}
	bs := c.owning("s1", 3)
	c.mem.SetFaults(faults)
	c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
	c.await("the first mover is gone or done", func() bool {
		_, done := c.ended("m1")
		return done || count.Load() >= int64(at)
	})
	time.Sleep(time.Second)
	reached := count.Load() >= int64(at)
	c.mem.SetFaults(busmem.Faults{})
	if reached {
		c.startRouter("r2", 2)
		c.await("the order is done", func() bool { return len(c.table().Of("s2")) == 9 })
		c.mem.Heal("r1")
	}
	c.wantOwner("s2", bs...)
	c.wantQuiet()
	want := map[string]int64{}
	for _, w := range strings.Split("abcdefghijkl", "") {
		want[w] = 1
	}
	c.expectJob(want)
	return reached
}

// From s1 to s2 and at once from s2 to s3: the second order waits for the first.
func TestAChainOfMoves(t *testing.T) {
	settled(t, options{storages: 3, settings: small}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		bs := c.owning("s1", 2)
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		c.publish(api.MoveOrder{ID: "m2", Src: "s2", Dst: "s3", Buckets: bs})
		c.publish(api.MoveOrder{ID: "m3", Src: "s3", Dst: "s1", Buckets: bs})
		c.publish(api.MoveOrder{ID: "m4", Src: "s2", Dst: "s3", Buckets: bs}) // it was left by then
		for _, id := range []string{"m1", "m2", "m3"} {
			c.wantEnd(id, "done", "")
		}
		c.wantEnd("m4", "dropped", fmt.Sprintf("bucket %d belongs to s1", bs[0]))
		c.wantOwner("s1", bs...)
		c.wantQuiet()
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
	})
}

// forgetfulOrders lose the first acknowledgement.
type forgetfulOrders struct {
	node.Orders
	lost *atomic.Int64
}

func (o forgetfulOrders) Consume(ctx context.Context, fn func(context.Context, node.OrderDelivery)) error {
	return o.Orders.Consume(ctx, func(ctx context.Context, d node.OrderDelivery) {
		if d.Order.NeedsGates() {
			d.Delivery = forgetfulDelivery{d.Delivery, o.lost}
		}
		fn(ctx, d)
	})
}

type forgetfulDelivery struct {
	node.Delivery
	lost *atomic.Int64
}

func (d forgetfulDelivery) Ack(ctx context.Context) error {
	if d.lost.Add(1) == 1 {
		return api.Errorf(api.CodeUnavailable, "the acknowledgement is not confirmed")
	}
	return d.Delivery.Ack(ctx)
}

func TestALostAcknowledgement(t *testing.T) {
	var acks atomic.Int64
	o := options{storages: 2, settings: small, tweak: func(_ string, p *node.Ports) { p.Orders = forgetfulOrders{p.Orders, &acks} }}
	settled(t, o, func(t *testing.T, c *cluster) {
		before := c.taken()["s2"]
		bs := c.owning("s1", 2)
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		c.await("it was delivered twice", func() bool { return acks.Load() == 2 })
		c.wantOwner("s2", bs...)
		if n := c.taken()["s2"] - before; n != 2 {
			t.Errorf("%d ownership entries for two buckets", n)
		}
	})
}

// The entries of an activation are under way for longer than the gates last: a job runs meanwhile, and when they arrive
// they count for nothing, though the bucket has no other owner since. The order comes again.
func TestALateActivation(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		want := map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1}
		bs := c.owning("s1", 1)
		before, taken := c.table().Owner(buckets.ID(bs[0])), c.taken()["s2"]
		var late atomic.Bool
		late.Store(true)
		c.mem.SetFaults(busmem.Faults{Append: func(_, subject string) busmem.AppendFault {
			if late.Load() && strings.HasPrefix(subject, "own.") {
				return busmem.AppendFault{Delay: 30 * time.Second}
			}
			return busmem.AppendFault{}
		}})
		fences := len(c.fences("s1"))
		c.publish(api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: bs})
		c.await("both gates have ended", func() bool { return len(c.fences("s1")) > fences })
		c.expectJob(want)
		c.await("the activation arrives", func() bool { return c.taken()["s2"] > taken })
		if now := c.table().Owner(buckets.ID(bs[0])); now != before {
			t.Errorf("the bucket belongs to %+v by an activation that came too late, and did to %+v", now, before)
		}
		c.expectJob(want)
		late.Store(false)
		if end := c.wantEnd("m1", "done", ""); end.Delivery < 2 {
			t.Errorf("it was done by delivery %d", end.Delivery)
		}
		time.Sleep(time.Minute)
		c.wantOwner("s2", bs...)
		c.wantQuiet()
		c.expectJob(want)
	})
}
