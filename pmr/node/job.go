package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr"
	"github.com/pinion-mr/pinion/pmr/reduce"
)

// job runs one job: it steps the job's machine and performs its effects.
type job struct {
	r       *Router
	id      string
	req     api.JobRequest // complete: no field is left to a default
	module  api.Module     // zero if records are passed through
	reducer reduce.Reducer
	sort    reduce.Sort
	timeout time.Duration
	first   int    // number that its attempts are counted on from
	durable bool   // it is over when its record says so, and not before
	take    int    // of a durable job
	home    string // that its cursors name; empty is the router's
	began   time.Time
	log     func(msg string, args ...any)

	applicant *applicant  // its place in the router's admission; guarded by the router's mu
	machine   *pmr.Router // owned by the goroutine of run, as is logged
	logged    string
	events    chan pmr.Event
	stop      context.CancelCauseFunc
	claimed   chan struct{}  // closed when this router has claimed its id; nil if there is nothing to claim
	withdrawn atomic.Bool    // somebody else has its id
	pinning   sync.WaitGroup // requests to pin
	done      chan struct{}  // closed when status below is final

	mu          sync.Mutex
	maps        map[string]*runningMap // of the present attempt, by PMR
	rows        resultRows
	memory      int64
	output      string  // digest of rows
	reduced     Figures // of the module's reduce function
	err         *api.Error
	stats       *api.JobStats
	certificate []byte // of a job that is done, as it is sent
	ended       time.Time
	attempts    int             // of a job that is over
	allotted    func()          // gives the memory of its rows back; nil while it has none
	told        api.JobProgress // the last that was published
}

// runningMap is what is known of a storage's map.
type runningMap struct {
	storage string
	pinned  int       // buckets
	heard   time.Time // when it last said anything
	asking  bool      // it is being asked whether it still maps
	seen    api.Progress
	end     *api.MapEnd // nil while it maps
}

// silentFor is how long a storage that maps may be silent before it is asked; answerWithin is how long it
// has to answer that, and to answer other short requests.
const (
	silentFor    = 3 * time.Second
	answerWithin = 3 * time.Second
)

// run drives the job to its end.
func (j *job) run(ctx context.Context) {
	defer close(j.done)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	first := j.awaitTurn(ctx)
	if first == nil {
		first = j.begin(ctx)
	}
	ended := j.perform(ctx, j.machine.Step(time.Since(j.began), first))
	for !ended {
		wake := time.NewTimer(j.machine.Wake() - time.Since(j.began))
		var ev pmr.Event
		select {
		case ev = <-j.events:
		case <-wake.C:
			ev = pmr.Tick{}
		case <-ticker.C:
			j.watch(ctx)
			j.publish(j.machine.Phase().String(), "")
		case <-ctx.Done():
			ev = pmr.Canceled{Err: api.AsError(context.Cause(ctx))}
		}
		wake.Stop()
		if _, canceled := ev.(pmr.Canceled); ctx.Err() != nil && !canceled {
			// What was under way fails because of it, and must not pass for the reason.
			ended = j.perform(ctx, j.machine.Step(time.Since(j.began), pmr.Canceled{Err: api.AsError(context.Cause(ctx))}))
		}
		if ev != nil {
			ended = j.perform(ctx, j.machine.Step(time.Since(j.began), ev)) || ended
		}
	}
	j.r.running.Go(j.drain)
}

// begin checks the job's module, which may have to be compiled for that, and returns the machine's first event.
func (j *job) begin(ctx context.Context) pmr.Event {
	if j.module.Digest == "" {
		return pmr.Started{}
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	err := j.r.ports.Catalogue.Check(ctx, j.module.Digest)
	switch cause := context.Cause(ctx); {
	case err == nil:
		return pmr.Started{}
	case errors.Is(cause, context.DeadlineExceeded):
		return pmr.Canceled{Err: api.Errorf(api.CodeTimeout, "the job's time was over while its module was compiled: %v", err).WithHint("a longer time: --timeout")}
	case cause != nil:
		return pmr.Canceled{Err: api.AsError(cause)}
	}
	return pmr.Canceled{Err: api.AsError(err)}
}

// drain gives back what late answers to pins bring, until the last has come.
func (j *job) drain() {
	answered := make(chan struct{})
	go func() {
		j.pinning.Wait()
		close(answered)
	}()
	for over := false; !over || len(j.events) > 0; {
		select {
		case ev := <-j.events:
			j.perform(j.r.allJobs, j.machine.Step(time.Since(j.began), ev))
		case <-answered:
			over, answered = true, nil
		}
	}
}

// tell hands an event to the machine.
func (j *job) tell(ev pmr.Event) {
	select {
	case j.events <- ev:
	case <-time.After(DefaultPinTTL + 2*answerWithin): // the job is long over
	}
}

// perform carries out effects; it reports whether the job has ended.
func (j *job) perform(ctx context.Context, effects []pmr.Effect) (ended bool) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case pmr.AppendCut:
			j.forgetMaps()
			if last := j.machine.LastFailure(); last != nil {
				j.logOnce("an attempt failed; trying again", last)
			}
			j.publish("pin", failureText(j.machine.LastFailure()))
			go j.cut(ctx, e)
		case pmr.SendPin:
			j.pinning.Go(func() { j.pin(e) })
		case pmr.SendMap:
			j.expect(e)
			go j.sendMap(ctx, e)
		case pmr.SendRelease:
			j.r.running.Go(func() { j.r.release(e.Storage, e.PMR) })
		case pmr.Collect:
			j.publish("reduce", "")
			go j.collect(ctx, e.Attempt)
		case pmr.Finish:
			j.finish(e)
			ended = true
		}
	}
	return ended
}

// logOnce logs a failure unless the one before was the same: a storage that is away fails many attempts.
func (j *job) logOnce(msg string, err *api.Error) {
	if text := string(err.Code) + err.Message; text != j.logged {
		j.logged = text
		j.log(msg, "code", err.Code, "reason", err.Message)
	}
}

func failureText(err *api.Error) string {
	if err == nil {
		return ""
	}
	return err.Message
}

func (j *job) cut(ctx context.Context, e pmr.AppendCut) {
	fixed, err := j.fix(ctx, e.Attempt)
	if err != nil {
		j.tell(pmr.CutFailed{Attempt: e.Attempt, Err: api.AsError(err)})
		return
	}
	j.tell(fixed)
}

func (j *job) fix(ctx context.Context, attempt int) (pmr.CutFixed, error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultPinTTL)
	defer cancel()
	fixed := pmr.CutFixed{Attempt: attempt}
	seq, err := appendCut(ctx, j.r.ports.Log, j.id, attempt)
	if err != nil {
		return fixed, err
	}
	// The storages verify what they pin. Should this router have missed an entry, then their answers contradict its
	// table, and the next attempt verifies the table first.
	claim := j.r.applier.claimUnverified
	if attempt > j.first+1 {
		claim = j.r.applier.Claim
	}
	at, err := claim(ctx, seq)
	if err != nil {
		return fixed, err
	}
	fixed.Cut, fixed.Owners = seq, at.View
	fixed.SpaceKnown, err = j.r.knownSpace(ctx, j.req.Space)
	if err == nil && !fixed.SpaceKnown && len(j.req.Buckets)+len(j.req.Keys) > 0 {
		// What the job pins need not hold a record of the space.
		var spaces api.SpacesReply
		spaces, err = j.r.Spaces(ctx, api.Empty{})
		fixed.SpaceKnown = slices.Contains(spaces.Spaces, j.req.Space)
	}
	return fixed, err
}

// pin outlives its job, so that what a late answer brings is given back.
func (j *job) pin(e pmr.SendPin) {
	ctx, cancel := context.WithTimeout(j.r.allJobs, e.TTL)
	defer cancel()
	req := api.PinRequest{Job: j.id, Attempt: e.Attempt, Router: j.r.ID(), Cut: e.Cut, Age: e.Age, TTLMS: e.TTL.Milliseconds(), Mode: j.req.Mode}
	for _, b := range e.Buckets {
		req.Buckets = append(req.Buckets, uint16(b))
	}
	if j.req.Space != api.DefaultSpace {
		req.Space = j.req.Space
	}
	var reply api.PinReply
	if err := j.r.ports.Peers.Request(ctx, "storage."+e.Storage+".pin", req, &reply); err != nil {
		j.tell(pmr.PinFailed{Attempt: e.Attempt, Storage: e.Storage, Err: about(e.Storage, "pin", err)})
		return
	}
	j.tell(pmr.Pinned{Attempt: e.Attempt, Storage: e.Storage, Pin: reply})
}

// moduleName is the module as the user calls it, a digest cut short.
func (j *job) moduleName() string {
	if j.req.Label != "" {
		return j.req.Label
	}
	if name := j.req.Module; len(name) <= 64 && name != j.module.Digest {
		return name
	}
	return j.module.Digest[:min(12, len(j.module.Digest))]
}

// about names the storage and the step in an error's message.
func about(storage, step string, err error) *api.Error {
	e := *api.AsError(err)
	e.Message = fmt.Sprintf("storage %s, %s: %s", storage, step, e.Message)
	return &e
}

func (j *job) sendMap(ctx context.Context, e pmr.SendMap) {
	if j.claimed != nil {
		select {
		case <-j.claimed:
		case <-ctx.Done():
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	req := j.mapRequest(e.PMR, e.Buckets)
	var reply api.MapReply
	if err := j.r.ports.Peers.Request(ctx, "storage."+e.Storage+".map", req, &reply); err != nil {
		j.tell(pmr.MapRefused{Attempt: e.Attempt, Storage: e.Storage, Err: about(e.Storage, "map", err)})
	} else if reply.End != nil {
		j.mapped(*reply.End)
	}
}

// mapRequest asks a storage for the job's map of what it has pinned.
func (j *job) mapRequest(pmrID string, pinned []api.BucketPin) api.MapRequest {
	keys, params := j.only(pinned)
	return api.MapRequest{
		Keys: keys, BucketParams: params,
		PMR: pmrID, Job: j.id, Router: j.r.ID(), Module: j.module.Digest, Name: j.moduleName(), Function: j.req.Function,
		Client: j.req.Client, Combine: j.req.Combine, Reduce: j.reducer.String(), Space: j.req.Space, Params: j.req.Params,
		TimeoutMS: max(1, (j.timeout - time.Since(j.began)).Milliseconds()), JobTimeoutMS: j.timeout.Milliseconds(), OnError: j.req.OnError, MaxSkip: j.req.MaxSkip,
	}
}

// expect notes a map that is about to start.
func (j *job) expect(e pmr.SendMap) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.maps[e.PMR] = &runningMap{storage: e.Storage, pinned: len(e.Buckets), heard: time.Now()}
}

func (j *job) forgetMaps() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.maps = map[string]*runningMap{}
}

// mapped takes the end of a map. Those of attempts that were given up are unknown by now.
func (j *job) mapped(end api.MapEnd) {
	j.mu.Lock()
	m := j.maps[end.PMR]
	if m != nil {
		if end.Error == nil {
			end.Error = checkCounts(end, m.pinned)
		}
		m.end = &end
	}
	j.mu.Unlock()
	if m != nil {
		j.tell(pmr.MapEnded{Storage: m.storage, PMR: end.PMR, Err: end.Error})
	}
}

func (j *job) progressed(p api.Progress) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m := j.maps[p.PMR]; m != nil {
		m.heard, m.seen = time.Now(), p
	}
}

// watch asks storages that map and have been silent.
func (j *job) watch(ctx context.Context) {
	if j.machine.Phase() != pmr.Mapping {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, m := range j.maps {
		if m.end == nil && !m.asking && time.Since(m.heard) > silentFor {
			m.asking = true
			go j.ask(ctx, j.machine.Attempt(), id, m)
		}
	}
}

func (j *job) ask(ctx context.Context, attempt int, id string, m *runningMap) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err := j.r.ports.Peers.Request(ctx, "storage."+m.storage+".map_status", api.PMRRequest{PMR: id}, &api.PMRStatus{})
	j.mu.Lock()
	m.asking = false
	if err == nil {
		m.heard = time.Now()
	}
	j.mu.Unlock()
	if err != nil {
		lost := about(m.storage, "map", err)
		lost.Code = api.CodeLost
		j.tell(pmr.StorageLost{Attempt: attempt, Storage: m.storage, Err: lost})
	}
}

// finish records the end for those who wait.
func (j *job) finish(e pmr.Finish) {
	j.mu.Lock()
	j.err, j.ended, j.attempts = e.Err, time.Now(), j.attempt()
	if e.Err == nil {
		j.stats = j.figures(e.Proof)
		j.certificate = j.certify(e.Proof)
		j.memory += int64(len(j.certificate))
	} else {
		j.rows, j.memory = nil, 0
	}
	j.maps = nil
	j.mu.Unlock()
	if j.durable || j.withdrawn.Load() {
		return
	}
	if e.Err != nil {
		phase := api.JobFailed
		if e.Err.Code == api.CodeCanceled {
			phase = api.JobCanceled
		}
		j.publish(string(phase), e.Err.Message)
		j.log("a job failed", "code", e.Err.Code, "reason", e.Err.Message)
		return
	}
	j.publish("done", "")
}

// figures sums up what the storages reported; mu is held.
func (j *job) figures(proof *pmr.Proof) *api.JobStats {
	st := &api.JobStats{
		Cut: proof.Cut, Storages: len(proof.Pinned), Attempts: proof.Attempts,
		Module: j.module.Digest, Reduce: j.reducer.String(), Millis: time.Since(j.began).Milliseconds(), Rows: uint64(j.rows.Len()),
	}
	if j.req.Proof {
		st.Pinned = proof.Pinned
	}
	fuel := api.Fuel{Total: j.reduced.Fuel}
	st.Counters = addCounters(nil, j.reduced.Counters)
	for _, p := range proof.Pinned {
		st.Buckets += len(p.Buckets)
		end := j.maps[p.PMR].end
		st.Records, st.Bytes, st.Pairs = st.Records+end.Records, st.Bytes+end.Bytes, st.Pairs+end.Pairs
		st.Counters = addCounters(st.Counters, end.Counters)
		st.Skips, st.Skipped = st.Skips+end.Skips, append(st.Skipped, end.Skipped...)
		if end.Fuel != nil {
			fuel.Total += end.Fuel.Total
			fuel = largerBucket(fuel, *end.Fuel)
		}
	}
	st.Fuel = perRecord(fuel, st.Records)
	if len(st.Skipped) > 0 {
		st.Skipped = firstSkipped(st.Skipped, j.listedBytes())
	}
	return st
}

// publish tells whoever subscribed to the job's events.
func (j *job) publish(phase, reason string) {
	ev := api.JobProgress{Job: j.id, Phase: phase, Attempt: j.attempt(), Take: j.take, Of: j.r.cfg.Settings.Buckets, Reason: reason}
	j.mu.Lock()
	for _, m := range j.maps {
		ev.Buckets, ev.Records, ev.Bytes = ev.Buckets+m.seen.Buckets, ev.Records+m.seen.Records, ev.Bytes+m.seen.Bytes
	}
	j.mu.Unlock()
	j.announce(ev)
}

// announce publishes an event of the job, and keeps it for those who ask.
func (j *job) announce(ev api.JobProgress) {
	j.mu.Lock()
	j.told = ev
	j.mu.Unlock()
	if err := j.r.ports.Peers.Publish("job."+j.id+".events", ev); err != nil {
		j.log("cannot publish a job's progress", "reason", err)
	}
}

// attempt is the number of the present attempt among those that are made here. Only who steps the machine may ask.
func (j *job) attempt() int { return max(j.machine.Attempt()-j.first, 0) }

// grace is how much later than its maps a job runs out of time, so that it can say which guest was slow.
const grace = time.Second

func (j *job) newMachine() *pmr.Router {
	return pmr.NewRouter(pmr.RouterConfig{
		Job: j.id, Space: j.req.Space, Wanted: wanted(j.req, j.r.cfg.Settings.Buckets), Snapshot: j.req.Mode == api.ModeSnapshot, First: j.first,
		Deadline: time.Duration(j.req.TimeoutMS)*time.Millisecond + grace, Attempts: j.req.Attempts, PinTTL: DefaultPinTTL, Seed: xxhash.Sum64String(j.id),
	})
}
