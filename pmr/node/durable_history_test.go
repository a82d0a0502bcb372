package node_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

func TestALargeResultIsStoredInPieces(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		list := words(9999)
		for _, batch := range slices.Collect(slices.Chunk(list, 500)) {
			long := slices.Clone(batch)
			for i := range long {
				long[i] += strings.Repeat("x", 200)
			}
			c.put("", strings.Join(long, " "))
		}
		c.submitted("j")
		info := c.awaitState("j", api.JobDone)
		if n := len(c.stored()); info.Rows != 9999 || n < 4 || info.Bytes < 2<<20 {
			t.Fatalf("%d rows of %d bytes in %d objects", info.Rows, info.Bytes, n)
		}
		rows, pages, err := c.result("j", 100_000)
		c.must(err)
		if len(rows) != 9999 || pages < 20 {
			t.Fatalf("%d rows in %d pages", len(rows), pages)
		}
		for i, row := range rows {
			if !strings.HasPrefix(string(row.Key), list[i]+"x") {
				t.Fatalf("row %d is %.20s", i, row.Key)
			}
		}
		for _, cursor := range []string{"stored.10001", "stored.99999", "stored.-3"} {
			if err := c.request("job.result", api.ResultRequest{Job: "j", Cursor: cursor}, nil); api.CodeOf(err) != api.CodeBadRequest {
				t.Errorf("cursor %s: %v", cursor, err)
			}
		}
	})
}

// The rows that a router has in memory and those that any router reads from the store come in the same pages.
func TestADurableResultEqualsThatOfJobRun(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", words(300)...)
		req := api.JobRequest{Module: "words", Reduce: "sum", Sort: "-key", Limit: 250, MaxBytes: 2000}
		var direct []api.JobReply
		c.pages(req, func(reply api.JobReply) { direct = append(direct, reply) })
		req.Job = "j"
		_, err := c.submit(req)
		c.must(err)
		c.awaitState("j", api.JobDone)
		cursor := ""
		for i, want := range direct {
			var got api.JobReply
			c.must(c.request("job.result", api.ResultRequest{Job: "j", Cursor: cursor, MaxBytes: 2000}, &got))
			if len(got.Rows) == 0 || (got.Next == "") != (want.Next == "") {
				t.Fatalf("page %d has %d rows and cursor %q", i, len(got.Rows), got.Next)
			}
			a, err := api.Encode(api.Msgpack, got.Rows)
			c.must(err)
			b, err := api.Encode(api.Msgpack, want.Rows)
			c.must(err)
			if i > 0 && !bytes.Equal(a, b) { // the first page has the proof besides
				t.Errorf("page %d differs", i)
			}
			cursor = got.Next
		}
	})
}

func TestTheHistoryForgets(t *testing.T) {
	bubble(t, 1, api.Settings{Buckets: 12, HistoryMS: 90_000}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		c.submitted("old")
		c.awaitState("old", api.JobDone)
		time.Sleep(time.Minute)
		c.expectResult("old", map[string]int64{"a": 1})
		c.submitted("new")
		c.awaitState("new", api.JobDone)
		time.Sleep(time.Minute)
		if err := c.request("job.get", api.JobName{Job: "old"}, nil); api.CodeOf(err) != api.CodeUnknownJob {
			t.Errorf("an old job: %v", err)
		}
		if _, _, err := c.result("old", 0); api.CodeOf(err) != api.CodeUnknownJob {
			t.Errorf("an old result: %v", err)
		}
		c.await("the old result is swept", func() bool { return len(c.stored()) == 1 })
		c.expectResult("new", map[string]int64{"a": 1})
		c.submitted("old") // the id may be used again
		if info := c.awaitState("old", api.JobDone); info.Take != 1 {
			t.Errorf("the new one is %+v", info)
		}
	})
}

func TestResultsThatDoNotCountAreSwept(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		results, err := c.client.Objects(t.Context(), "RESULTS", false, 1)
		c.must(err)
		c.submitted("j")
		c.awaitState("j", api.JobDone)
		for _, name := range []string{"j.2", "j.1.0", "gone.1", "gone.1.3"} {
			c.must(results.Put(t.Context(), name, strings.NewReader("x")))
		}
		c.await("only what counts is there", func() bool { return slices.Equal(c.stored(), []string{"j.1", "j.1.0"}) })
	})
}

// lossyQueue loses what is published while it is told to.
type lossyQueue struct {
	node.JobQueue
	lose *bool
}

func (q lossyQueue) Publish(ctx context.Context, job api.QueuedJob, id string) error {
	if *q.lose {
		return api.Errorf(api.CodeInDoubt, "nobody knows whether the message was stored")
	}
	return q.JobQueue.Publish(ctx, job, id)
}

func TestASubmitThatDiedIsNotLost(t *testing.T) {
	lose := true
	tweak := func(_ string, p *node.Ports) { p.JobQueue = lossyQueue{p.JobQueue, &lose} }
	bubbleWith(t, options{storages: 1, settings: small, tweak: tweak}, func(t *testing.T, c *cluster) {
		c.put("", "a")
		for _, id := range []string{"repeated", "swept"} {
			req := wordCount
			req.Job = id
			if _, err := c.submit(req); api.CodeOf(err) != api.CodeInDoubt {
				t.Fatalf("%s: %v", id, err)
			}
		}
		lose = false
		c.submitted("repeated")
		c.awaitState("repeated", api.JobDone)
		if info := c.info("swept"); info.State != api.JobQueued {
			t.Errorf("too early: %+v", info)
		}
		time.Sleep(7 * time.Minute)
		c.awaitState("swept", api.JobDone)
	})
}

func TestListingJobs(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.startRouter("r2", 1)
		c.put("", "a")
		c.mapper.setHook(func(ctx context.Context, task node.Task, _ buckets.ID) error {
			switch task.Job {
			case "running", "interactive":
				<-ctx.Done()
				return ctx.Err()
			case "failing":
				return api.Errorf(api.CodeGuestFailed, "it trapped")
			}
			return nil
		})
		for i, id := range []string{"done", "failing", "running"} {
			req := wordCount
			req.Job, req.Client = id, fmt.Sprintf("client%d", i%2)
			_, err := c.submit(req)
			c.must(err)
			time.Sleep(time.Second)
		}
		var reply api.JobReply
		c.must(c.request("job.run", api.JobRequest{Job: "interactive", Module: "words", WaitMS: 1000}, &reply))
		list := func(req api.JobsRequest) (ids []string, more int) {
			t.Helper()
			var reply api.JobsReply
			c.must(c.request("job.list", req, &reply))
			for _, info := range reply.Jobs {
				ids = append(ids, info.Job+" "+string(info.State))
				if info.Durable == (info.Job == "interactive") {
					t.Errorf("%+v", info)
				}
			}
			return ids, reply.More
		}
		for _, tc := range []struct {
			req  api.JobsRequest
			want string
			more int
		}{
			{api.JobsRequest{}, "interactive running, running running, failing failed, done done", 0},
			{api.JobsRequest{State: api.JobRunning}, "interactive running, running running", 0},
			{api.JobsRequest{State: api.JobDone}, "done done", 0},
			{api.JobsRequest{Client: "client0"}, "running running, done done", 0},
			{api.JobsRequest{Limit: 1}, "interactive running", 3},
		} {
			if ids, more := list(tc.req); strings.Join(ids, ", ") != tc.want || more != tc.more {
				t.Errorf("%+v: %v and %d more", tc.req, ids, more)
			}
		}
		for _, req := range []api.JobsRequest{{State: "dead"}, {Limit: -1}, {Limit: 1001}} {
			if err := c.request("job.list", req, nil); api.CodeOf(err) != api.CodeBadRequest {
				t.Errorf("%+v: %v", req, err)
			}
		}
		time.Sleep(2 * time.Second)
		if info := c.info("running"); info.Progress == nil || info.Progress.Phase != "map" {
			t.Errorf("a running job: %+v, %+v", info, info.Progress)
		}
		if info := c.info("interactive"); info.Durable || info.State != api.JobRunning {
			t.Errorf("an interactive job: %+v", info)
		}
		err := c.request("job.get", api.JobName{Job: "runnin"}, nil)
		if api.CodeOf(err) != api.CodeUnknownJob || !strings.Contains(err.Error(), "did you mean running?") {
			t.Errorf("a mistyped id: %v", err)
		}
		for _, id := range []string{"running", "interactive"} {
			c.must(c.request("job.cancel", api.CancelRequest{Job: id}, nil))
			c.awaitState(id, api.JobCanceled)
		}
	})
}

func TestARecordOfANewerVersionIsRefusedByName(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		records, err := c.client.KV(t.Context(), "JOBS", false, 1)
		c.must(err)
		_, err = records.Create(t.Context(), "job.new", []byte(`{"version":2,"job":"new","durable":true,"state":"frozen","soul":7}`))
		c.must(err)
		c.submitted("j")
		c.awaitState("j", api.JobDone)
		for _, subject := range []string{"job.get", "job.result", "job.cancel"} {
			err := c.request(subject, api.JobName{Job: "new"}, nil)
			if api.CodeOf(err) != api.CodeVersion || !strings.Contains(err.Error(), "version 2; this program reads 1") {
				t.Errorf("%s: %v", subject, err)
			}
		}
		var list api.JobsReply
		c.must(c.request("job.list", api.JobsRequest{}, &list))
		if len(list.Jobs) != 1 {
			t.Errorf("listed %+v", list)
		}
	})
}

func TestTheCertificateOfADurableJob(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.startRouter("r2", 1)
		c.put("", "a")
		c.submitted("j")
		info := c.awaitState("j", api.JobDone)
		c.retire(peerOf(info.Router))
		var cert api.Certificate
		c.must(c.request("job.certificate", api.CertificateRequest{Job: "j"}, &cert))
		if cert.Job != "j" || cert.Cut != info.Stats.Cut || len(cert.Storages) != 1 || cert.Rows != 1 {
			t.Errorf("%+v", cert)
		}
	})
}
