package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
)

func (s *session) rebalanceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebalance",
		Short: "Watch and steer the rebalancer",
		Long: "The rebalancer moves buckets, a few at a time, until each storage owns its share, give or take the setting\n" +
			"threshold. It runs in one of the routers.",
		Example: "  engine rebalance status\n  engine rebalance plan\n  engine rebalance pause",
	}
	cli.Group(cmd, s.planCommand(), s.movesCommand(), s.pauseCommand(), s.resumeCommand())
	return cmd
}

func (s *session) planCommand() *cobra.Command {
	return s.adminCommand(&cobra.Command{
		Use:     "plan",
		Short:   "Show what the rebalancer would do, and do nothing",
		Long:    "Shows each storage's share and the moves that lead there from now, taking what is under way as done.",
		Example: "  engine rebalance plan\n  engine rebalance plan --output json",
		Args:    cli.WantArgs(0, 0, ""),
	}, func(ctx context.Context, a *admin, _ []string) error {
		plan, err := a.plan(ctx)
		if err != nil {
			return err
		}
		return a.print(plan, func() error { return a.printPlan(plan) })
	})
}

func (a *admin) printPlan(plan api.PlanReply) error {
	t := tabwriter.NewWriter(a.s.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STORAGE\tWEIGHT\tBUCKETS\tSHARE\tBALANCED")
	for _, s := range plan.Shares {
		owned := fmt.Sprint(s.Owned)
		if s.Then != s.Owned {
			owned += fmt.Sprintf(" (soon %d)", s.Then)
		}
		within := fmt.Sprintf("%d to %d", s.Low, s.High)
		if s.Low == s.High {
			within = fmt.Sprint(s.Low)
		}
		if s.Locked {
			within = "locked"
		}
		fmt.Fprintf(t, "%s\t%g\t%s\t%.2f\t%s\n", s.Storage, s.Weight, owned, s.Share, within)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	w := a.s.stdout
	for _, g := range plan.Gone {
		fmt.Fprintf(w, "storage %s is not there; buckets %d; %s\n", g.Storage, g.Buckets, takeoverTime(g))
	}
	for _, note := range plan.Notes {
		fmt.Fprintln(w, note)
	}
	for _, o := range plan.Orders {
		fmt.Fprintf(w, "move %s from %s to %s\n", ranges(o.Buckets), o.Src, o.Dst)
	}
	if plan.More > 0 {
		fmt.Fprintf(w, "and moves after these: %d\n", plan.More)
	}
	switch {
	case plan.Balanced:
		fmt.Fprintln(w, "nothing is to be moved")
	case plan.Paused:
		fmt.Fprintln(w, "the rebalancer is paused, so none of this is ordered: engine rebalance resume")
	}
	return nil
}

func takeoverTime(g api.GoneStorage) string {
	switch {
	case g.TakeoverMS < 0:
		return "no router plans a takeover now"
	case g.TakeoverMS == 0:
		return "takeover now"
	}
	return fmt.Sprintf("takeover in %s", time.Duration(g.TakeoverMS*int64(time.Millisecond)).Round(time.Second))
}

func (s *session) movesCommand() *cobra.Command {
	return s.adminCommand(&cobra.Command{
		Use:     "status",
		Short:   "Show what is under way, and what has ended",
		Example: "  engine rebalance status",
		Args:    cli.WantArgs(0, 0, ""),
	}, func(ctx context.Context, a *admin, _ []string) error {
		moves, err := a.moves(ctx)
		if err != nil {
			return err
		}
		return a.print(moves, func() error { return a.printMoves(moves) })
	})
}

func (a *admin) printMoves(m api.MovesReply) error {
	w := a.s.stdout
	switch {
	case m.Planner == "":
		fmt.Fprintln(w, "no router plans now: one begins within some seconds")
	case m.Paused:
		fmt.Fprintf(w, "router %s plans; moves are paused: engine rebalance resume\n", m.Planner)
	default:
		fmt.Fprintf(w, "router %s plans\n", m.Planner)
	}
	fmt.Fprintf(w, "under way: %d, ordered and not begun: %d\n", len(m.Running), max(len(m.Queued), m.InQueue-len(running(m))))
	for _, p := range m.Running {
		fmt.Fprintf(w, "  %s, for %s; %s\n", progressLine(p), age(p.AgeMS), p.Order.Reason)
	}
	for _, o := range m.Queued {
		fmt.Fprintf(w, "  %s from %s to %s; %s\n", ranges(o.Buckets), orNobody(o.Src), o.Dst, o.Reason)
	}
	if len(m.Ended) > 0 {
		fmt.Fprintln(w, "ended, the latest first:")
	}
	for _, p := range m.Ended {
		line := fmt.Sprintf("  %s from %s to %s: %s %s ago", ranges(p.Order.Buckets), orNobody(p.Order.Src), p.Order.Dst, p.Outcome, age(p.EndedMS))
		if p.Reason != "" {
			line += "; " + p.Reason
		}
		fmt.Fprintln(w, line)
	}
	return nil
}

func age(ms int64) time.Duration {
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond)
}

func (s *session) pauseCommand() *cobra.Command {
	return s.waiting(&cobra.Command{
		Use:   "pause",
		Short: "Order no more moves",
		Long: "Stops the rebalancer, and waits until the moves that are under way have ended. Moves by hand, first assignments\n" +
			"and takeovers go on.",
		Example: "  engine rebalance pause",
		Args:    cli.WantArgs(0, 0, ""),
	}, func(ctx context.Context, a *admin, _ []string) error {
		_, after, err := a.change(ctx, api.TopologyRequest{Paused: new(true)})
		if err != nil {
			return err
		}
		a.tell("to undo: engine rebalance resume")
		var moves api.MovesReply
		err = a.wait(ctx, func(ctx context.Context) (bool, error) {
			var err error
			if moves, err = a.moves(ctx); err != nil {
				return false, err
			}
			under := underWay(moves)
			if under > 0 {
				a.tell("still under way: %d%s", under, first(moves.Running))
			}
			return under == 0 || a.detach, nil
		})
		if err != nil {
			return err
		}
		a.say("the rebalancer is paused; under way: %d", underWay(moves))
		return a.print(after, func() error { return nil })
	})
}

func (s *session) resumeCommand() *cobra.Command {
	return s.waiting(&cobra.Command{
		Use:     "resume",
		Short:   "Order moves again",
		Long:    "Has the rebalancer go on, and waits until the buckets are shared out.",
		Example: "  engine rebalance resume --detach",
		Args:    cli.WantArgs(0, 0, ""),
	}, func(ctx context.Context, a *admin, _ []string) error {
		_, after, err := a.change(ctx, api.TopologyRequest{Paused: new(false)})
		if err != nil {
			return err
		}
		a.tell("to undo: engine rebalance pause")
		if err := a.rebalanced(ctx, after); err != nil {
			return err
		}
		a.say("the rebalancer runs")
		return a.print(after, func() error { return nil })
	})
}
