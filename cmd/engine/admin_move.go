package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
)

func (s *session) moveCommand() *cobra.Command {
	var to string
	cmd := s.waiting(&cobra.Command{
		Use:   "move BUCKET... --to STORAGE",
		Short: "Move buckets to a storage",
		Long: "Orders that buckets move, and waits until they have. Jobs and writes go on meanwhile. The rebalancer may move\n" +
			"others, or these, back to keep the storages even: lock buckets that are to stay, or change weights.",
		Example: "  engine move 3 --to s2\n  engine move 3 7 20-29 --to s2 --detach",
		Args:    cli.WantArgs(1, -1, "buckets"),
	}, func(ctx context.Context, a *admin, args []string) error {
		if to == "" {
			return cli.Usagef("--to is missing: the storage that is to own the buckets")
		}
		list, err := parseBuckets(args)
		if err != nil {
			return err
		}
		return a.move(ctx, list, to)
	})
	cmd.Flags().StringVar(&to, "to", "", "the storage")
	return cmd
}

// moveResult is what `engine move` prints as JSON.
type moveResult struct {
	To     string            `json:"to"`
	Orders []api.MoveOrder   `json:"orders"`
	There  []uint16          `json:"there,omitempty"` // were there already
	Moved  []uint16          `json:"moved,omitempty"`
	Stayed map[uint16]string `json:"stayed,omitempty"` // with the reason
	Error  *api.Error        `json:"error,omitempty"`  // why the rest was not ordered
}

func (a *admin) move(ctx context.Context, list []uint16, to string) error {
	var reply api.MoveReply
	if err := a.ask(ctx, "move", api.MoveRequest{Buckets: list, To: to}, &reply); err != nil {
		return err
	}
	for _, o := range reply.Orders {
		a.tell("ordered: %s from %s to %s", ranges(o.Buckets), o.Src, o.Dst)
	}
	result := moveResult{To: to, Orders: reply.Orders, There: reply.There, Error: reply.Error}
	if a.detach || len(reply.Orders) == 0 {
		if len(reply.Orders) == 0 {
			a.say("%s is there already: %s", to, ranges(reply.There))
		}
		return cmp.Or(a.print(result, func() error { return nil }), result.failure())
	}
	w := awaited{orders: reply.Orders, ended: map[string]api.MoveProgress{}, missing: map[string]bool{}}
	if err := a.wait(ctx, func(ctx context.Context) (bool, error) { return a.awaitOrders(ctx, w) }); err != nil {
		return err
	}
	if err := a.conclude(ctx, &result, w.ended); err != nil {
		return err
	}
	return cmp.Or(a.print(result, func() error { return a.printMoved(result) }), result.failure())
}

// failure is why not all that was asked for was done.
func (r moveResult) failure() error {
	if r.Error != nil {
		return r.Error
	}
	if n := len(r.Stayed); n > 0 {
		return api.Errorf(api.CodeBusy, "%d of %d buckets did not move", n, n+len(r.Moved)).
			WithHint("the reasons are above; `engine buckets` shows where each is, and the same command moves those that stayed")
	}
	return nil
}

// awaited are orders whose outcomes are waited for.
type awaited struct {
	orders  []api.MoveOrder
	ended   map[string]api.MoveProgress
	missing map[string]bool // were nowhere at the last look
}

// unknown is the reason of an order that was in a queue once, is there no more, and has not moved its buckets.
const unknown = "its outcome is not known: look at `engine buckets`"

// awaitOrders looks how far orders are. An order that no router tells of has ended if the table shows it, or if the
// queues have been empty twice: it may have begun and ended between the questions of one look.
func (a *admin) awaitOrders(ctx context.Context, w awaited) (done bool, err error) {
	orders, ended := w.orders, w.ended
	moves, err := a.moves(ctx)
	if err != nil {
		return false, err
	}
	for _, m := range moves.Ended {
		if m.Outcome != "again" {
			ended[m.Order.ID] = m
		}
	}
	for _, m := range moves.Running {
		if slices.ContainsFunc(orders, func(o api.MoveOrder) bool { return o.ID == m.Order.ID }) {
			a.tell("%s", progressLine(m))
		}
	}
	var pending []uint16
	for _, o := range orders {
		if _, ok := ended[o.ID]; !ok {
			pending = append(pending, o.Buckets...)
		}
	}
	if len(pending) == 0 {
		return true, nil
	}
	owners, err := a.owners(ctx, pending)
	if err != nil {
		return false, err
	}
	done = true
	for _, o := range orders {
		if _, ok := ended[o.ID]; ok {
			continue
		}
		missing := underWay(moves) == 0
		switch {
		case !slices.ContainsFunc(o.Buckets, func(b uint16) bool { return owners[b] != o.Dst }):
			ended[o.ID] = api.MoveProgress{Order: o}
		case missing && w.missing[o.ID]:
			ended[o.ID] = api.MoveProgress{Order: o, Reason: unknown}
		default:
			w.missing[o.ID], done = missing, false
		}
	}
	return done, nil
}

// owners asks who owns buckets.
func (a *admin) owners(ctx context.Context, list []uint16) (map[uint16]string, error) {
	where, err := a.buckets(ctx, api.BucketsRequest{Buckets: list})
	owners := map[uint16]string{}
	for _, b := range where {
		owners[b.Bucket] = b.Owner
	}
	return owners, err
}

// progressLine says how far a move is.
func progressLine(m api.MoveProgress) string {
	line := fmt.Sprintf("%s from %s to %s: %s", ranges(m.Order.Buckets), orNobody(m.Order.Src), m.Order.Dst, m.Step)
	if m.Total > 0 {
		line += fmt.Sprintf(", %.1f of %.1f MB", float64(m.Bytes)/1e6, float64(m.Total)/1e6)
	}
	if m.Waiting != "" {
		line += ", waits for " + m.Waiting
	}
	if m.Delivery > 1 {
		line += fmt.Sprintf(", try %d", m.Delivery)
	}
	return line
}

func orNobody(storage string) string {
	if storage == "" {
		return "nobody"
	}
	return storage
}

// conclude looks where the buckets are in the end.
func (a *admin) conclude(ctx context.Context, result *moveResult, ended map[string]api.MoveProgress) error {
	var all []uint16
	for _, o := range result.Orders {
		all = append(all, o.Buckets...)
	}
	owners, err := a.owners(ctx, all)
	if err != nil {
		return err
	}
	for _, o := range result.Orders {
		m := ended[o.ID]
		for _, b := range o.Buckets {
			switch {
			case owners[b] == o.Dst || m.Outcome == "done" && m.Reason == "": // perhaps it has moved on since
				result.Moved = append(result.Moved, b)
			default:
				if result.Stayed == nil {
					result.Stayed = map[uint16]string{}
				}
				result.Stayed[b] = fmt.Sprintf("it is on %s: %s", orNobody(owners[b]), m.Reason)
			}
		}
	}
	slices.Sort(result.Moved)
	return nil
}

func (a *admin) printMoved(r moveResult) error {
	if len(r.Moved) > 0 {
		a.say("moved to %s: %s", r.To, ranges(r.Moved))
	}
	for _, o := range r.Orders {
		for _, b := range o.Buckets {
			if why, ok := r.Stayed[b]; ok {
				a.say("bucket %d did not move; %s", b, why)
			}
		}
	}
	for _, o := range r.Orders {
		if len(r.Stayed) == 0 {
			fmt.Fprintf(a.s.stderr, "to undo: engine move %s --to %s\n", arguments(o.Buckets), o.Src)
		}
	}
	return nil
}
