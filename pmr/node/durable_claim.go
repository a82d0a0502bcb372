package node

import (
	"context"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// How long a router that has claimed an id is asked for the job, which it may not have begun yet.
const (
	claimPause = 100 * time.Millisecond
	claimTries = 10
)

// runClaimed runs an interactive job of an id that the client minted. The id is claimed in KV JOBS first, for the
// time of the job and of its result; a repeated request joins the job at the router that has claimed it, and if
// that router is gone, takes the claim over and runs the job again.
func (r *Router) runClaimed(ctx context.Context, req api.JobRequest) (api.JobReply, error) {
	j, err := r.newJob(ctx, req.Job, req, 0)
	if err != nil {
		return api.JobReply{}, err
	}
	wait := waitFor(req, j.timeout)
	claim := api.JobRecord{Version: recordVersion, Job: req.Job, State: api.JobRunning, Router: r.ID(), Take: 1}
	for at := uint64(0); ; {
		revision, err := r.writeClaim(ctx, claim, at, j.timeout+DefaultRetention)
		if err == nil {
			j.first = (claim.Take - 1) * api.AttemptsPerTake
			j.machine = j.newMachine()
			started, err := r.begin(j)
			if err != nil {
				r.giveUpClaim(ctx, claim, revision)
				return api.JobReply{}, err
			}
			return r.await(ctx, started, wait, 0, req.MaxBytes)
		}
		if code := api.CodeOf(err); code != api.CodeNameTaken && code != api.CodeBusy && code != api.CodeInDoubt {
			return api.JobReply{}, err
		}
		var found api.JobRecord
		if found, at, err = r.record(ctx, req.Job); err != nil {
			return api.JobReply{}, err
		}
		if at == 0 || !found.Durable && found.Router == r.ID() && r.job(req.Job) == nil { // gone, or ours and in doubt until now
			if err := sleep(ctx, claimPause); err != nil {
				return api.JobReply{}, err
			}
			claim.Take = max(claim.Take, found.Take+1)
			continue
		}
		reply, joined, err := r.join(ctx, found, req, wait)
		if joined || err != nil {
			return reply, err
		}
		claim.Take = found.Take + 1
	}
}

// waitFor is how long an answer to a request may wait for the job's end.
func waitFor(req api.JobRequest, timeout time.Duration) time.Duration {
	if req.WaitMS > 0 {
		return millis(req.WaitMS)
	}
	return timeout + answerWithin
}

func (r *Router) writeClaim(ctx context.Context, claim api.JobRecord, revision uint64, ttl time.Duration) (uint64, error) {
	body, err := api.Encode(api.JSON, claim)
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		return r.ports.Jobs.CreateTTL(ctx, prefixJob+claim.Job, body, ttl)
	}
	return r.ports.Jobs.Renew(ctx, prefixJob+claim.Job, body, revision, ttl)
}

// giveUpClaim lets others have the id of a job that did not begin here.
func (r *Router) giveUpClaim(ctx context.Context, claim api.JobRecord, revision uint64) {
	claim.Router = ""
	if _, err := r.writeClaim(ctx, claim, revision, time.Second); err != nil {
		r.logger.Debug("cannot give a job's id up; it lapses", "job", claim.Job, "reason", err)
	}
}

// join answers from the job that has the id. joined is false if nobody has it in hand.
func (r *Router) join(ctx context.Context, rec api.JobRecord, req api.JobRequest, wait time.Duration) (reply api.JobReply, joined bool, err error) {
	if rec.Durable {
		reply, err = r.durableResult(ctx, req.Job, wait, 0, req.MaxBytes)
		return reply, true, err
	}
	if rec.Router == r.ID() {
		j := r.job(req.Job)
		if j == nil {
			return reply, false, nil
		}
		reply, err = r.await(ctx, j, wait, 0, req.MaxBytes)
		return reply, true, err
	}
	if rec.Router == "" {
		return reply, false, nil
	}
	for tries := 0; ; tries++ { // it may have claimed the id and not begun yet, or be cut off for a moment
		reply, err = r.joinAt(ctx, rec.Router, req, wait)
		if code := api.CodeOf(err); code != api.CodeUnknownJob && code != api.CodeUnavailable {
			return reply, true, err
		}
		if !r.isMember(ctx, rec.Router) || tries >= claimTries && api.CodeOf(err) == api.CodeUnknownJob {
			return api.JobReply{}, false, nil
		}
		if err := sleep(ctx, claimPause); err != nil {
			return api.JobReply{}, false, err
		}
	}
}

func (r *Router) joinAt(ctx context.Context, router string, req api.JobRequest, wait time.Duration) (reply api.JobReply, err error) {
	ctx, done := context.WithTimeout(ctx, wait+answerWithin)
	defer done()
	asked := api.ResultRequest{Job: req.Job, MaxBytes: req.MaxBytes, WaitMS: wait.Milliseconds()}
	err = r.ports.Peers.Request(ctx, "router."+router+".result", asked, &reply)
	return reply, err
}

// isMember reports whether a router of that name is alive, as far as the members' entries tell.
func (r *Router) isMember(ctx context.Context, name string) bool {
	routers, err := members(ctx, r.ports.State, prefixRouter)
	if err != nil {
		return true
	}
	for _, m := range routers {
		if peerName(m) == name {
			return true
		}
	}
	return false
}
