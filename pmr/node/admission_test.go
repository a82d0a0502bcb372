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
	"github.com/pinion-mr/pinion/pmr/node"
)

// crowd counts the jobs whose guests run at the same time.
type crowd struct {
	mu           sync.Mutex
	running      map[string]int // guests by job
	most, guests int
}

func (w *crowd) hook(ctx context.Context, task node.Task, _ buckets.ID) error {
	w.mu.Lock()
	w.running[task.Job]++
	n := 0
	for _, guests := range w.running {
		n += guests
	}
	w.most, w.guests = max(w.most, len(w.running)), max(w.guests, n)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.running[task.Job]--; w.running[task.Job] == 0 {
			delete(w.running, task.Job)
		}
	}()
	select {
	case <-time.After(5 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A thousand jobs of one client come at once: all are right, at no time do more run than may, and the job of
// another client does not wait for them.
func TestAThousandJobsAtOnce(t *testing.T) {
	bubble(t, 2, api.Settings{Buckets: 2}, func(t *testing.T, c *cluster) {
		c.put("", "a b", "b")
		w := &crowd{running: map[string]int{}}
		c.mapper.setHook(w.hook)
		began := time.Now()
		var jobs sync.WaitGroup
		var last, other time.Duration
		var mu sync.Mutex
		one := func(client string, end func(time.Duration)) {
			counts, _, err := c.job(api.JobRequest{Module: "words", Reduce: "sum", Client: client})
			if err != nil || counts["a"] != 1 || counts["b"] != 2 {
				t.Errorf("a job of %s counted %v, error %v", client, counts, err)
			}
			mu.Lock()
			defer mu.Unlock()
			end(time.Since(began))
		}
		for range 1000 {
			jobs.Go(func() {
				one("crowd", func(d time.Duration) { last = max(last, d) })
			})
		}
		time.Sleep(time.Millisecond) // now all are there
		if st := c.status(); st.Jobs > 48 || st.Jobs+st.JobsWaiting < 900 {
			t.Errorf("%d jobs run and %d wait", st.Jobs, st.JobsWaiting)
		}
		asked := time.Since(began)
		jobs.Go(func() { one("other", func(d time.Duration) { other = d - asked }) })
		jobs.Wait()
		if 8*other > last {
			t.Errorf("the other client's job took %s, the crowd's %s", other, last)
		}
		if w.most > 64 {
			t.Errorf("guests of %d jobs ran at once", w.most)
		}
	})
}

func TestWaitingForATurn(t *testing.T) {
	bubbleWith(t, options{storages: 2, settings: small, jobs: 1, queue: 2}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		mapping, free := c.block()
		first := c.background(wordCount)
		<-mapping
		events := make(chan api.JobProgress, 100)
		_, err := c.client.Subscribe("job.*.events", func(_ string, body []byte) {
			var p api.JobProgress
			if api.Decode(body, &p, api.Lenient) == nil && p.Phase == "queued" {
				events <- p
			}
		})
		c.must(err)
		ask := func(id string, timeout time.Duration) <-chan error {
			req := wordCount
			req.Job, req.TimeoutMS = id, timeout.Milliseconds()
			return c.background(req)
		}
		second := ask("second", time.Minute)
		if p := <-events; p.Job != "second" || p.Place != 1 {
			t.Errorf("told %+v", p)
		}
		third := ask("third", 3*time.Second)
		for p := range events {
			if p.Job == "third" {
				if p.Place != 2 {
					t.Errorf("told %+v", p)
				}
				break
			}
		}
		if err := <-ask("fourth", time.Minute); api.CodeOf(err) != api.CodeBusy || !strings.Contains(err.Error(), "2 wait of at most 2") {
			t.Errorf("beyond the queue: %v", err)
		}
		asked := time.Now()
		err = <-third
		if api.CodeOf(err) != api.CodeTimeout || !strings.Contains(err.Error(), "turn, as number 2") || time.Since(asked) > 4*time.Second {
			t.Errorf("a job whose time was over in the queue: %v after %s", err, time.Since(asked))
		}
		c.must(c.request("job.cancel", api.CancelRequest{Job: "second"}, nil))
		if err := <-second; api.CodeOf(err) != api.CodeCanceled {
			t.Errorf("a job that was cancelled in the queue: %v", err)
		}
		fifth := ask("fifth", time.Minute) // there is room again
		free()
		c.must(<-first)
		c.must(<-fifth)
		if st := c.status(); st.Jobs+st.JobsWaiting != 0 {
			t.Errorf("left: %d run, %d wait", st.Jobs, st.JobsWaiting)
		}
	})
}

// A router that stops ends the jobs that wait, too.
func TestARouterThatStopsEndsJobsThatWait(t *testing.T) {
	bubbleWith(t, options{storages: 1, settings: small, jobs: 1}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		mapping, _ := c.block()
		var ends []<-chan error
		ends = append(ends, c.background(wordCount))
		<-mapping
		for i := range 3 {
			req := wordCount
			req.Job = fmt.Sprint("waits", i)
			ends = append(ends, c.background(req))
		}
		c.await("they wait", func() bool { return c.status().JobsWaiting == 3 })
		c.stop("r1")
		for _, end := range ends {
			if err := <-end; api.CodeOf(err) != api.CodeUnavailable {
				t.Errorf("a job of a router that stops ended with %v", err)
			}
		}
		c.startRouter("r1", 1)
	})
}

// A map that holds buckets in place is stopped after a while; one that does not goes on.
func TestTheLongestHold(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c")
		c.mapper.setHook(func(ctx context.Context, _ node.Task, b buckets.ID) error {
			if b > 0 {
				return nil
			}
			select {
			case <-time.After(7 * time.Minute):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		run := func(mode string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			req := wordCount
			req.Mode, req.TimeoutMS = mode, time.Hour.Milliseconds()
			return c.client.Request(ctx, "job.run", req, nil)
		}
		began := time.Now()
		err := api.AsError(run(api.ModeHold))
		if err.Code != api.CodeTimeout || !strings.Contains(err.Message, "longest-hold (5m0s)") || !strings.Contains(err.Hint, "--mode snapshot") || err.Details["storage"] == "" {
			t.Errorf("the job in mode hold ended with %+v", err)
		}
		if took := time.Since(began); took < 5*time.Minute || took > 5*time.Minute+10*time.Second {
			t.Errorf("it took %s", took)
		}
		c.await("nothing is held", func() bool { return pins(c.status()) == 0 })
		c.must(run(api.ModeSnapshot))
	})
}
