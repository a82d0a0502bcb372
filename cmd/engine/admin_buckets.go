package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
)

func (s *session) bucketsCommand() *cobra.Command {
	var only []string
	var count bool
	cmd := s.adminCommand(&cobra.Command{
		Use:   "buckets",
		Short: "Show who owns which bucket, and what is in it",
		Long: "Shows each bucket's owner, generation, records, bytes and state:\n\n" +
			"  owned      its owner serves it\n" +
			"  loading    its owner loads it from checkpoint and log\n" +
			"  receiving  its owner serves it, and another storage loads it to become owner\n" +
			"  moving     the moment of change: the gates of both storages are asked for or held\n" +
			"  unowned    it was never assigned\n" +
			"  gone       its owner is not there; others take it over after the grace time\n" +
			"  silent     its owner is there and does not answer\n\n" +
			"The generation is the log position of the entry that gave the bucket to its owner. Records and bytes are what\n" +
			"the owner counted at the position COUNTED; a dash is not counted yet. Large buckets are counted only if they\n" +
			"are named, or with --count.",
		Example: "  engine buckets\n  engine buckets --bucket 3,20-29\n  engine buckets --count --output json",
		Args:    cli.WantArgs(0, 0, ""),
	}, func(ctx context.Context, a *admin, _ []string) error {
		list, err := parseBuckets(only)
		if err != nil {
			return err
		}
		all, err := a.buckets(ctx, api.BucketsRequest{Buckets: list, Count: count || len(list) > 0})
		if err != nil {
			return err
		}
		return a.print(api.BucketsReply{Buckets: all}, func() error { return a.printBuckets(all) })
	})
	cmd.Flags().StringSliceVar(&only, "bucket", nil, "these buckets alone: 3,7,20-29")
	cmd.Flags().BoolVar(&count, "count", false, "have all records counted anew, which reads them")
	return cmd
}

// mostNamed is how many buckets are asked for by name at a time.
const mostNamed = 256

// buckets asks until all are told.
func (a *admin) buckets(ctx context.Context, req api.BucketsRequest) ([]api.BucketInfo, error) {
	all := []api.BucketInfo{}
	named, within := req.Buckets, adminWithin
	if req.Count {
		within = countWithin
	}
	for {
		if req.Buckets = named; len(named) > mostNamed {
			req.Buckets = named[:mostNamed]
		}
		var reply api.BucketsReply
		if err := a.askFor(ctx, within, "buckets", req, &reply); err != nil {
			return nil, err
		}
		all = append(all, reply.Buckets...)
		switch {
		case len(named) > mostNamed:
			named = named[mostNamed:]
		case len(named) > 0 || reply.Next == 0:
			return all, nil
		default:
			req.From = uint16(reply.Next)
		}
	}
}

func (a *admin) printBuckets(all []api.BucketInfo) error {
	t := tabwriter.NewWriter(a.s.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "BUCKET\tOWNER\tGENERATION\tRECORDS\tBYTES\tCOUNTED\tSTATE")
	for _, b := range all {
		figures := "-\t-\t-"
		if b.CountedAt > 0 {
			figures = fmt.Sprintf("%d\t%d\t%d", b.Records, b.Bytes, b.CountedAt)
		}
		state := b.State
		if b.To != "" {
			state += ", to " + b.To
		}
		if b.Locked {
			state += ", locked"
		}
		owner := b.Owner
		if owner == "" {
			owner = "-"
		}
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%s\n", b.Bucket, owner, b.Generation, figures, state)
	}
	return t.Flush()
}
