package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// statusWithin is how long a storage has to say how it is.
const statusWithin = 2 * time.Second

// Settings returns the cluster's settings.
func (r *Router) Settings(context.Context, api.Empty) (api.Settings, error) {
	return r.cfg.Settings, nil
}

// Status tells how the cluster is, and what is wrong with it.
func (r *Router) Status(ctx context.Context, _ api.Empty) (api.ClusterStatus, error) {
	st := api.ClusterStatus{Cluster: r.cfg.Cluster, Settings: r.cfg.Settings}
	var err error
	if st.Log, err = r.ports.Log.State(ctx); err != nil {
		return st, err
	}
	if st.Members, err = members(ctx, r.ports.State, prefixMember); err != nil {
		return st, err
	}
	r.mu.Lock()
	st.Jobs, st.JobsWaiting = r.admission.busy, r.admission.waiting
	r.mu.Unlock()
	if st.Topology, _, err = loadTopology(ctx, r.ports.State); err != nil {
		return st, err
	}
	known, err := r.movesOfRouters(ctx)
	if err != nil {
		return st, err
	}
	st.Moves = movesReply(known)
	st.Moves.Ended, st.Moves.Paused = nil, st.Topology.Paused
	if st.Moves.InQueue, err = r.ports.Orders.Len(ctx); err != nil {
		st.Problems = append(st.Problems, fmt.Sprintf("the move orders that are queued cannot be counted: %v", err))
	}
	r.askStorages(ctx, &st)
	view := r.applier.View()
	for _, b := range view.Of("") {
		st.Unowned = append(st.Unowned, uint16(b))
	}
	if free := view.Of(""); len(free) > 0 {
		st.Problems = append(st.Problems, fmt.Sprintf("no storage owns %s", buckets.Ranges(free)))
	}
	s := sight{view: view, topology: st.Topology}
	for _, m := range st.Members {
		if m.Role == "storage" {
			s.storages = append(s.storages, m)
		}
	}
	st.Gone = s.gone(known)
	for _, g := range st.Gone {
		st.Problems = append(st.Problems, fmt.Sprintf("storage %s is not there; it owns %s; %s", g.Storage, buckets.Ranges(view.Of(g.Storage)), s.takeover(g)))
	}
	if own := r.applier.status(); own.Warnings != nil {
		st.Problems = append(st.Problems, own.Warnings...)
	}
	st.Healthy = len(st.Problems) == 0
	return st, nil
}

// askStorages asks all at once; one that is silent is a problem, not a failure.
func (r *Router) askStorages(ctx context.Context, st *api.ClusterStatus) {
	ctx, cancel := context.WithTimeout(ctx, statusWithin)
	defer cancel()
	var asked sync.WaitGroup
	replies := make([]api.StorageStatus, len(st.Members))
	failures := make([]error, len(st.Members))
	for i, m := range st.Members {
		if m.Role != "storage" {
			continue
		}
		asked.Go(func() {
			failures[i] = r.ports.Peers.Request(ctx, "storage."+m.ID+".status", api.Empty{}, &replies[i])
		})
	}
	asked.Wait()
	for i, m := range st.Members {
		switch {
		case m.Role != "storage":
		case api.CodeOf(failures[i]) == api.CodeTimeout:
			st.Problems = append(st.Problems, fmt.Sprintf("storage %s does not answer: timeout after %s", m.ID, statusWithin))
		case api.CodeOf(failures[i]) == api.CodeUnavailable:
			st.Problems = append(st.Problems, fmt.Sprintf("storage %s does not answer: it was stopped or is cut off; if it is not back, it counts as gone within %s, and later others take its buckets over", m.ID, DefaultMemberTTL))
		case failures[i] != nil:
			st.Problems = append(st.Problems, fmt.Sprintf("storage %s: %v", m.ID, failures[i]))
		default:
			st.Storages = append(st.Storages, replies[i])
			for _, w := range replies[i].Warnings {
				st.Problems = append(st.Problems, fmt.Sprintf("storage %s: %s", m.ID, w))
			}
		}
	}
}

// takeover says what becomes of the buckets of a storage that is gone.
func (s sight) takeover(g api.GoneStorage) string {
	switch {
	case len(buckets.Takeover(s.view, g.Storage, takers(s.topology, shares(s.topology, s.storages)))) == 0:
		return "no other storage may take them: each is locked, has weight 0 or is gone"
	case g.TakeoverMS < 0:
		return "no router plans a takeover now"
	case g.TakeoverMS == 0:
		return "others take them over now"
	}
	return fmt.Sprintf("others take them over in %s", (time.Duration(g.TakeoverMS) * time.Millisecond).Round(time.Second))
}
