package node

import (
	"context"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr"
)

// tellPlace is how often a job that waits tells its place.
const tellPlace = 2 * time.Second

// awaitTurn waits until the job may run: its time passes, unless it is durable, and it can be cancelled. It returns
// what ends the job if it may not run, and else nil.
func (j *job) awaitTurn(ctx context.Context) pmr.Event {
	select {
	case <-j.applicant.admitted:
		return nil
	default:
	}
	var over <-chan time.Time
	if j.durable {
		defer j.restartClock() // its time begins when it runs
	} else {
		patience := time.NewTimer(j.timeout - time.Since(j.began))
		defer patience.Stop()
		over = patience.C
	}
	ticker := time.NewTicker(tellPlace)
	defer ticker.Stop()
	for {
		j.publishPlace()
		select {
		case <-j.applicant.admitted:
			return nil
		case <-ticker.C:
		case <-over:
			place, most := j.r.place(j)
			return pmr.Canceled{Err: api.Errorf(api.CodeTimeout, "the job's time was over while it waited for its turn, as number %d; the router runs %d at once", place, most).
				WithHint("a longer time: --timeout; or fewer jobs at once, or another router")}
		case <-ctx.Done():
			return pmr.Canceled{Err: api.AsError(context.Cause(ctx))}
		}
	}
}

// restartClock has the job begin now.
func (j *job) restartClock() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.began = time.Now()
}

// publishPlace tells whoever subscribed to the job's events how many jobs come before it.
func (j *job) publishPlace() {
	place, _ := j.r.place(j)
	j.announce(api.JobProgress{Job: j.id, Phase: string(api.JobQueued), Place: place, Take: j.take})
}

// place is a job's place in the queue, and how many run at once.
func (r *Router) place(j *job) (place, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.admission.place(j.applicant), r.admission.most
}

// leave frees the place of a job that has ended, and its memory, unless its rows are still to be stored.
func (r *Router) leave(j *job) {
	if !j.durable {
		j.leaveMemory()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.admission.leave(j.applicant)
}

// requestSize is about how many bytes a request takes that waits.
func requestSize(req api.JobRequest) int64 {
	n := 1024 + paramSize(req.Params) + 2*len(req.Buckets)
	for _, key := range req.Keys {
		n += 24 + len(key)
	}
	for _, own := range req.BucketParams {
		n += 64 + paramSize(own.Params)
	}
	return int64(n)
}
