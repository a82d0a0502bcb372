package node_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/pmr/node"
)

// lasting has every map of a bucket take some time.
func lasting(d time.Duration) func(context.Context, node.Task, buckets.ID) error {
	return func(ctx context.Context, _ node.Task, _ buckets.ID) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestALongJobStaysWithItsRouter(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf queue ", deaf), func(t *testing.T) {
			tweak := func(_ string, p *node.Ports) {
				if deaf { // so the router is handed its own job
					p.JobQueue = deafQueue{p.JobQueue}
				}
			}
			bubbleWith(t, options{storages: 1, settings: small, tweak: tweak}, func(t *testing.T, c *cluster) {
				if !deaf {
					c.startRouter("r2", 1)
				}
				c.put("", "a")
				c.mapper.setHook(lasting(40 * time.Second))
				c.submitted("j")
				time.Sleep(20 * time.Second)
				if info := c.info("j"); info.State != api.JobRunning || info.Take != 1 {
					t.Errorf("in the middle: %+v", info)
				}
				if info := c.awaitState("j", api.JobDone); info.Take != 1 || info.Attempts != 1 {
					t.Errorf("at the end: %+v", info)
				}
				c.expectResult("j", map[string]int64{"a": 1})
			})
		})
	}
}

// quietPeers do not let through that a job is cancelled.
type quietPeers struct{ node.Peers }

func (p quietPeers) Request(ctx context.Context, subject string, in, out any) error {
	if strings.HasPrefix(subject, "router.") && strings.HasSuffix(subject, ".cancel") {
		return api.Errorf(api.CodeTimeout, "lost on the way")
	}
	return p.Peers.Request(ctx, subject, in, out)
}

func TestARouterReadsThatItsJobIsCancelled(t *testing.T) {
	tweak := func(_ string, p *node.Ports) { p.Peers = quietPeers{p.Peers} }
	bubbleWith(t, options{storages: 1, settings: small, tweak: tweak}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		c.mapper.setHook(lasting(40 * time.Second))
		c.submitted("j")
		c.awaitState("j", api.JobRunning)
		time.Sleep(time.Second)
		c.must(c.request("job.cancel", api.CancelRequest{Job: "j"}, nil))
		time.Sleep(8 * time.Second)
		if info := c.info("j"); info.State != api.JobCanceled || info.Take != 1 {
			t.Errorf("%+v", info)
		}
		for _, s := range c.status().Storages {
			if len(s.PMRs) > 0 {
				t.Errorf("%s holds %+v", s.Storage, s.PMRs)
			}
		}
	})
}

func TestRoutersTakeJobsWhileTheyHaveRoom(t *testing.T) {
	bubble(t, 1, api.Settings{Buckets: 2}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		c.mapper.setHook(lasting(time.Second))
		const n = 40
		for i := range n {
			c.submitted(fmt.Sprint("j", i))
		}
		running := func() (by map[string]int, left int) {
			var list api.JobsReply
			c.must(c.request("job.list", api.JobsRequest{Limit: n}, &list))
			by = map[string]int{}
			for _, info := range list.Jobs {
				if info.State == api.JobRunning {
					by[peerOf(info.Router)]++
				}
				if !info.State.Over() {
					left++
				}
			}
			return by, left
		}
		time.Sleep(500 * time.Millisecond)
		if by, _ := running(); by["r1"] != 16 {
			t.Errorf("one router has %v", by)
		}
		c.startRouter("r2", 1)
		time.Sleep(500 * time.Millisecond)
		if by, _ := running(); by["r1"] != 16 || by["r2"] != 16 {
			t.Errorf("two routers have %v", by)
		}
		c.await("all are over", func() bool { _, left := running(); return left == 0 })
		for i := range n {
			if info := c.info(fmt.Sprint("j", i)); info.State != api.JobDone || info.Take != 1 {
				t.Errorf("%+v", info)
			}
		}
	})
}

// slowReads give others time between a read and the write that follows.
type slowReads struct{ node.Records }

func (kv slowReads) Get(ctx context.Context, key string) (api.KVEntry, error) {
	e, err := kv.Records.Get(ctx, key)
	time.Sleep(50 * time.Millisecond)
	return e, err
}

// Each job has two messages in the queue, and two routers are handed them at the same time.
func TestAJobWithTwoMessagesRunsOnce(t *testing.T) {
	queue := closedQueue{}
	tweak := func(_ string, p *node.Ports) {
		if queue.open == nil {
			queue.open = make(chan struct{})
		}
		p.JobQueue, p.Jobs = closedQueue{p.JobQueue, queue.open}, slowReads{p.Jobs}
	}
	bubbleWith(t, options{storages: 1, settings: small, tweak: tweak}, func(t *testing.T, c *cluster) {
		c.startRouter("r2", 1)
		c.put("", "a")
		var mu sync.Mutex
		runs := map[string]int{}
		c.mapper.setHook(func(_ context.Context, task node.Task, _ buckets.ID) error {
			mu.Lock()
			defer mu.Unlock()
			runs[task.Job]++
			return nil
		})
		again, err := c.client.Queue(t.Context(), "jobs", false, bus.QueueConfig{})
		c.must(err)
		const n = 12
		for i := range n {
			c.submitted(fmt.Sprint("j", i))
		}
		for i := range n { // so that one router is handed the doubles of the other's
			id := fmt.Sprint("j", i)
			body, err := api.Encode(api.JSON, api.QueuedJob{Job: id})
			c.must(err)
			c.must(again.Publish(t.Context(), body, "double of "+id))
		}
		close(queue.open)
		for i := range n {
			if info := c.awaitState(fmt.Sprint("j", i), api.JobDone); info.Take != 1 {
				t.Errorf("%+v", info)
			}
		}
		time.Sleep(time.Minute)
		for id, times := range runs {
			if times != 1 {
				t.Errorf("%s ran %d times", id, times)
			}
		}
	})
}

func TestTheTimeOfADurableJobBeginsWhenItRuns(t *testing.T) {
	bubbleWith(t, options{storages: 1, settings: small, jobs: 1}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		c.mapper.setHook(lasting(20 * time.Second))
		var reply api.JobReply
		c.must(c.request("job.run", api.JobRequest{Module: "words", WaitMS: 100}, &reply))
		c.mapper.setHook(nil)
		req := wordCount
		req.Job, req.TimeoutMS = "j", 5000
		_, err := c.submit(req)
		c.must(err)
		time.Sleep(10 * time.Second)
		if info := c.info("j"); info.State != api.JobRunning || info.Progress == nil || info.Progress.Place != 1 {
			t.Errorf("while it waits: %+v, %+v", info, info.Progress)
		}
		if info := c.awaitState("j", api.JobDone); info.Take != 1 || info.Stats.Millis > 5000 {
			t.Errorf("%+v, %+v", info, info.Stats)
		}
	})
}
