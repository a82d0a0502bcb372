package node_test

import (
	"context"
	"fmt"
	"io"
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

// keys lists what is kept about jobs.
func (c *cluster) keys(bucket string) []string {
	c.t.Helper()
	records, err := c.client.KV(c.t.Context(), bucket, false, 1)
	c.must(err)
	keys, err := records.Keys(c.t.Context(), "")
	c.must(err)
	return keys
}

// slowCreates leave requests time to come at the same moment.
type slowCreates struct{ node.Records }

func (r slowCreates) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	time.Sleep(100 * time.Millisecond)
	return r.Records.Create(ctx, key, value)
}

func TestTheQueueOfDurableJobsIsBounded(t *testing.T) {
	tweak := func(_ string, p *node.Ports) { p.Jobs = slowCreates{p.Jobs} }
	bubbleWith(t, options{storages: 1, settings: small, durable: 3, tweak: tweak}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		open := make(chan struct{})
		c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
			select {
			case <-open:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		var taken atomic.Int32
		var crowd sync.WaitGroup
		for i := range 20 {
			crowd.Go(func() {
				req := wordCount
				req.Job, req.TimeoutMS = fmt.Sprintf("j%02d", i), time.Hour.Milliseconds()
				switch _, err := c.submit(req); {
				case err == nil:
					taken.Add(1)
				case api.CodeOf(err) != api.CodeBusy || !strings.Contains(err.Error(), "--durable-queue") || api.AsError(err).Details["value"] != "3":
					t.Errorf("refused with %v", err)
				}
			})
		}
		crowd.Wait()
		stored := c.keys("JOBS")
		if n := int(taken.Load()); n != len(stored) || n > 3 {
			t.Fatalf("%d were taken in, stored are %q", n, stored)
		}
		for i := len(stored); i < 3; i++ { // those that came at the same moment may have refused each other
			c.submitted(fmt.Sprintf("more%d", i))
		}
		late := wordCount
		late.Job = "late"
		if _, err := c.submit(late); api.CodeOf(err) != api.CodeBusy || !strings.Contains(err.Error(), "3 durable jobs wait or run, of at most 3") {
			t.Errorf("one too many: %v", err)
		}
		if jobs, claims := c.keys("JOBS"), c.keys("CLAIMS"); len(jobs) != 3 || slices.Contains(jobs, "job.late") || slices.Contains(claims, "late") {
			t.Errorf("stored are %q, claimed %q", jobs, claims)
		}
		again := wordCount
		again.Job, again.TimeoutMS = stored[0][len("job."):], time.Hour.Milliseconds()
		if state, err := c.submit(again); err != nil || state.Job != again.Job || state.State.Over() {
			t.Errorf("one that is there already: %+v, %v", state, err)
		}
		again.Limit = 1
		if _, err := c.submit(again); api.CodeOf(err) != api.CodeBusy {
			t.Errorf("another job of its id: %v", err)
		}
		close(open)
		c.awaitState(stored[0][len("job."):], api.JobDone)
		c.await("there is room", func() bool { _, err := c.submit(late); return err == nil })
		c.awaitState("late", api.JobDone)
	})
}

func TestARouterTakesNoMoreDurableJobsThanItRuns(t *testing.T) {
	bubbleWith(t, options{storages: 1, settings: small, jobs: 2}, func(t *testing.T, c *cluster) {
		c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
			<-ctx.Done()
			return ctx.Err()
		})
		c.put("", "a")
		for i := range 5 {
			c.submitted(fmt.Sprint("j", i))
		}
		time.Sleep(5 * time.Second)
		taken := 0
		for i := range 5 {
			taken += c.info(fmt.Sprint("j", i)).Take
		}
		if taken != 2 {
			t.Errorf("%d jobs were taken by a router that runs 2", taken)
		}
		for i := range 5 {
			c.must(c.request("job.cancel", api.CancelRequest{Job: fmt.Sprint("j", i)}, nil))
		}
	})
}

// A label names the module for people, and does not make another job of the same request.
func TestALabelNamesTheModule(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.put("", "a")
		req := wordCount
		req.Job, req.Label = "j", "mine.wasm"
		_, err := c.submit(req)
		c.must(err)
		if info := c.awaitState("j", api.JobDone); info.Module != "mine.wasm" {
			t.Errorf("%+v", info)
		}
		req.Label = "other.wasm"
		if state, err := c.submit(req); err != nil || !state.Over {
			t.Errorf("%+v, %v", state, err)
		}
		req.Label = strings.Repeat("x", 513)
		if _, err := c.submit(req); api.CodeOf(err) != api.CodeBadRequest {
			t.Errorf("a long label: %v", err)
		}
		req.Job, req.Label = "direct", "mine.wasm"
		_, _, err = c.job(req)
		c.must(err)
		if info := c.info("direct"); info.Module != "mine.wasm" {
			t.Errorf("%+v", info)
		}
	})
}

// countedRecords counts the values that are read of lists.
type countedRecords struct {
	node.Records
	values *atomic.Int32
}

func (r countedRecords) Each(ctx context.Context, prefix string, fn func(api.KVEntry)) error {
	return r.Records.Each(ctx, prefix, func(e api.KVEntry) {
		r.values.Add(1)
		fn(e)
	})
}

func TestListsReadNoClaims(t *testing.T) {
	var values atomic.Int32
	tweak := func(_ string, p *node.Ports) { p.Jobs = countedRecords{p.Jobs, &values} }
	bubbleWith(t, options{storages: 1, settings: small, tweak: tweak}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		for i := range 30 {
			req := wordCount
			req.Job = fmt.Sprint("interactive", i)
			_, _, err := c.job(req)
			c.must(err)
		}
		c.submitted("durable")
		c.awaitState("durable", api.JobDone)
		if n := len(c.keys("CLAIMS")); n != 31 {
			t.Fatalf("%d claims", n)
		}
		values.Store(0)
		var list api.JobsReply
		c.must(c.request("job.list", api.JobsRequest{}, &list))
		if n := values.Load(); n != 1 || len(list.Jobs) != 31 {
			t.Errorf("%d records were read to list %d jobs", n, len(list.Jobs))
		}
		values.Store(0)
		for id, near := range map[string]string{"durabel": "durable", "interactiv7": "interactive7"} {
			err := c.request("job.get", api.JobName{Job: id}, nil)
			if api.CodeOf(err) != api.CodeUnknownJob || !strings.Contains(err.Error(), "did you mean "+near+"?") {
				t.Errorf("%s: %v", id, err)
			}
		}
		if n := values.Load(); n != 0 {
			t.Errorf("%d records were read to suggest an id", n)
		}
	})
}

// While a durable job is being stored, job.run of its id waits for it; if whoever stored it died, it runs.
func TestAnIdThatIsBeingSubmitted(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.put("", "a")
		claims, err := c.client.KV(t.Context(), "CLAIMS", false, 1)
		c.must(err)
		for _, id := range []string{"stored", "died"} {
			_, err := claims.CreateTTL(t.Context(), id, []byte(`{"version":1,"job":"`+id+`","durable":true,"state":"queued","router":"r2-0"}`), time.Minute)
			c.must(err)
			if err := c.request("job.get", api.JobName{Job: id}, nil); api.CodeOf(err) != api.CodeUnknownJob {
				t.Errorf("%s: %v", id, err)
			}
		}
		took := map[string]time.Duration{}
		var mu sync.Mutex
		var running sync.WaitGroup
		for _, id := range []string{"stored", "died"} {
			running.Go(func() {
				req, began := wordCount, time.Now()
				req.Job = id
				counts, _, err := c.job(req)
				if err != nil || counts["a"] != 1 {
					t.Errorf("%s: %v, %v", id, counts, err)
				}
				mu.Lock()
				defer mu.Unlock()
				took[id] = time.Since(began)
			})
		}
		time.Sleep(5 * time.Second)
		c.submitted("stored")
		running.Wait()
		if took["stored"] > 20*time.Second || took["died"] < 50*time.Second {
			t.Errorf("took %v", took)
		}
		if info := c.info("stored"); !info.Durable || info.State != api.JobDone {
			t.Errorf("%+v", info)
		}
		if info := c.info("died"); info.Durable {
			t.Errorf("%+v", info)
		}
	})
}

// forgetfulQueue forgets what is given back, as a server does that stops then.
type forgetfulQueue struct{ node.JobQueue }

func (q forgetfulQueue) Consume(ctx context.Context, most int, fn func(context.Context, node.JobDelivery)) error {
	return q.JobQueue.Consume(ctx, most, func(ctx context.Context, d node.JobDelivery) {
		d.Delivery = forgetful{d.Delivery}
		fn(ctx, d)
	})
}

type forgetful struct{ node.Delivery }

func (forgetful) Nak(time.Duration) error { return nil }

func TestALoneRouterThatStopsLeavesItsJobsToTheNextOneAtOnce(t *testing.T) {
	tweak := func(_ string, p *node.Ports) { p.JobQueue = forgetfulQueue{p.JobQueue} }
	bubbleWith(t, options{storages: 1, settings: small, tweak: tweak, jobs: 2}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		var open atomic.Bool
		c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
			if open.Load() {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		restart := func(ids ...string) time.Duration {
			t.Helper()
			open.Store(false)
			for _, id := range ids {
				c.submitted(id)
			}
			for _, id := range ids[:2] {
				c.awaitState(id, api.JobRunning)
			}
			c.stop("r1")
			open.Store(true)
			began := time.Now()
			c.startRouter("r1", 1)
			c.await("a router answers", func() bool { return c.request("job.list", api.JobsRequest{}, nil) == nil })
			for _, id := range ids {
				if info := c.awaitState(id, api.JobDone); info.Take > 2 {
					t.Errorf("%+v", info)
				}
			}
			return time.Since(began)
		}
		if took := restart("a", "b"); took > 5*time.Second {
			t.Errorf("the jobs were done %v after the start", took)
		}
		// While others wait a job keeps its place, which costs the time after which a router counts as silent.
		if took := restart("c", "d", "e"); took < 5*time.Second || took > 20*time.Second {
			t.Errorf("while another one waited they were done %v after the start", took)
		}
	})
}

// Two jobs whose output does not fit at the same time are collected one after the other.
func TestJobsTakeTurnsToCollect(t *testing.T) {
	collect := func(t *testing.T, memory int64) (turns []string) {
		bubbleWith(t, options{storages: 1, settings: small, maxPayload: 64 << 10, collect: memory}, func(t *testing.T, c *cluster) {
			for _, batch := range slices.Collect(slices.Chunk(words(12_000), 500)) {
				c.put("", strings.Join(batch, " "))
			}
			var mu sync.Mutex
			c.mem.SetFaults(busmem.Faults{Request: func(call busmem.Call) busmem.Fault {
				var req api.FetchRequest
				if !strings.HasSuffix(call.Subject, ".fetch") || api.Decode(call.Body, &req, api.Strict) != nil {
					return busmem.Fault{}
				}
				mu.Lock()
				defer mu.Unlock()
				if n := len(turns); n == 0 || turns[n-1] != req.PMR {
					turns = append(turns, req.PMR)
				}
				return busmem.Fault{Delay: time.Second}
			}})
			var running sync.WaitGroup
			for range 2 {
				running.Go(func() {
					if _, reply, err := c.job(wordCount); err != nil || reply.Stats.Rows != 12_000 {
						t.Errorf("%v", err)
					}
				})
			}
			running.Wait()
		})
		return turns
	}
	if turns := collect(t, 0); len(turns) < 3 {
		t.Errorf("with room for both the turns are %q: this test proves nothing", turns)
	}
	if turns := collect(t, 1<<20); len(turns) != 2 {
		t.Errorf("the turns are %q", turns)
	}
}

func TestAJobTooLargeToCollect(t *testing.T) {
	bubbleWith(t, options{storages: 2, settings: small, collect: 20_000}, func(t *testing.T, c *cluster) {
		c.put("", words(2000)...)
		began := time.Now()
		_, _, err := c.job(wordCount)
		if e := api.AsError(err); err == nil || e.Code != api.CodeLimitExceeded || e.Details["setting"] != "collect-total" || !strings.Contains(e.Hint, "--collect-total") {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("refused after %v", took)
		}
		few := wordCount
		few.Buckets = []uint16{1}
		for range 3 { // what was refused, and what is over, holds nothing
			_, _, err = c.job(few)
			c.must(err)
		}
	})
}

func TestAJobWhoseTimeEndsWhileItWaitsToCollect(t *testing.T) {
	var stuck stuckResults
	tweak := func(peer string, p *node.Ports) {
		if peer == "r1" {
			stuck = stuckResults{p.Results, make(chan struct{}, 10), make(chan struct{})}
			p.Results = stuck
		}
	}
	bubbleWith(t, options{storages: 1, settings: small, collect: 60_000, tweak: tweak}, func(t *testing.T, c *cluster) {
		c.put("", words(1000)...)
		c.submitted("slow") // it has its memory until its result is stored
		<-stuck.begun
		req := wordCount
		req.TimeoutMS = 3000
		_, _, err := c.job(req)
		if e := api.AsError(err); err == nil || e.Code != api.CodeTimeout || !strings.Contains(e.Message, "waited for memory to collect") || !strings.Contains(e.Hint, "--collect-total") {
			t.Errorf("%v", err)
		}
		close(stuck.open)
		c.awaitState("slow", api.JobDone)
		_, _, err = c.job(req)
		c.must(err)
	})
}

// stuckResults stores nothing until it is let go.
type stuckResults struct {
	node.Results
	begun, open chan struct{}
}

func (r stuckResults) Put(ctx context.Context, name string, data io.Reader) error {
	r.begun <- struct{}{}
	<-r.open
	return r.Results.Put(ctx, name, data)
}

// deafPeers are those of a storage whose reports of maps no router reads.
type deafPeers struct{ node.Peers }

func (p deafPeers) Request(ctx context.Context, subject string, in, out any) error {
	if end, ok := in.(*api.MapEnd); ok && end.Error == nil {
		return api.Errorf(api.CodeBadRequest, "a report of %d bytes has a field nobody knows", end.Size)
	}
	return p.Peers.Request(ctx, subject, in, out)
}

func TestAReportThatCannotBeToldFailsTheJob(t *testing.T) {
	tweak := func(peer string, p *node.Ports) {
		if peer == "s1" {
			p.Peers = deafPeers{p.Peers}
		}
	}
	bubbleWith(t, options{storages: 1, settings: small, tweak: tweak}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		c.mapper.setHook(func(context.Context, node.Task, buckets.ID) error {
			time.Sleep(100 * time.Millisecond) // the end of a shorter map comes with the answer to its request
			return nil
		})
		began := time.Now()
		_, _, err := c.job(wordCount)
		if api.CodeOf(err) != api.CodeBadRequest || !strings.Contains(err.Error(), "the report of the map of storage s1 cannot be told: a report of") {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("after %v", took)
		}
	})
}
