package node_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr/node"
)

// slowOrders note the moves that are ordered, and keep each that is taken from its router while it is told to.
type slowOrders struct {
	node.Orders
	seen *orderBook
}

type orderBook struct {
	keep  atomic.Bool
	fails atomic.Int64 // publications, once there were after

	mu      sync.Mutex
	ordered []api.MoveOrder
}

func (b *orderBook) options() options {
	return options{storages: 2, settings: api.Settings{Buckets: 48}, tweak: func(peer string, p *node.Ports) {
		if peer == "r1" {
			p.Orders = slowOrders{p.Orders, b}
		}
	}}
}

func (b *orderBook) list() []api.MoveOrder {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.ordered)
}

func (o slowOrders) Publish(ctx context.Context, order api.MoveOrder) error {
	if o.seen.fails.Add(-1) == 0 {
		return api.Errorf(api.CodeUnavailable, "the queue does not answer")
	}
	if order.NeedsGates() {
		o.seen.mu.Lock()
		o.seen.ordered = append(o.seen.ordered, order)
		o.seen.mu.Unlock()
	}
	return o.Orders.Publish(ctx, order)
}

func (o slowOrders) Consume(ctx context.Context, fn func(context.Context, node.OrderDelivery)) error {
	return o.Orders.Consume(ctx, func(ctx context.Context, d node.OrderDelivery) {
		for o.seen.keep.Load() && ctx.Err() == nil {
			_ = d.InProgress()
			time.Sleep(time.Second)
		}
		fn(ctx, d)
	})
}

// An order that waits for its turn for longer than a lost one is waited for is not lost.
func TestOrdersThatWaitAreNotGivenTwice(t *testing.T) {
	var book orderBook
	bubbleWith(t, book.options(), func(t *testing.T, c *cluster) {
		before := c.taken()
		book.keep.Store(true)
		c.startStorage("s3")
		time.Sleep(10 * time.Minute)
		book.keep.Store(false)
		c.awaitOwned(map[string]int{"s1": 16, "s2": 16, "s3": 16})
		seen := map[uint16]bool{}
		for _, o := range book.list() {
			for _, b := range o.Buckets {
				if seen[b] {
					t.Errorf("bucket %d was ordered twice", b)
				}
				seen[b] = true
			}
		}
		if after := c.taken(); after["s3"] != 16 || after["s1"] != before["s1"] {
			t.Errorf("ownership entries before %v, after %v", before, after)
		}
	})
}

// Orders by hand are in no planner's memory, and are told all the same while they wait.
func TestOrdersThatNobodyHasBegunAreTold(t *testing.T) {
	var book orderBook
	bubbleWith(t, book.options(), func(t *testing.T, c *cluster) {
		c.pause()
		book.keep.Store(true)
		mine := c.of("s1")
		_, err := c.order("s2", mine[:20]...) // of two orders
		c.must(err)
		time.Sleep(5 * time.Second)
		var moves api.MovesReply
		c.must(c.request("admin.moves", api.Empty{}, &moves))
		if moves.InQueue != 2 || c.status().Moves.InQueue != 2 || len(moves.Running) > 0 {
			t.Errorf("two orders wait, and the answer is %+v", moves)
		}
		book.keep.Store(false)
		c.awaitOwned(map[string]int{"s1": 4, "s2": 44})
		c.await("the queues are empty", func() bool {
			var moves api.MovesReply
			c.must(c.request("admin.moves", api.Empty{}, &moves))
			return moves.InQueue == 0
		})
	})
}

// What was ordered before an order failed runs, so the answer names it.
func TestMovesByHandThatAreOrderedInPart(t *testing.T) {
	var book orderBook
	bubbleWith(t, book.options(), func(t *testing.T, c *cluster) {
		c.pause()
		mine := c.of("s1")
		book.fails.Store(2)
		reply, err := c.order("s2", mine[:20]...)
		c.must(err)
		if len(reply.Orders) != 1 || !slices.Equal(reply.Orders[0].Buckets, mine[:16]) || reply.Error == nil {
			t.Fatalf("the answer is %+v", reply)
		}
		refused(t, reply.Error, api.CodeUnavailable, "does not answer", "cannot be ordered", "order these again")
		c.awaitOwned(map[string]int{"s1": 8, "s2": 40})
		book.fails.Store(1)
		_, err = c.order("s2", mine[16])
		refused(t, err, api.CodeUnavailable, "does not answer")
	})
}

// shakyLease has renewals of the planner's lease fail, before or after they are stored.
type shakyLease struct {
	node.KV
	fails  *atomic.Int32
	stored bool
}

func (s shakyLease) Renew(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (uint64, error) {
	if key != "lease.planner" || s.fails.Add(-1) < 0 {
		return s.KV.Renew(ctx, key, value, revision, ttl)
	}
	if s.stored {
		if _, err := s.KV.Renew(ctx, key, value, revision, ttl); err != nil {
			return 0, err
		}
	}
	return 0, api.Errorf(api.CodeUnavailable, "no answer")
}

// Renewals of the planner's lease that fail do not start the grace time anew.
func TestAFailedRenewalDoesNotDelayATakeover(t *testing.T) {
	for _, stored := range []bool{false, true} {
		var fails atomic.Int32
		o := options{storages: 3, settings: even, tweak: func(peer string, p *node.Ports) {
			if peer == "r1" {
				p.State = shakyLease{p.State, &fails, stored}
			}
		}}
		bubbleWith(t, o, func(t *testing.T, c *cluster) {
			c.mem.Cut("s3")
			c.await("s3 is gone", func() bool { return len(c.status().Gone) == 1 })
			gone := time.Now()
			time.Sleep(15 * time.Second)
			fails.Store(2)
			c.awaitOwned(map[string]int{"s1": 12, "s2": 12})
			if took := time.Since(gone); took > 30*time.Second {
				t.Errorf("stored: %v: the takeover took %s", stored, took)
			}
		})
	}
}
