package node

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Get reads one record as it is after everything that was in the log when the request arrived.
func (s *Storage) Get(ctx context.Context, req api.GetRequest) (api.GetReply, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return api.GetReply{}, err
	}
	defer leave()
	f, err := s.applier.upToDate(ctx)
	if err != nil {
		return api.GetReply{}, s.orStopping(err)
	}
	b := buckets.ID(req.Bucket)
	if !f.owns(b, s.ID()) {
		return api.GetReply{}, errors.Join(api.Errorf(api.CodeBusy, "bucket %d is not served here now", b), f.Close())
	}
	value, ok, err := f.Get(b, req.Space, req.Key)
	if err = errors.Join(err, f.Close()); err != nil {
		return api.GetReply{}, err
	}
	if !ok {
		return api.GetReply{}, api.Errorf(api.CodeNotFound, "space %s has no record of the key %.80q", req.Space, buckets.KeyText(req.Key))
	}
	return api.GetReply{Key: req.Key, Value: value}, nil
}

// Spaces lists the spaces of which this storage holds a record.
func (s *Storage) Spaces(ctx context.Context, _ api.Empty) (api.SpacesReply, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return api.SpacesReply{}, err
	}
	defer leave()
	f, err := s.applier.upToDate(ctx)
	if err != nil {
		return api.SpacesReply{}, s.orStopping(err)
	}
	found := map[string]bool{}
	for _, b := range f.view.Of(s.ID()) {
		if !f.joined[b] {
			err = errors.Join(err, api.Errorf(api.CodeBusy, "bucket %d is not loaded yet", b))
			break
		}
		names, scanErr := f.Spaces(b)
		err = errors.Join(err, scanErr)
		for _, name := range names {
			found[name] = true
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return api.SpacesReply{}, err
	}
	return api.SpacesReply{Spaces: slices.Sorted(maps.Keys(found))}, nil
}

// Status tells how this storage is.
func (s *Storage) Status(_ context.Context, _ api.Empty) (api.StorageStatus, error) {
	absent := s.applier.Absent()
	st := s.applier.status()
	st.Storage, st.Incarnation = s.ID(), s.cfg.Member.Incarnation
	switch {
	case !s.member.entered():
		st.Warnings = append(st.Warnings, "it waits until the entry of an earlier process of this id has lapsed")
	case !s.member.alive():
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
	for _, subject := range slices.Sorted(maps.Keys(s.trouble)) {
		st.Warnings = append(st.Warnings, subject+": "+s.trouble[subject])
	}
	for _, m := range s.machine.PMRs() {
		st.PMRs = append(st.PMRs, api.PMRInfo{PMR: m.ID, Job: m.Job, Router: m.Router, State: m.State.String(), Snapshot: m.Snapshot})
	}
	st.GatesWaiting, st.Gate = s.machine.Gates()
	st.Tickets = s.machine.Tickets()
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
