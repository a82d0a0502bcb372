package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// Activate makes this storage the owner of buckets that it has received: it appends its ownership, with all that has
// to hold when the entries come to stand in the log, and tells what the log has come to. Asking again is harmless.
//
// BUSY says that the gate is not held here or that a bucket is not loaded; nothing was appended then. After any other
// error only the log knows.
func (s *Storage) Activate(ctx context.Context, req api.ActivateRequest) (api.ActivateReply, error) {
	var reply api.ActivateReply
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return reply, err
	}
	defer leave()
	bs, err := s.activating(req)
	if err != nil {
		return reply, err
	}
	defer s.arrivals.keep(bs)()
	if err := s.catchUp(ctx); err != nil {
		return reply, s.orStopping(err)
	}
	if absent := s.applier.unjoined(bs); len(absent) > 0 {
		return reply, api.Errorf(api.CodeBusy, "storage %s has not received %s", s.ID(), buckets.Ranges(absent))
	}
	fence, err := s.gateFence(req)
	if err != nil {
		return reply, err
	}
	if err := s.appendOwnership(ctx, req, fence); err != nil {
		return reply, s.orStopping(err)
	}
	view := s.applier.View()
	for _, b := range bs {
		owner := view.Owner(b)
		if owner.Storage == s.ID() {
			s.arrivals.arrived(b)
		}
		reply.Buckets = append(reply.Buckets, api.Activation{Bucket: uint16(b), Owner: owner.Storage, Generation: owner.Generation})
	}
	return reply, nil
}

// activating checks an activation's form, and lists its buckets.
func (s *Storage) activating(req api.ActivateRequest) ([]buckets.ID, error) {
	named := make([]uint16, 0, len(req.Buckets))
	for _, b := range req.Buckets {
		if b.Generation != 0 && req.FenceSrc == 0 {
			return nil, api.Errorf(api.CodeBadRequest, "bucket %d has an owner; the activation must name its fence", b.Bucket)
		}
		named = append(named, b.Bucket)
	}
	return s.existing(named)
}

// existing turns numbers into buckets, if there are such.
func (s *Storage) existing(list []uint16) ([]buckets.ID, error) {
	if len(list) == 0 {
		return nil, api.Errorf(api.CodeBadRequest, "no bucket is named")
	}
	bs := make([]buckets.ID, len(list))
	for i, b := range list {
		if int(b) >= s.cfg.Settings.Buckets {
			return nil, noBucket("buckets", b, s.cfg.Settings.Buckets)
		}
		bs[i] = buckets.ID(b)
	}
	return bs, nil
}

// catchUp waits until all is applied and verified that the log holds now.
func (s *Storage) catchUp(ctx context.Context) error {
	barrier, err := s.applier.Barrier(ctx)
	if err != nil {
		return err
	}
	if err := s.applier.WaitApplied(ctx, barrier); err != nil {
		return err
	}
	return s.applier.Verify(ctx, barrier)
}

// gateFence is this storage's fence for the entries of an activation. It fails if the gate of the activation is not
// held, or not any more the one that the fence was named with.
func (s *Storage) gateFence(req api.ActivateRequest) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.serving(); err != nil {
		return 0, err
	}
	if req.Gate == "" {
		return cmp.Or(req.FenceDst, s.fence), nil
	}
	if s.machine.Gate(req.Gate) != pmr.GateHeld || req.FenceDst != s.fence {
		return 0, api.Errorf(api.CodeBusy, "the gate %.40q of storage %s is not held, or has another fence", req.Gate, s.ID())
	}
	return s.fence, nil
}

// appendOwnership appends the entries of an activation, but those that the table already shows to be of no use, and
// waits until they are applied.
func (s *Storage) appendOwnership(ctx context.Context, req api.ActivateRequest, fence uint64) error {
	view := s.applier.View()
	var last uint64
	for _, pin := range req.Buckets {
		b := buckets.ID(pin.Bucket)
		if view.Owner(b).Generation != pin.Generation {
			continue // it is ours already, or a rival's
		}
		own := buckets.Own{Bucket: b, Prev: pin.Generation, Owner: s.ID(), Move: req.Order, FenceSrc: req.FenceSrc, FenceDst: fence}
		id := fmt.Sprintf("own-%s-%s-%d-%d-%d", req.Order, req.Gate, b, pin.Generation, fence)
		seq, err := appendEntry(ctx, s.ports.Log, buckets.OwnSubject(b), own, id)
		if err != nil {
			return err
		}
		last = max(last, seq)
	}
	return s.applier.WaitApplied(ctx, last)
}

// reconcile loads what the table says this storage owns and the store lacks, and forgets leftovers of
// buckets that others own.
func (s *Storage) reconcile(ctx context.Context) {
	s.arrivals.expire(time.Now())
	absent := s.applier.Absent()
	var err error
	if len(absent) > 0 {
		s.logger.Info("loading buckets from checkpoints and log", "buckets", buckets.Ranges(absent))
		err = s.applier.Join(ctx, absent, atOnce{})
	}
	if err == nil {
		err = s.forgetLeftovers(ctx)
	}
	s.note(ctx, "buckets", err)
	s.note(ctx, "quotas", s.readQuotas(ctx))
	if s.cfg.Settings.Replicas == 1 {
		// Asking is cheap with one replica, and keeps a purge from passing what is not verified yet. The next
		// cut asks again, so a failure here is no news.
		_ = s.applier.Verify(ctx, s.applier.Applied())
	}
}

// forgetLeftovers forgets what is loaded here, belongs to others by the table, and is not on its way here. The table
// is verified first: a node that missed something would throw away what it has to load again.
func (s *Storage) forgetLeftovers(ctx context.Context) error {
	surplus, at, epoch := s.applier.Surplus()
	surplus = slices.DeleteFunc(surplus, s.arrivals.needed)
	if len(surplus) == 0 {
		return nil
	}
	if err := s.applier.Verify(ctx, at); err != nil || !s.applier.sameEpoch(epoch) {
		return err
	}
	return s.applier.Leave(ctx, surplus, s.arrivals.needed)
}

func (s *Storage) checkpoint(ctx context.Context) {
	if !s.isFenced() {
		return
	}
	s.note(ctx, "checkpoint", s.checkpoints.round(ctx))
}

// note keeps what is wrong with a subject for the status, and logs it when it changes.
func (s *Storage) note(ctx context.Context, subject string, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	before := s.trouble[subject]
	delete(s.trouble, subject)
	if err != nil {
		s.trouble[subject] = err.Error()
	}
	s.mu.Unlock()
	if err != nil && err.Error() != before {
		s.logger.Warn("trouble; trying again", "subject", subject, "reason", err)
	}
}
