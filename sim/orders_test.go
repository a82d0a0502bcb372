package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/bus/busmem"
)

// takeoversConfig is that of the queue of orders without gates.
var takeoversConfig = bus.QueueConfig{MaxAckPending: 4, AckWait: orderWait}

// movesConfig is that of the queue of moves.
func (w *world) movesConfig() bus.QueueConfig {
	return bus.QueueConfig{MaxAckPending: w.plan.parallel, AckWait: orderWait}
}

// connectDriver gives the driver the queues of orders, and the topology past all faults.
func (w *world) connectDriver(truth *busmem.Bus) {
	ctx := context.Background()
	var err error
	w.topology, err = truth.KV(ctx, "STATE", true, 1)
	w.must(err)
	_, err = w.topology.Create(ctx, "space."+otherSpace, []byte("{}")) // which may come to hold deletions only
	w.must(err)
	ports := orders{gated: gated{w, w.driver}}
	ports.moves, err = w.driver.bus.Queue(ctx, "rebalance", true, w.movesConfig())
	w.must(err)
	ports.takeovers, err = w.driver.bus.Queue(ctx, "takeover", true, takeoversConfig)
	w.must(err)
	w.driverOrders = ports
}

// setTopology does what an administrator does.
func (w *world) setTopology(what string, fn func(*api.Topology)) {
	ctx := context.Background()
	e, err := w.topology.Get(ctx, "topology")
	w.must(err)
	t := api.Topology{Version: 1}
	if e.Revision > 0 {
		w.must(api.Decode(e.Value, &t, api.Strict))
	}
	fn(&t)
	body, err := api.Encode(api.JSON, t)
	w.must(err)
	if e.Revision > 0 {
		_, err = w.topology.Update(ctx, "topology", body, e.Revision)
	} else {
		_, err = w.topology.Create(ctx, "topology", body)
	}
	w.must(err)
	w.tracef("administrator: %s", what)
}

// ordered notes an order that is published. Nodes call it.
func (w *world) ordered(o api.MoveOrder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orders[o.ID] = o
}

// The orders of the driver are named so that they come after those of the planner, which are random.
const orderPrefix = "order-"

// order has the driver publish a move of some buckets: mostly one that fits, sometimes one whose source does not own
// them, or that takes over from a storage that lives; some of them late, some twice, some followed by the next move of
// the same buckets.
func (w *world) order() {
	view := w.oracle.view()
	b := buckets.ID(w.rng.IntN(w.settings.Buckets))
	o := api.MoveOrder{Src: view.Owner(b).Storage, Dst: w.someStorage(), Buckets: []uint16{uint16(b)}, Reason: "the driver wants it"}
	for _, more := range view.Of(o.Src) {
		if more != b && len(o.Buckets) < 4 && w.rng.IntN(4) == 0 {
			o.Buckets = append(o.Buckets, uint16(more))
		}
	}
	switch w.rng.IntN(12) {
	case 0, 1:
		o.Src = w.someStorage()
	case 2:
		o.Takeover = true
	}
	if o.Src == o.Dst {
		return
	}
	w.send(o, w.rng.IntN(4) == 0)
	if next := w.someStorage(); next != o.Dst && w.rng.IntN(3) == 0 {
		w.send(api.MoveOrder{Src: o.Dst, Dst: next, Buckets: o.Buckets, Reason: "the driver wants it further"}, false)
	}
}

// send publishes an order.
func (w *world) send(o api.MoveOrder, late bool) {
	w.sent++
	o.ID = fmt.Sprint(orderPrefix, w.sent)
	after := time.Duration(0)
	if late {
		after = w.between(time.Second, 8*time.Second)
		w.did("order late", true)
	}
	publish := func(id string) {
		w.tracef("driver orders %v from %s to %s, takeover %v, as %s", o.Buckets, o.Src, o.Dst, o.Takeover, id)
		w.background(func() { _ = w.driverOrders.put(context.Background(), o, id) })
	}
	w.after(after, func() { publish(o.ID) })
	if w.rng.IntN(3) == 0 {
		w.after(after+w.between(0, 6*time.Second), func() { publish(o.ID + "-again") })
		w.did("order doubled", true)
	}
}

// checkOrdered looks at a claim that counts, and reports whether it had to have gates.
func (w *world) checkOrdered(own buckets.Own, before buckets.Owner, seq uint64) bool {
	w.mu.Lock()
	o, known := w.orders[own.Move]
	w.mu.Unlock()
	if !known {
		if own.Move != "" {
			w.oracle.failf("bucket %d went to %s at %d by an order that nobody has made", own.Bucket, own.Owner, seq)
		}
		return false
	}
	t := w.topologyNow()
	switch {
	case o.Dst != own.Owner || o.Src != before.Storage || !slices.Contains(o.Buckets, uint16(own.Bucket)):
		w.oracle.failf("bucket %d went from %q to %s at %d, by an order of %v from %q to %s", own.Bucket, before.Storage, own.Owner, seq, o.Buckets, o.Src, o.Dst)
	case o.NeedsGates() && slices.Contains(t.LockedBuckets, uint16(own.Bucket)):
		w.oracle.failf("bucket %d went from %s to %s at %d; it is locked", own.Bucket, o.Src, o.Dst, seq)
	case o.Takeover && w.plan.kind != killedStorage:
		w.oracle.failf("bucket %d was taken over from %s at %d, which lived", own.Bucket, o.Src, seq)
	}
	w.did("move planned", o.NeedsGates() && !strings.HasPrefix(o.ID, orderPrefix))
	w.did("move ordered by the driver", o.NeedsGates() && strings.HasPrefix(o.ID, orderPrefix))
	w.did("takeover planned", o.Takeover)
	return o.NeedsGates()
}

// topologyNow is what administrators want.
func (w *world) topologyNow() (t api.Topology) {
	e, err := w.topology.Get(context.Background(), "topology")
	w.must(err)
	if e.Revision > 0 {
		w.must(api.Decode(e.Value, &t, api.Strict))
	}
	return t
}

// atRest reports whether no order is left, every storage has its share, and none holds what is another one's.
func (w *world) atRest() bool {
	for _, q := range []*busmem.Queue{w.driverOrders.moves, w.driverOrders.takeovers} {
		if n, err := q.Len(context.Background()); err != nil || n > 0 {
			return false
		}
	}
	view, t := w.oracle.view(), w.topologyNow()
	least, most := view.Len(), 0
	for _, m := range w.machines {
		if m.store == nil {
			continue
		}
		owned := view.Of(m.id)
		if !slices.Equal(owned, m.store.joined()) {
			return false
		}
		if weight, is := t.Weights[m.id]; is && weight == 0 {
			most = max(most, 1000*len(owned)) // it owns nothing, or there is no rest
			continue
		}
		least, most = min(least, len(owned)), max(most, len(owned))
	}
	return most <= least+1
}
