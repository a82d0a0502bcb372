package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/pinion-mr/pinion/api"
)

const (
	recordVersion = 1
	prefixJob     = "job."
	mostTakes     = 5        // that may end without a word
	mostRequest   = 64 << 10 // bytes of a durable job's request
)

// parseRecord reads a job's record. One of a newer version is refused.
func parseRecord(e api.KVEntry) (api.JobRecord, error) {
	var rec api.JobRecord
	if err := api.Decode(e.Value, &rec, api.Lenient); err != nil {
		return rec, fmt.Errorf("node: record %s: %w", e.Key, err)
	}
	if rec.Version > recordVersion {
		return rec, api.Errorf(api.CodeVersion, "the record of job %.80q has version %d; this program reads %d", e.Key[strings.IndexByte(e.Key, '.')+1:], rec.Version, recordVersion).
			WithHint("use the newer program")
	}
	return rec, nil
}

// record reads the record of a durable job; revision 0 is none.
func (r *Router) record(ctx context.Context, id string) (api.JobRecord, uint64, error) {
	return readRecord(ctx, r.ports.Jobs, prefixJob, id)
}

// claim reads who has an id for a time; revision 0 is nobody.
func (r *Router) claim(ctx context.Context, id string) (api.JobRecord, uint64, error) {
	return readRecord(ctx, r.ports.Claims, "", id)
}

// known reads the record of a durable job, or else which router runs a job; revision 0 is neither.
func (r *Router) known(ctx context.Context, id string) (api.JobRecord, uint64, error) {
	rec, revision, err := r.record(ctx, id)
	if err != nil || revision != 0 {
		return rec, revision, err
	}
	if rec, revision, err = r.claim(ctx, id); rec.Durable {
		return api.JobRecord{}, 0, err // the job is being submitted
	}
	return rec, revision, err
}

func readRecord(ctx context.Context, kv KV, prefix, id string) (api.JobRecord, uint64, error) {
	if err := api.CheckID("a job's id", id); err != nil {
		return api.JobRecord{}, 0, err
	}
	if kv == nil {
		return api.JobRecord{}, 0, nil
	}
	e, err := kv.Get(ctx, prefix+id)
	if err != nil || e.Revision == 0 {
		return api.JobRecord{}, 0, err
	}
	rec, err := parseRecord(e)
	return rec, e.Revision, err
}

// replace writes a record that must be at a revision. One of a job that is over goes away by itself.
func (r *Router) replace(ctx context.Context, rec api.JobRecord, revision uint64) (uint64, error) {
	body, err := api.Encode(api.JSON, rec)
	if err != nil {
		return 0, err
	}
	if rec.State.Over() {
		return r.ports.Jobs.Renew(ctx, prefixJob+rec.Job, body, revision, r.history())
	}
	return r.ports.Jobs.Update(ctx, prefixJob+rec.Job, body, revision)
}

// fingerprint tells requests apart. Who asks, by what names, and how the answer comes, does not count.
func fingerprint(req api.JobRequest) (string, error) {
	req.Job, req.Label, req.Client, req.WaitMS, req.MaxBytes = "", "", "", 0, 0
	text, err := api.Encode(api.JSON, req) // sorts the names of params
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// verdict is what to do about a message that names a job.
type verdict int

const (
	runIt  verdict = iota // the job was taken: run it
	endIt                 // it is over now
	dropIt                // the message means nothing
)

// onDelivery decides about a message: what becomes of the job's record, which must be written by compare-and-set,
// and what to do then. A job that runs is handed out again if its router fell silent. Any other message of it is a
// double.
func onDelivery(rec api.JobRecord, message uint64, router string, nowMS int64) (api.JobRecord, verdict) {
	switch {
	case !rec.Durable || rec.State.Over() || rec.Request == nil || rec.State == api.JobRunning && rec.Message != message:
		return rec, dropIt
	case rec.Cancel:
		return over(rec, api.JobCanceled, errCanceled, nowMS), endIt
	}
	if rec.State == api.JobRunning {
		rec.Error = api.Errorf(api.CodeLost, "router %s, which ran the job, fell silent", rec.Router)
	}
	if rec.Take-rec.Back >= mostTakes {
		reason := "no reason is known"
		if rec.Error != nil {
			reason = rec.Error.Message
		}
		failed := api.Errorf(api.CodeLost, "job %s was taken %d times and never finished; the last time: %s", rec.Job, rec.Take, reason).
			WithHint("look at the routers' logs: the job may be what ends them")
		return over(rec, api.JobFailed, failed, nowMS), endIt
	}
	rec.State, rec.Router, rec.Message, rec.StartedMS = api.JobRunning, router, message, nowMS
	rec.Take++
	return rec, runIt
}

var errCanceled = api.Errorf(api.CodeCanceled, "the job was cancelled")

// over is a record at its job's end.
func over(rec api.JobRecord, state api.JobStatus, err *api.Error, nowMS int64) api.JobRecord {
	rec.State, rec.Error, rec.EndedMS = state, err, nowMS
	return rec
}

// held reports whether a router still has its take of a job. If not, another one has the job or it is over.
func held(rec api.JobRecord, router string, take int) bool {
	return rec.State == api.JobRunning && rec.Router == router && rec.Take == take
}

// givenBack is a record whose job another router is to take.
func givenBack(rec api.JobRecord, reason *api.Error, inOrder bool) api.JobRecord {
	rec.State, rec.Router, rec.Message, rec.Error = api.JobQueued, "", 0, reason
	if inOrder {
		rec.Back++
	}
	return rec
}

// ending is how a take of a job went.
type ending struct {
	err      *api.Error // nil if it is done
	stats    *api.JobStats
	attempts int
	result   string
	bytes    uint64
}

// committed is the record of a job that has ended. A job that somebody cancelled is never done.
func committed(rec api.JobRecord, e ending, nowMS int64) api.JobRecord {
	rec.Attempts += e.attempts
	switch {
	case rec.Cancel || e.err != nil && e.err.Code == api.CodeCanceled:
		return over(rec, api.JobCanceled, errCanceled, nowMS)
	case e.err != nil:
		return over(rec, api.JobFailed, e.err, nowMS)
	}
	rec.Stats, rec.Result, rec.Bytes = brief(*e.stats), e.result, e.bytes
	return over(rec, api.JobDone, nil, nowMS)
}

// brief is stats without what grows with the cluster.
func brief(st api.JobStats) *api.JobStats {
	st.Pinned, st.Skipped = nil, nil
	return &st
}

// recordInfo is a record as others see it.
func recordInfo(rec api.JobRecord) api.JobInfo {
	info := api.JobInfo{
		Job: rec.Job, State: rec.State, Durable: rec.Durable, Module: rec.Module, Router: rec.Router, Take: rec.Take, Attempts: rec.Attempts,
		Cancel: rec.Cancel && !rec.State.Over(), SubmittedMS: rec.SubmittedMS, StartedMS: rec.StartedMS, EndedMS: rec.EndedMS,
		Error: rec.Error, Stats: rec.Stats, Bytes: rec.Bytes,
	}
	if rec.Request != nil {
		info.Function, info.Reduce, info.Space, info.Client = rec.Request.Function, rec.Request.Reduce, rec.Request.Space, rec.Request.Client
	}
	if rec.Stats != nil {
		info.Rows = rec.Stats.Rows
	}
	return info
}
