package node

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Take makes this storage the owner of buckets that have none: it loads them, has its applier follow them,
// and appends its ownership. Whether that counted, only the log says. Asking again is harmless.
func (s *Storage) Take(ctx context.Context, req api.TakeRequest) (api.Empty, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return api.Empty{}, err
	}
	defer leave()
	bs, err := s.untaken(req.Buckets)
	if err != nil || len(bs) == 0 {
		return api.Empty{}, err
	}
	defer s.markTaking(bs, false)
	if err := s.applier.Join(ctx, bs); err != nil {
		return api.Empty{}, err
	}
	s.mu.Lock()
	fence := s.fence
	s.mu.Unlock()
	var last uint64
	for _, b := range bs {
		own := buckets.Own{Bucket: b, Owner: s.ID(), Move: req.Order, FenceDst: fence}
		seq, err := appendEntry(ctx, s.ports.Log, buckets.OwnSubject(b), own, fmt.Sprintf("own-%s-%d-%d", req.Order, b, fence))
		if err != nil {
			return api.Empty{}, err
		}
		last = max(last, seq)
	}
	return api.Empty{}, s.applier.WaitApplied(ctx, last)
}

// untaken picks the buckets of an order that this storage does not own yet, and marks them as on their
// way, so that they are not cleared away as leftovers.
func (s *Storage) untaken(list []uint16) ([]buckets.ID, error) {
	view := s.applier.View()
	var bs []buckets.ID
	for _, n := range list {
		b := buckets.ID(n)
		if int(b) >= view.Len() {
			return nil, api.Errorf(api.CodeBadRequest, "bucket %d is not of 0..%d", b, view.Len()-1)
		}
		switch owner := view.Owner(b).Storage; owner {
		case s.ID():
		case "":
			bs = append(bs, b)
		default:
			return nil, api.Errorf(api.CodeBadRequest, "bucket %d belongs to %s", b, owner)
		}
	}
	s.markTaking(bs, true)
	return bs, nil
}

func (s *Storage) markTaking(bs []buckets.ID, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range bs {
		switch {
		case on:
			s.taking[b]++
		case s.taking[b] > 1:
			s.taking[b]-- // another delivery of the order takes it too
		default:
			delete(s.taking, b)
		}
	}
}

// reconcile loads what the table says this storage owns and the store lacks, and forgets leftovers of
// buckets that others own.
func (s *Storage) reconcile(ctx context.Context) {
	s.mu.Lock()
	taking := maps.Clone(s.taking) // before the table is looked at: what is taken meanwhile is owned there
	s.mu.Unlock()
	absent, surplus := s.applier.Absent()
	surplus = slices.DeleteFunc(surplus, func(b buckets.ID) bool { return taking[b] > 0 })
	var err error
	if len(absent) > 0 {
		s.logger.Info("loading buckets from checkpoints and log", "buckets", buckets.Ranges(absent))
		err = s.applier.Join(ctx, absent)
	}
	if len(surplus) > 0 && err == nil {
		err = s.applier.Leave(ctx, surplus)
	}
	s.note(ctx, "buckets", err)
	s.note(ctx, "quotas", s.readQuotas(ctx))
	if s.cfg.Settings.Replicas == 1 {
		// Asking is cheap with one replica, and keeps a purge from passing what is not verified yet. The next
		// cut asks again, so a failure here is no news.
		_ = s.applier.Verify(ctx, s.applier.Applied())
	}
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
