package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
)

func (s *session) lockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lock",
		Short: "Keep buckets or storages as they are",
		Long: "A locked bucket stays where it is, and a locked storage neither gives nor takes buckets. Locks hold against the\n" +
			"rebalancer and against `engine move`. They do not hold against a takeover: what a storage owned that is gone\n" +
			"for longer than the grace time is served by others.",
		Example: "  engine lock bucket 3 20-29\n  engine lock storage s1",
	}
	cli.Group(cmd,
		s.lockOne("bucket", "lock", "BUCKET...", "Keep buckets where they are"),
		s.lockOne("storage", "lock", "STORAGE...", "Have storages neither give nor take buckets"))
	return cmd
}

func (s *session) unlockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "unlock",
		Short:   "Undo locks",
		Example: "  engine unlock bucket 3 20-29\n  engine unlock storage s1",
	}
	cli.Group(cmd,
		s.lockOne("bucket", "unlock", "BUCKET...", "Let buckets move again"),
		s.lockOne("storage", "unlock", "STORAGE...", "Have storages give and take buckets again"))
	return cmd
}

// lockOne is a command that locks or unlocks one kind of thing.
func (s *session) lockOne(kind, verb, args, short string) *cobra.Command {
	example := map[string]string{"bucket": "3 20-29", "storage": "s1"}[kind]
	return s.adminCommand(&cobra.Command{
		Use:     kind + " " + args,
		Short:   short,
		Example: "  engine " + verb + " " + kind + " " + example,
		Args:    cli.WantArgs(1, -1, "at least one "+kind),
	}, func(ctx context.Context, a *admin, args []string) error {
		req, named, err := lockRequest(kind, verb, args)
		if err != nil {
			return err
		}
		_, after, err := a.change(ctx, req)
		if err != nil {
			return err
		}
		other := map[string]string{"lock": "unlock", "unlock": "lock"}[verb]
		a.tell("to undo: engine %s %s %s", other, kind, named)
		a.say("%s", lockedNow(after))
		return a.print(after, func() error { return nil })
	})
}

func lockRequest(kind, verb string, args []string) (req api.TopologyRequest, named string, err error) {
	if kind == "storage" {
		named = strings.Join(args, " ")
		if verb == "lock" {
			req.LockStorages = args
		} else {
			req.UnlockStorages = args
		}
		return req, named, nil
	}
	list, err := parseBuckets(args)
	if verb == "lock" {
		req.LockBuckets = list
	} else {
		req.UnlockBuckets = list
	}
	return req, arguments(list), err
}

// lockedNow says what is locked.
func lockedNow(t api.Topology) string {
	var parts []string
	if len(t.LockedBuckets) > 0 {
		parts = append(parts, ranges(t.LockedBuckets))
	}
	for _, s := range t.LockedStorages {
		parts = append(parts, "storage "+s)
	}
	if len(parts) == 0 {
		return "nothing is locked"
	}
	return "locked: " + strings.Join(parts, ", ")
}
