package node

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// What an answer about moves holds at the most.
const (
	mostEndedMoves  = 64
	mostPlanned     = 100
	mostMovedByHand = 4096
)

// OwnMoves tells which orders this router works on or has worked on, and what is under way if it is the planner.
func (r *Router) OwnMoves(context.Context, api.Empty) (api.RouterMoves, error) {
	return api.RouterMoves{Router: r.ID(), Moves: r.Moves(), Planning: r.planner.planning(r.applier.View())}, nil
}

// movesOfRouters asks every router. One that does not answer is left out.
func (r *Router) movesOfRouters(ctx context.Context) ([]api.RouterMoves, error) {
	routers, err := members(ctx, r.ports.State, prefixRouter)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusWithin)
	defer cancel()
	replies := make([]api.RouterMoves, len(routers))
	var asked sync.WaitGroup
	for i, m := range routers {
		asked.Go(func() {
			if peerName(m) == r.ID() {
				replies[i], _ = r.OwnMoves(ctx, api.Empty{})
			} else {
				_ = r.ports.Peers.Request(ctx, "router."+peerName(m)+".moves", api.Empty{}, &replies[i])
			}
		})
	}
	asked.Wait()
	return slices.DeleteFunc(replies, func(m api.RouterMoves) bool { return m.Router == "" }), nil
}

// ClusterMoves tells of the orders of the whole cluster.
func (r *Router) ClusterMoves(ctx context.Context, _ api.Empty) (api.MovesReply, error) {
	known, err := r.movesOfRouters(ctx)
	if err != nil {
		return api.MovesReply{}, err
	}
	reply := movesReply(known)
	if reply.InQueue, err = r.ports.Orders.Len(ctx); err != nil {
		return api.MovesReply{}, err
	}
	topology, _, err := loadTopology(ctx, r.ports.State)
	reply.Paused = topology.Paused
	return reply, err
}

// movesReply puts together what the routers know.
func movesReply(known []api.RouterMoves) api.MovesReply {
	var reply api.MovesReply
	begun := map[string]bool{}
	for _, k := range known {
		for _, m := range k.Moves {
			if m.Outcome == "" {
				reply.Running = append(reply.Running, m)
			} else {
				reply.Ended = append(reply.Ended, m)
			}
			begun[m.Order.ID] = begun[m.Order.ID] || m.Outcome != api.OutcomeAgain
		}
	}
	for _, k := range known {
		if k.Planning == nil {
			continue
		}
		reply.Planner = k.Router
		for _, o := range k.Planning.Ordered {
			if !begun[o.ID] {
				reply.Queued = append(reply.Queued, o)
			}
		}
	}
	slices.SortFunc(reply.Running, func(a, b api.MoveProgress) int {
		return cmp.Or(-cmp.Compare(a.AgeMS, b.AgeMS), strings.Compare(a.Order.ID, b.Order.ID))
	})
	slices.SortFunc(reply.Ended, func(a, b api.MoveProgress) int {
		return cmp.Or(cmp.Compare(a.EndedMS, b.EndedMS), strings.Compare(a.Order.ID, b.Order.ID))
	})
	reply.Ended = reply.Ended[:min(len(reply.Ended), mostEndedMoves)]
	return reply
}

// Plan tells what the rebalancer would do now, and does nothing.
func (r *Router) Plan(ctx context.Context, _ api.Empty) (api.PlanReply, error) {
	if err := r.verifyEnd(ctx); err != nil {
		return api.PlanReply{}, err
	}
	known, err := r.movesOfRouters(ctx)
	if err != nil {
		return api.PlanReply{}, err
	}
	s, err := r.look(ctx)
	if err != nil {
		return api.PlanReply{}, err
	}
	view := s.view
	for _, o := range underWay(known) {
		view = view.After([]buckets.Order{{Dst: o.Dst, Buckets: bucketIDs(o.Buckets)}})
	}
	list := shares(s.topology, s.storages)
	plan := buckets.Rebalance(view, list, locks(s.topology), threshold(s.topology))
	reply := api.PlanReply{
		Balanced: len(plan.Orders) == 0, Paused: s.topology.Paused, Notes: plan.Notes, Gone: s.gone(known),
		Orders: appendOrders(nil, plan.Orders[:min(len(plan.Orders), mostPlanned)], false, s.reason(plan)),
		More:   max(len(plan.Orders)-mostPlanned, 0),
	}
	for i := range reply.Orders {
		reply.Orders[i].ID = ""
	}
	slices.SortFunc(list, func(a, b buckets.Share) int { return strings.Compare(a.Storage, b.Storage) })
	for i, b := range plan.Bounds {
		reply.Shares = append(reply.Shares, api.ShareInfo{
			Storage: b.Storage, Weight: list[i].Weight, Locked: b.Locked, Owned: len(s.view.Of(b.Storage)), Then: b.Owned, Share: b.Share, Low: b.Low, High: b.High,
		})
	}
	return reply, nil
}

// underWay are the orders that are queued or worked on.
func underWay(known []api.RouterMoves) []api.MoveOrder {
	reply := movesReply(known)
	orders := reply.Queued
	for _, m := range reply.Running {
		orders = append(orders, m.Order)
	}
	return orders
}

// gone lists the owners that are no members, with the planner's word of when they are replaced.
func (s sight) gone(known []api.RouterMoves) []api.GoneStorage {
	var list []api.GoneStorage
	for _, id := range s.view.Storages() {
		if s.has(id) {
			continue
		}
		g := api.GoneStorage{Storage: id, Buckets: len(s.view.Of(id)), TakeoverMS: -1}
		for _, k := range known {
			if k.Planning == nil {
				continue
			}
			g.TakeoverMS = takeoverGrace(s.topology).Milliseconds() // it will see it in a moment
			for _, p := range k.Planning.Gone {
				if p.Storage == id {
					g.TakeoverMS = p.TakeoverMS
				}
			}
		}
		list = append(list, g)
	}
	return list
}

// Move orders moves by hand.
func (r *Router) Move(ctx context.Context, req api.MoveRequest) (api.MoveReply, error) {
	if err := r.verifyEnd(ctx); err != nil {
		return api.MoveReply{}, err
	}
	s, err := r.look(ctx)
	if err != nil {
		return api.MoveReply{}, err
	}
	reply, err := r.ordersByHand(s, req)
	if err != nil {
		return api.MoveReply{}, err
	}
	for i, o := range reply.Orders {
		r.logger.Info("ordering a move by hand", "order", o.ID, "from", o.Src, "to", o.Dst, "buckets", buckets.Ranges(bucketIDs(o.Buckets)))
		if err := r.ports.Orders.Publish(ctx, o); err != nil {
			if i == 0 {
				return api.MoveReply{}, err
			}
			reply.Error = notOrdered(reply.Orders[i:], err)
			reply.Orders = reply.Orders[:i]
			break
		}
	}
	return reply, nil
}

// notOrdered says which buckets were not ordered once others were. Of the first of these orders it may be unknown.
func notOrdered(rest []api.MoveOrder, cause error) *api.Error {
	var list []uint16
	for _, o := range rest {
		list = append(list, o.Buckets...)
	}
	return api.Errorf(api.CodeOf(cause), "%s cannot be ordered: %v", buckets.Ranges(bucketIDs(list)), cause).
		WithHint("the others are under way; order these again: those that are there by then stay there")
}

// ordersByHand makes the orders of a request, or says why that cannot be.
func (r *Router) ordersByHand(s sight, req api.MoveRequest) (api.MoveReply, error) {
	reply := api.MoveReply{Orders: []api.MoveOrder{}}
	if len(req.Buckets) == 0 || len(req.Buckets) > mostMovedByHand {
		return reply, api.Errorf(api.CodeBadRequest, "%d buckets are to be moved; it must be 1 to %d", len(req.Buckets), mostMovedByHand).
			WithHint("name at least one, and order more than %d in several requests", mostMovedByHand)
	}
	if err := s.checkStorage(req.To); err != nil {
		return reply, err
	}
	if s.weight(req.To) == 0 {
		return reply, api.Errorf(api.CodeBadRequest, "storage %s has weight 0: it is to own no buckets", req.To).
			WithHint("give it a weight first: engine weight %s 1", req.To)
	}
	if slices.Contains(s.topology.LockedStorages, req.To) {
		return reply, api.Errorf(api.CodeBadRequest, "storage %s is locked: it takes no buckets", req.To).WithHint("engine unlock storage %s", req.To)
	}
	bySource := map[string][]uint16{}
	list := slices.Compact(slices.Sorted(slices.Values(req.Buckets)))
	for _, b := range list {
		if int(b) >= s.view.Len() {
			return reply, noSuchBucket(b, s.view.Len())
		}
		owner := s.view.Owner(buckets.ID(b)).Storage
		if owner == req.To {
			reply.There = append(reply.There, b)
			continue
		}
		if err := s.mayLeave(b, owner); err != nil {
			return reply, err
		}
		bySource[owner] = append(bySource[owner], b)
	}
	for _, src := range s.view.Storages() {
		for part := range slices.Chunk(bySource[src], api.MostMoved) {
			reply.Orders = append(reply.Orders, api.MoveOrder{ID: newID(), Src: src, Dst: req.To, Buckets: part, Reason: "an administrator asked for it"})
		}
	}
	return reply, nil
}

// mayLeave says why a bucket cannot be moved by hand.
func (s sight) mayLeave(b uint16, owner string) error {
	switch {
	case owner == "":
		return api.Errorf(api.CodeNoOwner, "bucket %d has no owner yet", b).WithHint("it is assigned by itself once enough storages are there: `engine status` tells")
	case slices.Contains(s.topology.LockedBuckets, b):
		return api.Errorf(api.CodeBadRequest, "bucket %d is locked", b).WithHint("engine unlock bucket %d", b)
	case slices.Contains(s.topology.LockedStorages, owner):
		return api.Errorf(api.CodeBadRequest, "bucket %d is on storage %s, which is locked", b, owner).WithHint("engine unlock storage %s", owner)
	case !s.has(owner):
		return api.Errorf(api.CodeUnavailable, "storage %s, which owns bucket %d, is not there", owner, b).
			WithHint("start it again, or wait for the takeover: `engine status` tells when")
	}
	return nil
}

func noSuchBucket(b uint16, n int) error {
	return api.Errorf(api.CodeBadRequest, "there is no bucket %d: the cluster has 0 to %d", b, n-1).WithHint("engine buckets")
}

// checkStorage refuses the name of a storage that there is not, and suggests another.
func (s sight) checkStorage(id string) error {
	if s.has(id) {
		return nil
	}
	var ids []string
	for _, m := range s.storages {
		ids = append(ids, m.ID)
	}
	if slices.Contains(s.view.Storages(), id) {
		return api.Errorf(api.CodeUnavailable, "storage %s is not there", id).WithHint("start it again; these are: %s", strings.Join(ids, ", "))
	}
	err := api.Errorf(api.CodeNotFound, "there is no storage %.80q", id)
	switch near := api.Nearest(id, ids); {
	case near != "":
		return err.WithHint("did you mean %s?", near)
	case len(ids) == 0:
		return err.WithHint("no storage runs: `engine storage`")
	}
	return err.WithHint("there are: %s", strings.Join(ids, ", "))
}
