package node

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
	"github.com/pinion-mr/pinion/pmr/reduce"
)

// maxName bounds the name of a module or function, in bytes.
const maxName = 512

// MaxTimeout is the longest run of a job.
const MaxTimeout = time.Hour

// RunJob runs a job and answers once: with its first rows, or with its id and status running if WaitMS is
// over before the job is. A request with the id of a job joins that job, whichever router has it.
func (r *Router) RunJob(ctx context.Context, req api.JobRequest) (api.JobReply, error) {
	if req.Job != "" {
		if err := api.CheckID("a job's id", req.Job); err != nil {
			return api.JobReply{}, err
		}
		if r.ports.Jobs != nil {
			return r.runClaimed(ctx, req)
		}
	}
	mine, err := r.newJob(ctx, cmp.Or(req.Job, newID()), req, 0)
	if err != nil {
		return api.JobReply{}, err
	}
	j, err := r.begin(mine)
	if err != nil {
		return api.JobReply{}, err
	}
	return r.joinHere(ctx, j, mine, req)
}

// joinHere answers a request, of which mine is the job that it asks for, from the job that has its id here.
func (r *Router) joinHere(ctx context.Context, j, mine *job, req api.JobRequest) (api.JobReply, error) {
	if j != mine && j.question() != mine.question() {
		return api.JobReply{}, anotherJob(j.id)
	}
	wait := waitFor(req, j.timeout)
	if j.durable {
		return r.durableResult(ctx, j.id, wait, 0, req.MaxBytes)
	}
	reply, err := r.await(ctx, j, wait, 0, req.MaxBytes)
	if j.withdrawn.Load() { // another router has it
		return r.RunJob(ctx, req)
	}
	return reply, err
}

// question is what the answer of a job depends on, beside the records, as a digest.
func (j *job) question() string { return questionOf(j.req, j.module.Digest) }

func questionOf(req api.JobRequest, module string) string {
	digest, _ := fingerprint(api.JobRequest{ // never fails: what came as a message can be written as one
		Module: module, Function: req.Function, Reduce: req.Reduce, Combine: req.Combine, Space: req.Space, Params: req.Params,
		BucketParams: req.BucketParams, Buckets: req.Buckets, Keys: req.Keys, Sort: req.Sort, Limit: req.Limit,
		OnError: req.OnError, MaxSkip: req.MaxSkip,
	})
	return digest
}

// newJob makes a job of a request. Its attempts are counted on from first.
func (r *Router) newJob(ctx context.Context, id string, req api.JobRequest, first int) (*job, error) {
	j := &job{
		r: r, id: id, first: first, began: time.Now(),
		events: make(chan pmr.Event, 16), done: make(chan struct{}),
	}
	if err := j.prepare(ctx, req); err != nil {
		return nil, err
	}
	j.log = r.logger.With("job", j.id, "module", req.Module).Info
	j.machine = j.newMachine()
	return j, nil
}

// begin starts a job, or joins the one of its id.
func (r *Router) begin(j *job) (*job, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.jobs[j.id]; other != nil {
		return other, nil
	}
	if r.allJobs.Err() != nil {
		return nil, api.Errorf(api.CodeUnavailable, "this router is stopping").WithHint("try again")
	}
	var err error
	if j.applicant, err = r.admission.enter(j.req.Client, requestSize(j.req)); err != nil {
		return nil, err
	}
	jobCtx, stop := context.WithCancelCause(r.allJobs)
	j.stop = stop
	r.jobs[j.id] = j
	r.running.Go(func() {
		defer stop(nil)
		defer r.leave(j)
		j.run(jobCtx)
	})
	return j, nil
}

// millis is a time to wait, at most as long as any job may run.
func millis(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), MaxTimeout.Milliseconds())) * time.Millisecond
}

func (j *job) over() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// prepare resolves what a request names and checks that it fits together.
func (j *job) prepare(ctx context.Context, req api.JobRequest) error {
	fillIn(&req)
	err := checkRequest(req)
	if err != nil {
		return err
	}
	j.timeout = time.Duration(req.TimeoutMS) * time.Millisecond
	if err = checkParts(&req, j.r.cfg.Settings.Buckets, j.r.mostOfRequest()); err != nil {
		return err
	}
	if j.sort, err = reduce.ParseSort(req.Sort); err != nil {
		return err
	}
	if req.Module == "" {
		err = withoutModule(&req)
	} else {
		err = j.resolve(ctx, &req)
	}
	if err != nil {
		return err
	}
	j.req = req
	j.reducer, err = reduce.Parse(req.Reduce)
	if err != nil {
		return err
	}
	if fn := j.reducer.Function(); fn != "" {
		return hasFunction(j.module, "reduce", fn)
	}
	return nil
}

// fillIn sets the defaults that do not depend on a module.
func fillIn(req *api.JobRequest) {
	setDefault(&req.Space, api.DefaultSpace)
	setDefault(&req.Mode, api.ModeHold)
	setDefault(&req.TimeoutMS, DefaultJobTimeout.Milliseconds())
	setDefault(&req.Attempts, DefaultAttempts)
	setDefault(&req.OnError, api.OnErrorFail)
	if req.OnError == api.OnErrorSkip {
		setDefault(&req.MaxSkip, DefaultMaxSkip)
	}
}

// checkRequest says which field of a complete request is out of range.
func checkRequest(req api.JobRequest) error {
	if err := buckets.CheckSpace(req.Space); err != nil {
		return api.Errorf(api.CodeBadRequest, "%v", err)
	}
	for what, name := range map[string]string{"module": req.Module, "module's label": req.Label, "function": req.Function, "combine": req.Combine, "reduce": req.Reduce} {
		if len(name) > maxName {
			return api.Errorf(api.CodeBadRequest, "the name of the %s has %d bytes; it may have %d", what, len(name), maxName)
		}
	}
	switch {
	case req.Mode != api.ModeHold && req.Mode != api.ModeSnapshot:
		return api.Errorf(api.CodeBadRequest, "there is no mode %.40q", req.Mode).WithHint("the mode is hold or snapshot")
	case req.TimeoutMS < 1 || req.TimeoutMS > MaxTimeout.Milliseconds():
		return api.Errorf(api.CodeBadRequest, "timeout_ms is %d; it must be 1 to %d", req.TimeoutMS, MaxTimeout.Milliseconds())
	case req.Attempts < 1 || req.Attempts > 1000:
		return api.Errorf(api.CodeBadRequest, "attempts is %d; it must be 1 to 1000", req.Attempts)
	case req.OnError != api.OnErrorFail && req.OnError != api.OnErrorSkip:
		return api.Errorf(api.CodeBadRequest, "on_error is %.40q; it must be fail or skip", req.OnError)
	case req.OnError == api.OnErrorFail && req.MaxSkip != 0:
		return api.Errorf(api.CodeBadRequest, "max_skip is %d, but on_error is not skip", req.MaxSkip)
	case req.MaxSkip < 0 || req.MaxSkip > mostSkipped:
		return api.Errorf(api.CodeBadRequest, "max_skip is %d; it must be 1 to %d", req.MaxSkip, mostSkipped)
	case len(req.Client) > api.MaxClient:
		return api.Errorf(api.CodeBadRequest, "the name of the client has %d bytes; it may have %d", len(req.Client), api.MaxClient)
	case req.Limit < 0 || req.WaitMS < 0 || req.MaxBytes < 0:
		return api.Errorf(api.CodeBadRequest, "limit, wait_ms and max_bytes may not be negative")
	}
	return nil
}

func withoutModule(req *api.JobRequest) error {
	setDefault(&req.Reduce, "none")
	if req.OnError == api.OnErrorSkip {
		return api.Errorf(api.CodeBadRequest, "on_error skip needs a module").WithHint("without one the records are passed through, and none can fail")
	}
	if req.Function != "" || req.Combine != "" || len(req.Params)+len(req.BucketParams) > 0 || strings.HasPrefix(req.Reduce, "module") {
		return api.Errorf(api.CodeBadRequest, "a function, combine, params or reduce %s need a module", req.Reduce).
			WithHint("name a module; without one the records are passed through")
	}
	return nil
}

func (j *job) resolve(ctx context.Context, req *api.JobRequest) error {
	var err error
	if j.module, err = j.r.ports.Catalogue.Resolve(ctx, req.Module); err != nil {
		return err
	}
	setDefault(&req.Function, "map")
	if err := hasFunction(j.module, "map", req.Function); err != nil {
		return err
	}
	if req.Combine != "" {
		if err := hasFunction(j.module, "combine", req.Combine); err != nil {
			return err
		}
	}
	setDefault(&req.Reduce, j.module.Reduce)
	if req.Reduce == "" && slices.Contains(j.module.Functions, "reduce") {
		req.Reduce = "module"
	}
	setDefault(&req.Reduce, "none")
	return nil
}

// hasFunction reports a function that a module lacks. A command is told the function's name when it runs.
func hasFunction(m api.Module, role, fn string) error {
	if m.Kind == "command" || slices.Contains(m.Functions, fn) {
		return nil
	}
	return api.Errorf(api.CodeUnknownFunction, "module %s has no function %.80q to %s with", m.Name, fn, role).
		WithHint("it has %s", strings.Join(m.Functions[:min(len(m.Functions), 20)], ", "))
}

// await waits for a job and returns a page of its rows.
func (r *Router) await(ctx context.Context, j *job, wait time.Duration, page, maxBytes int) (api.JobReply, error) {
	if j.over() {
		return j.page(page, maxBytes)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-j.done:
	case <-timer.C:
		return api.JobReply{Job: j.id, Status: api.JobRunning, Rows: []api.Row{}, Next: r.cursor(0)}, nil
	case <-ctx.Done():
		return api.JobReply{}, ctx.Err()
	}
	return j.page(page, maxBytes)
}

// page returns the rows that fit into one reply. Page 0 carries the proof and begins at the first row; page
// n begins at row n-1 and leaves the proof out, which would take the room of large rows.
func (j *job) page(n, maxBytes int) (api.JobReply, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return api.JobReply{}, j.err.With("job", j.id)
	}
	from, stats := max(n-1, 0), *j.stats
	if n > 0 {
		stats.Pinned, stats.Skipped = nil, nil
	}
	reply := api.JobReply{Job: j.id, Status: api.JobDone, Rows: []api.Row{}, Stats: &stats}
	if n < 0 || from > j.rows.Len() {
		return reply, api.Errorf(api.CodeBadRequest, "row %d of %d", from, j.rows.Len())
	}
	setDefault(&maxBytes, DefaultReplyBytes)
	room := j.r.ports.Peers.MaxPayload() - replySize(&stats)
	limit := min(maxBytes, room-2*envelope)
	size := 0
	for i := from; i < j.rows.Len(); i++ {
		row := j.rows.Row(i)
		size += rowSize(row)
		if size > limit && i > from || i == from && n == 0 && bareSize(row) > room {
			reply.Next = j.cursor(i + 1)
			break
		}
		if bare := bareSize(row); bare > room {
			return reply, api.Errorf(api.CodeResultTooLarge, "the row of key %.80q takes %d bytes; a message here holds %d", buckets.KeyText(row.Key), bare, room).
				WithHint("emit smaller values, or raise the NATS server's max_payload")
		}
		reply.Rows = append(reply.Rows, row)
	}
	return reply, nil
}

// bareSize is at most what a row takes in msgpack. Alone in a reply it may fill the message.
func bareSize(r api.Row) int { return 48 + len(r.Key) + len(r.Value.Bytes) }

// rowSize is at most what a row takes in a message of either format.
func rowSize(r api.Row) int { return 48 + textSize(r.Key) + textSize(r.Value.Bytes) }

// textSize is at most what bytes take in JSON: six for a control character, or base64.
func textSize(b []byte) int {
	n := len(b) + len(b)/3
	for _, c := range b {
		if c < 0x20 || c == '"' || c == '\\' || c == 0xe2 {
			n += 5
		}
	}
	return n
}

// replySize is about what the proof takes.
func replySize(st *api.JobStats) int {
	n := 1024
	for _, p := range st.Pinned {
		n += 256 + 48*len(p.Buckets)
	}
	for _, r := range st.Skipped {
		n += skippedSize(r)
	}
	for name := range st.Counters {
		n += 32 + 6*len(name)
	}
	return n
}

// cursor names a page of the job's result, and who has it.
func (j *job) cursor(page int) string {
	if j.home != "" {
		return j.home + "." + strconv.Itoa(page)
	}
	return j.r.cursor(page)
}

// cursor names a page, and the router that keeps the result.
func (r *Router) cursor(page int) string { return r.ID() + "." + strconv.Itoa(page) }

// Result returns more rows of a job, from whichever router keeps them.
func (r *Router) Result(ctx context.Context, req api.ResultRequest) (api.JobReply, error) {
	if req.WaitMS < 0 || req.MaxBytes < 0 {
		return api.JobReply{}, api.Errorf(api.CodeBadRequest, "wait_ms and max_bytes may not be negative")
	}
	home, page, err := parseCursor(req.Cursor)
	if err != nil {
		return api.JobReply{}, err
	}
	var reply api.JobReply
	wait := millis(req.WaitMS)
	if j := r.job(req.Job); home == "" && (j == nil || j.durable) {
		if home, err = r.homeOf(ctx, req.Job); err != nil {
			return api.JobReply{}, err
		}
	}
	switch {
	case home == storedHome:
		return r.durableResult(ctx, req.Job, wait, page, req.MaxBytes)
	case home != "" && home != r.ID():
		asked, done := context.WithTimeout(ctx, wait+answerWithin)
		defer done()
		err = r.ports.Peers.Request(asked, "router."+home+".result", req, &reply)
		if api.CodeOf(err) == api.CodeUnavailable {
			err = api.Errorf(api.CodeUnknownJob, "router %s, which kept the result of job %.80q, is gone", home, req.Job).WithHint("run the job again")
		}
	case home == "" && r.job(req.Job) == nil:
		err = r.elsewhere(ctx, req.Job, "result", wait, req, &reply)
	default:
		return r.OwnResult(ctx, req)
	}
	return reply, err
}

// homeOf is who has the result of a job: see job.cursor. It is empty if that is not known.
func (r *Router) homeOf(ctx context.Context, id string) (string, error) {
	rec, revision, err := r.known(ctx, id)
	switch {
	case err != nil || revision == 0:
		return "", err
	case rec.Durable:
		return storedHome, nil
	}
	return rec.Router, nil
}

// OwnResult is Result for the jobs of this router.
func (r *Router) OwnResult(ctx context.Context, req api.ResultRequest) (api.JobReply, error) {
	_, from, err := parseCursor(req.Cursor)
	if err != nil {
		return api.JobReply{}, err
	}
	j := r.job(req.Job)
	if j == nil {
		return api.JobReply{}, r.unknownJob(req.Job)
	}
	wait := millis(req.WaitMS)
	return r.await(ctx, j, wait, from, req.MaxBytes)
}

// parseCursor takes a cursor apart; the empty one names no router and the first row.
func parseCursor(cursor string) (router string, row int, err error) {
	if cursor == "" {
		return "", 0, nil
	}
	at := strings.LastIndexByte(cursor, '.')
	row, err = strconv.Atoi(cursor[at+1:])
	if at <= 0 || err != nil || api.CheckID("a router", cursor[:at]) != nil {
		return "", 0, api.Errorf(api.CodeBadRequest, "%.80q is not a cursor", cursor).WithHint("it is the next of an earlier reply")
	}
	return cursor[:at], row, nil
}

// elsewhere asks the other routers for a job that this one does not know.
func (r *Router) elsewhere(ctx context.Context, job, verb string, wait time.Duration, in, out any) error {
	routers, err := members(ctx, r.ports.State, prefixRouter)
	if err != nil {
		return err
	}
	for _, other := range routers {
		if peerName(other) == r.ID() {
			continue
		}
		asked, done := context.WithTimeout(ctx, wait+answerWithin)
		err := r.ports.Peers.Request(asked, "router."+peerName(other)+"."+verb, in, out)
		hangs := asked.Err() != nil && ctx.Err() == nil
		done()
		if code := api.CodeOf(err); code != api.CodeUnknownJob && code != api.CodeUnavailable && !hangs {
			return err
		}
	}
	return r.unknownJob(job)
}

func (r *Router) unknownJob(id string) error {
	return api.Errorf(api.CodeUnknownJob, "no router knows a job %.80q", id).
		WithHint("that of a job that somebody waited for is kept for %s, and only while there is room; one that was submitted is kept for %s: `submit jobs` lists them",
			DefaultRetention, r.history())
}

// expireResults drops results that are too old, and the oldest ones while all together take too much.
func (r *Router) expireResults(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	type result struct {
		id     string
		ended  time.Time
		memory int64
	}
	var kept []result
	total := int64(0)
	for id, j := range r.jobs {
		if !j.over() {
			continue
		}
		j.mu.Lock()
		ended, memory := j.ended, j.memory
		j.mu.Unlock()
		if now.Sub(ended) > DefaultRetention {
			delete(r.jobs, id)
			continue
		}
		kept = append(kept, result{id, ended, memory})
		total += memory
	}
	slices.SortFunc(kept, func(a, b result) int { return a.ended.Compare(b.ended) })
	for _, k := range kept {
		if total <= r.cfg.Memory && len(r.jobs) <= maxKept {
			break
		}
		delete(r.jobs, k.id)
		total -= k.memory
	}
}

// maxKept is how many jobs, running or ended, a router remembers.
const maxKept = 4096
