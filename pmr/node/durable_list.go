package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pinion-mr/pinion/api"
)

const (
	defaultListed = 100     // jobs in a list
	listedReason  = 1 << 10 // bytes of the reason why one failed
	listsAtOnce   = 2       // that read all records; the others wait
	mostSuggested = 10_000  // ids that one which is not known is compared with
)

// info is a job of this router as others see it.
func (j *job) info() api.JobInfo {
	isOver := j.over()
	j.mu.Lock()
	defer j.mu.Unlock()
	info := api.JobInfo{
		Job: j.id, State: api.JobRunning, Durable: j.durable, Function: j.req.Function, Reduce: j.req.Reduce, Space: j.req.Space, Client: j.req.Client,
		Router: j.r.ID(), Take: j.take, Attempts: j.told.Attempt, StartedMS: j.began.UnixMilli(),
	}
	if j.module.Digest != "" {
		info.Module = j.moduleName()
	}
	if told := j.told; told.Phase == string(api.JobQueued) {
		info.State, info.Progress = api.JobQueued, &told
	} else if told.Phase != "" {
		info.Progress = &told
	}
	if !isOver {
		return info
	}
	info.Attempts, info.EndedMS, info.Progress = j.attempts, j.ended.UnixMilli(), nil
	switch info.Error = j.err; {
	case j.err == nil:
		info.State, info.Stats, info.Rows, info.Bytes = api.JobDone, brief(*j.stats), j.stats.Rows, uint64(max(j.memory, 0))
	case j.err.Code == api.CodeCanceled:
		info.State = api.JobCanceled
	default:
		info.State = api.JobFailed
	}
	return info
}

// failed reports whether a job that is over failed with a code.
func (j *job) failed(code api.Code) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err != nil && j.err.Code == code
}

// Job tells how far a job is: a durable one, or one that a router runs or still has the result of. It fails with
// UNKNOWN_JOB, and suggests an id that is close.
func (r *Router) Job(ctx context.Context, req api.JobName) (api.JobInfo, error) {
	rec, revision, err := r.known(ctx, req.Job)
	if err != nil {
		return api.JobInfo{}, err
	}
	if revision != 0 && rec.Durable {
		info := recordInfo(rec)
		if rec.Request != nil {
			info.Wanted = r.wantedPart(*rec.Request)
		}
		if rec.State == api.JobRunning {
			info.Progress = r.progressOf(ctx, rec)
		}
		return info, nil
	}
	if r.job(req.Job) != nil {
		return r.OwnJob(ctx, req)
	}
	var info api.JobInfo
	if revision != 0 && rec.Router != r.ID() {
		asked, done := context.WithTimeout(ctx, answerWithin)
		defer done()
		err = r.ports.Peers.Request(asked, "router."+rec.Router+".job", req, &info)
	} else {
		err = r.elsewhere(ctx, req.Job, "job", 0, req, &info)
	}
	if code := api.CodeOf(err); code == api.CodeUnknownJob || code == api.CodeUnavailable {
		return info, r.noSuchJob(ctx, req.Job)
	}
	return info, err
}

// progressOf asks the router that runs a durable job. If it does not answer, the record has to do.
func (r *Router) progressOf(ctx context.Context, rec api.JobRecord) *api.JobProgress {
	var info api.JobInfo
	if j := r.job(rec.Job); j != nil {
		info = j.info()
	} else {
		ctx, done := context.WithTimeout(ctx, statusWithin)
		defer done()
		_ = r.ports.Peers.Request(ctx, "router."+rec.Router+".job", api.JobName{Job: rec.Job}, &info)
	}
	if info.Take != rec.Take {
		return nil
	}
	return info.Progress
}

// OwnJob is Job for what this router runs or has run.
func (r *Router) OwnJob(_ context.Context, req api.JobName) (api.JobInfo, error) {
	j := r.job(req.Job)
	if j == nil {
		return api.JobInfo{}, r.unknownJob(req.Job)
	}
	info := j.info()
	info.Wanted = r.wantedPart(j.req)
	return info, nil
}

// wantedPart is the buckets of a job of a part of a space.
func (r *Router) wantedPart(req api.JobRequest) []uint16 {
	var list []uint16
	for _, b := range wanted(req, r.cfg.Settings.Buckets) {
		list = append(list, uint16(b))
	}
	return list
}

// noSuchJob suggests the id of another job.
func (r *Router) noSuchJob(ctx context.Context, id string) error {
	err := api.AsError(r.unknownJob(id))
	if near := api.Nearest(id, r.someIDs(ctx)); near != "" {
		return err.WithHint("did you mean %s?", near)
	}
	return err
}

// someIDs are ids of jobs, of which there may be more.
func (r *Router) someIDs(ctx context.Context) (ids []string) {
	if r.ports.Jobs != nil {
		done, err := r.enterList(ctx)
		if err != nil {
			return nil
		}
		defer done()
		if ids, err = r.ports.Jobs.Keys(ctx, prefixJob); err != nil {
			return nil
		}
		ids = ids[:min(len(ids), mostSuggested)]
		for i, key := range ids {
			ids[i] = key[len(prefixJob):]
		}
	}
	others, _, err := r.jobsOfRouters(ctx, api.JobsRequest{Limit: api.MostListed})
	if err != nil {
		return ids
	}
	for _, info := range others {
		ids = append(ids, info.Job)
	}
	return ids
}

// Jobs lists durable jobs, and those that routers run or still have the result of: the newest first.
func (r *Router) Jobs(ctx context.Context, req api.JobsRequest) (api.JobsReply, error) {
	if err := checkListing(&req); err != nil {
		return api.JobsReply{}, err
	}
	list, err := r.listRecords(ctx, req)
	if err != nil {
		return api.JobsReply{}, err
	}
	others, left, err := r.jobsOfRouters(ctx, req)
	if err != nil {
		return api.JobsReply{}, err
	}
	for _, info := range others {
		if wantedInList(info, req) {
			list = append(list, info)
		}
	}
	reply := r.cutList(list, req)
	reply.More += left
	return reply, nil
}

func checkListing(req *api.JobsRequest) error {
	setDefault(&req.Limit, defaultListed)
	switch {
	case req.Limit < 1 || req.Limit > api.MostListed:
		return api.Errorf(api.CodeBadRequest, "limit is %d; it must be 1 to %d", req.Limit, api.MostListed)
	case req.State != "" && !slices.Contains(api.JobStatuses(), req.State):
		return api.Errorf(api.CodeBadRequest, "there is no state %.40q", req.State).WithHint("a state is one of %v", api.JobStatuses())
	}
	return nil
}

// listRecords lists the durable jobs that a request wants.
func (r *Router) listRecords(ctx context.Context, req api.JobsRequest) ([]api.JobInfo, error) {
	if r.ports.Jobs == nil {
		return nil, nil
	}
	found := map[string]api.JobInfo{}
	err := r.eachRecord(ctx, func(id string, rec api.JobRecord, _ uint64) {
		if info := recordInfo(rec); rec.Durable && wantedInList(info, req) {
			found[id] = listed(info)
		} else {
			delete(found, id)
		}
	})
	return slices.Collect(maps.Values(found)), err
}

// listed is a job without what is not in lists, as there may be many.
func listed(info api.JobInfo) api.JobInfo {
	info.Stats, info.Progress, info.Wanted = nil, nil, nil
	if info.Error != nil {
		info.Error = &api.Error{Code: info.Error.Code, Message: firstBytes(info.Error.Message, listedReason)}
	}
	return info
}

// firstBytes is the beginning of a text, in whole characters.
func firstBytes(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}

// enterList waits for one of the few places of those who read the records of all jobs.
func (r *Router) enterList(ctx context.Context) (done func(), err error) {
	select {
	case r.lists <- struct{}{}:
		return func() { <-r.lists }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func wantedInList(info api.JobInfo, req api.JobsRequest) bool {
	return (req.State == "" || info.State == req.State) && (req.Client == "" || info.Client == req.Client)
}

// eachRecord reads the records of all durable jobs. What fn is told last of an id counts; an empty record stands for
// one that is gone or cannot be read, since a newer program has written it.
func (r *Router) eachRecord(ctx context.Context, fn func(id string, rec api.JobRecord, revision uint64)) error {
	done, err := r.enterList(ctx)
	if err != nil {
		return err
	}
	defer done()
	return r.ports.Jobs.Each(ctx, prefixJob, func(e api.KVEntry) {
		rec := api.JobRecord{}
		if !e.Deleted {
			if read, err := parseRecord(e); err == nil {
				rec = read
			}
		}
		fn(e.Key[len(prefixJob):], rec, e.Revision)
	})
}

// jobsOfRouters asks every router for the jobs that have no record of their own. One that does not answer has
// none.
func (r *Router) jobsOfRouters(ctx context.Context, req api.JobsRequest) (list []api.JobInfo, left int, err error) {
	routers, err := members(ctx, r.ports.State, prefixRouter)
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusWithin)
	defer cancel()
	replies := make([]api.JobsReply, len(routers))
	var asked sync.WaitGroup
	for i, m := range routers {
		asked.Go(func() {
			if peerName(m) == r.ID() {
				replies[i], _ = r.OwnJobs(ctx, req)
			} else {
				_ = r.ports.Peers.Request(ctx, "router."+peerName(m)+".jobs", req, &replies[i])
			}
		})
	}
	asked.Wait()
	for _, reply := range replies {
		list, left = append(list, reply.Jobs...), left+reply.More
	}
	return list, left, nil
}

// OwnJobs is Jobs for the jobs that only this router knows.
func (r *Router) OwnJobs(_ context.Context, req api.JobsRequest) (api.JobsReply, error) {
	if err := checkListing(&req); err != nil {
		return api.JobsReply{}, err
	}
	r.mu.Lock()
	var mine []*job
	for _, j := range r.jobs {
		if !j.durable {
			mine = append(mine, j)
		}
	}
	r.mu.Unlock()
	var list []api.JobInfo
	for _, j := range mine {
		if info := j.info(); wantedInList(info, req) {
			list = append(list, info)
		}
	}
	return r.cutList(list, req), nil
}

// cutList brings a list into order and leaves out what is beyond the limit, or does not fit into a message.
func (r *Router) cutList(list []api.JobInfo, req api.JobsRequest) api.JobsReply {
	slices.SortFunc(list, func(a, b api.JobInfo) int {
		return cmp.Or(-cmp.Compare(since(a), since(b)), cmp.Compare(a.Job, b.Job))
	})
	reply := api.JobsReply{Jobs: []api.JobInfo{}}
	room := r.ports.Peers.MaxPayload() - envelope
	for i, info := range list {
		info = listed(info)
		room -= infoSize(info)
		if i == req.Limit || room < 0 {
			reply.More = len(list) - i
			break
		}
		reply.Jobs = append(reply.Jobs, info)
	}
	return reply
}

func since(info api.JobInfo) int64 { return cmp.Or(info.SubmittedMS, info.StartedMS) }

// infoSize is at most what an entry of a list takes in a message of either format.
func infoSize(info api.JobInfo) int {
	n := 512 + len(info.Job) + len(info.Router) + textSize([]byte(info.Module+info.Function+info.Reduce+info.Space+info.Client))
	if info.Error != nil {
		n += textSize([]byte(info.Error.Message))
	}
	return n
}
