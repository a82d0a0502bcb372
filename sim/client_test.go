package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// job is a job as its client sees it.
type job struct {
	id      string
	req     api.JobRequest
	durable bool
	output  string       // what it computes, if its output is compared
	wanted  []buckets.ID // empty is all
	acked   uint64       // the last position of a write that was acknowledged before
	cancel  bool         // its client asks for its end

	reply api.JobReply
	err   *api.Error
	over  bool // the client has its answer
	told  bool // the simulator has seen it
}

// submit has a client run a job, as package pinion does: it asks again with the same id when no answer comes.
func (w *world) submit(timeout time.Duration) {
	j := &job{id: fmt.Sprintf("j%d", len(w.jobs)+1), acked: w.acked(), durable: w.rng.IntN(5) < 2}
	j.req = api.JobRequest{
		Job: j.id, Module: "words", Reduce: "sum", Proof: true, TimeoutMS: timeout.Milliseconds(), WaitMS: clientWaits.Milliseconds(),
	}
	if w.rng.IntN(3) == 0 {
		j.req.Mode = api.ModeSnapshot
		w.mu.Lock()
		w.snapshots[j.id] = true
		w.mu.Unlock()
	}
	if w.rng.IntN(4) == 0 {
		j.req.Attempts = 1 + w.rng.IntN(2)
	}
	switch w.rng.IntN(8) {
	case 0:
		j.wanted = w.someBuckets()
		for _, b := range j.wanted {
			j.req.Buckets = append(j.req.Buckets, uint16(b))
		}
	case 1:
		for range 1 + w.rng.IntN(4) {
			key := w.someKey()
			j.req.Keys = append(j.req.Keys, api.Bytes(key))
			if b := buckets.Of([]byte(key), w.settings.Buckets); !slices.Contains(j.wanted, b) {
				j.wanted = append(j.wanted, b)
			}
		}
	}
	w.launch(j)
	if w.faulty && w.rng.IntN(5) == 0 {
		w.after(w.between(0, 4*time.Second), func() { w.cancel(j) })
	}
}

// launch has a client run a job.
func (w *world) launch(j *job) {
	w.jobs = append(w.jobs, j)
	w.tracef("client submits %s, durable %v, mode %q, buckets %v, keys %q, for %v, %d acknowledged", j.id, j.durable, j.req.Mode, j.req.Buckets, j.req.Keys,
		time.Duration(j.req.TimeoutMS)*time.Millisecond, j.acked)
	w.background(func() {
		reply, err := w.runJob(j)
		w.mu.Lock()
		defer w.mu.Unlock()
		j.reply, j.over = reply, true
		if err != nil {
			j.err = api.AsError(err)
		}
	})
}

func (w *world) someBuckets() (bs []buckets.ID) {
	for b := range w.settings.Buckets {
		if w.rng.IntN(3) == 0 {
			bs = append(bs, buckets.ID(b))
		}
	}
	if len(bs) == 0 {
		bs = append(bs, 0)
	}
	return bs
}

const (
	clientWaits   = 2 * time.Second // of one request
	clientPatient = time.Second     // beyond that, for the answer
)

// runJob asks for a job until there is an answer that is the job's, or the client's patience is over.
func (w *world) runJob(j *job) (api.JobReply, error) {
	began := time.Now()
	cursor, submitted := "", !j.durable
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		var reply api.JobReply
		var err error
		switch {
		case !submitted:
			if err = w.askAs(w.client, "job.submit", j.req, &api.JobState{}); err == nil {
				submitted = true
				continue
			}
		case cursor == "" && !j.durable:
			err = w.askAs(w.client, "job.run", j.req, &reply)
		default:
			err = w.askAs(w.client, "job.result", api.ResultRequest{Job: j.id, Cursor: cursor, WaitMS: j.req.WaitMS}, &reply)
		}
		switch e := api.AsError(err); {
		case err == nil && reply.Status == api.JobDone:
			return reply, nil
		case err == nil:
			cursor = reply.Next
			continue
		case e.Details["job"] != "":
			return reply, e // the job's own end
		case e.Code == api.CodeUnknownJob && !j.durable:
			cursor = "" // its router is gone: run it again
		case e.Code != api.CodeTimeout && e.Code != api.CodeUnavailable && e.Code != api.CodeBusy && e.Code != api.CodeInDoubt:
			return reply, e
		case time.Since(began) > j.patience():
			return reply, e
		}
		time.Sleep(pause)
	}
}

// patience is how long the client waits for a job. A durable one may be taken again and again, and has its time
// each time.
func (j *job) patience() time.Duration {
	timeout := time.Duration(j.req.TimeoutMS) * time.Millisecond
	if j.durable {
		return 10 * timeout
	}
	return timeout + 20*time.Second
}

// background runs what a client does.
func (w *world) background(do func()) {
	go func() {
		do()
		w.pool.wake()
	}()
}

// askAs is a request of a client.
func (w *world) askAs(who *process, subject string, in, out any) error {
	ctx, cancel := context.WithTimeout(context.Background(), clientWaits+clientPatient)
	defer cancel()
	return peers{who.bus, gated{w, who}}.Request(ctx, subject, in, out)
}

// cancel has a client end a job.
func (w *world) cancel(j *job) {
	j.cancel = true
	w.tracef("client cancels %s", j.id)
	w.background(func() { _ = w.askAs(w.client, "job.cancel", api.CancelRequest{Job: j.id}, &api.JobState{}) })
}

// put has a client store a record by way of a router.
func (w *world) put() {
	key, value := w.someKey(), w.someWords()
	w.background(func() {
		k := api.Bytes(key)
		for range 20 {
			var reply api.SeqReply
			if err := w.askAs(w.client, "record.put", api.PutRequest{Key: &k, Value: api.Bytes(value)}, &reply); err == nil {
				w.ack(reply.Seq)
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// write appends a batch of records to the log, or removes some: what a client does that knows the buckets.
func (w *world) write() {
	b := buckets.ID(w.rng.IntN(w.settings.Buckets))
	var frames []byte
	for range 1 + w.rng.IntN(3) {
		if w.rng.IntN(3) == 0 {
			frames = buckets.AppendFrame(frames, buckets.FlagAssign, nil, []byte(w.someWords()))
			continue
		}
		key := w.someKey()
		for buckets.Of([]byte(key), w.settings.Buckets) != b {
			key = w.someKey()
		}
		if w.rng.IntN(4) == 0 {
			frames = buckets.AppendFrame(frames, buckets.FlagDelete, []byte(key), nil)
		} else {
			frames = buckets.AppendFrame(frames, 0, []byte(key), []byte(w.someWords()))
		}
	}
	w.store(b, nil, frames)
}

// store has the log hold a batch.
func (w *world) store(b buckets.ID, header map[string]string, frames []byte) {
	w.written++
	id := fmt.Sprintf("write-%d", w.written)
	var seq uint64
	for range 1 + w.rng.IntN(2) { // a producer that got no answer sends it again
		var err error
		seq, err = w.oracle.log.Append(context.Background(), buckets.RecSubject(b), header, frames, id)
		w.must(err)
	}
	w.ack(seq)
	w.tracef("client writes bucket %d at %d", b, seq)
}

func (w *world) someKey() string { return fmt.Sprintf("k%d", w.rng.IntN(100)) }

func (w *world) someWords() string {
	words := make([]string, 1+w.rng.IntN(3))
	for i := range words {
		words[i] = string(rune('a' + w.rng.IntN(6)))
	}
	return strings.Join(words, " ")
}

func (w *world) ack(seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastAck = max(w.lastAck, seq)
}

func (w *world) acked() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastAck
}

// endings looks for jobs that have ended since, and checks them.
func (w *world) endings() {
	w.mu.Lock()
	var ended []*job
	for _, j := range w.jobs {
		if j.over && !j.told {
			j.told = true
			ended = append(ended, j)
		}
	}
	w.mu.Unlock()
	if len(ended) == 0 {
		return
	}
	for _, j := range ended {
		if j.err == nil {
			w.tracef("client has %s: cut %d, %d rows, attempts %d", j.id, j.reply.Stats.Cut, len(j.reply.Rows), j.reply.Stats.Attempts)
			w.oracle.checkDone(j)
			w.keepOutput(j)
			w.did("done", true)
			w.did("durable job done", j.durable)
			w.did("durable job done after a take that failed", j.durable && w.oracle.record(j.id).Take > 1)
			w.did("snapshot job done", j.req.Mode == api.ModeSnapshot)
			w.did("part of a space done", len(j.wanted) > 0)
			w.did("done after a void attempt", j.reply.Stats.Attempts > 1)
			continue
		}
		w.tracef("client has %s: %s", j.id, j.err.Code)
		w.did(endedWith(j.err.Code), true)
		w.checkError(j)
	}
}

// plain are the codes with which a job may end under faults; the others would be our fault.
var plain = []api.Code{
	api.CodeTimeout, api.CodeCanceled, api.CodeGuestFailed, api.CodeUnavailable, api.CodeLost, api.CodeBusy, api.CodeNoCut,
	api.CodePMRExpired, api.CodeNoOwner, api.CodeCoverage, api.CodeInDoubt,
}

func (w *world) checkError(j *job) {
	code := j.err.Code
	switch {
	case w.plan.calm():
		w.oracle.failf("job %s ended with %s, though nothing happened but moves: %s", j.id, code, j.err.Message)
	case !slices.Contains(plain, code), j.err.Message == "":
		w.oracle.failf("job %s ended with %s: %s", j.id, code, j.err.Message)
	case code == api.CodeGuestFailed && w.reached["guest fails"] == 0, code == api.CodeCanceled && !j.cancel, code == api.CodeCoverage && w.reached["lie"] == 0:
		w.oracle.failf("job %s ended with %s, which nobody brought about: %s", j.id, code, j.err.Message)
	}
}
