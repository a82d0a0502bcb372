package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/pmr/node"
)

// settingFlags adds the flags that fix a new cluster's settings. Of an existing cluster they must agree.
func (s *session) settingFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&s.wanted.Buckets, "buckets", 0, fmt.Sprintf("number of buckets, fixed when the cluster is created (default %d)", node.DefaultBuckets))
	f.IntVar(&s.wanted.Replicas, "replicas", 0, "servers that hold each stream, fixed when the cluster is created (default 1)")
	f.IntVar(&s.wanted.MaxRecord, "max-record", 0, "largest key and value in bytes, fixed when the cluster is created (default 4 MiB, or what max_payload allows)")
	f.Var(&durationFlag{&s.wanted.DuplicateMS}, "duplicate-window", "time in which a repeated write is stored once, fixed when the cluster is created (default 2m0s)")
	f.Var((*sizeFlag)(&s.wanted.CheckpointBytes), "checkpoint-bytes", "log of a bucket beyond which it is checkpointed, fixed when the cluster is created (default 8MiB)")
	f.Var(&durationFlag{&s.wanted.HistoryMS}, "history", "time for which durable jobs that have ended and their results are kept, fixed when the cluster is created (default 24h0m0s)")
}

// durationFlag is a duration kept in milliseconds.
type durationFlag struct{ ms *int64 }

func (d *durationFlag) String() string {
	if d.ms == nil || *d.ms == 0 {
		return ""
	}
	return (time.Duration(*d.ms) * time.Millisecond).String()
}

func (d *durationFlag) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil || v < time.Millisecond {
		return fmt.Errorf("%q is not a duration such as 90s or 2m", s)
	}
	*d.ms = v.Milliseconds()
	return nil
}

func (d *durationFlag) Type() string { return "duration" }

// sizeFlag is a number of bytes, with an optional unit.
type sizeFlag int64

func (v *sizeFlag) String() string {
	if v == nil || *v == 0 {
		return ""
	}
	n, unit := int64(*v), ""
	for _, next := range []string{"KiB", "MiB", "GiB"} {
		if n%1024 != 0 {
			break
		}
		n, unit = n/1024, next
	}
	return strconv.FormatInt(n, 10) + unit
}

func (v *sizeFlag) Set(s string) error {
	number, unit := s, int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			number, unit = rest, u
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 40)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q is not a size such as 65536, 64KiB or 8MiB", s)
	}
	*v = sizeFlag(n * unit)
	return nil
}

func (v *sizeFlag) Type() string { return "size" }
