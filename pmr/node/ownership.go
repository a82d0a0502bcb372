package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Take makes this storage the owner of buckets that have none: it loads them, has its applier follow them,
// and appends its ownership. Whether that counted, only the log says. Asking again is harmless.
func (s *Storage) Take(ctx context.Context, req api.TakeRequest) (api.Empty, error) {
	if err := s.serving(); err != nil {
		return api.Empty{}, err
	}
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
		if on {
			s.taking[b] = true
		} else {
			delete(s.taking, b)
		}
	}
}

// reconcile loads what the table says this storage owns and the store lacks, and forgets leftovers of
// buckets that others own.
func (s *Storage) reconcile(ctx context.Context) {
	absent, surplus := s.applier.Absent()
	s.mu.Lock()
	surplus = slices.DeleteFunc(surplus, func(b buckets.ID) bool { return s.taking[b] })
	s.mu.Unlock()
	var err error
	if len(absent) > 0 {
		s.logger.Info("loading buckets from checkpoints and log", "buckets", buckets.Ranges(absent))
		err = s.applier.Join(ctx, absent)
	}
	if len(surplus) > 0 && err == nil {
		err = s.applier.Leave(ctx, surplus)
	}
	s.note(ctx, "buckets", err)
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
	c := &checkpointer{a: s.applier, settings: s.cfg.Settings, ports: s.ports, logger: s.logger}
	s.note(ctx, "checkpoint", c.round(ctx))
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

// Get reads one record as it is after everything that was in the log when the request arrived.
func (s *Storage) Get(ctx context.Context, req api.GetRequest) (api.GetReply, error) {
	if err := s.serving(); err != nil {
		return api.GetReply{}, err
	}
	b := buckets.ID(req.Bucket)
	if err := s.upToDate(ctx); err != nil {
		return api.GetReply{}, err
	}
	snap, _, view, err := s.applier.freeze()
	if err != nil {
		return api.GetReply{}, err
	}
	if int(b) >= view.Len() || view.Owner(b).Storage != s.ID() || !s.applier.complete(view.Of(s.ID())) {
		return api.GetReply{}, errors.Join(api.Errorf(api.CodeBusy, "bucket %d is not served here now", b), snap.release())
	}
	value, ok, err := snap.Get(b, req.Space, req.Key)
	if err = errors.Join(err, snap.release()); err != nil {
		return api.GetReply{}, err
	}
	if !ok {
		return api.GetReply{}, api.Errorf(api.CodeNotFound, "space %s has no record of the key %.80q", req.Space, buckets.KeyText(req.Key))
	}
	return api.GetReply{Key: req.Key, Value: value}, nil
}

// upToDate waits until everything that is in the log now was applied and verified.
func (s *Storage) upToDate(ctx context.Context) error {
	seq, err := s.applier.Barrier(ctx)
	if err != nil {
		return err
	}
	if err := s.applier.WaitApplied(ctx, seq); err != nil {
		return err
	}
	return s.applier.Verify(ctx, seq)
}

// Spaces lists the spaces of which this storage holds a record.
func (s *Storage) Spaces(ctx context.Context, _ api.Empty) (api.SpacesReply, error) {
	if err := s.upToDate(ctx); err != nil {
		return api.SpacesReply{}, err
	}
	snap, _, view, err := s.applier.freeze()
	if err != nil {
		return api.SpacesReply{}, err
	}
	found := map[string]bool{}
	for _, b := range view.Of(s.ID()) {
		names, scanErr := snap.Spaces(b)
		err = errors.Join(err, scanErr)
		for _, name := range names {
			found[name] = true
		}
	}
	if err = errors.Join(err, snap.release()); err != nil {
		return api.SpacesReply{}, err
	}
	return api.SpacesReply{Spaces: slices.Sorted(maps.Keys(found))}, nil
}

// Status tells how this storage is.
func (s *Storage) Status(_ context.Context, _ api.Empty) (api.StorageStatus, error) {
	absent, surplus := s.applier.Absent()
	st := s.applier.status()
	st.Storage, st.Incarnation = s.ID(), s.cfg.Member.Incarnation
	if !s.member.alive() {
		st.Warnings = append(st.Warnings, "it cannot renew its membership and serves nothing")
	}
	if len(absent) > 0 {
		st.Warnings = append(st.Warnings, "not loaded yet: "+buckets.Ranges(absent))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fenced {
		st.Warnings = append(st.Warnings, "it does not serve yet")
	}
	if len(surplus) > len(s.taking) {
		st.Warnings = append(st.Warnings, "leftovers of others': "+buckets.Ranges(surplus))
	}
	for _, subject := range slices.Sorted(maps.Keys(s.trouble)) {
		st.Warnings = append(st.Warnings, subject+": "+s.trouble[subject])
	}
	for _, m := range s.machine.PMRs() {
		st.PMRs = append(st.PMRs, api.PMRInfo{PMR: m.ID, Job: m.Job, Router: m.Router, State: m.State.String()})
	}
	return st, nil
}

func (a *Applier) status() api.StorageStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := api.StorageStatus{
		Applied: a.applied, Verified: a.verified, Loaded: len(a.joined), Parked: len(a.parked),
		Skipped: a.skipped, LastSkipped: a.lastSkipped, Reloads: a.reloads,
		Owned: len(a.view.Of(a.self)),
	}
	for _, warning := range []string{a.alarm, a.lostTail} {
		if warning != "" {
			st.Warnings = append(st.Warnings, warning)
		}
	}
	return st
}
