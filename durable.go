package pinion

import (
	"cmp"
	"context"
	"crypto/rand"
	"strings"

	"github.com/pinion-mr/pinion/api"
)

// JobFilter says which jobs to list. The zero value lists the newest 100.
type JobFilter struct {
	State  api.JobStatus // queued, running, done, failed or canceled; empty is any
	Client string        // whose; empty is anybody's
	Limit  int           // at the most; default 100, at most 1,000
}

// Submit stores a job and returns its id. When it has returned, the job runs also if this program ends, and is run
// again by another router if one dies. Its Timeout counts from when a router takes it; Progress and PageBytes have
// no meaning here: see [Client.Wait]. A job whose ID was submitted before is not run again, if it asks for the same.
// Errors: as those of [Client.Run] about the request; NAME_TAKEN if another job has the ID; LIMIT_EXCEEDED if the
// request takes more than 64 KiB.
func (c *Client) Submit(ctx context.Context, job Job) (id string, err error) {
	if err := job.check(); err != nil {
		return "", err
	}
	if job.ID == "" {
		job.ID = strings.ToLower(rand.Text())
	}
	if job.Timeout <= 0 {
		job.Timeout = defaultTimeout
	}
	job.Client = cmp.Or(job.Client, c.user)
	req := job.request()
	req.WaitMS, req.MaxBytes, req.TimeoutMS = 0, 0, max(req.TimeoutMS, 1)
	err = persist(ctx, askAgainFor, func(err error) bool {
		code := api.CodeOf(err)
		return code == api.CodeBusy || code == api.CodeInDoubt || unanswered(err)
	}, func() error {
		return c.patient(ctx, 0, "job.submit", req, nil)
	})
	if err != nil && (ctx.Err() != nil || unanswered(err)) {
		return job.ID, api.Errorf(api.CodeInDoubt, "job %s may or may not be submitted: %v", job.ID, err).
			WithHint("submit it again with this id, or look for it").With("job", job.ID)
	}
	return job.ID, err
}

// Job tells how far a job is: a durable one of the history, or one that a router runs or still has the result of.
// It fails with UNKNOWN_JOB.
func (c *Client) Job(ctx context.Context, id string) (api.JobInfo, error) {
	var info api.JobInfo
	err := c.request(ctx, "job.get", api.JobName{Job: id}, &info)
	return info, err
}

// Jobs lists jobs, the newest first. Its More says how many were left out.
func (c *Client) Jobs(ctx context.Context, filter JobFilter) (api.JobsReply, error) {
	var reply api.JobsReply
	err := c.request(ctx, "job.list", api.JobsRequest{State: filter.State, Client: filter.Client, Limit: filter.Limit}, &reply)
	return reply, err
}

// Wait returns the result of a job of any client when the job is done, and the error that it failed with when it
// is not. Meanwhile progress, which may be nil, is called from one goroutine at a time. If ctx ends, the job goes on:
// [Client.Cancel] would end it.
func (c *Client) Wait(ctx context.Context, id string, progress func(api.JobProgress)) (*Result, error) {
	stop, err := c.follow(Job{ID: id, Progress: progress})
	if err != nil {
		return nil, err
	}
	defer stop()
	reply := api.JobReply{Status: api.JobRunning}
	for reply.Status == api.JobRunning {
		reply, err = c.fetch(ctx, api.ResultRequest{Job: id, Cursor: reply.Next, WaitMS: waitSlice.Milliseconds()})
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, api.Errorf(api.CodeTimeout, "job %s has not ended: stopped waiting for it", id).With("job", id)
		case err != nil:
			return nil, err
		}
	}
	return c.kept(ctx, reply)
}

// Result returns the result of a job that is done. It fails with BUSY if the job has not ended, with the job's own
// error if it failed, and with UNKNOWN_JOB if nobody knows it any more.
func (c *Client) Result(ctx context.Context, id string) (*Result, error) {
	reply, err := c.fetch(ctx, api.ResultRequest{Job: id})
	if err != nil {
		return nil, err
	}
	if reply.Status == api.JobRunning {
		return nil, api.Errorf(api.CodeBusy, "job %s has not ended", id).WithHint("wait for it").With("job", id)
	}
	return c.kept(ctx, reply)
}

// kept is the result of a job that somebody started, from its first page.
func (c *Client) kept(ctx context.Context, first api.JobReply) (*Result, error) {
	info, err := c.Job(ctx, first.Job)
	if err != nil {
		return nil, err
	}
	result := &Result{Job: first.Job, client: c, first: first, job: Job{Buckets: info.Wanted}}
	if first.Stats != nil {
		result.Stats = *first.Stats
	}
	return result, nil
}

// Cancel ends a job of any client: its functions are stopped and its buckets let go. The answer says how far the
// job is; one that is over stays as it is, and Over says so. It fails with UNKNOWN_JOB.
func (c *Client) Cancel(ctx context.Context, id string) (api.JobState, error) {
	var state api.JobState
	err := c.request(ctx, "job.cancel", api.CancelRequest{Job: id}, &state)
	return state, err
}
