package node

import (
	"context"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// purger removes the part of the log that every bucket's checkpoint has passed. All routers do; it is
// harmless to do twice.
type purger struct {
	r       *Router
	samples []sample // of the log's end, ascending
}

// sample is where the log ended at a time.
type sample struct {
	at   time.Time
	last uint64
}

func (p *purger) round(ctx context.Context) {
	if err := p.purge(ctx); err != nil && ctx.Err() == nil {
		p.r.logger.Warn("cannot purge the log", "reason", err)
	}
}

func (p *purger) purge(ctx context.Context) error {
	state, err := p.r.ports.Log.State(ctx)
	if err != nil {
		return err
	}
	settled := p.settled(time.Now(), state.Last)
	s := p.r.cfg.Settings
	if settled < state.First || int64(state.Bytes) < s.CheckpointBytes*int64(s.Buckets)/4 {
		return nil
	}
	passed, err := p.passed(ctx, state)
	if err != nil {
		return err
	}
	upTo := min(passed, settled)
	if upTo < state.First {
		return nil
	}
	if err := p.publishTable(ctx); err != nil {
		return err
	}
	p.r.logger.Debug("purging the log", "to", upTo, "ends", state.Last)
	return p.r.ports.Log.Purge(ctx, upTo)
}

// settled is the last position that is older than twice the duplicate window: a producer that retries a
// younger entry must still find it.
func (p *purger) settled(now time.Time, last uint64) uint64 {
	p.samples = append(p.samples, sample{now, last})
	age := 2 * time.Duration(p.r.cfg.Settings.DuplicateMS) * time.Millisecond
	for len(p.samples) > 1 && now.Sub(p.samples[1].at) >= age {
		p.samples = p.samples[1:]
	}
	if oldest := p.samples[0]; now.Sub(oldest.at) >= age {
		return oldest.last
	}
	return 0
}

// passed is the position that all manifests have passed; 0 if a bucket has none. It fails if a checkpoint
// was made of entries that the log does not have: it does not cover what stands in their place.
func (p *purger) passed(ctx context.Context, state api.LogState) (uint64, error) {
	entries, err := p.r.ports.Manifests.List(ctx, "")
	if err != nil {
		return 0, err
	}
	covered := map[buckets.ID]uint64{}
	checked := map[uint64]bool{}
	for _, e := range entries {
		m, err := parseManifest(e.Value)
		if err != nil {
			return 0, err
		}
		if at := m.Position; at.Seq > 0 && !checked[at.Seq] {
			checked[at.Seq] = true
			if err := checkManifest(ctx, p.r.ports.Log, state, m); err != nil {
				return 0, err
			}
		}
		covered[m.Bucket] = m.Position.Seq
	}
	var lowest uint64
	for b := range p.r.cfg.Settings.Buckets {
		seq := covered[buckets.ID(b)]
		if b == 0 || seq < lowest {
			lowest = seq
		}
	}
	return lowest, nil
}

// publishTable stores the table as of now, verified, so that a new applier need not read what is purged. A
// table that is saved never moves backwards.
func (p *purger) publishTable(ctx context.Context) error {
	a := p.r.applier
	barrier, err := a.Barrier(ctx)
	if err != nil {
		return err
	}
	if err := a.WaitApplied(ctx, barrier); err != nil {
		return err
	}
	saved, err := p.r.ports.State.Get(ctx, keyTable)
	if err != nil {
		return err
	}
	if saved.Revision != 0 {
		old, err := buckets.ParseTable(saved.Value, p.r.cfg.Settings.Buckets)
		if err != nil {
			return err
		}
		if old.Seq() >= barrier {
			return nil
		}
	}
	body, err := a.verifiedTable(ctx, barrier)
	if err != nil {
		return err
	}
	if saved.Revision == 0 {
		_, err = p.r.ports.State.Create(ctx, keyTable, body)
	} else {
		_, err = p.r.ports.State.Update(ctx, keyTable, body, saved.Revision)
	}
	return err
}

// verifiedTable returns the table, verified to where it is and at least to a position.
func (a *Applier) verifiedTable(ctx context.Context, atLeast uint64) ([]byte, error) {
	var body []byte
	var failed error
	err := a.do(ctx, func() {
		if failed = a.Verify(ctx, max(atLeast, a.at.Seq)); failed == nil {
			body, failed = a.table.Save()
		}
	})
	if err == nil {
		err = failed
	}
	return body, err
}
