package node

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Topology changes what administrators want of the cluster, and tells what holds then. What is wrong with one part of
// a request refuses it all.
func (r *Router) Topology(ctx context.Context, req api.TopologyRequest) (api.TopologyReply, error) {
	t, _, err := loadTopology(ctx, r.ports.State)
	if err != nil {
		return api.TopologyReply{}, err
	}
	if changes(req) {
		if err := r.checkChange(ctx, t, req); err != nil {
			return api.TopologyReply{}, err
		}
		if t, err = changeTopology(ctx, r.ports.State, func(t *api.Topology) error { return change(t, req) }); err != nil {
			return api.TopologyReply{}, err
		}
		r.logger.Info("the topology was changed", "topology", t)
	}
	return api.TopologyReply{Topology: t, Settings: settingsOf(t)}, nil
}

func changes(req api.TopologyRequest) bool {
	return len(req.Weights)+len(req.StartWeights)+len(req.LockBuckets)+len(req.UnlockBuckets)+
		len(req.LockStorages)+len(req.UnlockStorages)+len(req.Set) > 0 || req.Paused != nil
}

// checkChange refuses storages and buckets that there are not.
func (r *Router) checkChange(ctx context.Context, t api.Topology, req api.TopologyRequest) error {
	for _, b := range slices.Concat(req.LockBuckets, req.UnlockBuckets) {
		if int(b) >= r.cfg.Settings.Buckets {
			return noSuchBucket(b, r.cfg.Settings.Buckets)
		}
	}
	storages := slices.Concat(slices.Sorted(maps.Keys(req.Weights)), req.StartWeights, req.LockStorages, req.UnlockStorages)
	if len(storages) == 0 {
		return nil
	}
	s, err := r.look(ctx)
	if err != nil {
		return err
	}
	known := slices.Concat(s.view.Storages(), slices.Sorted(maps.Keys(t.Weights)), t.LockedStorages)
	for _, id := range storages {
		if err := s.checkStorage(id); err != nil && !slices.Contains(known, id) {
			return err
		}
	}
	return nil
}

// change makes all changes of a request, or fails.
func change(t *api.Topology, req api.TopologyRequest) error {
	for _, id := range slices.Sorted(maps.Keys(req.Weights)) {
		if err := setWeight(t, id, req.Weights[id]); err != nil {
			return err
		}
	}
	for _, id := range req.StartWeights {
		delete(t.Weights, id)
	}
	t.LockedBuckets = lock(t.LockedBuckets, req.LockBuckets, req.UnlockBuckets)
	t.LockedStorages = lock(t.LockedStorages, req.LockStorages, req.UnlockStorages)
	if req.Paused != nil {
		t.Paused = *req.Paused
	}
	for _, name := range slices.Sorted(maps.Keys(req.Set)) {
		if err := setTunable(t, name, req.Set[name]); err != nil {
			return err
		}
	}
	return checkQuotas(quotas(*t))
}

// bucketsPerAnswer is how many buckets are told at a time: few enough for a message, and for their owners to count
// them in time.
const bucketsPerAnswer = 256

// Buckets tells how buckets are: their owners, what moves, and their owners' figures.
func (r *Router) Buckets(ctx context.Context, req api.BucketsRequest) (api.BucketsReply, error) {
	n := r.cfg.Settings.Buckets
	list := slices.Compact(slices.Sorted(slices.Values(req.Buckets)))
	if len(list) == 0 {
		for b := int(req.From); b < n; b++ {
			list = append(list, uint16(b))
		}
	} else if last := list[len(list)-1]; int(last) >= n {
		return api.BucketsReply{}, noSuchBucket(last, n)
	}
	var reply api.BucketsReply
	if most := bucketsPerAnswer; len(list) > most {
		reply.Next, list = int(list[most]), list[:most]
	}
	known, err := r.movesOfRouters(ctx)
	if err != nil {
		return reply, err
	}
	s, err := r.look(ctx)
	if err != nil {
		return reply, err
	}
	figures, silent := r.figures(ctx, s, list, req.Count)
	going := map[uint16]api.MoveProgress{}
	for _, m := range movesReply(known).Running {
		for _, b := range m.Order.Buckets {
			going[b] = m
		}
	}
	locked := locks(s.topology)
	for _, b := range list {
		owner := s.view.Owner(buckets.ID(b))
		f, told := figures[b]
		if told && f.Generation > owner.Generation { // it moved after this router looked
			owner = buckets.Owner{Storage: f.Owner, Generation: f.Generation}
		}
		info := api.BucketInfo{
			Bucket: b, Owner: owner.Storage, Generation: owner.Generation, Records: f.Records, Bytes: f.Bytes, CountedAt: f.CountedAt,
			Locked: locked.Buckets[buckets.ID(b)] || owner.Storage != "" && locked.Storages[owner.Storage],
		}
		info.State, info.To = s.bucketState(owner, f, silent[owner.Storage], going[b])
		reply.Buckets = append(reply.Buckets, info)
	}
	return reply, nil
}

// bucketState puts a bucket's state into a word. A move that has changed the owner already is over for it.
func (s sight) bucketState(owner buckets.Owner, f api.BucketFigures, silent bool, m api.MoveProgress) (state, to string) {
	moves := m.Order.Dst != "" && m.Order.Src == owner.Storage && m.Order.Dst != owner.Storage
	if moves {
		to = m.Order.Dst
	}
	switch {
	case owner.Storage == "":
		return api.BucketUnowned, to
	case !s.has(owner.Storage):
		return api.BucketGone, to
	case silent:
		return api.BucketSilent, to
	case f.Generation == owner.Generation && !f.Loaded && f.Owner == owner.Storage:
		return api.BucketLoading, to
	case !moves:
		return api.BucketOwned, ""
	case m.Step == api.StepGates || m.Step == api.StepActivate:
		return api.BucketMoving, to
	}
	return api.BucketReceiving, to
}

// figures asks the owners for theirs, all at once, and tells who does not answer.
func (r *Router) figures(ctx context.Context, s sight, list []uint16, count bool) (figures map[uint16]api.BucketFigures, silent map[string]bool) {
	byOwner := map[string][]uint16{}
	for _, b := range list {
		if owner := s.view.Owner(buckets.ID(b)).Storage; owner != "" && s.has(owner) {
			byOwner[owner] = append(byOwner[owner], b)
		}
	}
	if !count {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, statusWithin)
		defer cancel()
	}
	owners := slices.Sorted(maps.Keys(byOwner))
	replies := make([]api.FiguresReply, len(owners))
	failures := make([]error, len(owners))
	var asked sync.WaitGroup
	for i, owner := range owners {
		asked.Go(func() {
			req := api.FiguresRequest{Buckets: byOwner[owner], Count: count}
			failures[i] = r.ports.Peers.Request(ctx, "storage."+owner+".buckets", req, &replies[i])
		})
	}
	asked.Wait()
	figures, silent = map[uint16]api.BucketFigures{}, map[string]bool{}
	for i, reply := range replies {
		silent[owners[i]] = failures[i] != nil
		for _, f := range reply.Buckets {
			figures[f.Bucket] = f
		}
	}
	return figures, silent
}
