package pinion

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
)

func TestSubmitSendsALostRequestAgain(t *testing.T) {
	c := newCluster(t, sixteen)
	var got []api.JobRequest
	answer(c, "job.submit", func(req api.JobRequest) (api.JobState, error) {
		got = append(got, req)
		switch len(got) {
		case 1:
			return api.JobState{}, api.Errorf(api.CodeInDoubt, "the record may be stored")
		case 2:
			return api.JobState{}, api.Errorf(api.CodeTimeout, "the answer was lost")
		}
		return api.JobState{Job: req.Job, State: api.JobQueued}, nil
	})
	id, err := c.client.Submit(t.Context(), Job{Module: "m", Timeout: time.Hour, PageBytes: 7})
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range got {
		if len(got) != 3 || req.Job != id || id == "" || req.TimeoutMS != time.Hour.Milliseconds() || req.WaitMS != 0 || req.MaxBytes != 0 {
			t.Errorf("asked %d times, with %+v", len(got), req)
		}
	}
}

func TestSubmitRefused(t *testing.T) {
	c := newCluster(t, sixteen)
	tries := 0
	answer(c, "job.submit", func(api.JobRequest) (api.JobState, error) {
		tries++
		return api.JobState{}, api.Errorf(api.CodeNameTaken, "there is another job j")
	})
	_, err := c.client.Submit(t.Context(), Job{ID: "j"})
	wantCode(t, err, api.CodeNameTaken)
	if tries != 1 {
		t.Errorf("tried %d times", tries)
	}
}

func TestWaitForADurableJob(t *testing.T) {
	c := newCluster(t, sixteen)
	told := make(chan struct{})
	asked := 0
	answer(c, "job.result", func(req api.ResultRequest) (api.JobReply, error) {
		switch asked++; {
		case asked == 1:
			return api.JobReply{Job: req.Job, Status: api.JobRunning, Next: "stored.0"}, c.router.Publish("job.j.events", api.JobProgress{Job: "j", Phase: "map", Buckets: 7})
		case req.Cursor == "stored.0":
			<-told
			return api.JobReply{Job: req.Job, Status: api.JobDone, Rows: rows(0, 2), Next: "stored.3", Stats: &api.JobStats{Rows: 3, Pinned: []api.PinnedOnStorage{{Buckets: []api.BucketPin{{Bucket: 9}}}}}}, nil
		}
		return api.JobReply{Job: req.Job, Status: api.JobDone, Rows: rows(2, 3)}, nil
	})
	answer(c, "job.get", func(req api.JobName) (api.JobInfo, error) {
		return api.JobInfo{Job: req.Job, State: api.JobDone, Wanted: []uint16{9}}, nil
	})
	result, err := c.client.Wait(t.Context(), "j", func(p api.JobProgress) {
		if p.Buckets == 7 {
			close(told)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for row, err := range result.Rows(t.Context()) {
		if err != nil || row.Value.Int != int64(n) {
			t.Fatalf("row %d: %+v, %v", n, row, err)
		}
		n++
	}
	if n != 3 || result.Stats.Rows != 3 || result.CheckCoverage(16) != nil {
		t.Errorf("%d rows of %+v, coverage %v", n, result.Stats, result.CheckCoverage(16))
	}
}

// Who stops waiting does not stop the job.
func TestWaitGivenUp(t *testing.T) {
	c := newCluster(t, sixteen)
	ctx, cancel := context.WithCancel(t.Context())
	answer(c, "job.result", func(req api.ResultRequest) (api.JobReply, error) {
		cancel()
		return api.JobReply{Job: req.Job, Status: api.JobRunning, Next: "stored.0"}, nil
	})
	answer(c, "job.cancel", func(api.CancelRequest) (api.JobState, error) {
		t.Error("the job was cancelled")
		return api.JobState{}, nil
	})
	_, err := c.client.Wait(ctx, "j", nil)
	wantCode(t, err, api.CodeTimeout)
	if !strings.Contains(err.Error(), "job j has not ended") {
		t.Error(err)
	}
}

func TestResultOfAJobThatHasNotEnded(t *testing.T) {
	c := newCluster(t, sixteen)
	answer(c, "job.result", func(req api.ResultRequest) (api.JobReply, error) {
		return api.JobReply{Job: req.Job, Status: api.JobRunning}, nil
	})
	_, err := c.client.Result(t.Context(), "j")
	wantCode(t, err, api.CodeBusy)
}

func TestJobsAndCancel(t *testing.T) {
	c := newCluster(t, sixteen)
	answer(c, "job.list", func(req api.JobsRequest) (api.JobsReply, error) {
		if req.State != api.JobFailed || req.Client != "shop" || req.Limit != 5 {
			t.Errorf("asked for %+v", req)
		}
		return api.JobsReply{Jobs: []api.JobInfo{{Job: "j", State: api.JobFailed}}, More: 2}, nil
	})
	answer(c, "job.cancel", func(req api.CancelRequest) (api.JobState, error) {
		return api.JobState{Job: req.Job, State: api.JobFailed, Over: true}, nil
	})
	list, err := c.client.Jobs(t.Context(), JobFilter{State: api.JobFailed, Client: "shop", Limit: 5})
	if err != nil || len(list.Jobs) != 1 || list.More != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	state, err := c.client.Cancel(t.Context(), "j")
	if err != nil || !state.Over || state.State != api.JobFailed {
		t.Errorf("%+v, %v", state, err)
	}
}
