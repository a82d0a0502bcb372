package node

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// RouterConfig describes a router.
type RouterConfig struct {
	Member   api.Member // ID and what else others should know
	Cluster  string
	Settings api.Settings
	Expect   int      // storages that must have joined before buckets are assigned
	Memory   int64    // aggregation memory of a job, and of all results that are kept; default DefaultAggregation
	Workers  *Workers // shared by the roles of a process; default one per CPU
	Jobs     int      // that run at once; default DefaultJobs
	Replace  bool     // see StorageConfig
	Queue    int      // jobs that wait for their turn; default DefaultQueue, none if it is negative
	Durable  int      // durable jobs that wait or run in the whole cluster, beyond which none is taken in; default DefaultDurable
	Collect  int64    // memory to collect the output of all jobs with; default DefaultCollect
}

// Router is the router role: it takes jobs and drives pin, map and reduce, serves records, assigns buckets
// and purges the log.
type Router struct {
	cfg       RouterConfig
	ports     Ports
	logger    *slog.Logger
	applier   *Applier
	member    *membership
	planner   *planner
	moves     moveBook
	purger    *purger
	historian *historian
	results   resultObjects // parts of stored ones
	lists     chan struct{} // a place for each that reads the records of all jobs
	collects  *allotment    // of memory to collect output with
	began     time.Time
	running   sync.WaitGroup
	stopAll   context.CancelCauseFunc
	allJobs   context.Context

	submitting atomic.Int32 // requests

	mu        sync.Mutex
	jobs      map[string]*job  // waiting and running ones, and ended ones whose results are kept
	takes     map[string]*take // durable jobs that this router has in hand
	anew      int              // such jobs that were queued anew since the router stops
	admission *admission
	spaces    map[string]bool // known to exist
}

// NewRouter returns a router; Run makes it serve.
func NewRouter(cfg RouterConfig, ports Ports) *Router {
	setDefault(&cfg.Memory, DefaultAggregation)
	setDefault(&cfg.Jobs, DefaultJobs)
	setDefault(&cfg.Queue, DefaultQueue)
	setDefault(&cfg.Durable, DefaultDurable)
	setDefault(&cfg.Collect, DefaultCollect)
	if cfg.Workers == nil {
		cfg.Workers = NewWorkers(runtime.NumCPU())
	}
	cfg.Member.Role, cfg.Member.Incarnation = "router", newID()
	ports.Logger = ports.Logger.With("router", cfg.Member.ID)
	r := &Router{
		cfg: cfg, ports: ports, logger: ports.Logger, began: time.Now(),
		applier: NewApplier(cfg.Settings, "", nil, ports),
		member:  newMembership(ports.State, prefixRouter, cfg.Member, ports.Logger),
		jobs:    map[string]*job{}, takes: map[string]*take{}, admission: newAdmission(cfg.Jobs, max(cfg.Queue, 0)),
		spaces: map[string]bool{api.DefaultSpace: true}, lists: make(chan struct{}, listsAtOnce), collects: newAllotment(cfg.Collect),
	}
	r.member.replace = cfg.Replace
	r.allJobs, r.stopAll = context.WithCancelCause(context.Background())
	r.planner = newPlanner(r)
	r.purger = &purger{r: r}
	r.historian = &historian{r: r}
	return r
}

// ID is the router's name among its peers: its id and the beginning of its incarnation. A process that takes
// the id over is another router to them, so that what was held for the one before ends with it.
func (r *Router) ID() string { return peerName(r.cfg.Member) }

func peerName(m api.Member) string { return m.ID + "-" + m.Incarnation[:min(8, len(m.Incarnation))] }

// Run serves until ctx ends, then cancels its jobs and leaves.
func (r *Router) Run(ctx context.Context) error {
	if err := r.member.enter(ctx); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { _ = r.applier.Run(ctx) }) // without a store it ends with ctx only
	loops.Go(func() { every(ctx, refreshEvery, func() { r.beat(ctx) }) })
	loops.Go(func() { every(ctx, refreshEvery, func() { r.planner.round(ctx) }) })
	loops.Go(func() { every(ctx, maintenanceEvery, func() { r.purger.round(ctx) }) })
	loops.Go(func() { r.work(ctx) })
	loops.Go(func() { r.takeJobs(ctx) })
	loops.Go(func() { every(ctx, sweepEvery, func() { r.historian.round(ctx) }) })
	var err error
	for err == nil && sleep(ctx, r.member.ttl/4) == nil {
		err = r.renew(ctx)
	}
	r.stopAll(api.Errorf(api.CodeUnavailable, "router %s is stopping", r.ID()).WithHint("run the job again"))
	r.running.Wait()
	cancel()
	loops.Wait()
	bye, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer done()
	r.member.leave(bye)
	return err
}

func (r *Router) renew(ctx context.Context) error {
	_, err := r.member.renew(ctx) // a router that has lapsed lost its pins, and its jobs retry
	if api.CodeOf(err) == api.CodeNameTaken {
		return err
	}
	if err != nil && ctx.Err() == nil {
		r.logger.Warn("cannot renew the membership", "reason", err)
	}
	return nil
}

// beat tells the storages that this router lives, and drops what is too old.
func (r *Router) beat(ctx context.Context) {
	if err := r.ports.Peers.Publish("router."+r.ID()+".beat", api.Heartbeat{Router: r.ID()}); err != nil && ctx.Err() == nil {
		r.logger.Warn("cannot send the heartbeat", "reason", err)
	}
	r.applier.Expire(time.Now())
	r.expireResults(time.Now())
}

// Reconnected has the router compare itself with the log after a connection was lost.
func (r *Router) Reconnected() { r.applier.Reload() }

// Mapped takes a storage's word that a map is over. Of a job that is not known here any more, the storage may
// let go.
func (r *Router) Mapped(_ context.Context, end api.MapEnd) (api.Empty, error) {
	if err := api.CheckID("a storage", end.Storage); err != nil {
		return api.Empty{}, err
	}
	if j := r.job(end.Job); j != nil {
		j.mapped(end)
	} else {
		go r.release(end.Storage, end.PMR)
	}
	return api.Empty{}, nil
}

// releaseFor is how long a storage is asked to give a PMR up: NATS may be away meanwhile.
const releaseFor = 15 * time.Second

// release has a storage give a PMR up. A router that stops asks once more. What cannot be released ends by itself: a
// pin and kept output expire, and a map ends with its job's time.
func (r *Router) release(storage, id string) {
	began := time.Now()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		within := answerWithin
		if r.allJobs.Err() != nil {
			within = time.Second // the router stops
		}
		ctx, cancel := context.WithTimeout(context.Background(), within)
		err := r.ports.Peers.Request(ctx, "storage."+storage+".release", api.PMRRequest{PMR: id}, &api.Empty{})
		cancel()
		if err == nil || time.Since(began) > releaseFor || sleep(r.allJobs, pause) != nil {
			return
		}
	}
}

// Progress takes a storage's progress.
func (r *Router) Progress(p api.Progress) {
	if j := r.job(p.Job); j != nil {
		j.progressed(p)
	}
}

func (r *Router) job(id string) *job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs[id]
}

// knownSpace reports whether a space was created by name; records alone also make a space, which only the
// storages see.
func (r *Router) knownSpace(ctx context.Context, space string) (bool, error) {
	r.mu.Lock()
	known := r.spaces[space]
	r.mu.Unlock()
	if known {
		return true, nil
	}
	e, err := r.ports.State.Get(ctx, prefixSpace+space)
	if err != nil || e.Revision == 0 {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spaces[space] = true
	return true, nil
}

// CreateSpace makes a space known by name, also while it holds nothing.
func (r *Router) CreateSpace(ctx context.Context, req api.SpaceRequest) (api.Empty, error) {
	if err := buckets.CheckSpace(req.Space); err != nil {
		return api.Empty{}, api.Errorf(api.CodeBadRequest, "%v", err)
	}
	known, err := r.knownSpace(ctx, req.Space)
	if err != nil || known {
		return api.Empty{}, err
	}
	_, err = r.ports.State.Create(ctx, prefixSpace+req.Space, []byte("{}"))
	if err != nil && api.CodeOf(err) != api.CodeNameTaken {
		return api.Empty{}, fmt.Errorf("node: create space %s: %w", req.Space, err)
	}
	return api.Empty{}, nil
}
