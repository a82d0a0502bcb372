package node

import (
	"context"
	"fmt"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr"
)

const (
	maxQuota    = 10_000
	quotaWrites = 5 // tries against rivals
)

// Quotas changes the cluster's quotas, and returns what holds.
func (r *Router) Quotas(ctx context.Context, req api.QuotasRequest) (api.Quotas, error) {
	for range quotaWrites {
		quotas, revision, err := loadQuotas(ctx, r.ports.State)
		if err != nil || req.Pins == nil && req.Gates == nil {
			return quotas, err
		}
		if req.Pins != nil {
			quotas.Pins = *req.Pins
		}
		if req.Gates != nil {
			quotas.Gates = *req.Gates
		}
		if err := checkQuotas(quotas); err != nil {
			return quotas, err
		}
		body, err := api.Encode(api.JSON, quotas)
		if err != nil {
			return quotas, err
		}
		if revision == 0 {
			_, err = r.ports.State.Create(ctx, keyQuotas, body)
		} else {
			_, err = r.ports.State.Update(ctx, keyQuotas, body, revision)
		}
		if code := api.CodeOf(err); code != api.CodeNameTaken && code != api.CodeBusy {
			return quotas, err
		}
	}
	return api.Quotas{}, api.Errorf(api.CodeBusy, "the quotas are being changed by others").WithHint("try again")
}

func checkQuotas(q api.Quotas) error {
	for name, n := range map[string]int{"pin_quota": q.Pins, "gate_quota": q.Gates} {
		if n < 0 || n > maxQuota {
			return api.Errorf(api.CodeBadRequest, "%s is %d; it must be 0 to %d", name, n, maxQuota)
		}
	}
	if q.Pins+q.Gates == 0 {
		return api.Errorf(api.CodeBadRequest, "pin_quota and gate_quota may not both be 0").
			WithHint("each side would wait for the other; give one of them at least 1")
	}
	return nil
}

// loadQuotas reads the cluster's quotas; revision 0 says that they are the defaults.
func loadQuotas(ctx context.Context, kv KV) (q api.Quotas, revision uint64, err error) {
	q = api.Quotas{Pins: DefaultPinQuota, Gates: DefaultGateQuota}
	e, err := kv.Get(ctx, keyQuotas)
	if err != nil || e.Revision == 0 {
		return q, 0, err
	}
	if err := api.Decode(e.Value, &q, api.Lenient); err != nil {
		return q, 0, fmt.Errorf("node: quotas: %w", err)
	}
	return q, e.Revision, checkQuotas(q)
}

// readQuotas has the storage follow the cluster's quotas.
func (s *Storage) readQuotas(ctx context.Context) error {
	q, _, err := loadQuotas(ctx, s.ports.State)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.step(pmr.QuotasSet{Quotas: pmr.Quotas{Pins: q.Pins, Gates: q.Gates}})
}
