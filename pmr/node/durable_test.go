package node_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

func (c *cluster) submit(req api.JobRequest) (api.JobState, error) {
	var state api.JobState
	err := c.request("job.submit", req, &state)
	return state, err
}

// submitted submits a word count of an id.
func (c *cluster) submitted(id string) {
	c.t.Helper()
	req := wordCount
	req.Job = id
	state, err := c.submit(req)
	c.must(err)
	if state.Job != id || state.State != api.JobQueued {
		c.t.Fatalf("submitted: %+v", state)
	}
}

func (c *cluster) info(id string) api.JobInfo {
	c.t.Helper()
	var info api.JobInfo
	c.must(c.request("job.get", api.JobName{Job: id}, &info))
	return info
}

// awaitState waits until a job has a state.
func (c *cluster) awaitState(id string, state api.JobStatus) api.JobInfo {
	c.t.Helper()
	var info api.JobInfo
	c.await(fmt.Sprintf("job %s is %s", id, state), func() bool {
		info = c.info(id)
		return info.State == state
	})
	return info
}

// result fetches all rows of a job that is over, page by page.
func (c *cluster) result(id string, maxBytes int) (rows []api.Row, pages int, err error) {
	c.t.Helper()
	reply := api.JobReply{}
	for pages == 0 || reply.Next != "" {
		req := api.ResultRequest{Job: id, Cursor: reply.Next, MaxBytes: maxBytes}
		reply = api.JobReply{}
		if err := c.request("job.result", req, &reply); err != nil {
			return rows, pages, err
		}
		rows = append(rows, reply.Rows...)
		pages++
	}
	return rows, pages, nil
}

func (c *cluster) expectResult(id string, want map[string]int64) {
	c.t.Helper()
	rows, _, err := c.result(id, 0)
	c.must(err)
	counts := map[string]int64{}
	for _, row := range rows {
		counts[string(row.Key)] += row.Value.Int
	}
	expectCounts(c.t, counts, want)
}

// events collects the phases of a job.
type events struct {
	mu     sync.Mutex
	phases []string
	takes  map[int]int // number of the largest attempt, by take
}

func (c *cluster) follow(id string) *events {
	e := &events{takes: map[int]int{}}
	_, err := c.client.Subscribe("job."+id+".events", func(_ string, body []byte) {
		var p api.JobProgress
		if api.Decode(body, &p, api.Lenient) != nil {
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if n := len(e.phases); n == 0 || e.phases[n-1] != p.Phase {
			e.phases = append(e.phases, p.Phase)
		}
		e.takes[p.Take] = max(e.takes[p.Take], p.Attempt)
	})
	c.must(err)
	return e
}

func (e *events) count(phase string) (n int) {
	synctest.Wait() // what is being told has arrived
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.phases {
		if p == phase {
			n++
		}
	}
	return n
}

// peerOf is the id of the node with a router's name.
func peerOf(router string) string { return router[:strings.LastIndexByte(router, '-')] }

// retire stops a node for good.
func (c *cluster) retire(id string) {
	c.t.Helper()
	c.stop(id)
	delete(c.nodes, id)
}

// stored lists the objects of the store of results.
func (c *cluster) stored() []string {
	c.t.Helper()
	results, err := c.client.Objects(c.t.Context(), "RESULTS", false, 1)
	c.must(err)
	list, err := results.List(c.t.Context())
	c.must(err)
	var names []string
	for _, o := range list {
		names = append(names, o.Name)
	}
	return names
}

func TestADurableJobOutlivesItsRouter(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.startRouter("r2", 2)
		c.put("", "a b", "b")
		told := c.follow("j")
		c.submitted("j")
		info := c.awaitState("j", api.JobDone)
		if info.Take != 1 || info.Attempts != 1 || info.Rows != 2 || !info.Durable || info.Module != "words" || info.Stats == nil || info.Bytes == 0 {
			t.Errorf("the job is %+v", info)
		}
		want := map[string]int64{"a": 1, "b": 2}
		c.expectResult("j", want)
		c.retire(peerOf(info.Router))
		c.expectResult("j", want)
		var reply api.JobReply
		c.must(c.request("job.result", api.ResultRequest{Job: "j"}, &reply))
		if n := len(reply.Stats.Pinned); reply.Status != api.JobDone || n != 2 {
			t.Errorf("%s, pinned by %d storages", reply.Status, n)
		}
		if told.count("queued") != 1 || told.count("done") != 1 || told.count("failed") != 0 {
			t.Errorf("told %v", told.phases)
		}
	})
}

func TestSubmittingTwice(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.put("", "a")
		maps := 0
		c.mapper.setHook(func(_ context.Context, _ node.Task, b buckets.ID) error {
			if b == 0 {
				maps++
			}
			time.Sleep(time.Second)
			return nil
		})
		c.submitted("j")
		c.awaitState("j", api.JobRunning)
		again := wordCount
		again.Job, again.WaitMS = "j", 5 // does not change what is asked
		state, err := c.submit(again)
		c.must(err)
		if state.State != api.JobRunning || state.Over {
			t.Errorf("the second time it is %+v", state)
		}
		other := again
		other.Limit = 1
		if _, err := c.submit(other); api.CodeOf(err) != api.CodeNameTaken {
			t.Errorf("another request: %v", err)
		}
		c.awaitState("j", api.JobDone)
		if state, err = c.submit(again); err != nil || state.State != api.JobDone || !state.Over {
			t.Errorf("at the end it is %+v, %v", state, err)
		}
		if _, reply, err := c.job(again); err != nil || reply.Status != api.JobDone || len(reply.Rows) != 1 {
			t.Errorf("job.run of its id answers %+v, %v", reply, err)
		}
		if maps != 1 {
			t.Errorf("mapped %d times", maps)
		}
		if _, err := c.submit(api.JobRequest{Module: "words", Function: "nope"}); api.CodeOf(err) != api.CodeUnknownFunction {
			t.Errorf("a bad request: %v", err)
		}
		big := api.JobRequest{Module: "words", Params: map[string]api.Bytes{"p": make([]byte, 65<<10)}}
		if _, err := c.submit(big); api.CodeOf(err) != api.CodeLimitExceeded {
			t.Errorf("a large request: %v", err)
		}
	})
}

func TestARouterDiesInTheMiddleOfADurableJob(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.startRouter("r2", 2)
		c.put("", "a b", "b")
		c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
			select {
			case <-time.After(20 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		told := c.follow("j")
		c.submitted("j")
		first := c.awaitState("j", api.JobRunning)
		time.Sleep(5 * time.Second) // it maps
		c.mem.Cut(peerOf(first.Router))
		c.mapper.setHook(nil)
		time.Sleep(time.Minute)
		info := c.awaitState("j", api.JobDone)
		if info.Take != 2 || info.Router == first.Router {
			t.Errorf("first %s, then %+v", first.Router, info)
		}
		c.mem.Heal(peerOf(first.Router))
		time.Sleep(time.Minute)
		c.expectResult("j", map[string]int64{"a": 1, "b": 2})
		if told.count("done") != 1 || told.count("failed") != 0 {
			t.Errorf("told %v", told.phases)
		}
		if later := c.info("j"); later.Router != info.Router || later.Take != 2 || later.EndedMS != info.EndedMS {
			t.Errorf("it became %+v", later)
		}
		if told.takes[1] > 100 || told.takes[2] > 100 {
			t.Errorf("attempts by take: %v", told.takes)
		}
		c.expectAttempts("j", 1, 1<<20+1)
	})
}

// expectAttempts looks for numbers among those of a job's attempts, of which no two may share one.
func (c *cluster) expectAttempts(job string, want ...int) {
	c.t.Helper()
	found := c.attempts(job)
	for n, times := range found {
		if times > 1 {
			c.t.Errorf("attempt %d was made %d times", n, times)
		}
	}
	for _, n := range want {
		if found[n] == 0 {
			c.t.Errorf("no attempt %d in %v", n, found)
		}
	}
}

// attempts reads from the log how often attempts were made, by number.
func (c *cluster) attempts(job string) map[int]int {
	c.t.Helper()
	st, err := c.log.State(c.t.Context())
	c.must(err)
	found := map[int]int{}
	c.must(c.log.ReadTo(c.t.Context(), st.First, st.Last, nil, func(e api.LogEntry) error {
		entry, err := buckets.Decode(e, c.settings.Buckets)
		if err != nil {
			return err
		}
		if cut, ok := entry.(buckets.Cut); ok && cut.Job == job {
			found[cut.Attempt]++
		}
		return nil
	}))
	return found
}

// deafQueue does not let the queue hear that a job goes on.
type deafQueue struct{ node.JobQueue }

func (q deafQueue) Consume(ctx context.Context, most int, fn func(context.Context, node.JobDelivery)) error {
	return q.JobQueue.Consume(ctx, most, func(ctx context.Context, d node.JobDelivery) {
		d.Delivery = deafDelivery{d.Delivery}
		fn(ctx, d)
	})
}

type deafDelivery struct{ node.Delivery }

func (deafDelivery) InProgress() error { return nil }

// gatedResults holds up Put.
type gatedResults struct {
	node.Results
	gate *gate
}

func (o gatedResults) Put(ctx context.Context, name string, r io.Reader) error {
	o.gate.pass()
	return o.Results.Put(ctx, name, r)
}

// The job is handed to another router while the first one is about to write that it is done.
func TestAJobIsDoneOnceThoughTwoRoutersRanIt(t *testing.T) {
	first := &gate{}
	tweak := func(peer string, p *node.Ports) {
		if peer == "r1" {
			p.JobQueue, p.Results = deafQueue{p.JobQueue}, gatedResults{p.Results, first}
		}
	}
	bubbleWith(t, options{storages: 2, settings: small, tweak: tweak}, func(t *testing.T, c *cluster) {
		c.put("", "a b", "b")
		first.close()
		told := c.follow("j")
		c.submitted("j")
		c.reach(first)
		var early api.JobReply // it is over, but nobody has written so
		c.must(c.request("job.result", api.ResultRequest{Job: "j", WaitMS: 100}, &early))
		if early.Status != api.JobRunning || len(early.Rows) > 0 {
			t.Errorf("before it is done: %+v", early)
		}
		c.startRouter("r2", 2)
		info := c.awaitState("j", api.JobDone)
		if info.Take != 2 || peerOf(info.Router) != "r2" {
			t.Errorf("done by %+v", info)
		}
		close(first.open)
		time.Sleep(5 * time.Second) // no sweep comes in this time
		if later := c.info("j"); later.Router != info.Router || later.EndedMS != info.EndedMS {
			t.Errorf("it became %+v", later)
		}
		if told.count("done") != 1 {
			t.Errorf("told %v", told.phases)
		}
		if names := c.stored(); len(names) != 1 || names[0] != "j.2" {
			t.Errorf("stored are %v", names)
		}
		c.expectResult("j", map[string]int64{"a": 1, "b": 2})
	})
}

// brokenResults stores nothing.
type brokenResults struct{ node.Results }

func (brokenResults) Put(context.Context, string, io.Reader) error {
	return api.Errorf(api.CodeUnavailable, "the store is full")
}

func TestAJobThatNoRouterFinishesFails(t *testing.T) {
	tweak := func(_ string, p *node.Ports) { p.Results = brokenResults{p.Results} }
	bubbleWith(t, options{storages: 1, settings: small, tweak: tweak}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		told := c.follow("j")
		c.submitted("j")
		info := c.awaitState("j", api.JobFailed)
		if info.Take != 5 || info.Error == nil || !strings.Contains(info.Error.Message, "the store is full") || info.Error.Code != api.CodeLost {
			t.Errorf("%+v, %v", info, info.Error)
		}
		if _, _, err := c.result("j", 0); api.CodeOf(err) != api.CodeLost || api.AsError(err).Details["job"] != "j" {
			t.Errorf("its result: %v", err)
		}
		if told.count("failed") != 1 || told.count("done") != 0 {
			t.Errorf("told %v", told.phases)
		}
	})
}

func TestARouterThatStopsGivesItsJobsBack(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.put("", "a")
		mapping := make(chan struct{})
		var begun atomic.Bool
		c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
			if begun.Swap(true) {
				return nil
			}
			close(mapping)
			<-ctx.Done()
			return ctx.Err()
		})
		c.submitted("j")
		<-mapping
		first := c.info("j")
		c.startRouter("r2", 1)
		c.retire(peerOf(first.Router))
		began := time.Now()
		info := c.awaitState("j", api.JobDone)
		if info.Take != 2 || peerOf(info.Router) != "r2" || time.Since(began) > 10*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), info)
		}
	})
}

// closedQueue hands nothing out until it is opened.
type closedQueue struct {
	node.JobQueue
	open chan struct{}
}

func (q closedQueue) Consume(ctx context.Context, most int, fn func(context.Context, node.JobDelivery)) error {
	select {
	case <-q.open:
		return q.JobQueue.Consume(ctx, most, fn)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestCancellingADurableJob(t *testing.T) {
	queue := closedQueue{}
	tweak := func(_ string, p *node.Ports) {
		if queue.open == nil {
			queue.open = make(chan struct{})
		}
		queue.JobQueue = p.JobQueue
		p.JobQueue = queue
	}
	bubbleWith(t, options{storages: 1, settings: small, tweak: tweak}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		c.mapper.setHook(func(ctx context.Context, task node.Task, _ buckets.ID) error {
			switch task.Job {
			case "running":
				<-ctx.Done()
				return ctx.Err()
			case "failing":
				return api.Errorf(api.CodeGuestFailed, "it trapped")
			}
			return nil
		})
		cancel := func(id string) api.JobState {
			t.Helper()
			var state api.JobState
			c.must(c.request("job.cancel", api.CancelRequest{Job: id}, &state))
			return state
		}
		c.submitted("queued")
		if state := cancel("queued"); state.State != api.JobCanceled || state.Over {
			t.Errorf("queued: %+v", state)
		}
		close(queue.open)
		c.submitted("running")
		c.awaitState("running", api.JobRunning)
		time.Sleep(2 * time.Second)
		if state := cancel("running"); state.State != api.JobRunning || state.Over {
			t.Errorf("running: %+v", state)
		}
		time.Sleep(time.Second)
		c.awaitState("running", api.JobCanceled)
		c.submitted("done")
		c.submitted("failing")
		c.awaitState("done", api.JobDone)
		if failed := c.awaitState("failing", api.JobFailed); failed.Error.Code != api.CodeGuestFailed || failed.Take != 1 {
			t.Errorf("failing: %+v, %v", failed, failed.Error)
		}
		for id, state := range map[string]api.JobStatus{"queued": api.JobCanceled, "running": api.JobCanceled, "done": api.JobDone, "failing": api.JobFailed} {
			if got := cancel(id); got.State != state || !got.Over {
				t.Errorf("%s at the end: %+v", id, got)
			}
			if info := c.info(id); info.State != state {
				t.Errorf("%s became %s", id, info.State)
			}
		}
		if _, _, err := c.result("running", 0); api.CodeOf(err) != api.CodeCanceled {
			t.Errorf("the result of a cancelled job: %v", err)
		}
		if err := c.request("job.cancel", api.CancelRequest{Job: "nope"}, nil); api.CodeOf(err) != api.CodeUnknownJob {
			t.Errorf("an unknown job: %v", err)
		}
	})
}

// The router that runs the job is gone; whoever is handed the job reads that it is to end.
func TestCancellingAJobWhoseRouterIsGone(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.startRouter("r2", 1)
		c.put("", "a")
		c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
			<-ctx.Done()
			return ctx.Err()
		})
		told := c.follow("j")
		c.submitted("j")
		first := c.awaitState("j", api.JobRunning)
		c.mem.Cut(peerOf(first.Router))
		c.must(c.request("job.cancel", api.CancelRequest{Job: "j"}, nil))
		if info := c.info("j"); info.State != api.JobRunning || !info.Cancel {
			t.Errorf("at once it is %+v", info)
		}
		if info := c.awaitState("j", api.JobCanceled); info.Take != 1 {
			t.Errorf("%+v", info)
		}
		c.mem.Heal(peerOf(first.Router))
		time.Sleep(time.Minute)
		c.awaitState("j", api.JobCanceled)
		if told.count("canceled") != 1 || told.count("done") != 0 {
			t.Errorf("told %v", told.phases)
		}
	})
}
