package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// StorageConfig describes a storage.
type StorageConfig struct {
	Member   api.Member // ID, Folder, Weight and what else others should know
	Settings api.Settings
	Workers  *Workers // shared by the roles of a process; default one per CPU
	Memory   int64    // aggregation memory of a job; default DefaultAggregation
	Replace  bool     // the id becomes this folder's, though it was another one's: that one is lost for good
	Total    int64    // bytes of tables and kept output of all jobs beyond which no map starts; default DefaultTotal

	LongestHold time.Duration // of a map that holds buckets in place; default DefaultLongestHold
}

// Storage is the storage role: it owns buckets, pins them at cuts and runs maps on them.
type Storage struct {
	cfg     StorageConfig
	ports   Ports
	logger  *slog.Logger
	applier *Applier
	member  *membership
	work    sync.WaitGroup // maps, reports and requests under way
	began   time.Time
	life    context.Context // ends when the storage stops
	stop    context.CancelFunc

	checkpoints *checkpointer
	arrivals    arrivals
	counts      counts

	mu      sync.Mutex
	machine *pmr.Storage
	pinned  map[string]*pinned
	fenced  bool              // the fence of this membership is applied: pins may be granted
	fence   uint64            // its position
	stopped bool              // no request is taken any more
	trouble map[string]string // by subject, for the status

	gateChanged chan struct{} // closed when a gate is granted or a pin or gate has ended
}

// pinned is what the shell holds for a PMR.
type pinned struct {
	id, job, router string
	claim           Claim
	snapshot        bool // it holds no bucket in place
	unpinned        bool // the claim is released
	buckets         []buckets.ID
	dropped         chan struct{}

	req      api.MapRequest
	stop     context.CancelFunc // of the map
	progress progress
	memory   atomic.Int64 // bytes of the map's tables, then of its output
	end      *api.MapEnd
	output   []byte
	asked    time.Time     // when the map was asked for
	mapped   chan struct{} // closed when end is there
}

// NewStorage returns a storage on its store; Run makes it serve.
func NewStorage(cfg StorageConfig, ports Ports, store buckets.Store) *Storage {
	setDefault(&cfg.Memory, DefaultAggregation)
	setDefault(&cfg.Total, DefaultTotal)
	setDefault(&cfg.LongestHold, DefaultLongestHold)
	if cfg.Workers == nil {
		cfg.Workers = NewWorkers(runtime.NumCPU())
	}
	cfg.Member.Role, cfg.Member.Incarnation = "storage", newID()
	ports.Logger = ports.Logger.With("storage", cfg.Member.ID)
	s := &Storage{
		cfg: cfg, ports: ports, logger: ports.Logger, began: time.Now(),
		applier: NewApplier(cfg.Settings, cfg.Member.ID, store, ports),
		member:  newMembership(ports.State, prefixStorage, cfg.Member, ports.Logger),
		machine: pmr.NewStorage(pmr.StorageConfig{
			Silence: DefaultSilence, Retention: DefaultRetention, Ticket: DefaultTicket,
			Quotas: pmr.Quotas{Pins: DefaultPinQuota, Gates: DefaultGateQuota},
		}),
		gateChanged: make(chan struct{}),
		pinned:      map[string]*pinned{}, trouble: map[string]string{},
		arrivals: arrivals{by: map[buckets.ID]*arrival{}, changed: make(chan struct{})},
	}
	s.member.replace = cfg.Replace
	s.life, s.stop = context.WithCancel(context.Background())
	s.checkpoints = &checkpointer{a: s.applier, settings: cfg.Settings, ports: ports, logger: ports.Logger}
	return s
}

// newID returns 128 random bits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ID is the storage's id.
func (s *Storage) ID() string { return s.cfg.Member.ID }

// Run serves until ctx ends, then stops guests and leaves. It fails if another process has this id.
func (s *Storage) Run(ctx context.Context) error {
	if err := s.member.enter(ctx); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	var broken error
	loops.Go(func() {
		if broken = s.applier.Run(ctx); broken != nil {
			cancel()
		}
	})
	loops.Go(func() { every(ctx, DefaultSilence/100, func() { s.tick() }) })
	loops.Go(func() { every(ctx, refreshEvery, func() { s.reconcile(ctx) }) })
	loops.Go(func() { every(ctx, maintenanceEvery, func() { s.checkpoint(ctx) }) })
	err := s.serve(ctx)
	cancel()
	loops.Wait()
	if broken != nil {
		err = api.Errorf(api.CodeInternal, "storage %s: %v", s.ID(), broken).
			WithHint("what was acknowledged is in the log; make room or mend the disk, and start it again")
	}
	s.stopMaps()
	bye, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer done()
	s.member.leave(bye)
	return err
}

// serve keeps the membership, and sets a new fence at the start, whenever the membership has lapsed, and when
// the log has lost its tail, perhaps with the fence: what was granted before it is void.
func (s *Storage) serve(ctx context.Context) error {
	var fence uint64 // appended, and perhaps not applied yet
	losses := 0
	for ctx.Err() == nil {
		if s.isFenced() || !s.member.alive() {
			_ = sleep(ctx, s.member.ttl/4)
		} else if fence = s.setFence(ctx, fence); fence == 0 {
			_ = sleep(ctx, refreshEvery)
		}
		lapsed, err := s.member.renew(ctx)
		lost := s.applier.lostTails()
		if lapsed || lost != losses || !s.member.alive() {
			s.unfence()
			fence, losses = 0, lost
		}
		switch {
		case api.CodeOf(err) == api.CodeNameTaken:
			return err
		case err != nil && ctx.Err() == nil:
			s.logger.Warn("cannot renew the membership", "reason", err)
		}
	}
	return nil
}

// setFence appends the storage's fence, unless that was done before, and gives the applier a while to
// reach it. It returns the fence's position, 0 if there is none yet.
func (s *Storage) setFence(ctx context.Context, seq uint64) uint64 {
	ctx, cancel := context.WithTimeout(ctx, s.member.ttl/4)
	defer cancel()
	if seq == 0 {
		var err error
		fence := buckets.Fence{Storage: s.ID(), Incarnation: s.cfg.Member.Incarnation}
		seq, err = appendEntry(ctx, s.ports.Log, buckets.FenceSubject(s.ID()), fence, "fence-"+newID())
		if err != nil {
			s.logger.Warn("cannot set the fence; trying again", "reason", err)
			return 0
		}
	}
	if s.applier.WaitApplied(ctx, seq) != nil {
		return seq // next time
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenced, s.fence = true, seq
	s.logger.Info("storage serves", "fence", seq)
	return seq
}

func (s *Storage) isFenced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fenced
}

func (s *Storage) unfence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenced = false
}

// enter admits a request that needs the store, until leave is called. It fails if this storage may not
// answer now. The context that it returns ends when the storage stops, which waits for the request.
func (s *Storage) enter(ctx context.Context) (entered context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.serving(); err != nil {
		return nil, nil, err
	}
	s.work.Add(1)
	entered, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.life, cancel)
	return entered, func() {
		unhook()
		cancel()
		s.work.Done()
	}, nil
}

// orStopping is the error of a request that failed, perhaps because the storage stopped meanwhile.
func (s *Storage) orStopping(err error) error {
	if err != nil && s.life.Err() != nil {
		return api.Errorf(api.CodeUnavailable, "storage %s is stopping", s.ID()).WithHint("try again")
	}
	return err
}

// serving fails if this storage may not answer now; mu is held.
func (s *Storage) serving() error {
	if s.stopped || !s.fenced || !s.member.alive() {
		return api.Errorf(api.CodeUnavailable, "storage %s does not serve now", s.ID()).
			WithHint("it is starting, stopping or cut off: `engine status` tells; try again")
	}
	return nil
}

// Reconnected has the storage compare itself with the log after a connection was lost.
func (s *Storage) Reconnected() { s.applier.Reload() }

// Pin claims the snapshot of a cut and makes a PMR of it.
func (s *Storage) Pin(ctx context.Context, req api.PinRequest) (api.PinReply, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return api.PinReply{}, err
	}
	defer leave()
	for what, id := range map[string]string{"a job's id": req.Job, "a router": req.Router} {
		if err := api.CheckID(what, id); err != nil {
			return api.PinReply{}, err
		}
	}
	ttl := time.Duration(req.TTLMS) * time.Millisecond
	if ttl <= 0 || ttl > time.Minute {
		return api.PinReply{}, api.Errorf(api.CodeBadRequest, "ttl_ms is %d; it must be 1 to 60000", req.TTLMS)
	}
	ctx, cancel := context.WithTimeout(ctx, ttl)
	defer cancel()
	claim, err := s.applier.Claim(ctx, req.Cut)
	if err != nil {
		return api.PinReply{}, s.orStopping(err)
	}
	p := &pinned{
		id: newID(), job: req.Job, router: req.Router, claim: claim,
		buckets: among(claim.View.Of(s.ID()), req.Buckets), dropped: make(chan struct{}), mapped: make(chan struct{}),
		snapshot: req.Mode == api.ModeSnapshot,
	}
	reply := api.PinReply{PMR: p.id, Storage: s.ID(), Incarnation: s.cfg.Member.Incarnation}
	for _, b := range p.buckets {
		reply.Buckets = append(reply.Buckets, api.BucketPin{Bucket: uint16(b), Generation: claim.View.Owner(b).Generation})
	}
	if req.Space != "" {
		holding, err := claim.snap.Holding(p.buckets, req.Space, 1)
		if err != nil {
			return api.PinReply{}, errors.Join(err, claim.Release())
		}
		reply.HasSpace = len(holding) > 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.serving(); err != nil { // not any more
		return api.PinReply{}, errors.Join(err, claim.Release())
	}
	s.pinned[p.id] = p
	asked := pmr.PinAsked{PMR: p.id, Job: req.Job, Router: req.Router, TTL: ttl, Age: cmp.Or(req.Age, req.Cut), Snapshot: req.Mode == api.ModeSnapshot}
	if err := s.step(asked); err != nil {
		delete(s.pinned, p.id)
		s.unpin(p)
		return api.PinReply{}, err
	}
	return reply, nil
}

// among is what is wanted of the owned buckets, all if nothing is named. Both are ascending.
func among(owned []buckets.ID, wanted []uint16) []buckets.ID {
	if len(wanted) == 0 {
		return owned
	}
	return slices.DeleteFunc(slices.Clone(owned), func(b buckets.ID) bool {
		_, found := slices.BinarySearch(wanted, uint16(b))
		return !found
	})
}

// shortMap is how long the answer to a request to map waits for the map's end, to bring it along.
const shortMap = 20 * time.Millisecond

// Map starts the map of a PMR, if it still exists, and answers soon: with the map's end, if it has come by then.
func (s *Storage) Map(ctx context.Context, req api.MapRequest) (api.MapReply, error) {
	p, err := s.beginMap(req)
	if err != nil {
		return api.MapReply{}, err
	}
	soon := time.NewTimer(shortMap)
	defer soon.Stop()
	select {
	case <-p.mapped:
	case <-p.dropped:
	case <-soon.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pinned[p.id] != p {
		return api.MapReply{}, nil // it was given up, and so did not end
	}
	return api.MapReply{End: p.end}, nil
}

func (s *Storage) beginMap(req api.MapRequest) (*pinned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.serving(); err != nil {
		return nil, err
	}
	p := s.pinned[req.PMR]
	if p != nil && p.req.PMR == "" {
		if err := s.checkTotal(); err != nil {
			return nil, err
		}
		p.req, p.asked = req, time.Now()
	}
	return p, s.step(pmr.MapAsked{PMR: req.PMR})
}

// checkTotal refuses a map while the others' output takes too much; mu is held.
func (s *Storage) checkTotal() error {
	total := int64(0)
	for _, p := range s.pinned {
		total += p.memory.Load()
	}
	if total < s.cfg.Total {
		return nil
	}
	return api.Errorf(api.CodeBusy, "the output of maps on storage %s takes %d bytes of memory, over the %d of aggregation-total", s.ID(), total, s.cfg.Total).
		WithHint("try again when other jobs have ended, or give the storage more: --aggregation-total").
		With("limit", "aggregation-total")
}

// Release gives a PMR up.
func (s *Storage) Release(_ context.Context, req api.PMRRequest) (api.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return api.Empty{}, s.step(pmr.ReleaseAsked{PMR: req.PMR})
}

// Heard takes a router's heartbeat.
func (s *Storage) Heard(router string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.step(pmr.Heard{Router: router})
}

func (s *Storage) tick() {
	s.applier.Expire(time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.step(pmr.Tick{})
}

// step steps the machine and performs its effects; mu is held. It returns what Refuse says.
func (s *Storage) step(ev pmr.Event) (refused error) {
	for _, effect := range s.machine.Step(time.Since(s.began), ev) {
		switch e := effect.(type) {
		case pmr.Accept:
		case pmr.Refuse:
			refused = e.Err.With("storage", s.ID())
		case pmr.StartMap:
			s.startMap(s.pinned[e.PMR])
		case pmr.StopMap:
			s.pinned[e.PMR].stop()
		case pmr.Report:
			p := s.pinned[e.PMR]
			s.unpin(p)
			s.work.Go(func() { s.report(p) })
		case pmr.Drop:
			p := s.pinned[e.PMR]
			delete(s.pinned, e.PMR)
			s.unpin(p)
			close(p.dropped)
		case pmr.OpenGate, pmr.CloseGate:
			s.gatesChanged()
		case pmr.SetFence:
			s.work.Go(s.renewFence)
		}
	}
	return refused
}

func (s *Storage) unpin(p *pinned) {
	if p.unpinned {
		return
	}
	p.unpinned = true
	if err := p.claim.Release(); err != nil {
		s.logger.Error("cannot close a snapshot", "reason", err)
	}
}

// reportAfter is when the end of a short map is told though the answer to its request has told it.
const reportAfter = 200 * time.Millisecond

// report tells the router the end of a map until it confirms or the PMR is dropped.
func (s *Storage) report(p *pinned) {
	subject := fmt.Sprintf("router.%s.mapped", p.router)
	if time.Since(p.asked) < shortMap {
		// The answer to the request to map tells it, after which the router releases the PMR.
		select {
		case <-p.dropped:
			return
		case <-time.After(reportAfter):
		}
	}
	end := p.end
	for told := false; ; {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err := s.ports.Peers.Request(ctx, subject, end, &api.Empty{})
		cancel()
		if err == nil {
			return
		}
		if !told {
			told = true
			s.logger.Warn("a router does not take the end of a map; telling it again", "job", p.job, "router", p.router, "reason", err)
		}
		if code := api.CodeOf(err); code == api.CodeBadRequest || code == api.CodeLimitExceeded || code == api.CodeVersion {
			end = untold(p.end, api.AsError(err))
		}
		select {
		case <-p.dropped:
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// untold is the end of a map whose report cannot be sent or read, however often: the job fails with the reason.
func untold(end *api.MapEnd, reason *api.Error) *api.MapEnd {
	e := &api.Error{Code: reason.Code, Message: "the report of the map of storage " + end.Storage + " cannot be told: " + reason.Message, Hint: reason.Hint}
	if own := end.Error; own != nil {
		e = &api.Error{Code: own.Code, Message: firstBytes(own.Message, listedReason), Hint: firstBytes(own.Hint, listedReason)}
	}
	return &api.MapEnd{PMR: end.PMR, Job: end.Job, Storage: end.Storage, Error: e}
}

// Fetch returns a piece of a map's output.
func (s *Storage) Fetch(_ context.Context, req api.FetchRequest) (api.FetchReply, error) {
	s.mu.Lock()
	p := s.pinned[req.PMR]
	if p == nil || p.end == nil {
		s.mu.Unlock()
		return api.FetchReply{}, api.Errorf(api.CodePMRExpired, "no output of %.8s is kept here", req.PMR)
	}
	output := p.output
	s.mu.Unlock()
	size := uint64(len(output))
	if req.Cursor > size || req.MaxBytes <= 0 {
		return api.FetchReply{}, api.Errorf(api.CodeBadRequest, "cursor %d of %d bytes, max_bytes %d", req.Cursor, size, req.MaxBytes)
	}
	piece := output[req.Cursor:min(size, req.Cursor+uint64(min(req.MaxBytes, pieceBytes)))]
	return api.FetchReply{Data: piece, Checksum: xxhash.Sum64(piece), Size: size}, nil
}

// MapStatus tells how far a map is.
func (s *Storage) MapStatus(_ context.Context, req api.PMRRequest) (api.PMRStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machine.PMRs() {
		if m.ID == req.PMR {
			p := s.pinned[m.ID].progress.read()
			return api.PMRStatus{PMR: m.ID, State: m.State.String(), Records: p.Records, Bytes: p.Bytes, Buckets: p.Buckets}, nil
		}
	}
	return api.PMRStatus{}, api.Errorf(api.CodePMRExpired, "there is no PMR %.8s", req.PMR)
}

// stopMaps ends everything that is pinned and waits until no guest and no request uses the store.
func (s *Storage) stopMaps() {
	s.stop()
	s.mu.Lock()
	s.stopped = true
	for _, p := range s.machine.PMRs() {
		_ = s.step(pmr.ReleaseAsked{PMR: p.ID})
	}
	s.mu.Unlock()
	s.work.Wait()
}

// every calls fn at an interval until ctx ends.
func every(ctx context.Context, d time.Duration, fn func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			fn()
		case <-ctx.Done():
			return
		}
	}
}
