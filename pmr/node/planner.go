package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// The planner's lease, and how long it waits for its orders before it plans anew.
const (
	leaseTTL   = 6 * time.Second
	planAgain  = 10 * time.Second
	takeWithin = 2 * time.Minute
)

// planner assigns buckets that have no owner. One router plans at a time, by a lease; that only saves work,
// the log is what decides.
type planner struct {
	r        *Router
	revision uint64 // of the lease, while this router holds it
	planned  time.Time
}

func (p *planner) round(ctx context.Context) {
	if err := p.plan(ctx); err != nil && ctx.Err() == nil {
		p.r.logger.Warn("cannot plan", "reason", err)
	}
}

func (p *planner) plan(ctx context.Context) error {
	if !p.lease(ctx) {
		return nil
	}
	view := p.r.applier.View()
	if len(view.Of("")) == 0 || !p.r.applier.isLoaded() || time.Since(p.planned) < planAgain {
		return nil
	}
	list, err := members(ctx, p.r.ports.State, prefixStorage)
	if err != nil {
		return err
	}
	if len(list) == 0 || len(list) < p.r.cfg.Expect {
		return nil
	}
	var shares []buckets.Share
	for _, m := range list {
		shares = append(shares, buckets.Share{Storage: m.ID, Weight: m.Weight})
	}
	p.planned = time.Now()
	for _, o := range buckets.Assign(view, shares) {
		order := api.MoveOrder{ID: newID(), Dst: o.Dst, Reason: "these buckets have no owner"}
		for _, b := range o.Buckets {
			order.Buckets = append(order.Buckets, uint16(b))
		}
		p.r.logger.Info("assigning buckets", "storage", o.Dst, "buckets", buckets.Ranges(o.Buckets))
		if err := p.r.ports.Orders.Publish(ctx, order); err != nil {
			return err
		}
	}
	return nil
}

// lease reports whether this router is the planner, and keeps it so.
func (p *planner) lease(ctx context.Context) bool {
	var err error
	if p.revision == 0 {
		p.revision, err = p.r.ports.State.CreateTTL(ctx, keyPlanner, []byte(p.r.ID()), leaseTTL)
	} else {
		p.revision, err = p.r.ports.State.Renew(ctx, keyPlanner, []byte(p.r.ID()), p.revision, leaseTTL)
	}
	if err != nil {
		p.revision = 0
	}
	return err == nil
}

func (a *Applier) isLoaded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.loaded
}

// work takes move orders off the queue, one at a time.
func (r *Router) work(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.ports.Orders.Consume(ctx, r.move)
		if ctx.Err() == nil {
			r.logger.Warn("cannot take move orders; trying again", "reason", err)
			_ = sleep(ctx, refreshEvery)
		}
	}
}

// move works off one delivery of an order.
func (r *Router) move(ctx context.Context, d OrderDelivery) {
	ctx, cancel := context.WithTimeout(ctx, takeWithin)
	defer cancel()
	go every(ctx, 5*time.Second, func() { _ = d.InProgress() })
	machine := pmr.NewMover(d.Deliveries)
	waiting, foreign, err := r.outcome(ctx, d.Order)
	if err != nil {
		r.endMove(ctx, d, pmr.Again{After: time.Second, Reason: api.AsError(err)})
		return
	}
	effects := machine.Step(pmr.Ordered{Order: d.Order, Waiting: waiting, Foreign: foreign})
	for len(effects) > 0 {
		ask, ok := effects[0].(pmr.AskTake)
		if !ok {
			r.endMove(ctx, d, effects[0])
			return
		}
		err := r.ports.Peers.Request(ctx, "storage."+ask.Dst+".take", api.TakeRequest{Order: d.Order.ID, Buckets: ask.Buckets}, &api.Empty{})
		taken := pmr.Taken{}
		waiting, _, lookErr := r.outcome(ctx, d.Order)
		if err = errors.Join(err, lookErr); err != nil {
			taken.Err = api.AsError(err)
		}
		taken.Waiting = waiting
		if lookErr != nil {
			taken.Waiting = ask.Buckets
		}
		effects = machine.Step(taken)
	}
}

// outcome reads from the log which buckets of an order its destination does not own, and which of these
// have another owner.
func (r *Router) outcome(ctx context.Context, o api.MoveOrder) (waiting, foreign []uint16, err error) {
	barrier, err := r.applier.Barrier(ctx)
	if err == nil {
		err = r.applier.WaitApplied(ctx, barrier)
	}
	if err == nil {
		err = r.applier.Verify(ctx, barrier)
	}
	if err != nil {
		return nil, nil, err
	}
	view := r.applier.View()
	for _, b := range slices.Sorted(slices.Values(o.Buckets)) {
		if int(b) >= view.Len() {
			return nil, nil, api.Errorf(api.CodeBadRequest, "order %s names bucket %d of %d", o.ID, b, view.Len())
		}
		switch owner := view.Owner(buckets.ID(b)).Storage; owner {
		case o.Dst:
		case "":
			waiting = append(waiting, b)
		default:
			waiting, foreign = append(waiting, b), append(foreign, b)
		}
	}
	return waiting, foreign, nil
}

func (r *Router) endMove(ctx context.Context, d OrderDelivery, effect pmr.Effect) {
	var err error
	switch e := effect.(type) {
	case pmr.Done:
		err = d.Ack(ctx)
	case pmr.Again:
		r.logger.Warn("a move order failed; it is tried again", "order", d.Order.ID, "storage", d.Order.Dst, "reason", e.Reason)
		if err = sleep(ctx, e.After); err == nil {
			err = d.Nak(0)
		}
	case pmr.Dropped:
		r.logger.Warn("a move order was dropped", "order", d.Order.ID, "storage", d.Order.Dst, "reason", e.Reason)
		err = d.Term(e.Reason.Message)
	}
	if err != nil && ctx.Err() == nil {
		r.logger.Warn("cannot settle a move order; it comes again", "order", d.Order.ID, "reason", err)
	}
}
