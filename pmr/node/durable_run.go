package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
)

const (
	keepEvery    = JobSilence / 3  // a take tells the queue that it goes on, and reads its record
	commitWithin = time.Minute     // tries to write how a take ended
	againAfter   = 2 * time.Second // a job that was given back is handed out again
	settleWithin = 3 * time.Second // of a router that stops
)

// take is a durable job that this router runs.
type take struct {
	r       *Router
	id      string
	message uint64
	ended   chan struct{}

	mu       sync.Mutex
	delivery Delivery      // the latest of the message
	rec      api.JobRecord // as this router wrote or read it last
	revision uint64
	job      *job // nil before it runs
	lost     bool // another router has the job: its message, too
}

// takeJobs takes durable jobs off the queue, until ctx or the router's jobs end.
func (r *Router) takeJobs(ctx context.Context) {
	if r.ports.JobQueue == nil {
		return
	}
	taking, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(r.allJobs, stop)()
	for taking.Err() == nil {
		err := r.ports.JobQueue.Consume(taking, min(takesAtOnce, r.cfg.Jobs), func(_ context.Context, d JobDelivery) {
			r.takeJob(context.WithoutCancel(ctx), d) // what it has begun it ends
		})
		if taking.Err() == nil {
			r.logger.Warn("cannot take jobs; trying again", "reason", err)
			_ = sleep(taking, refreshEvery)
		}
	}
}

// takeJob works off a delivery of a job's message.
func (r *Router) takeJob(ctx context.Context, d JobDelivery) {
	t := r.enter(d)
	if t == nil {
		return
	}
	defer r.forget(t)
	settled := true
	what, err := t.begin(ctx)
	switch {
	case err != nil:
		r.logger.Warn("cannot take a job; it comes again", "job", d.Job, "reason", err)
		settled = false
	case what == runIt:
		settled = t.run(ctx)
	case what == endIt:
		t.tellEnd()
	}
	if t.lost {
		return // to give the message back would take the job from the router that has it
	}
	switch {
	case settled || r.queueAnew(ctx, t):
		err = t.latest().Ack(ctx)
	default:
		err = t.latest().Nak(r.pauseBefore())
	}
	if err != nil {
		r.logger.Debug("cannot settle a job's message; it comes again", "job", d.Job, "reason", err)
	}
}

// queueAnew gives a job back as a new message, if this router stops and nobody else has or waits for a job: a server
// that stops with it, as that of a cluster in one process, forgets that the old one was given back, and hands it out
// only when JobSilence is over. While other jobs wait, this one would lose its place.
func (r *Router) queueAnew(ctx context.Context, t *take) bool {
	if r.allJobs.Err() == nil || t.rec.State != api.JobQueued {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	n, err := r.ports.JobQueue.Len(ctx)
	r.mu.Lock()
	alone := err == nil && n <= len(r.takes)+r.anew
	if alone {
		r.anew++
	}
	r.mu.Unlock()
	return alone && r.queue(ctx, t.id, t.revision) == nil
}

// pauseBefore is how long a job that was given back waits for the next router: not at all if this one stops.
func (r *Router) pauseBefore() time.Duration {
	if r.allJobs.Err() != nil {
		return 0
	}
	return againAfter
}

// enter notes that a job is about to be taken here. It returns nil if it is here already: then its message was
// delivered again since the queue did not hear of this router, which still has it.
func (r *Router) enter(d JobDelivery) *take {
	r.mu.Lock()
	t := r.takes[d.Job]
	if t == nil {
		t = &take{r: r, id: d.Job, message: d.Message, delivery: d.Delivery, ended: make(chan struct{})}
		r.takes[d.Job] = t
		r.mu.Unlock()
		return t
	}
	r.mu.Unlock()
	if t.message == d.Message {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.delivery = d.Delivery
	} else if err := d.Nak(JobSilence); err != nil { // a double, to be looked at when the job is over
		r.logger.Debug("cannot give back a double of a job's message", "job", d.Job, "reason", err)
	}
	return nil
}

func (r *Router) forget(t *take) {
	if t.job != nil {
		t.job.leaveMemory()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.takes, t.id)
	if t.job != nil && r.jobs[t.id] == t.job {
		delete(r.jobs, t.id)
	}
	close(t.ended)
}

func (t *take) latest() Delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.delivery
}

// begin takes the job, if it is to be taken.
func (t *take) begin(ctx context.Context) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	var next api.JobRecord
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		rec, revision, err := t.r.record(ctx, t.id)
		if err != nil || revision == 0 {
			return dropIt, err
		}
		if next.Take > 0 && held(rec, t.r.ID(), next.Take) { // the write whose answer was lost
			t.note(rec, revision)
			return runIt, nil
		}
		var what verdict
		if next, what = onDelivery(rec, t.message, t.r.ID(), time.Now().UnixMilli()); what == dropIt {
			return what, nil
		}
		if revision, err = t.r.replace(ctx, next, revision); err == nil {
			t.note(next, revision)
			return what, nil
		}
		if sleep(ctx, pause) != nil {
			return dropIt, err
		}
	}
}

// run runs the job and writes how it ended. It reports whether the job's message has done its duty.
func (t *take) run(ctx context.Context) (settled bool) {
	alive, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { every(alive, keepEvery, func() { t.keep(alive) }) })
	defer keeping.Wait()
	defer stop()
	j, err := t.start(ctx)
	if err != nil {
		return t.failedToStart(ctx, err)
	}
	<-j.done
	if stopping := t.r.allJobs.Err() != nil; stopping && j.failed(api.CodeUnavailable) {
		return t.giveBack(ctx, api.Errorf(api.CodeUnavailable, "router %s, which ran the job, stopped", t.r.ID()), true)
	}
	e, err := t.outcome(ctx, j)
	if err != nil {
		return t.giveBack(ctx, api.AsError(fmt.Errorf("the result could not be stored: %w", err)), false)
	}
	return t.commit(ctx, e)
}

// start starts the job as any other, with attempts of its own numbers.
func (t *take) start(ctx context.Context) (*job, error) {
	checking, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	j, err := t.r.newJob(checking, t.id, *t.rec.Request, (t.rec.Take-1)*api.AttemptsPerTake)
	if err != nil {
		return nil, err
	}
	j.durable, j.take, j.req.Proof = true, t.rec.Take, true
	if j.module.Digest != "" {
		j.req.Module = t.rec.Module
	}
	j.log = t.r.logger.With("job", j.id, "module", j.req.Module, "take", j.take).Info
	started, err := t.r.begin(j)
	if err == nil && started != j {
		err = api.Errorf(api.CodeBusy, "this router runs another job %s", t.id)
	}
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.job = j
	return j, nil
}

// failedToStart ends a job that no router will be able to start, and leaves any other one to somebody else.
func (t *take) failedToStart(ctx context.Context, err error) bool {
	e := api.AsError(err)
	switch e.Code {
	case api.CodeUnavailable, api.CodeBusy, api.CodeTimeout:
		return t.giveBack(ctx, e, true)
	case api.CodeInternal:
		return t.giveBack(ctx, e, false)
	}
	return t.commit(ctx, ending{err: e})
}

// keep tells the queue that the job still runs, and stops it if that is not wanted any more.
func (t *take) keep(ctx context.Context) {
	if err := t.latest().InProgress(); err != nil {
		t.r.logger.Debug("the queue does not hear that a job goes on", "job", t.id, "reason", err)
	}
	rec, revision, err := t.r.record(ctx, t.id)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil || t.job == nil:
	case revision == 0 || !held(rec, t.r.ID(), t.rec.Take):
		t.job.stop(api.Errorf(api.CodeLost, "another router has taken job %s over", t.id))
	case rec.Cancel:
		t.job.stop(errCanceled)
	}
}

// outcome is how a job ended. Its result is stored before anybody can hear of it.
func (t *take) outcome(ctx context.Context, j *job) (e ending, err error) {
	j.mu.Lock()
	e = ending{err: j.err, stats: j.stats, attempts: j.attempts}
	j.mu.Unlock()
	if e.err == nil {
		e.result, e.bytes, err = t.r.storeResult(ctx, j)
	}
	return e, err
}

// giveBack leaves the job to another router. In order is what can be said of no fault of the job's.
func (t *take) giveBack(ctx context.Context, reason *api.Error, inOrder bool) bool {
	written, err := t.settle(ctx, func(rec api.JobRecord) api.JobRecord { return givenBack(rec, reason, inOrder) })
	t.lost = !written && err == nil
	if err != nil {
		t.r.logger.Warn("cannot give a job back; it is taken from here", "job", t.id, "reason", err)
	}
	t.r.logger.Info("a job is given back", "job", t.id, "take", t.rec.Take, "reason", reason.Message)
	return false
}

// commit writes the job's end, if this take is still the one that may. Else its result is dropped: whoever has
// the job now makes the one that counts.
func (t *take) commit(ctx context.Context, e ending) bool {
	written, err := t.settle(ctx, func(rec api.JobRecord) api.JobRecord { return committed(rec, e, time.Now().UnixMilli()) })
	if !written && err == nil && e.result != "" { // in doubt it may count; a sweep knows later
		t.r.dropResult(ctx, e.result)
	}
	switch {
	case err != nil:
		t.r.logger.Warn("cannot write how a job ended; it runs again", "job", t.id, "take", t.rec.Take, "reason", err)
		return false
	case !written:
		t.lost = true
		t.r.logger.Warn("another router has taken the job over; this result is dropped", "job", t.id, "take", t.rec.Take)
		return false
	}
	if t.rec.State != api.JobDone && e.result != "" {
		t.r.dropResult(ctx, e.result)
	}
	t.tellEnd()
	return true
}

// settle changes the record that this router took, by compare-and-set, as long as it still has the job. Another
// may write into the record that the job is to be cancelled.
func (t *take) settle(ctx context.Context, change func(api.JobRecord) api.JobRecord) (written bool, err error) {
	patience := commitWithin
	if t.r.allJobs.Err() != nil {
		patience = settleWithin
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	take := t.rec.Take
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		next := change(t.rec)
		revision, err := t.r.replace(ctx, next, t.revision)
		if err == nil {
			t.note(next, revision)
			return true, nil
		}
		rec, revision, readErr := t.r.record(ctx, t.id)
		switch {
		case readErr != nil:
		case revision == 0:
			return false, nil
		case rec.Router == t.r.ID() && rec.Take == take && rec.State.Over():
			t.note(rec, revision) // the write whose answer was lost
			return true, nil
		case !held(rec, t.r.ID(), take):
			return false, nil
		default:
			t.note(rec, revision)
		}
		if sleep(ctx, pause) != nil {
			return false, err
		}
	}
}

func (t *take) note(rec api.JobRecord, revision uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rec, t.revision = rec, revision
}

// tellEnd publishes how the job ended.
func (t *take) tellEnd() {
	p := api.JobProgress{Job: t.id, Phase: string(t.rec.State), Take: t.rec.Take, Attempt: t.rec.Attempts, Of: t.r.cfg.Settings.Buckets}
	if t.rec.Error != nil {
		p.Reason = t.rec.Error.Message
	}
	if t.rec.Stats != nil {
		p.Buckets, p.Of, p.Records, p.Bytes = t.rec.Stats.Buckets, t.rec.Stats.Buckets, t.rec.Stats.Records, t.rec.Stats.Bytes
	}
	t.r.tellJob(p)
	t.r.logger.Info("a durable job is over", "job", t.id, "state", t.rec.State, "take", t.rec.Take)
}
