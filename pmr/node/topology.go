package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// topologyWrites is how often a change is tried against rivals.
const topologyWrites = 8

// loadTopology reads what administrators want of the cluster; revision 0 says that nobody has said anything yet.
func loadTopology(ctx context.Context, kv KV) (t api.Topology, revision uint64, err error) {
	e, err := kv.Get(ctx, keyTopology)
	if err != nil || e.Revision == 0 {
		return t, 0, err
	}
	if err := api.Decode(e.Value, &t, api.Lenient); err != nil {
		return t, 0, fmt.Errorf("node: topology: %w", err)
	}
	if t.Version > topologyVersion {
		return t, 0, api.Errorf(api.CodeVersion, "the cluster's topology has version %d; this program reads %d", t.Version, topologyVersion).
			WithHint("use the newer program")
	}
	return t, e.Revision, nil
}

// changeTopology has fn change the topology, by compare-and-set: fn may be called several times. It returns what holds
// then.
func changeTopology(ctx context.Context, kv KV, fn func(t *api.Topology) error) (api.Topology, error) {
	for range topologyWrites {
		t, revision, err := loadTopology(ctx, kv)
		if err != nil {
			return t, err
		}
		if err := fn(&t); err != nil {
			return t, err
		}
		t.Version = topologyVersion
		body, err := api.Encode(api.JSON, t)
		if err != nil {
			return t, err
		}
		if revision == 0 {
			_, err = kv.Create(ctx, keyTopology, body)
		} else {
			_, err = kv.Update(ctx, keyTopology, body, revision)
		}
		if code := api.CodeOf(err); code != api.CodeNameTaken && code != api.CodeBusy {
			return t, err
		}
	}
	return api.Topology{}, api.Errorf(api.CodeBusy, "the topology is being changed by others").WithHint("try again")
}

func parallelMoves(t api.Topology) int { return cmp.Or(t.ParallelMoves, DefaultParallelMoves) }

func takeoverGrace(t api.Topology) time.Duration {
	return cmp.Or(millis(t.TakeoverGraceMS), DefaultTakeoverGrace)
}

func threshold(t api.Topology) float64 {
	if t.Threshold == nil {
		return DefaultThreshold
	}
	return *t.Threshold
}

func quotas(t api.Topology) api.Quotas {
	q := api.Quotas{Pins: DefaultPinQuota, Gates: DefaultGateQuota}
	if t.PinQuota != nil {
		q.Pins = *t.PinQuota
	}
	if t.GateQuota != nil {
		q.Gates = *t.GateQuota
	}
	return q
}

// locks are those of a topology as the plans take them.
func locks(t api.Topology) buckets.Locks {
	l := buckets.Locks{Buckets: map[buckets.ID]bool{}, Storages: map[string]bool{}}
	for _, b := range t.LockedBuckets {
		l.Buckets[buckets.ID(b)] = true
	}
	for _, s := range t.LockedStorages {
		l.Storages[s] = true
	}
	return l
}

// shares are the storages with the weights that count.
func shares(t api.Topology, storages []api.Member) []buckets.Share {
	var list []buckets.Share
	for _, m := range storages {
		list = append(list, buckets.Share{Storage: m.ID, Weight: weight(t, m)})
	}
	return list
}

func weight(t api.Topology, m api.Member) float64 {
	if w, ok := t.Weights[m.ID]; ok {
		return w
	}
	return m.Weight
}

// weight is that of a storage that is there; 0 of any other.
func (s sight) weight(storage string) float64 {
	for _, m := range s.storages {
		if m.ID == storage {
			return weight(s.topology, m)
		}
	}
	return 0
}

// takers are those of the shares that may get buckets which nobody serves now.
func takers(t api.Topology, list []buckets.Share) []buckets.Share {
	return slices.DeleteFunc(slices.Clone(list), func(s buckets.Share) bool { return slices.Contains(t.LockedStorages, s.Storage) })
}
