package node_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/buckets/store"
	"github.com/pinion-mr/pinion/bus/busmem"
	"github.com/pinion-mr/pinion/pmr/node"
)

var small = api.Settings{Buckets: 12}

func expectCounts(t *testing.T, got map[string]int64, want map[string]int64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

func TestAJobCountsEveryRecordOnce(t *testing.T) {
	bubble(t, 3, small, func(t *testing.T, c *cluster) {
		c.put("", "a b", "b", "b c c c")
		counts, reply, err := c.job(wordCount)
		c.must(err)
		expectCounts(t, counts, map[string]int64{"a": 1, "b": 3, "c": 3})
		st := reply.Stats
		if st.Buckets != 12 || st.Storages != 3 || st.Records != 3 || st.Bytes != 11+3*15 || st.Pairs != 7 || st.Attempts != 1 || st.Counters["buckets"] != 3 {
			t.Errorf("stats %+v", st)
		}
		seen := map[uint16]bool{}
		for _, p := range st.Pinned {
			for _, b := range p.Buckets {
				if seen[b.Bucket] || b.Generation == 0 {
					t.Errorf("bucket %d of %s: pinned twice or without a generation", b.Bucket, p.Storage)
				}
				seen[b.Bucket] = true
			}
		}
		if len(seen) != 12 {
			t.Errorf("the proof names %d buckets", len(seen))
		}
	})
}

func TestRowsAfterTheCutAreNotSeen(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", "before")
		c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
			c.put("", "after", "after")
			return nil
		})
		counts, _, err := c.job(wordCount)
		c.must(err)
		expectCounts(t, counts, map[string]int64{"before": 1})
	})
}

func TestALostAnswerVoidsTheAttempt(t *testing.T) {
	for _, step := range []string{"pin", "map", "release"} {
		t.Run(step, func(t *testing.T) {
			bubble(t, 3, small, func(t *testing.T, c *cluster) {
				c.put("", "a", "b", "c", "d")
				var lost atomic.Int32
				c.mem.SetFaults(busmem.Faults{Reply: func(call busmem.Call) busmem.Fault {
					if strings.HasPrefix(call.Subject, "storage.s2.") && strings.HasSuffix(call.Subject, "."+step) && lost.Add(1) == 1 {
						return busmem.Fault{Drop: true}
					}
					return busmem.Fault{}
				}})
				counts, reply, err := c.job(wordCount)
				c.must(err)
				expectCounts(t, counts, map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
				if want := map[string]int{"pin": 2, "map": 1, "release": 1}[step]; reply.Stats.Attempts != want {
					t.Errorf("%d attempts, want %d", reply.Stats.Attempts, want)
				}
				c.await("nothing is pinned any more", func() bool { return pins(c.status()) == 0 })
				if lost.Load() == 0 {
					t.Error("no answer was lost: the test tests nothing")
				}
			})
		})
	}
}

func pins(st api.ClusterStatus) int {
	n := 0
	for _, s := range st.Storages {
		n += len(s.PMRs)
	}
	return n
}

func TestAStorageThatDiesWhileItMaps(t *testing.T) {
	bubble(t, 3, small, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
		mapping := make(chan struct{}, 100)
		c.mapper.setHook(func(ctx context.Context, _ node.Task, b buckets.ID) error {
			mapping <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		done := make(chan error, 1)
		var counts map[string]int64
		go func() {
			var err error
			counts, _, err = c.job(wordCount)
			done <- err
		}()
		<-mapping
		c.mapper.setHook(nil)
		for _, id := range []string{"s1", "s2", "s3"} {
			c.stop(id)
			c.startStorage(id)
		}
		c.must(<-done)
		if len(counts) != 12 {
			t.Errorf("counted %v", counts)
		}
	})
}

func TestAStorageThatLostItsFolderLoadsAgain(t *testing.T) {
	bubble(t, 3, api.Settings{Buckets: 12, CheckpointBytes: 1024, DuplicateMS: 1000}, func(t *testing.T, c *cluster) {
		var lines []string
		for i := range 600 {
			lines = append(lines, fmt.Sprintf("word%d %s", i%7, strings.Repeat("x", 100)))
		}
		c.put("", lines...)
		before, _, err := c.job(wordCount)
		c.must(err)
		first := func() uint64 { return c.status().Log.First }
		c.await("the log is purged", func() bool { return first() > 300 })
		for _, id := range []string{"s1", "s2", "s3"} {
			c.stop(id)
			c.nodes[id] = &running{store: store.NewMem(), dir: id + "-new", replace: true}
			c.startStorage(id)
		}
		c.put("", "tail")
		after, _, err := c.job(wordCount)
		c.must(err)
		before["tail"] = 1
		expectCounts(t, after, before)
	})
}

func TestAStorageThatWasPurgedPastNeverAnswersWrong(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		_, _, err := c.job(wordCount)
		c.must(err)
		c.mem.Cut("s1")
		c.put("", "a", "b", "c", "d", "e", "f")
		st, err := c.log.State(t.Context())
		c.must(err)
		c.must(c.log.Purge(t.Context(), st.Last)) // by hand: no checkpoint covers it
		c.mem.Heal("s1")
		_, _, err = c.job(api.JobRequest{Module: "words", Reduce: "sum", TimeoutMS: 15_000})
		if code := api.CodeOf(err); code != api.CodeTimeout {
			t.Fatalf("a job over records that are gone ended with %v", err)
		}
		if problems := strings.Join(c.status().Problems, "; "); !strings.Contains(problems, "the checkpoint of bucket") {
			t.Errorf("the status does not say it: %s", problems)
		}
	})
}

func TestGuestFailureEndsTheJobAtOnce(t *testing.T) {
	bubble(t, 3, small, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c")
		var calls atomic.Int32
		c.mapper.setHook(func(_ context.Context, task node.Task, b buckets.ID) error {
			if b != 1 {
				return nil
			}
			calls.Add(1)
			return api.Errorf(api.CodeGuestFailed, "module %s trapped on bucket %d", task.Name, b)
		})
		_, _, err := c.job(wordCount)
		if api.CodeOf(err) != api.CodeGuestFailed || !strings.Contains(err.Error(), "bucket 1") {
			t.Errorf("the job ended with %v", err)
		}
		if n := calls.Load(); n != 2 { // once, and once more to find the record
			t.Errorf("the guest ran %d times on the bucket", n)
		}
		c.await("nothing is pinned any more", func() bool { return pins(c.status()) == 0 })
		c.mapper.setHook(nil)
		counts, _, err := c.job(wordCount)
		c.must(err)
		expectCounts(t, counts, map[string]int64{"a": 1, "b": 1, "c": 1})
		if c.mapper.open != 0 {
			t.Errorf("%d guests or programs are still open", c.mapper.open)
		}
	})
}

func TestTimeoutAndCancelStopGuests(t *testing.T) {
	for _, how := range []string{"timeout", "cancel"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, 2, small, func(t *testing.T, c *cluster) {
				c.put("", "a", "b", "c", "d", "e", "f", "g", "h")
				var running atomic.Int32
				started := make(chan struct{}, 100)
				c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
					running.Add(1)
					defer running.Add(-1)
					started <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				})
				req := wordCount
				req.Job, req.TimeoutMS = "j1", 5000
				want := api.CodeTimeout
				if how == "cancel" {
					want = api.CodeCanceled
					go func() {
						<-started
						c.must(c.request("job.cancel", api.CancelRequest{Job: "j1"}, nil))
					}()
				}
				if _, _, err := c.job(req); api.CodeOf(err) != want {
					t.Errorf("the job ended with %v, want %s", err, want)
				}
				c.await("no guest runs", func() bool { return running.Load() == 0 && pins(c.status()) == 0 })
			})
		})
	}
}

func TestResultsInPages(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		var lines []string
		for i := range 500 {
			lines = append(lines, fmt.Sprintf("w%04d", i))
		}
		c.put("", lines...)
		req := wordCount
		req.MaxBytes, req.Proof = 1000, false
		_, reply, err := c.job(req)
		c.must(err)
		rows, pages := reply.Rows, 1
		for reply.Next != "" {
			next := api.ResultRequest{Job: reply.Job, Cursor: reply.Next, MaxBytes: 1000}
			reply = api.JobReply{}
			c.must(c.request("job.result", next, &reply))
			rows, pages = append(rows, reply.Rows...), pages+1
		}
		if len(rows) != 500 || pages < 10 {
			t.Fatalf("%d rows in %d pages", len(rows), pages)
		}
		for i, row := range rows {
			if string(row.Key) != lines[i] || row.Value.Int != 1 {
				t.Fatalf("row %d is %s %d", i, row.Key, row.Value.Int)
			}
		}
	})
}

func TestModuleReduceAndCombine(t *testing.T) {
	bubble(t, 3, small, func(t *testing.T, c *cluster) {
		c.put("", "a a a", "a b", "b")
		counts, _, err := c.job(api.JobRequest{Module: "words", Reduce: "module:first"})
		c.must(err)
		expectCounts(t, counts, map[string]int64{"a": 1, "b": 1})
		// The first word of each storage, summed: s1 has all three buckets.
		counts, _, err = c.job(api.JobRequest{Module: "words", Combine: "first", Reduce: "sum"})
		c.must(err)
		expectCounts(t, counts, map[string]int64{"a": 1, "b": 1})
	})
}

func TestSpacesAndRecords(t *testing.T) {
	bubble(t, 3, small, func(t *testing.T, c *cluster) {
		key := api.Bytes("k\x00ey")
		for _, v := range []string{"one", "two"} {
			c.must(c.request("record.put", api.PutRequest{Space: "logs", Key: &key, Value: api.Bytes(v)}, nil))
		}
		var got api.GetReply
		c.must(c.request("record.get", api.KeyRequest{Space: "logs", Key: key}, &got))
		if string(got.Value) != "two" {
			t.Errorf("got %q", got.Value)
		}
		counts, _, err := c.job(api.JobRequest{Module: "words", Reduce: "sum", Space: "logs"})
		c.must(err)
		expectCounts(t, counts, map[string]int64{"two": 1})
		c.must(c.request("record.delete", api.KeyRequest{Space: "logs", Key: key}, nil))
		if err := c.request("record.get", api.KeyRequest{Space: "logs", Key: key}, &got); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("a deleted record: %v", err)
		}
		if counts, _, err = c.job(api.JobRequest{Module: "words", Reduce: "sum", Space: "logs"}); err != nil || len(counts) != 0 {
			t.Errorf("a job over an empty space: %v, %v", counts, err)
		}
		if _, _, err := c.job(api.JobRequest{Module: "words", Space: "lgos"}); api.CodeOf(err) != api.CodeUnknownSpace {
			t.Errorf("a job over a space that is not there: %v", err)
		}
		c.put("unnamed", "x") // by a client that told nobody
		if counts, _, err = c.job(api.JobRequest{Module: "words", Reduce: "sum", Space: "unnamed"}); err != nil || counts["x"] != 1 {
			t.Errorf("a space that only its records know: %v, %v", counts, err)
		}
		var spaces api.SpacesReply
		c.must(c.request("space.list", api.Empty{}, &spaces))
		if fmt.Sprint(spaces.Spaces) != "[default logs unnamed]" {
			t.Errorf("spaces %v", spaces.Spaces)
		}
	})
}

func TestMalformedEntriesAreSkippedEverywhere(t *testing.T) {
	bubble(t, 3, small, func(t *testing.T, c *cluster) {
		c.put("", "good", "good")
		wrong := buckets.AppendFrame(nil, 0, []byte("key"), []byte("bad"))
		other := buckets.ID((int(buckets.Of([]byte("key"), 12)) + 1) % 12)
		for _, e := range []struct {
			subject string
			body    []byte
		}{{buckets.RecSubject(other), wrong}, {buckets.RecSubject(3), []byte("not a frame")}, {buckets.OwnSubject(1), []byte{0xdd, 0xff, 0xff, 0xff, 0xff}}} {
			_, err := c.log.Append(t.Context(), e.subject, nil, e.body, "")
			c.must(err)
		}
		counts, _, err := c.job(wordCount)
		c.must(err)
		expectCounts(t, counts, map[string]int64{"good": 2})
		var skipped uint64
		for _, s := range c.status().Storages {
			skipped += s.Skipped
		}
		if skipped != 2+3 { // a record entry by its owner, an ownership entry by every storage
			t.Errorf("%d entries skipped", skipped)
		}
	})
}

func TestASecondStorageOfTheSameNameDoesNotStart(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		rival := &running{store: store.NewMem(), dir: "another folder"}
		first := c.nodes["s1"]
		c.nodes["s1"] = rival
		c.startStorage("s1")
		select {
		case err := <-rival.ended:
			if api.CodeOf(err) != api.CodeNameTaken {
				t.Errorf("the second s1 ended with %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the second s1 runs")
		}
		c.nodes["s1"] = first
	})
}

func TestTwoRoutersAnswerForEachOther(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.startRouter("r2", 2)
		c.put("", "a", "b", "c")
		blocked := make(chan struct{})
		c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
			select {
			case <-blocked:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		for _, id := range []string{"kept", "canceled"} {
			_, reply, err := c.job(api.JobRequest{Job: id, Module: "words", Reduce: "sum", WaitMS: 10})
			c.must(err)
			if reply.Status != api.JobRunning || reply.Next == "" {
				t.Fatalf("reply %+v", reply)
			}
		}
		for range 2 { // one of these goes to the router that does not know the job
			if err := c.request("job.cancel", api.CancelRequest{Job: "canceled"}, nil); err != nil {
				t.Error(err)
			}
		}
		close(blocked)
		for range 2 {
			var reply api.JobReply
			c.must(c.request("job.result", api.ResultRequest{Job: "kept", WaitMS: 5000}, &reply))
			if reply.Status != api.JobDone || len(reply.Rows) != 3 {
				t.Errorf("reply %+v", reply)
			}
			if err := c.request("job.result", api.ResultRequest{Job: "canceled", WaitMS: 5000}, &reply); api.CodeOf(err) != api.CodeCanceled {
				t.Errorf("the cancelled job ended with %v", err)
			}
			if err := c.request("job.result", api.ResultRequest{Job: "none"}, &reply); api.CodeOf(err) != api.CodeUnknownJob {
				t.Errorf("a job that never was: %v", err)
			}
		}
	})
}
