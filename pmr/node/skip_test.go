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
	"github.com/pinion-mr/pinion/pmr/node"
)

// failAtBad has guests fail after they have emitted the word bad.
func failAtBad(_ context.Context, word string, _ func(context.Context) error) error {
	if word != "bad" {
		return nil
	}
	return api.Errorf(api.CodeGuestFailed, "module words: it is bad").With("reason", "it is bad")
}

func (m *fakeMapper) onWord(fn func(context.Context, string, func(context.Context) error) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.word = fn
}

func skipping(limit int) api.JobRequest {
	req := wordCount
	req.OnError, req.MaxSkip = api.OnErrorSkip, limit
	return req
}

// Of a record that is skipped nothing is counted, not even what was emitted before it failed; its bucket's other
// records are counted once.
func TestRecordsThatFailAreSkipped(t *testing.T) {
	bubble(t, 3, small, func(t *testing.T, c *cluster) {
		for _, v := range []string{"a b", "a bad x", "c", "bad", "bad bad", "a a d"} {
			c.put("", v, v+" tail") // the first in bucket 0, the second in bucket 1
		}
		c.mapper.onWord(failAtBad)
		if _, _, err := c.job(wordCount); api.CodeOf(err) != api.CodeGuestFailed {
			t.Fatalf("without on_error the job ended with %v", err)
		}
		counts, reply, err := c.job(skipping(0))
		c.must(err)
		expectCounts(t, counts, map[string]int64{"a": 6, "b": 2, "c": 2, "d": 2, "tail": 3})
		st := reply.Stats
		if st.Skips != 6 || st.Records != 12 || st.Pairs != 15 || st.Attempts != 1 || st.Counters["buckets"] != 2 {
			t.Errorf("stats %+v", st)
		}
		if st.Fuel == nil || st.Fuel.Total != 150 || st.Fuel.Bucket != 1 || st.Fuel.BucketMax != 90 || st.Fuel.PerRecord != 12.5 {
			t.Errorf("fuel %+v", st.Fuel)
		}
		var places []string
		for _, r := range st.Skipped {
			places = append(places, fmt.Sprintf("%d:%d %s", r.Bucket, r.Record, r.Reason))
			if _, index, bucket, ok := buckets.ParseAssigned(r.Key); !ok || index != 0 || bucket != buckets.ID(r.Bucket) {
				t.Errorf("key %q of %+v", r.Key, r)
			}
		}
		want := []string{"0:1 it is bad", "0:3 it is bad", "0:4 it is bad", "1:1 it is bad", "1:3 it is bad", "1:4 it is bad"}
		if !slices.Equal(places, want) {
			t.Errorf("skipped %q", places)
		}
		if c.mapper.open != 0 {
			t.Errorf("%d guests or programs are still open", c.mapper.open)
		}
	})
}

// What a bucket emits is the same with skipping as without, down to the order.
func TestSkippingChangesNoAnswer(t *testing.T) {
	bubble(t, 3, small, func(t *testing.T, c *cluster) {
		var lines []string
		for i := range 200 {
			lines = append(lines, fmt.Sprintf("w%d w%d same", i%7, i%31))
		}
		c.put("", lines...)
		for _, reduce := range []string{"sum", "count", "min", "max", "none", "module:first"} {
			var rows [2][]api.Row
			for i, onError := range []string{api.OnErrorFail, api.OnErrorSkip} {
				var reply api.JobReply
				c.must(c.request("job.run", api.JobRequest{Module: "words", Reduce: reduce, OnError: onError}, &reply))
				rows[i] = reply.Rows
				if reply.Stats.Skips != 0 || reply.Stats.Skipped != nil {
					t.Errorf("%s, %s: stats %+v", reduce, onError, reply.Stats)
				}
			}
			if len(rows[0]) == 0 || fmt.Sprint(rows[0]) != fmt.Sprint(rows[1]) {
				t.Errorf("%s: %v\nwith skipping: %v", reduce, rows[0], rows[1])
			}
		}
	})
}

func TestTooManySkippedRecords(t *testing.T) {
	for name, values := range map[string][]string{
		"on one storage": {"bad", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "bad", "", "", "", "", "", "", "", "", "", "", "", "bad"},
		"in all":         {"a", "bad", "c", "d", "e", "bad", "g", "h", "i", "bad"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, small, func(t *testing.T, c *cluster) {
				c.put("", values...)
				c.mapper.onWord(failAtBad)
				_, _, err := c.job(skipping(2))
				if e := api.AsError(err); e.Code != api.CodeLimitExceeded || e.Details["limit"] != "max_skip" || !strings.Contains(e.Message, ", record ") ||
					!strings.Contains(e.Message, "it is bad") || !strings.Contains(e.Hint, "--on-error") {
					t.Errorf("three bad records, two allowed: %v", err)
				}
				if _, reply, err := c.job(skipping(3)); err != nil || reply.Stats.Skips != 3 {
					t.Errorf("three allowed: %v", err)
				}
			})
		})
	}
}

// The record at which a large bucket fails is found without giving all of its records one by one.
func TestAFailingRecordIsFoundCheaply(t *testing.T) {
	bubble(t, 1, api.Settings{Buckets: 1}, func(t *testing.T, c *cluster) {
		const total = 400 // of 2 KiB: a batch has 31
		for range total - 1 {
			c.put("", strings.Repeat("x", 2000))
		}
		c.put("", "bad")
		c.mapper.onWord(failAtBad)
		_, reply, err := c.job(skipping(1))
		c.must(err)
		if st := reply.Stats; len(st.Skipped) != 1 || st.Skipped[0].Record != total-1 {
			t.Errorf("skipped %+v", st.Skipped)
		}
		if n := c.mapper.read; n > 3*(total/31+2)+32 {
			t.Errorf("%d batches were read", n)
		}
	})
}

// Records are not skipped for ever, to be too many in the end.
func TestSkippingEndsAtItsLimit(t *testing.T) {
	bubble(t, 1, api.Settings{Buckets: 1}, func(t *testing.T, c *cluster) {
		for range 50 {
			c.put("", "bad")
		}
		c.mapper.onWord(failAtBad)
		var runs atomic.Int32
		c.mapper.setHook(func(context.Context, node.Task, buckets.ID) error {
			runs.Add(1)
			return nil
		})
		if _, _, err := c.job(skipping(2)); api.CodeOf(err) != api.CodeLimitExceeded {
			t.Errorf("the job ended with %v", err)
		}
		if n := runs.Load(); n > 3*2 { // for each of three records once, and once more to find it
			t.Errorf("the guest ran %d times", n)
		}
	})
}

// A failure that no record causes fails the job, whatever may be skipped.
func TestWhatFailsAtNoRecordIsNotSkipped(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c")
		failure := api.Errorf(api.CodeGuestFailed, "pmr_end returned 1")
		c.mapper.mu.Lock()
		c.mapper.end = func(buckets.ID) error { return failure }
		c.mapper.mu.Unlock()
		if _, _, err := c.job(skipping(0)); api.CodeOf(err) != api.CodeGuestFailed || !strings.Contains(err.Error(), "pmr_end") {
			t.Errorf("at the end of a bucket: %v", err)
		}
		c.mapper.mu.Lock()
		c.mapper.end = nil
		c.mapper.mu.Unlock()
		c.mapper.setHook(func(context.Context, node.Task, buckets.ID) error { return failure })
		if _, _, err := c.job(skipping(0)); api.CodeOf(err) != api.CodeGuestFailed {
			t.Errorf("before the first record: %v", err)
		}
		c.mapper.setHook(nil)
		for code, retried := range map[api.Code]bool{api.CodeLimitExceeded: false, api.CodeTimeout: false} {
			c.mapper.onWord(func(context.Context, string, func(context.Context) error) error {
				return api.Errorf(code, "too much")
			})
			if _, reply, err := c.job(skipping(0)); api.CodeOf(err) != code {
				t.Errorf("%s (retried %v): %v, %+v", code, retried, err, reply.Stats)
			}
		}
	})
}

func TestOnErrorIsChecked(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		for _, req := range []api.JobRequest{
			{Module: "words", OnError: "ignore"},
			{Module: "words", MaxSkip: 3},
			{Module: "words", OnError: "skip", MaxSkip: -1},
			{Module: "words", OnError: "skip", MaxSkip: 10_001},
			{OnError: "skip"},
		} {
			if _, _, err := c.job(req); api.CodeOf(err) != api.CodeBadRequest {
				t.Errorf("%+v: %v", req, err)
			}
		}
	})
}

// A cancelled job whose guest waits for a place gives everything back.
func TestCancelOfAGuestThatWaits(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.put("", "loop", "loop", "loop", "a")
		var looping atomic.Int32
		var once sync.Once
		all := make(chan struct{})
		c.mapper.onWord(func(ctx context.Context, word string, yield func(context.Context) error) error {
			if word != "loop" {
				return nil
			}
			defer looping.Add(-1)
			if looping.Add(1) == 2 {
				once.Do(func() { close(all) })
			}
			for {
				time.Sleep(time.Millisecond)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err := yield(ctx); err != nil {
					return err
				}
			}
		})
		ended := make(chan error, 2)
		for _, id := range []string{"j1", "j2"} { // four workers, two places
			go func() {
				_, _, err := c.job(api.JobRequest{Job: id, Module: "words", Reduce: "sum"})
				ended <- err
			}()
		}
		<-all
		time.Sleep(time.Second)
		for _, id := range []string{"j1", "j2"} {
			c.must(c.request("job.cancel", api.CancelRequest{Job: id}, nil))
			if err := <-ended; api.CodeOf(err) != api.CodeCanceled {
				t.Errorf("the job ended with %v", err)
			}
		}
		c.await("no guest runs", func() bool { return looping.Load() == 0 && pins(c.status()) == 0 })
		c.mapper.onWord(nil)
		counts, _, err := c.job(wordCount)
		c.must(err)
		expectCounts(t, counts, map[string]int64{"loop": 3, "a": 1})
	})
}

// While one job's module is compiled, the guests of others run.
func TestCompilingTakesNoPlace(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c")
		compiled := make(chan struct{})
		c.mapper.mu.Lock()
		c.mapper.load = func(ctx context.Context, task node.Task) error {
			if task.Job != "slow" {
				return nil
			}
			select {
			case <-compiled:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		c.mapper.mu.Unlock()
		slow := make(chan error, 1)
		go func() {
			_, _, err := c.job(api.JobRequest{Job: "slow", Module: "words", Reduce: "sum"})
			slow <- err
		}()
		time.Sleep(time.Second)
		for range 3 {
			_, _, err := c.job(api.JobRequest{Module: "words", Reduce: "sum", TimeoutMS: 5000})
			c.must(err)
		}
		close(compiled)
		c.must(<-slow)
	})
}

// Combine and reduce count in the job's fuel, not in that of a bucket.
func TestFuelOfCombineAndReduce(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.put("", "a b", "a")
		_, reply, err := c.job(api.JobRequest{Module: "words", Combine: "first", Reduce: "module:first"})
		c.must(err)
		if f := reply.Stats.Fuel; f == nil || f.Total != 30+2*1000 || f.BucketMax != 20 || f.Bucket != 0 || f.PerRecord != 1015 {
			t.Errorf("fuel %+v", f)
		}
	})
}

// checkedCatalogue has Check do what a test says.
type checkedCatalogue struct {
	fakeCatalogue
	check func(ctx context.Context, digest string) error
}

func (c checkedCatalogue) Check(ctx context.Context, digest string) error {
	return c.check(ctx, digest)
}

// A module is checked before the job begins; whoever asks need not wait for that.
func TestAModuleIsCheckedBeforeItsJob(t *testing.T) {
	var refuse atomic.Bool
	check := func(ctx context.Context, digest string) error {
		if refuse.Load() {
			return api.Errorf(api.CodeBadModule, "module %s cannot be compiled", digest)
		}
		select {
		case <-time.After(30 * time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o := options{storages: 1, settings: small, tweak: func(_ string, p *node.Ports) { p.Catalogue = checkedCatalogue{check: check} }}
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		c.put("", "a")
		req := api.JobRequest{Job: "j", Module: "words", Reduce: "sum", WaitMS: 1000}
		_, reply, err := c.job(req)
		c.must(err)
		if reply.Status != api.JobRunning {
			t.Fatalf("the job is %s while its module is checked", reply.Status)
		}
		req.WaitMS = 60_000
		counts, _, err := c.job(req)
		c.must(err)
		expectCounts(t, counts, map[string]int64{"a": 1})
		if _, _, err := c.job(api.JobRequest{Module: "words", TimeoutMS: 5000}); api.CodeOf(err) != api.CodeTimeout {
			t.Errorf("a job whose time is over meanwhile: %v", err)
		}
		go func() {
			time.Sleep(time.Second)
			_ = c.request("job.cancel", api.CancelRequest{Job: "k"}, nil)
		}()
		if _, _, err := c.job(api.JobRequest{Job: "k", Module: "words"}); api.CodeOf(err) != api.CodeCanceled {
			t.Errorf("a job that is cancelled meanwhile: %v", err)
		}
		refuse.Store(true)
		if _, _, err := c.job(api.JobRequest{Module: "words"}); api.CodeOf(err) != api.CodeBadModule {
			t.Errorf("a module that does not pass: %v", err)
		}
	})
}

// A storage that keeps too much output takes no further map; when the others are through it does.
func TestTheOutputOfAllJobsIsBounded(t *testing.T) {
	bubbleWith(t, options{storages: 1, settings: small, total: 1000}, func(t *testing.T, c *cluster) {
		c.put("", words(50)...)
		blocked, reached := make(chan struct{}), make(chan struct{}, 1)
		c.mapper.mu.Lock()
		c.mapper.end = func(b buckets.ID) error {
			if b == 11 {
				reached <- struct{}{}
				<-blocked
			}
			return nil
		}
		c.mapper.mu.Unlock()
		first := make(chan error, 1)
		go func() {
			_, _, err := c.job(wordCount)
			first <- err
		}()
		<-reached
		_, _, err := c.job(api.JobRequest{Module: "words", Reduce: "sum", Attempts: 2, TimeoutMS: 5000}) // a map that is refused is no attempt
		if e := api.AsError(err); e.Code != api.CodeTimeout || !strings.Contains(e.Message, "aggregation-total") || !strings.Contains(e.Hint, "--aggregation-total") {
			t.Errorf("a job beside it: %v", err)
		}
		close(blocked)
		c.must(<-first)
		c.await("nothing is pinned any more", func() bool { return pins(c.status()) == 0 })
		c.mapper.mu.Lock()
		c.mapper.end = nil
		c.mapper.mu.Unlock()
		_, _, err = c.job(wordCount)
		c.must(err)
	})
}
