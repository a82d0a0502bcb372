package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

// gate asks s1 for a gate.
func (c *cluster) gate(id string, wait time.Duration) api.GateReply {
	c.t.Helper()
	var reply api.GateReply
	c.must(c.request("storage.s1.gate", api.GateRequest{Gate: id, TTLMS: 10_000, WaitMS: wait.Milliseconds()}, &reply))
	return reply
}

// block has guests wait until they are let go, or stopped.
func (c *cluster) block() (mapping <-chan struct{}, free func()) {
	started, blocked := make(chan struct{}, 1000), make(chan struct{})
	c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
		started <- struct{}{}
		select {
		case <-blocked:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return started, func() { close(blocked) }
}

func (c *cluster) background(req api.JobRequest) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, _, err := c.job(req)
		done <- err
	}()
	return done
}

// A gate waits for a job that holds buckets in place, and a job that begins meanwhile is refused once the
// quota is used up, and then comes through.
func TestAGateAndJobsThatHold(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d", "e", "f")
		var q api.Quotas
		c.must(c.request("admin.quotas", api.QuotasRequest{Pins: new(0)}, &q))
		if q != (api.Quotas{Pins: 0, Gates: node.DefaultGateQuota}) {
			t.Errorf("the quotas are %+v", q)
		}
		time.Sleep(3 * time.Second) // the storages follow
		mapping, free := c.block()
		first := c.background(wordCount)
		<-mapping
		if g := c.gate("g1", time.Second); g.State != "waiting" || g.Running != 1 || g.LongestHoldMS != node.DefaultLongestHold.Milliseconds() {
			t.Errorf("a gate beside a job is %+v", g)
		}
		second := c.background(wordCount)
		c.await("the second job leaves a ticket", func() bool { return c.status().Storages[0].Tickets == 1 })
		c.gate("g1", 0) // renewed
		free()
		c.must(<-first)
		g := c.gate("g1", 2*time.Second)
		if g.State != "held" || g.Running != 0 || g.Fence == 0 {
			t.Errorf("the gate is %+v after the job", g)
		}
		select {
		case err := <-second:
			t.Errorf("a job ran while the gate was held: %v", err)
		case <-time.After(5 * time.Second):
		}
		c.must(c.request("storage.s1.ungate", api.GateName{Gate: "g1"}, nil))
		c.must(<-second)
		if s := c.status().Storages[0]; s.Gate != "" || s.Tickets != 0 || len(s.PMRs) != 0 {
			t.Errorf("left: %+v", s)
		}
		if g := c.gate("g2", time.Second); g.State != "held" || g.Fence <= 0 {
			t.Errorf("the next gate is %+v", g)
		}
		c.must(c.request("storage.s1.ungate", api.GateName{Gate: "g2"}, nil))
	})
}

// A gate's end sets a new fence before anything else is granted.
func TestEachGateHasAFenceOfItsOwn(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		last := uint64(0)
		for _, id := range []string{"g1", "g2", "g3"} {
			g := c.gate(id, 5*time.Second)
			if g.State != "held" || g.Fence <= last {
				t.Fatalf("%s is %+v, after the fence %d", id, g, last)
			}
			last = g.Fence
			if id == "g2" {
				time.Sleep(15 * time.Second) // it ends by itself
				continue
			}
			c.must(c.request("storage.s1.ungate", api.GateName{Gate: id}, nil))
		}
	})
}

// A job that maps a snapshot delays no gate, however long it takes.
func TestASnapshotJobDelaysNoGate(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d", "e", "f")
		mapping, free := c.block()
		req := wordCount
		req.Mode = api.ModeSnapshot
		done := c.background(req)
		<-mapping
		if g := c.gate("g1", 0); g.State != "held" || g.Running != 0 {
			t.Errorf("beside a job in mode snapshot the gate is %+v", g)
		}
		another := c.background(req) // it is not refused either
		c.await("both jobs are pinned", func() bool { return len(c.status().Storages[0].PMRs) == 2 })
		free()
		c.must(<-done)
		c.must(<-another)
		c.must(c.request("storage.s1.ungate", api.GateName{Gate: "g1"}, nil))
	})
}

func TestQuotasThatWouldBlockBothSidesAreRefused(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		for _, q := range []api.QuotasRequest{{Pins: new(0), Gates: new(0)}, {Pins: new(-1)}, {Gates: new(1_000_000)}} {
			if err := c.request("admin.quotas", q, nil); api.CodeOf(err) != api.CodeBadRequest {
				t.Errorf("%v: %v", q, err)
			}
		}
	})
}
