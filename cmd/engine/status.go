package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
)

func (s *session) statusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show how the cluster is",
		Long:    "Shows members, positions, buckets, pins and what is wrong. Exits with 1 if anything is.",
		Example: "  engine status\n  engine status --output json",
		Args:    cli.WantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.OneOf("output", output, "table", "json"); err != nil {
				return err
			}
			timeout, err := s.options.Timeout(10 * time.Second)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return s.status(ctx, output)
		},
	}
	cmd.Flags().StringVar(&output, "output", "table", "table or json")
	return cmd
}

func (s *session) status(ctx context.Context, output string) error {
	b, err := s.connect(ctx, "status", nil)
	if err != nil {
		return err
	}
	defer b.Close()
	var st api.ClusterStatus
	if err := b.Request(ctx, "admin.status", api.Empty{}, &st); err != nil {
		return err
	}
	if output == "json" {
		enc := json.NewEncoder(s.stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(st)
	} else {
		err = printStatus(s.stdout, st)
	}
	if err == nil && !st.Healthy {
		err = errors.New("the cluster is not healthy")
	}
	return err
}

func printStatus(w io.Writer, st api.ClusterStatus) error {
	fmt.Fprintf(w, "cluster %s: buckets %d, replicas %d, log %d to %d (%.1f MB), running jobs %d\n\n",
		st.Cluster, st.Settings.Buckets, st.Settings.Replicas, st.Log.First, st.Log.Last, float64(st.Log.Bytes)/1e6, st.Jobs)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MEMBER\tROLE\tHOST\tPID\tBUCKETS\tLOADED\tAPPLIED\tVERIFIED\tPINS\tSKIPPED")
	for _, m := range st.Members {
		figures := "\t\t\t\t\t"
		for _, s := range st.Storages {
			if m.Role == "storage" && s.Storage == m.ID {
				figures = fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d", s.Owned, s.Loaded, s.Applied, s.Verified, len(s.PMRs), s.Skipped)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", m.ID, m.Role, m.Host, m.PID, figures)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	printTopology(w, st)
	for _, s := range st.Storages {
		for _, p := range s.PMRs {
			fmt.Fprintf(w, "pin %.8s on %s: %s for job %s of router %s\n", p.PMR, s.Storage, p.State, p.Job, p.Router)
		}
		if s.LastSkipped != "" {
			fmt.Fprintf(w, "%s skipped malformed log entries: %d, the last at %s\n", s.Storage, s.Skipped, s.LastSkipped)
		}
	}
	for _, p := range st.Problems {
		fmt.Fprintf(w, "problem: %s\n", p)
	}
	return nil
}

// printTopology says what administrators have set, and what moves.
func printTopology(w io.Writer, st api.ClusterStatus) {
	for _, id := range slices.Sorted(maps.Keys(st.Topology.Weights)) {
		fmt.Fprintf(w, "weight of storage %s: %g\n", id, st.Topology.Weights[id])
	}
	if len(st.Topology.LockedBuckets)+len(st.Topology.LockedStorages) > 0 {
		fmt.Fprintln(w, lockedNow(st.Topology))
	}
	if st.Topology.Paused {
		fmt.Fprintln(w, "the rebalancer is paused: engine rebalance resume")
	}
	if n := underWay(st.Moves); n > 0 {
		fmt.Fprintf(w, "moves under way: %d%s\n", n, first(st.Moves.Running))
	}
}
