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

	submitClaim = time.Minute // much longer than it takes to store a record
)

// claimToSubmit keeps an id from jobs of job.run until a durable job of it is stored: they claim it, too, and then
// the record is there.
func (r *Router) claimToSubmit(ctx context.Context, id string) error {
	claim := api.JobRecord{Version: recordVersion, Job: id, Durable: true, State: api.JobQueued, Router: r.ID()}
	_, err := r.writeClaim(ctx, claim, 0, submitClaim)
	if api.CodeOf(err) != api.CodeNameTaken {
		return err
	}
	found, at, err := r.claim(ctx, id)
	switch {
	case err != nil:
		return err
	case at != 0 && !found.Durable:
		return anotherJob(id)
	}
	_, err = r.writeClaim(ctx, claim, at, submitClaim) // somebody submits the same, or did so a moment ago
	return err
}

// runClaimed runs an interactive job of an id that the client minted. The id is claimed for the time of the job and of
// its result. Meanwhile the job pins already; it maps nothing before it has the id. A repeated request joins the job at
// the router that has claimed it, and if that router is gone, takes the claim over and runs the job again. One with the
// id of a durable job waits for that.
func (r *Router) runClaimed(ctx context.Context, req api.JobRequest) (api.JobReply, error) {
	mine, err := r.newJob(ctx, req.Job, req, 0)
	if err != nil {
		return api.JobReply{}, err
	}
	mine.claimed = make(chan struct{})
	wait := waitFor(req, mine.timeout)
	j, err := r.begin(mine)
	if err != nil {
		return api.JobReply{}, err
	}
	if j != mine { // another request has begun it, and claims the id
		return r.joinHere(ctx, j, mine, req)
	}
	take, reply, err := r.claimID(ctx, mine, wait)
	if take == 0 || err != nil {
		r.withdraw(mine)
		return reply, err
	}
	if !mine.withdrawn.Load() {
		close(mine.claimed)
	} else if j, err = r.beginAgain(ctx, req, take); err != nil {
		return api.JobReply{}, err
	}
	return r.await(ctx, j, wait, 0, req.MaxBytes)
}

// beginAgain begins a job that somebody else had. Its attempts are counted on from those of the takes before.
func (r *Router) beginAgain(ctx context.Context, req api.JobRequest, take int) (*job, error) {
	j, err := r.newJob(ctx, req.Job, req, (take-1)*api.AttemptsPerTake)
	if err != nil {
		return nil, err
	}
	return r.begin(j)
}

// withdraw ends a job whose id somebody else has. Who waits for it joins the other.
func (r *Router) withdraw(j *job) {
	if j.withdrawn.Swap(true) {
		return
	}
	r.mu.Lock()
	if r.jobs[j.id] == j {
		delete(r.jobs, j.id)
	}
	r.mu.Unlock()
	j.stop(api.Errorf(api.CodeBusy, "another router has job %s; ask again", j.id))
}

// claimID claims the id of an interactive job for this router, and returns which take of the job it is, from 1. If the
// id is somebody else's the take is 0, and the answer is that of the job that has it. The job is withdrawn as soon as it
// does not get the id at once.
func (r *Router) claimID(ctx context.Context, j *job, wait time.Duration) (take int, reply api.JobReply, err error) {
	req, ttl := j.req, j.timeout+DefaultRetention
	claim := api.JobRecord{Version: recordVersion, Job: j.id, State: api.JobRunning, Router: r.ID(), Take: 1, Asked: j.question()}
	for at := uint64(0); ; {
		if rec, revision, err := r.record(ctx, j.id); err != nil {
			return 0, reply, err
		} else if revision != 0 && rec.Durable {
			r.withdraw(j)
			if rec.Request != nil && questionOf(*rec.Request, rec.Request.Module) != claim.Asked {
				return 0, reply, anotherJob(j.id)
			}
			reply, err = r.durableResult(ctx, j.id, wait, 0, req.MaxBytes)
			return 0, reply, err
		}
		if _, err = r.writeClaim(ctx, claim, at, ttl); err == nil {
			return claim.Take, reply, nil
		}
		if code := api.CodeOf(err); code != api.CodeNameTaken && code != api.CodeBusy && code != api.CodeInDoubt {
			return 0, reply, err
		}
		r.withdraw(j)
		var found api.JobRecord
		if found, at, err = r.claim(ctx, j.id); err != nil {
			return 0, reply, err
		}
		if at != 0 && !found.Durable && found.Asked != "" && found.Asked != claim.Asked {
			return 0, reply, anotherJob(j.id)
		}
		if found.Durable { // it is being submitted
			at = 0
		}
		switch {
		case at == 0: // or gone
			if err := sleep(ctx, claimPause); err != nil {
				return 0, reply, err
			}
		case found.Router != r.ID(): // else it is of a job that is over here, or was in doubt until now
			reply, joined, err := r.join(ctx, found, req, wait)
			if joined || err != nil {
				return 0, reply, err
			}
		}
		claim.Take = max(claim.Take, found.Take+1)
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
		return r.ports.Claims.CreateTTL(ctx, claim.Job, body, ttl)
	}
	return r.ports.Claims.Renew(ctx, claim.Job, body, revision, ttl)
}

// join answers from the job of the router that has claimed the id. joined is false if that has it not in hand.
func (r *Router) join(ctx context.Context, rec api.JobRecord, req api.JobRequest, wait time.Duration) (reply api.JobReply, joined bool, err error) {
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
