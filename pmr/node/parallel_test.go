package node_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr/node"
)

// setOrders are queues of which a test sees how many orders are handed out at a time.
type setOrders struct {
	node.Orders
	parallel atomic.Int64 // as last set
	slow     atomic.Bool  // setting it takes its time
	setting  atomic.Int64 // how many do so now
}

func (o *setOrders) SetParallel(ctx context.Context, n int) error {
	o.setting.Add(1)
	defer o.setting.Add(-1)
	if o.slow.Load() {
		time.Sleep(5 * time.Second)
	}
	o.parallel.Store(int64(n))
	return o.Orders.SetParallel(ctx, n)
}

func withSetOrders(t *testing.T, test func(t *testing.T, c *cluster, orders *setOrders)) {
	t.Helper()
	orders := &setOrders{}
	o := options{storages: 1, settings: small, tweak: func(peer string, p *node.Ports) {
		if peer == "r1" {
			orders.Orders = p.Orders
			p.Orders = orders
		}
	}}
	settled(t, o, func(t *testing.T, c *cluster) { test(t, c, orders) })
}

// A router that starts sets its default, whatever the topology says: those that run set it right again.
func TestHowManyMovesRunIsSetAgain(t *testing.T) {
	withSetOrders(t, func(t *testing.T, c *cluster, orders *setOrders) {
		c.topology(api.TopologyRequest{Set: map[string]string{"parallel_moves": "3"}})
		c.await("it is set", func() bool { return orders.parallel.Load() == 3 })
		orders.parallel.Store(1) // another router's
		c.await("it is set again", func() bool { return orders.parallel.Load() == 3 })
	})
}

// A router that has ended does nothing any more.
func TestARouterWaitsUntilHowManyMovesRunIsSet(t *testing.T) {
	withSetOrders(t, func(t *testing.T, c *cluster, orders *setOrders) {
		orders.slow.Store(true)
		c.topology(api.TopologyRequest{Set: map[string]string{"parallel_moves": "3"}})
		c.await("it is being set", func() bool { return orders.setting.Load() == 1 })
		c.stop("r1")
		c.nodes["r1"].ended <- nil
		if orders.setting.Load() != 0 {
			t.Error("the router has ended, and is still setting it")
		}
	})
}
