package node

import (
	"context"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr"
)

const maxQuota = 10_000

// Quotas changes the cluster's quotas, and returns what holds.
func (r *Router) Quotas(ctx context.Context, req api.QuotasRequest) (api.Quotas, error) {
	if req.Pins == nil && req.Gates == nil {
		t, _, err := loadTopology(ctx, r.ports.State)
		return quotas(t), err
	}
	t, err := changeTopology(ctx, r.ports.State, func(t *api.Topology) error {
		if req.Pins != nil {
			t.PinQuota = req.Pins
		}
		if req.Gates != nil {
			t.GateQuota = req.Gates
		}
		return checkQuotas(quotas(*t))
	})
	return quotas(t), err
}

func checkQuotas(q api.Quotas) error {
	for _, c := range []struct {
		name string
		n    int
	}{{"pin_quota", q.Pins}, {"gate_quota", q.Gates}} {
		if c.n < 0 || c.n > maxQuota {
			return api.Errorf(api.CodeBadRequest, "%s is %d; it must be 0 to %d", c.name, c.n, maxQuota).
				WithHint("engine set %s default", c.name)
		}
	}
	if q.Pins+q.Gates == 0 {
		return api.Errorf(api.CodeBadRequest, "pin_quota and gate_quota may not both be 0").
			WithHint("each side would wait for the other; give one of them at least 1")
	}
	return nil
}

// readQuotas has the storage follow the cluster's quotas.
func (s *Storage) readQuotas(ctx context.Context) error {
	t, _, err := loadTopology(ctx, s.ports.State)
	if err != nil {
		return err
	}
	q := quotas(t)
	if err := checkQuotas(q); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.step(pmr.QuotasSet{Quotas: pmr.Quotas{Pins: q.Pins, Gates: q.Gates}})
}
