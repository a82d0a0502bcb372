package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
)

// startWeight is the word for the weight that a storage was started with.
const startWeight = "default"

func (s *session) weightCommand() *cobra.Command {
	return s.waiting(&cobra.Command{
		Use:   "weight STORAGE WEIGHT|default",
		Short: "Change a storage's share of the buckets",
		Long: "Gives a storage a weight, relative to the others, and waits until the buckets are shared out by it. The word\n" +
			"default takes back what was given here: the weight is then the one with which the storage was started.",
		Example: "  engine weight s1 2\n  engine weight s1 0.5 --detach\n  engine weight s1 default",
		Args:    cli.WantArgs(2, 2, "a storage and its weight"),
	}, func(ctx context.Context, a *admin, args []string) error {
		storage := args[0]
		req := api.TopologyRequest{StartWeights: []string{storage}}
		if args[1] != startWeight {
			w, err := strconv.ParseFloat(args[1], 64)
			if err != nil || !(w >= 0) {
				return cli.Usagef("the weight %q is no number of at least 0, nor the word %s", args[1], startWeight)
			}
			req = api.TopologyRequest{Weights: map[string]float64{storage: w}}
		}
		before, after, err := a.change(ctx, req)
		if err != nil {
			return err
		}
		a.tell("to undo: engine weight %s %s", storage, weightBefore(before, storage))
		if err := a.rebalanced(ctx, after); err != nil {
			return err
		}
		plan, err := a.plan(ctx)
		if err != nil {
			return err
		}
		return a.print(plan, func() error { return a.printPlan(plan) })
	})
}

func weightBefore(t api.Topology, storage string) string {
	if w, ok := t.Weights[storage]; ok {
		return strconv.FormatFloat(w, 'g', -1, 64)
	}
	return startWeight
}

// rebalanced waits until nothing is to be moved and nothing is under way, unless that cannot come.
func (a *admin) rebalanced(ctx context.Context, t api.Topology) error {
	if t.Paused {
		a.tell("the rebalancer is paused, so nothing moves: engine rebalance resume")
		return nil
	}
	if a.detach {
		return nil
	}
	return a.wait(ctx, func(ctx context.Context) (bool, error) {
		plan, err := a.plan(ctx)
		if err != nil {
			return false, err
		}
		moves, err := a.moves(ctx)
		if err != nil {
			return false, err
		}
		under := underWay(moves)
		if plan.Balanced && under == 0 {
			return true, nil
		}
		a.tell("moves to be ordered: %d, under way: %d%s", len(plan.Orders)+plan.More, under, first(moves.Running))
		return plan.Paused && under == 0, nil // somebody has paused it meanwhile
	})
}

// underWay is how many orders there are without an outcome. Of those that wait in a queue the planner may not know.
func underWay(moves api.MovesReply) int {
	return max(len(moves.Queued)+len(moves.Running), moves.InQueue)
}

// running are the orders that routers work on, each once.
func running(moves api.MovesReply) []api.MoveOrder {
	var list []api.MoveOrder
	for _, m := range moves.Running {
		if !slices.ContainsFunc(list, func(o api.MoveOrder) bool { return o.ID == m.Order.ID }) {
			list = append(list, m.Order)
		}
	}
	return list
}

// first is the progress of the move that runs for longest.
func first(running []api.MoveProgress) string {
	if len(running) == 0 {
		return ""
	}
	return "; " + progressLine(running[0])
}

// drainResult is what `engine drain` prints as JSON.
type drainResult struct {
	Storage string   `json:"storage"`
	Owned   int      `json:"owned"`
	Drained bool     `json:"drained"` // it owns nothing and gets nothing
	Notes   []string `json:"notes,omitempty"`
}

func (s *session) drainCommand() *cobra.Command {
	return s.waiting(&cobra.Command{
		Use:   "drain STORAGE",
		Short: "Empty a storage, so that it can be taken away",
		Long: "Gives a storage the weight 0 and waits until it owns no bucket. Then it is safe to stop it and to delete its\n" +
			"folder; that it has left is no alarm. A new storage of that name needs --replace once.",
		Example: "  engine drain s3",
		Args:    cli.WantArgs(1, 1, "a storage"),
	}, func(ctx context.Context, a *admin, args []string) error {
		storage := args[0]
		before, _, err := a.change(ctx, api.TopologyRequest{Weights: map[string]float64{storage: 0}})
		if err != nil {
			return err
		}
		undo := fmt.Sprintf("engine weight %s %s", storage, weightBefore(before, storage))
		a.tell("to undo: %s", undo)
		return a.drain(ctx, storage)
	})
}

// drain waits until a storage of weight 0 owns nothing.
func (a *admin) drain(ctx context.Context, storage string) error {
	var result drainResult
	stuck := ""
	look := func(ctx context.Context) (bool, error) {
		moves, err := a.moves(ctx) // before the plan, which then shows what they have changed
		if err != nil {
			return false, err
		}
		plan, err := a.plan(ctx)
		if err != nil {
			return false, err
		}
		result = drainResult{Storage: storage, Owned: owns(plan, storage)}
		under := mayConcern(moves, storage)
		if result.Drained = result.Owned == 0 && under == 0; result.Drained {
			return true, nil
		}
		a.tell("storage %s owns %d buckets still; orders in the queues: %d%s", storage, result.Owned, moves.InQueue, first(moves.Running))
		stuck = cannotDrain(plan, storage, under)
		return stuck != "" || a.detach, nil
	}
	if err := a.wait(ctx, look); err != nil {
		return err
	}
	err := a.print(result, func() error {
		if result.Drained {
			a.say("storage %s owns nothing: it is safe to stop it and to delete its folder", storage)
		}
		return nil
	})
	if err == nil && stuck != "" && !a.detach {
		err = errors.New(stuck)
	}
	return err
}

// mayConcern is how many orders there are that may give to a storage or take from it: those known to, and all that
// wait in the queues, since of these nobody knows.
func mayConcern(moves api.MovesReply, storage string) int {
	known := running(moves)
	n := max(moves.InQueue-len(known), 0)
	for _, o := range slices.Concat(known, moves.Queued) {
		if o.Src == storage || o.Dst == storage {
			n++
		}
	}
	return n
}

// owns is how many buckets a storage has, whether it is there or not.
func owns(plan api.PlanReply, storage string) int {
	for _, s := range plan.Shares {
		if s.Storage == storage {
			return s.Owned
		}
	}
	for _, g := range plan.Gone {
		if g.Storage == storage {
			return g.Buckets
		}
	}
	return 0
}

// cannotDrain says why a storage keeps what it has, once nothing is under way; empty if it does not keep it.
func cannotDrain(plan api.PlanReply, storage string, underWay int) string {
	if underWay > 0 {
		return ""
	}
	for _, note := range plan.Notes {
		if strings.HasPrefix(note, "storage "+storage+" ") && !slices.ContainsFunc(plan.Orders, func(o api.MoveOrder) bool { return o.Src == storage }) {
			return note + " (unlock it with `engine unlock`, or add a storage; then run this again)"
		}
	}
	if plan.Paused && owns(plan, storage) > 0 {
		return fmt.Sprintf("the rebalancer is paused, so storage %s keeps its buckets (engine rebalance resume; then run this again)", storage)
	}
	return ""
}
