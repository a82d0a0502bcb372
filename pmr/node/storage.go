package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"runtime"
	"sync"
	"time"

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
		counts:   newCounts(),
	}
	s.member.replace = cfg.Replace
	s.member.lapsed = s.unfence
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
	s.fenced = true
	s.followFence()
	s.logger.Info("storage serves", "fence", s.fence)
	return seq
}

// followFence takes the fence that the table has: of two that were appended at about the same time, the later one counts,
// whichever is heard of first. mu is held.
func (s *Storage) followFence() { s.fence = s.applier.View().Fence(s.ID()) }

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
