package pmr

import (
	"time"

	"github.com/pinion-mr/pinion/api"
)

// Events of a Mover.
type (
	// Ordered hands it the order. Waiting are those of its buckets that the log does not yet show in the
	// order's destination, and Foreign those that somebody else owns.
	Ordered struct {
		Order            api.MoveOrder
		Waiting, Foreign []uint16
	}
	// Taken is the destination's answer to AskTake, and what the log shows after it.
	Taken struct {
		Err     *api.Error
		Waiting []uint16
	}
)

// Effects of a Mover.
type (
	// AskTake tells the destination to load the buckets and to append its ownership.
	AskTake struct {
		Dst     string
		Buckets []uint16
	}
	// Done acknowledges the order: the log shows its outcome.
	Done struct{}
	// Again gives the order back to be delivered later.
	Again struct {
		After  time.Duration
		Reason *api.Error
	}
	// Dropped ends an order that no longer fits.
	Dropped struct{ Reason *api.Error }
)

// maxDeliveries bounds the tries of one order; the planner makes a new one of what is left.
const maxDeliveries = 5

// Mover works off one delivery of a move order. Every step may be repeated: the log decides who owns what.
type Mover struct {
	deliveries int
	order      api.MoveOrder
}

// NewMover returns the machine for the given delivery of an order, from 1.
func NewMover(deliveries int) *Mover { return &Mover{deliveries: deliveries} }

// Step tells the machine what happened and returns what is to be done.
func (m *Mover) Step(ev Event) []Effect {
	switch ev := ev.(type) {
	case Ordered:
		m.order = ev.Order
		if len(ev.Foreign) > 0 {
			return []Effect{Dropped{api.Errorf(api.CodeBadRequest, "order %s: buckets %v have an owner already", m.order.ID, ev.Foreign)}}
		}
		if len(ev.Waiting) == 0 {
			return []Effect{Done{}}
		}
		return []Effect{AskTake{Dst: m.order.Dst, Buckets: ev.Waiting}}
	case Taken:
		switch {
		case len(ev.Waiting) == 0:
			return []Effect{Done{}}
		case ev.Err == nil:
			ev.Err = api.Errorf(api.CodeInternal, "%s took the buckets, but the log does not show it", m.order.Dst)
			fallthrough
		default:
			if m.deliveries >= maxDeliveries {
				return []Effect{Dropped{ev.Err}}
			}
			return []Effect{Again{After: time.Second, Reason: ev.Err}}
		}
	}
	return nil
}
