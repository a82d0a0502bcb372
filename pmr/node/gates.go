package node

import (
	"context"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// mostGateWait is how long one answer to a gate's asker may wait.
const mostGateWait = 5 * time.Second

// Gate asks for a gate or renews it, and waits a while for it to be granted.
func (s *Storage) Gate(ctx context.Context, req api.GateRequest) (api.GateReply, error) {
	if err := api.CheckID("a gate", req.Gate); err != nil {
		return api.GateReply{}, err
	}
	ttl := time.Duration(req.TTLMS) * time.Millisecond
	if ttl <= 0 || ttl > time.Minute {
		return api.GateReply{}, api.Errorf(api.CodeBadRequest, "ttl_ms is %d; it must be 1 to 60000", req.TTLMS)
	}
	ctx, cancel := context.WithTimeout(ctx, min(millis(req.WaitMS), mostGateWait))
	defer cancel()
	for {
		reply, changed, err := s.askGate(pmr.GateAsked{Gate: req.Gate, TTL: ttl, Second: req.Second})
		if err != nil || reply.State == gateHeld {
			return reply, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return reply, nil
		}
	}
}

// The states of a gate as a reply tells them.
const (
	gateHeld    = "held"
	gateWaiting = "waiting"
)

func (s *Storage) askGate(ev pmr.GateAsked) (reply api.GateReply, changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.serving(); err != nil {
		return reply, nil, err
	}
	_ = s.step(ev)
	reply = api.GateReply{Gate: ev.Gate, State: gateWaiting, Running: s.machine.Running(), LongestHoldMS: s.cfg.LongestHold.Milliseconds()}
	if s.machine.Gate(ev.Gate) == pmr.GateHeld {
		reply.State, reply.Fence = gateHeld, s.fence
	}
	return reply, s.gateChanged, nil
}

// Ungate ends a gate, whether it waits or is held.
func (s *Storage) Ungate(_ context.Context, req api.GateName) (api.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return api.Empty{}, s.step(pmr.GateReleased{Gate: req.Gate})
}

// gatesChanged wakes those who wait for a gate; mu is held.
func (s *Storage) gatesChanged() {
	close(s.gateChanged)
	s.gateChanged = make(chan struct{})
}

// renewFence sets a new fence after a gate has ended: an activation that was meant for it and comes late is
// void then.
func (s *Storage) renewFence() {
	fence := buckets.Fence{Storage: s.ID(), Incarnation: s.cfg.Member.Incarnation}
	id := "fence-" + newID()
	seq := uint64(0)
	for !s.isStopped() {
		err := s.within(answerWithin, func(ctx context.Context) (err error) {
			if seq == 0 {
				if seq, err = appendEntry(ctx, s.ports.Log, buckets.FenceSubject(s.ID()), fence, id); err != nil {
					return err
				}
			}
			return s.applier.WaitApplied(ctx, seq)
		})
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.followFence()
			_ = s.step(pmr.FenceSet{})
			return
		}
		s.logger.Warn("cannot set the fence after a gate; trying again", "reason", err)
		time.Sleep(refreshEvery / 10)
	}
}

func (s *Storage) within(d time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return fn(ctx)
}

func (s *Storage) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}
