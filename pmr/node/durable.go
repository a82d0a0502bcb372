package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr"
)

// JobSilence is how long a router that runs a durable job may be silent before another one is handed the job.
// takesAtOnce is how many durable jobs a router has at a time, at most as many as it runs; the others wait in the
// queue, for any router.
const (
	JobSilence  = 15 * time.Second
	takesAtOnce = 16
)

// DefaultDurable is how many durable jobs may wait or run in the cluster.
const DefaultDurable = 10_000

// Submit stores a job, checked as by RunJob, and queues it: some router runs it, another one if that router dies.
// The same request with the same id answers how far the job is; another request with that id is NAME_TAKEN.
func (r *Router) Submit(ctx context.Context, req api.JobRequest) (api.JobState, error) {
	if r.ports.Jobs == nil {
		return api.JobState{}, api.Errorf(api.CodeUnavailable, "this router has no queue of jobs").WithHint("use job.run")
	}
	id := cmp.Or(req.Job, newID())
	if err := api.CheckID("a job's id", id); err != nil {
		return api.JobState{}, err
	}
	mine, err := r.newRecord(ctx, id, req)
	if err == nil {
		err = r.checkSpace(ctx, mine.Request.Space)
	}
	if err != nil {
		return api.JobState{}, err
	}
	rec, revision, err := r.store(ctx, mine, req.Job != "")
	if err == nil && revision != 0 && rec.State == api.JobQueued {
		// Whoever submitted it and died here may do so again; else a sweep finds it.
		err = r.queue(ctx, id, revision)
		r.tellJob(api.JobProgress{Job: id, Phase: "queued", Of: r.cfg.Settings.Buckets})
	}
	if err != nil {
		return api.JobState{}, err
	}
	return api.JobState{Job: id, State: rec.State, Over: rec.State.Over()}, nil
}

// store writes the record of a new job, or finds that of the same job that was submitted before. Revision 0 says that
// the job need not be queued.
func (r *Router) store(ctx context.Context, mine api.JobRecord, named bool) (rec api.JobRecord, revision uint64, err error) {
	defer r.submitting.Add(-1)
	if err := r.refuseTooMany(ctx, int(r.submitting.Add(1))); err != nil {
		if found, revision, readErr := r.record(ctx, mine.Job); readErr == nil && revision != 0 && found.Asked == mine.Asked {
			return found, 0, nil
		}
		return rec, 0, err
	}
	if named {
		if err := r.claimToSubmit(ctx, mine.Job); err != nil {
			return rec, 0, err
		}
	}
	body, err := api.Encode(api.JSON, mine)
	if err != nil {
		return rec, 0, err
	}
	revision, err = r.ports.Jobs.Create(ctx, prefixJob+mine.Job, body)
	if api.CodeOf(err) == api.CodeNameTaken {
		return r.submittedBefore(ctx, mine)
	}
	return mine, revision, err
}

// refuseTooMany refuses a job while the queue is full. Before anything of it is stored, so nothing has to be undone; in
// return jobs that several routers take in at the same moment may all find the last place free.
func (r *Router) refuseTooMany(ctx context.Context, arriving int) error {
	n, err := r.ports.JobQueue.Len(ctx)
	if err != nil || n+arriving <= r.cfg.Durable {
		return err
	}
	return api.Errorf(api.CodeBusy, "%d durable jobs wait or run, of at most %d", n, r.cfg.Durable).
		WithHint("submit it when some have ended; another router works them off faster, and --durable-queue of the routers lets more wait").
		With("limit", "durable-queue").With("value", strconv.Itoa(r.cfg.Durable))
}

// queue hands a job to whichever router has room: once for a revision of its record, which is that of a queued job.
func (r *Router) queue(ctx context.Context, id string, revision uint64) error {
	return r.ports.JobQueue.Publish(ctx, api.QueuedJob{Job: id}, fmt.Sprintf("%s.%d", id, revision))
}

// newRecord checks a request and makes the record of its job.
func (r *Router) newRecord(ctx context.Context, id string, req api.JobRequest) (api.JobRecord, error) {
	asked, err := fingerprint(req)
	if err != nil {
		return api.JobRecord{}, err
	}
	j, err := r.newJob(ctx, id, req, 0)
	if err != nil {
		return api.JobRecord{}, err
	}
	full := j.req
	full.WaitMS, full.MaxBytes = 0, 0
	full.Module = j.module.Digest // what was checked is what will run
	rec := api.JobRecord{
		Version: recordVersion, Job: id, Durable: true, State: api.JobQueued, Asked: asked, Request: &full,
		SubmittedMS: time.Now().UnixMilli(),
	}
	if full.Module != "" {
		rec.Module = j.moduleName()
	}
	if text, err := api.Encode(api.JSON, full); err != nil {
		return rec, err
	} else if len(text) > mostRequest {
		return rec, api.Errorf(api.CodeLimitExceeded, "the request takes %d bytes; that of a durable job may take %d", len(text), mostRequest).
			WithHint("run it without --detach (job.run), or put keys and params into a space")
	}
	return rec, nil
}

// checkSpace refuses a space that is not there. While nobody can tell, it lets it pass: the job finds out.
func (r *Router) checkSpace(ctx context.Context, space string) error {
	if known, err := r.knownSpace(ctx, space); known || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	list, err := r.Spaces(ctx, api.Empty{})
	if err != nil || slices.Contains(list.Spaces, space) {
		return nil // without an answer too: a storage that is away may hold it
	}
	return pmr.UnknownSpace(space)
}

// submittedBefore returns the record of a job that was submitted with the same id.
func (r *Router) submittedBefore(ctx context.Context, mine api.JobRecord) (api.JobRecord, uint64, error) {
	found, revision, err := r.record(ctx, mine.Job)
	switch {
	case err != nil:
		return found, 0, err
	case revision == 0:
		return found, 0, api.Errorf(api.CodeBusy, "job %s has just been dropped from the history", mine.Job).WithHint("submit it again")
	case found.Asked != mine.Asked:
		return found, 0, anotherJob(mine.Job)
	}
	return found, revision, nil
}

func anotherJob(id string) *api.Error {
	return api.Errorf(api.CodeNameTaken, "there is another job %s", id).WithHint("choose another id, or leave it away to have one made").With("job", id)
}

// tellJob publishes an event of a job.
func (r *Router) tellJob(p api.JobProgress) {
	if err := r.ports.Peers.Publish("job."+p.Job+".events", p); err != nil {
		r.logger.Debug("cannot publish a job's progress", "job", p.Job, "reason", err)
	}
}

// history is how long a job that has ended is remembered.
func (r *Router) history() time.Duration {
	return cmp.Or(time.Duration(r.cfg.Settings.HistoryMS)*time.Millisecond, DefaultHistory)
}

// Cancel ends a job: its guests are stopped first, then its pins are released. The answer says how far the job is
// now; one that was over stays as it is. Of a job that runs, it may take a moment.
func (r *Router) Cancel(ctx context.Context, req api.CancelRequest) (api.JobState, error) {
	if j := r.job(req.Job); j != nil && !j.durable {
		return r.OwnCancel(ctx, req)
	}
	rec, revision, err := r.known(ctx, req.Job)
	if err != nil {
		return api.JobState{}, err
	}
	var state api.JobState
	switch {
	case revision != 0 && rec.Durable:
		return r.cancelDurable(ctx, rec, revision)
	case revision != 0 && rec.Router != r.ID():
		err = r.ports.Peers.Request(ctx, "router."+rec.Router+".cancel", req, &state)
		if code := api.CodeOf(err); code == api.CodeUnavailable || code == api.CodeUnknownJob {
			return state, r.unknownJob(req.Job)
		}
		return state, err
	}
	err = r.elsewhere(ctx, req.Job, "cancel", 0, req, &state)
	return state, err
}

// OwnCancel is Cancel for what this router runs.
func (r *Router) OwnCancel(_ context.Context, req api.CancelRequest) (api.JobState, error) {
	j := r.job(req.Job)
	if j == nil {
		return api.JobState{}, r.unknownJob(req.Job)
	}
	if info := j.info(); info.State.Over() {
		return api.JobState{Job: j.id, State: info.State, Over: true}, nil
	}
	j.stop(errCanceled)
	return api.JobState{Job: j.id, State: api.JobCanceled}, nil
}

// cancelDurable writes into the record that the job is to end, which its router cannot miss, and tells that
// router, which may be gone.
func (r *Router) cancelDurable(ctx context.Context, rec api.JobRecord, revision uint64) (api.JobState, error) {
	for {
		next := rec
		next.Cancel = true
		switch {
		case rec.State.Over():
			return api.JobState{Job: rec.Job, State: rec.State, Over: true}, nil
		case rec.State == api.JobQueued:
			next = over(next, api.JobCanceled, errCanceled, time.Now().UnixMilli())
		}
		_, err := r.replace(ctx, next, revision)
		if err == nil {
			return r.canceled(ctx, next), nil
		}
		if api.CodeOf(err) != api.CodeBusy {
			return api.JobState{}, err
		}
		if rec, revision, err = r.record(ctx, rec.Job); err != nil {
			return api.JobState{}, err
		} else if revision == 0 {
			return api.JobState{}, r.unknownJob(next.Job)
		}
	}
}

func (r *Router) canceled(ctx context.Context, rec api.JobRecord) api.JobState {
	if rec.State == api.JobRunning {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		_ = r.ports.Peers.Request(ctx, "router."+rec.Router+".cancel", api.CancelRequest{Job: rec.Job}, nil) // else it reads the record
	} else {
		r.tellJob(api.JobProgress{Job: rec.Job, Phase: string(rec.State), Take: rec.Take, Of: r.cfg.Settings.Buckets})
	}
	return api.JobState{Job: rec.Job, State: rec.State}
}
