package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
)

const (
	keyHistory   = "lease.history" // of KV STATE: one router sweeps
	sweepEvery   = time.Minute
	sweepLease   = 3 * sweepEvery
	queueAgain   = 5 * time.Minute // after which a queued job that nobody took may have been lost by the queue
	mostRecorded = 10_000          // durable jobs that are over and remembered
)

// historian sweeps the history of durable jobs: it drops what is too much, results that do not count, and queues
// jobs again that nobody has in hand. Records of old jobs go away by themselves. One router sweeps at a time, by a
// lease; that only saves work.
type historian struct {
	r        *Router
	revision uint64                // of the lease, while this router holds it
	idle     map[string]idleRecord // of jobs that somebody should have in hand
}

// idleRecord is a record that has not changed for some time.
type idleRecord struct {
	revision uint64
	since    time.Time
	queued   bool // again, by this router
}

func (h *historian) round(ctx context.Context) {
	if h.r.ports.Jobs == nil || !h.lease(ctx) {
		return
	}
	if err := h.sweep(ctx, mostRecorded); err != nil && ctx.Err() == nil {
		h.r.logger.Warn("cannot sweep the history of jobs", "reason", err)
	}
}

func (h *historian) lease(ctx context.Context) bool {
	var err error
	if h.revision == 0 {
		h.revision, err = h.r.ports.State.CreateTTL(ctx, keyHistory, []byte(h.r.ID()), sweepLease)
	} else {
		h.revision, err = h.r.ports.State.Renew(ctx, keyHistory, []byte(h.r.ID()), h.revision, sweepLease)
	}
	if err != nil {
		h.revision, h.idle = 0, nil
	}
	return err == nil
}

// survey is what a sweep found in the records.
type survey struct {
	results map[string]api.JobRecord // what may keep a result, without its request
	ended   map[string]uint64        // jobs that are over, by the revision of their end: those are in the order of the ends
	idle    map[string]idleRecord
}

func (h *historian) sweep(ctx context.Context, most int) error {
	objects, err := h.r.ports.Results.List(ctx) // before the records: what is in it has had one
	if err != nil {
		return err
	}
	found, err := h.survey(ctx)
	if err != nil {
		return err
	}
	h.idle = found.idle
	if err := h.forget(ctx, found, most); err != nil {
		return err
	}
	if err := h.dropResults(ctx, objects, found.results); err != nil {
		return err
	}
	return h.queueIdle(ctx)
}

// survey reads the records of all durable jobs.
func (h *historian) survey(ctx context.Context) (survey, error) {
	s := survey{map[string]api.JobRecord{}, map[string]uint64{}, map[string]idleRecord{}}
	routers, err := members(ctx, h.r.ports.State, prefixRouter)
	if err != nil {
		return s, err
	}
	alive := map[string]bool{}
	for _, m := range routers {
		alive[peerName(m)] = true
	}
	return s, h.r.eachRecord(ctx, func(id string, rec api.JobRecord, revision uint64) {
		delete(s.results, id)
		delete(s.ended, id)
		delete(s.idle, id)
		if !rec.Durable {
			return
		}
		s.results[id] = api.JobRecord{State: rec.State, Take: rec.Take, Result: rec.Result}
		switch {
		case rec.State.Over():
			s.ended[id] = revision
		case rec.State == api.JobQueued || !alive[rec.Router]:
			seen, ok := h.idle[id]
			if !ok || seen.revision != revision {
				seen = idleRecord{revision: revision, since: time.Now()}
			}
			s.idle[id] = seen
		}
	})
}

// forget drops the jobs that ended first while there are more than most.
func (h *historian) forget(ctx context.Context, found survey, most int) error {
	byEnd := slices.SortedFunc(maps.Keys(found.ended), func(a, b string) int { return cmp.Compare(found.ended[a], found.ended[b]) })
	for _, id := range byEnd[:max(0, len(byEnd)-most)] {
		if err := h.r.ports.Jobs.Delete(ctx, prefixJob+id); err != nil {
			return err
		}
		delete(found.results, id)
	}
	return nil
}

// dropResults removes what keeps no job's result.
func (h *historian) dropResults(ctx context.Context, objects []api.ObjectInfo, results map[string]api.JobRecord) error {
	for _, o := range objects {
		job, take, ok := parseResultName(o.Name)
		if !ok || keepsResult(results[job], job, take) {
			continue
		}
		// A listing may have missed a record that was written meanwhile, or have one that only a newer program reads.
		rec, _, err := h.r.record(ctx, job)
		if err != nil || keepsResult(rec, job, take) {
			continue
		}
		if err := h.r.ports.Results.Delete(ctx, o.Name); err != nil {
			return err
		}
	}
	return nil
}

// keepsResult reports whether a take's result counts, or may still come to.
func keepsResult(rec api.JobRecord, job string, take int) bool {
	if rec.State.Over() {
		return rec.Result == resultName(job, take)
	}
	return rec.State != "" && take >= rec.Take
}

// queueIdle queues jobs again that were not taken for long: their message may have been lost, or never come to be
// when a router died in the middle of a submit. If it is there all the same, one of the two is a double.
func (h *historian) queueIdle(ctx context.Context) error {
	for id, seen := range h.idle {
		if seen.queued || time.Since(seen.since) < queueAgain {
			continue
		}
		rec, revision, err := h.r.record(ctx, id)
		if err != nil {
			return err
		}
		if revision != seen.revision {
			continue
		}
		if rec.State == api.JobRunning { // else any message but the last take's would be a double
			reason := api.Errorf(api.CodeLost, "router %s, which ran the job, is gone", rec.Router)
			if revision, err = h.r.replace(ctx, givenBack(rec, reason, false), revision); err != nil {
				continue // somebody has it in hand
			}
		}
		h.r.logger.Warn("nobody has taken a job for long; it is queued again", "job", id, "waited", time.Since(seen.since).Round(time.Second))
		if err := h.r.queue(ctx, id, revision); err != nil {
			return err
		}
		seen.revision, seen.queued = revision, true
		h.idle[id] = seen
	}
	return nil
}
