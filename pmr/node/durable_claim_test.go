package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

// Requests with one id are answered from one job, whichever routers they reach.
func TestARepeatedRequestJoinsTheJobAtAnyRouter(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		for _, id := range []string{"r2", "r3"} {
			c.startRouter(id, 1)
		}
		c.put("", "a")
		runs := 0
		c.mapper.setHook(func(_ context.Context, _ node.Task, b buckets.ID) error {
			if b == 0 {
				runs++
				time.Sleep(5 * time.Second)
			}
			return nil
		})
		req := wordCount
		req.Job = "j"
		cuts := make(chan uint64, 8)
		for range 8 {
			go func() {
				_, reply, err := c.job(req)
				if err != nil {
					t.Error(err)
					cuts <- 0
					return
				}
				cuts <- reply.Stats.Cut
			}()
		}
		first := <-cuts
		for range 7 {
			if cut := <-cuts; cut != first {
				t.Errorf("cuts %d and %d", first, cut)
			}
		}
		_, reply, err := c.job(req) // also when it is over
		c.must(err)
		if reply.Stats.Cut != first || runs != 1 {
			t.Errorf("cut %d, then %d; mapped %d times", first, reply.Stats.Cut, runs)
		}
	})
}

func TestAClaimIsTakenOverFromARouterThatIsGone(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.put("", "a")
		c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
			<-ctx.Done()
			return ctx.Err()
		})
		req := wordCount
		req.Job, req.WaitMS = "j", 1000
		var reply api.JobReply
		c.must(c.request("job.run", req, &reply))
		if reply.Status != api.JobRunning {
			t.Fatalf("%+v", reply)
		}
		c.startRouter("r2", 1)
		c.retire("r1")
		c.mapper.setHook(nil)
		req.WaitMS = 0
		counts, reply, err := c.job(req)
		c.must(err)
		expectCounts(t, counts, map[string]int64{"a": 1})
		// r2 may have pinned for an attempt 1 too, before it knew that r1 had the id; it maps under numbers of its own.
		if reply.Stats.Attempts != 1 || c.attempts("j")[1<<20+1] != 1 {
			t.Errorf("%d attempts, in the log %v", reply.Stats.Attempts, c.attempts("j"))
		}
	})
}

func TestAnIdIsOfOneKindOfJob(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.put("", "a")
		req := wordCount
		req.Job = "j"
		_, _, err := c.job(req)
		c.must(err)
		if _, err := c.submit(req); api.CodeOf(err) != api.CodeNameTaken {
			t.Errorf("submitted with the id of an interactive job: %v", err)
		}
		time.Sleep(7 * time.Minute) // the claim lapses with the result
		if state, err := c.submit(req); err != nil || state.State != api.JobQueued {
			t.Errorf("%+v, %v", state, err)
		}
		c.awaitState("j", api.JobDone)
	})
}

// An id belongs to one question: another one is not answered with the first one's rows.
func TestAnIdIsOfOneQuestion(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.put("", "a b")
		c.startRouter("r2", 1)
		interactive, durable := wordCount, wordCount
		interactive.Job, durable.Job = "i", "d"
		_, _, err := c.job(interactive)
		c.must(err)
		_, err = c.submit(durable)
		c.must(err)
		c.awaitState("d", api.JobDone)
		for range 8 { // whichever router answers
			for _, first := range []api.JobRequest{interactive, durable} {
				other := first
				other.Limit = 1
				if _, _, err := c.job(other); api.CodeOf(err) != api.CodeNameTaken {
					t.Errorf("another question of job %s ended with %v", first.Job, err)
				}
				again := first
				again.MaxBytes, again.TimeoutMS, again.Proof = 4096, 30_000, false // changes no row
				if counts, _, err := c.job(again); err != nil || counts["a"] != 1 {
					t.Errorf("job %s again: %v, %v", first.Job, counts, err)
				}
			}
		}
	})
}
