package pinion

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus/busmem"
)

func rows(from, to int) []api.Row {
	all := []api.Row{}
	for i := from; i < to; i++ {
		all = append(all, api.Row{Key: api.Bytes(fmt.Sprint(i)), Value: api.IntValue(int64(i))})
	}
	return all
}

func TestRunWaitsAndFetchesPages(t *testing.T) {
	c := newCluster(t, sixteen)
	var got api.JobRequest
	answer(c, "job.run", func(req api.JobRequest) (api.JobReply, error) {
		got = req
		if err := c.router.Publish("job."+req.Job+".events", api.JobProgress{Job: req.Job, Phase: "map", Buckets: 7}); err != nil {
			return api.JobReply{}, err
		}
		return api.JobReply{Job: req.Job, Status: api.JobRunning, Next: "r1.0"}, nil
	})
	progressed := make(chan struct{})
	waited := 0
	answer(c, "job.result", func(req api.ResultRequest) (api.JobReply, error) {
		<-progressed
		switch req.Cursor {
		case "r1.0":
			if waited++; waited < 3 {
				return api.JobReply{Job: req.Job, Status: api.JobRunning, Next: "r1.0"}, nil
			}
			return api.JobReply{Job: req.Job, Status: api.JobDone, Rows: rows(0, 3), Next: "r1.3", Stats: &api.JobStats{Cut: 99}}, nil
		case "r1.3":
			return api.JobReply{Job: req.Job, Status: api.JobDone, Rows: rows(3, 5)}, nil
		}
		return api.JobReply{}, api.Errorf(api.CodeBadRequest, "cursor %q", req.Cursor)
	})
	result, err := c.client.Run(t.Context(), Job{
		Module: "m", Reduce: "sum", Params: map[string][]byte{"p": []byte("v")}, Timeout: time.Minute,
		Progress: func(p api.JobProgress) {
			if p.Buckets != 7 {
				t.Errorf("progress %+v", p)
			}
			close(progressed)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Job == "" || got.TimeoutMS != 60_000 || got.WaitMS != 20_000 || string(got.Params["p"]) != "v" {
		t.Errorf("asked for %+v", got)
	}
	if result.Stats.Cut != 99 || result.Job != got.Job {
		t.Errorf("result %+v", result)
	}
	for range 2 { // the rows can be read again
		var keys []string
		for row, err := range result.Rows(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, string(row.Key))
		}
		if strings.Join(keys, "") != "01234" {
			t.Errorf("rows %v", keys)
		}
	}
}

func TestRunSendsALostRequestAgain(t *testing.T) {
	c := newCluster(t, sixteen)
	var ids []string
	answer(c, "job.run", func(req api.JobRequest) (api.JobReply, error) {
		ids = append(ids, req.Job)
		switch len(ids) {
		case 1:
			return api.JobReply{}, api.Errorf(api.CodeBusy, "64 jobs run")
		case 2:
			return api.JobReply{}, api.Errorf(api.CodeTimeout, "the answer was lost")
		}
		return api.JobReply{Job: req.Job, Status: api.JobDone}, nil
	})
	if _, err := c.client.Run(t.Context(), Job{}); err != nil {
		t.Fatal(err)
	}
	if len(ids) != 3 || len(slices.Compact(ids)) != 1 {
		t.Errorf("asked with ids %v, want one id three times", ids)
	}
}

func TestRunFailsAsTheJobDoes(t *testing.T) {
	c := newCluster(t, sixteen)
	tries := 0
	answer(c, "job.run", func(api.JobRequest) (api.JobReply, error) {
		tries++
		return api.JobReply{}, api.Errorf(api.CodeTimeout, "the time of the job was over").With("job", "j")
	})
	_, err := c.client.Run(t.Context(), Job{ID: "j"})
	wantCode(t, err, api.CodeTimeout)
	if tries != 1 {
		t.Errorf("a job that ran out of time was asked for %d times", tries)
	}
}

func TestRunCancelsTheJobWhenItsContextEnds(t *testing.T) {
	c := newCluster(t, sixteen)
	ctx, cancel := context.WithCancel(t.Context())
	answer(c, "job.run", func(req api.JobRequest) (api.JobReply, error) {
		cancel()
		return api.JobReply{Job: req.Job, Status: api.JobRunning}, nil
	})
	var cancelled atomic.Value
	answer(c, "job.cancel", func(req api.CancelRequest) (api.Empty, error) {
		cancelled.Store(req.Job)
		return api.Empty{}, nil
	})
	_, err := c.client.Run(ctx, Job{ID: "mine"})
	wantCode(t, err, api.CodeCanceled)
	if cancelled.Load() != "mine" {
		t.Errorf("cancelled %v", cancelled.Load())
	}
}

func TestRowsEndWithTheFailureOfAPage(t *testing.T) {
	c := newCluster(t, sixteen)
	answer(c, "job.run", func(req api.JobRequest) (api.JobReply, error) {
		return api.JobReply{Job: req.Job, Status: api.JobDone, Rows: rows(0, 2), Next: "r1.2"}, nil
	})
	answer(c, "job.result", func(req api.ResultRequest) (api.JobReply, error) {
		return api.JobReply{}, api.Errorf(api.CodeUnknownJob, "no job %s", req.Job)
	})
	result, err := c.client.Run(t.Context(), Job{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err = range result.Rows(t.Context()) {
		n++
	}
	wantCode(t, err, api.CodeUnknownJob)
	if n != 3 {
		t.Errorf("%d steps, want two rows and an error", n)
	}
}

func TestNobodyAnswers(t *testing.T) {
	mem := busmem.New(busmem.Config{})
	client := &Client{conn: memBus{mem.Connect("client")}}
	defer client.Close()
	_, err := client.Run(t.Context(), Job{})
	wantCode(t, err, api.CodeNoSuchCluster)

	c := newCluster(t, sixteen)
	_, err = c.client.Run(t.Context(), Job{})
	wantCode(t, err, api.CodeUnavailable)
}

func TestCheckCoverage(t *testing.T) {
	pinned := func(numbers ...uint16) api.PinnedOnStorage {
		var p api.PinnedOnStorage
		for _, n := range numbers {
			p.Buckets = append(p.Buckets, api.BucketPin{Bucket: n})
		}
		return p
	}
	for name, tc := range map[string]struct {
		pinned []api.PinnedOnStorage
		want   string
	}{
		"whole":      {[]api.PinnedOnStorage{pinned(0, 2), pinned(3, 1)}, ""},
		"one misses": {[]api.PinnedOnStorage{pinned(0, 2), pinned(1)}, "bucket 3"},
		"one twice":  {[]api.PinnedOnStorage{pinned(0, 2), pinned(3, 1, 2)}, "bucket 2"},
		"one beyond": {[]api.PinnedOnStorage{pinned(0, 1, 2, 3, 4)}, "bucket 4"},
	} {
		err := (&Result{Stats: api.JobStats{Pinned: tc.pinned}}).CheckCoverage(4)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
