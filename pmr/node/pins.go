package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

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
