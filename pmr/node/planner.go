package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Times of the planner.
const (
	leaseTTL   = 6 * time.Second
	orderLapse = 2 * time.Minute  // an order that nobody has been seen to work on for so long may be lost
	dropPause  = 10 * time.Second // without new moves after one was dropped
	movesAhead = 4                // moves ordered for each that may run: the next one is there when one ends
)

// planner orders first assignments, takeovers and moves. One router plans at a time, by a lease; that only saves
// work, the log is what decides.
//
// It orders a little ahead and plans anew as orders end. So a change of weights or locks, and a pause, count soon; and
// a planner that takes over from another one, and cannot know what that one had queued, orders little twice.
type planner struct {
	r        *Router
	revision uint64    // of the lease, while this router holds it
	renewed  time.Time // when the lease was last known to be this router's
	quiet    time.Time
	noted    string // the storage of which noteStuck spoke last

	mu      sync.Mutex
	leads   bool
	ordered map[string]*ordered  // without an outcome so far, by id
	gone    map[string]time.Time // storages that own buckets and are no members: since when this router, planning, has seen so
	grace   time.Duration
}

// ordered is an order on its way.
type ordered struct {
	order api.MoveOrder
	seen  time.Time // published, or worked on
}

func newPlanner(r *Router) *planner {
	return &planner{r: r, ordered: map[string]*ordered{}, gone: map[string]time.Time{}}
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
	if !p.r.applier.isLoaded() {
		return nil
	}
	s, err := p.r.look(ctx)
	if err != nil {
		return err
	}
	p.watch(s)
	p.settle(s.view, nil)
	if p.idle() && len(p.want(s)) == 0 {
		return nil
	}
	known, err := p.r.movesOfRouters(ctx)
	if err != nil {
		return err
	}
	p.settle(s.view, known)
	if err := p.lapse(ctx, known); err != nil {
		return err
	}
	if len(p.want(s)) == 0 {
		return nil
	}
	// So far the table may be old. What is ordered is planned from a verified one, and from members read after it: a
	// storage that was gone may be back.
	if err := p.r.verifyEnd(ctx); err != nil {
		return err
	}
	if s, err = p.r.look(ctx); err != nil {
		return err
	}
	p.watch(s)
	p.settle(s.view, nil)
	for _, o := range p.want(s) {
		if err := p.publish(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// idle reports whether nothing is on its way.
func (p *planner) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ordered) == 0
}

// sight is what plans are made of.
type sight struct {
	view     *buckets.View
	storages []api.Member
	topology api.Topology
}

// look reads table, topology and, last, the members.
func (r *Router) look(ctx context.Context) (s sight, err error) {
	s.view = r.applier.View()
	if s.topology, _, err = loadTopology(ctx, r.ports.State); err != nil {
		return s, err
	}
	s.storages, err = members(ctx, r.ports.State, prefixStorage)
	return s, err
}

// verifyEnd brings the table to where the log ends now.
func (r *Router) verifyEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	barrier, err := r.applier.Barrier(ctx)
	if err == nil {
		err = r.applier.WaitApplied(ctx, barrier)
	}
	if err == nil {
		err = r.applier.Verify(ctx, barrier)
	}
	return err
}

// watch notes which owners are gone.
func (p *planner) watch(s sight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grace = takeoverGrace(s.topology)
	now := map[string]time.Time{}
	for _, id := range s.view.Storages() {
		if s.has(id) {
			continue
		}
		since, seen := p.gone[id]
		if !seen {
			since = time.Now()
			p.r.logger.Warn("a storage that owns buckets is gone", "storage", id, "buckets", len(s.view.Of(id)), "takeover in", p.grace)
		}
		now[id] = since
	}
	for id := range p.gone {
		if s.has(id) {
			p.r.logger.Info("a storage is back", "storage", id)
		}
	}
	p.gone = now
}

func (s sight) has(storage string) bool {
	return slices.ContainsFunc(s.storages, func(m api.Member) bool { return m.ID == storage })
}

// settle takes out what has an outcome: in the table, or by the word of a router that has worked on it. What is worked
// on and was not ordered here, by hand or by an earlier planner, is taken in.
func (p *planner) settle(view *buckets.View, known []api.RouterMoves) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, reply := range known {
		for _, m := range reply.Moves {
			o := p.ordered[m.Order.ID]
			switch {
			case m.Outcome == "":
				p.ordered[m.Order.ID] = &ordered{order: m.Order, seen: time.Now()}
			case o == nil:
			case m.Outcome == api.OutcomeDropped:
				p.quiet = time.Now().Add(dropPause)
				delete(p.ordered, m.Order.ID)
			case m.Outcome == api.OutcomeDone:
				delete(p.ordered, m.Order.ID)
			}
		}
	}
	maps.DeleteFunc(p.ordered, func(_ string, o *ordered) bool {
		return !slices.ContainsFunc(o.order.Buckets, func(b uint16) bool {
			return int(b) < view.Len() && view.Owner(buckets.ID(b)).Storage != o.order.Dst
		})
	})
}

// lapse gives up orders that were lost: nobody has been seen to work on them for long, and none waits in a queue. One
// that waits behind others is not lost, however long it does.
func (p *planner) lapse(ctx context.Context, known []api.RouterMoves) error {
	var old []string
	p.mu.Lock()
	for id, o := range p.ordered {
		if time.Since(o.seen) > orderLapse {
			old = append(old, id)
		}
	}
	p.mu.Unlock()
	if len(old) == 0 {
		return nil
	}
	n, err := p.r.ports.Orders.Len(ctx)
	if err != nil || n > len(workedOn(known)) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range old {
		delete(p.ordered, id)
	}
	return nil
}

// workedOn are the orders that some router works on, by id. One whose delivery has failed is not among them.
func workedOn(known []api.RouterMoves) map[string]bool {
	ids := map[string]bool{}
	for _, k := range known {
		for _, m := range k.Moves {
			if m.Outcome == "" {
				ids[m.Order.ID] = true
			}
		}
	}
	return ids
}

// want plans what is to be ordered now, as if what is on its way had arrived.
func (p *planner) want(s sight) []api.MoveOrder {
	p.mu.Lock()
	defer p.mu.Unlock()
	view, moves := s.view, 0
	for _, id := range slices.Sorted(maps.Keys(p.ordered)) {
		o := p.ordered[id].order
		view = view.After([]buckets.Order{{Dst: o.Dst, Buckets: bucketIDs(o.Buckets)}})
		if o.NeedsGates() {
			moves++
		}
	}
	all := shares(s.topology, s.storages)
	may := takers(s.topology, all)
	var orders []api.MoveOrder
	if len(s.storages) >= p.r.cfg.Expect {
		plan := buckets.Assign(view, may)
		view = view.After(plan)
		orders = appendOrders(orders, plan, false, func(buckets.Order) string { return "these buckets have no owner" })
	}
	for _, id := range slices.Sorted(maps.Keys(p.gone)) {
		if time.Since(p.gone[id]) < p.grace {
			continue
		}
		plan := buckets.Takeover(view, id, may)
		view = view.After(plan)
		orders = appendOrders(orders, plan, true, func(o buckets.Order) string {
			return fmt.Sprintf("storage %s is gone for longer than %s", o.Src, p.grace)
		})
		if left := view.Of(id); len(left) > 0 {
			p.noteStuck(id)
		}
	}
	room := movesAhead*parallelMoves(s.topology) - moves
	if s.topology.Paused || room <= 0 || time.Now().Before(p.quiet) {
		return orders
	}
	plan := buckets.Rebalance(view, all, locks(s.topology), threshold(s.topology))
	return appendOrders(orders, plan.Orders[:min(room, len(plan.Orders))], false, s.reason(plan))
}

// reason says why a move is planned.
func (s sight) reason(plan buckets.Plan) func(buckets.Order) string {
	bounds := map[string]buckets.Bounds{}
	for _, b := range plan.Bounds {
		bounds[b.Storage] = b
	}
	return func(o buckets.Order) string {
		src, dst := bounds[o.Src], bounds[o.Dst]
		return fmt.Sprintf("%s owns %d buckets and its share is %.4g; %s owns %d, its share is %.4g", o.Src, src.Owned, src.Share, o.Dst, dst.Owned, dst.Share)
	}
}

// noteStuck logs, once, that nobody can take over what a storage owned.
func (p *planner) noteStuck(storage string) {
	if storage != p.noted {
		p.noted = storage
		p.r.logger.Warn("a storage is gone, and no other may take its buckets over: each is locked, has weight 0 or is gone", "storage", storage)
	}
}

func appendOrders(orders []api.MoveOrder, plan []buckets.Order, takeover bool, reason func(buckets.Order) string) []api.MoveOrder {
	for _, o := range plan {
		order := api.MoveOrder{ID: newID(), Src: o.Src, Dst: o.Dst, Takeover: takeover, Reason: reason(o)}
		for _, b := range o.Buckets {
			order.Buckets = append(order.Buckets, uint16(b))
		}
		orders = append(orders, order)
	}
	return orders
}

func bucketIDs(list []uint16) []buckets.ID {
	ids := make([]buckets.ID, len(list))
	for i, b := range list {
		ids[i] = buckets.ID(b)
	}
	return ids
}

// publish orders it. Of an order that failed nobody knows whether it is in the queue, so it counts too.
func (p *planner) publish(ctx context.Context, o api.MoveOrder) error {
	p.mu.Lock()
	p.ordered[o.ID] = &ordered{order: o, seen: time.Now()}
	p.mu.Unlock()
	p.r.logger.Info("ordering a move", "order", o.ID, "from", o.Src, "to", o.Dst, "buckets", buckets.Ranges(bucketIDs(o.Buckets)), "why", o.Reason)
	return p.r.ports.Orders.Publish(ctx, o)
}

// planning is what is under way, if this router plans; else nil.
func (p *planner) planning(view *buckets.View) *api.Planning {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leads {
		return nil
	}
	now := &api.Planning{}
	for _, id := range slices.Sorted(maps.Keys(p.ordered)) {
		now.Ordered = append(now.Ordered, p.ordered[id].order)
	}
	for _, id := range slices.Sorted(maps.Keys(p.gone)) {
		if n := len(view.Of(id)); n > 0 {
			left := max(p.grace-time.Since(p.gone[id]), 0)
			now.Gone = append(now.Gone, api.GoneStorage{Storage: id, Buckets: n, TakeoverMS: left.Milliseconds()})
		}
	}
	return now
}

// lease reports whether this router is the planner, and keeps it so. What the planner knows outlives renewals that fail,
// until the lease is another's or has run out.
func (p *planner) lease(ctx context.Context) bool {
	err := p.renew(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.leads, p.renewed = true, time.Now()
		return true
	}
	if p.revision == 0 || time.Since(p.renewed) > leaseTTL {
		p.leads, p.revision = false, 0
		clear(p.ordered)
		clear(p.gone) // the next planner counts for itself
	}
	return false
}

// renew writes the lease. The revision is 0 afterwards if it is not this router's.
func (p *planner) renew(ctx context.Context) error {
	kv, me := p.r.ports.State, []byte(p.r.ID())
	if p.revision == 0 {
		revision, err := kv.CreateTTL(ctx, keyPlanner, me, leaseTTL)
		if err == nil {
			p.revision = revision
		}
		return err
	}
	revision, err := kv.Renew(ctx, keyPlanner, me, p.revision, leaseTTL)
	if api.CodeOf(err) == api.CodeBusy { // an earlier renewal that failed may have been stored
		held, getErr := kv.Get(ctx, keyPlanner)
		switch {
		case getErr != nil:
			return getErr
		case held.Revision == 0 || string(held.Value) != string(me):
			p.revision = 0
			return err
		}
		revision, err = kv.Renew(ctx, keyPlanner, me, held.Revision, leaseTTL)
	}
	if err == nil {
		p.revision = revision
	}
	return err
}
