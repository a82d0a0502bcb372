package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr/node"
)

// takeover kills a storage for good. The buckets are shared out first, so that it owns its part of them.
func (m *moving) takeover(ctx context.Context) error {
	if err := m.conn.Request(ctx, "admin.topology", api.TopologyRequest{Paused: new(false)}, nil); err != nil {
		return err
	}
	const victim = "s3"
	owned, err := m.balanced(ctx, victim)
	if err != nil {
		return err
	}
	if err := m.kill(victim); err != nil {
		return err
	}
	killed := time.Now()
	gone := make(chan time.Time, 1)
	go func() { gone <- m.gone(ctx, victim) }()
	job := pinion.Job{Module: "wordcount", Reduce: "count", Space: napSpace, Timeout: 2 * time.Second, Limit: 1}
	for {
		if _, err = m.client.Run(ctx, job); err == nil {
			break
		}
		if time.Since(killed) > 2*time.Minute || ctx.Err() != nil {
			return fmt.Errorf("no job is done after the kill: %w", err)
		}
	}
	answered, lapsed := time.Now(), <-gone
	fmt.Printf("  a storage with %d buckets is killed: it is known to be gone after %.1f s, and a job that needs all buckets is done %.1f s after the kill\n",
		owned, lapsed.Sub(killed).Seconds(), answered.Sub(killed).Seconds())
	atMost("from gone to the first answer, s; grace time and 5 s", answered.Sub(lapsed).Seconds(), (node.DefaultTakeoverGrace + takeoverPad).Seconds())
	return nil
}

// balanced waits until the buckets are shared out, and returns how many a storage owns.
func (m *moving) balanced(ctx context.Context, storage string) (owned int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		var plan api.PlanReply
		var moves api.MovesReply
		if err := m.conn.Request(ctx, "admin.plan", api.Empty{}, &plan); err != nil {
			return 0, err
		}
		if err := m.conn.Request(ctx, "admin.moves", api.Empty{}, &moves); err != nil {
			return 0, err
		}
		if plan.Balanced && len(moves.Queued)+len(moves.Running) == 0 {
			at := slices.IndexFunc(plan.Shares, func(s api.ShareInfo) bool { return s.Storage == storage })
			return plan.Shares[at].Owned, nil
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return 0, fmt.Errorf("the buckets are not shared out: %+v: %w", plan.Shares, err)
		}
	}
}

// gone waits until a storage is told to be gone.
func (m *moving) gone(ctx context.Context, storage string) time.Time {
	for {
		var st api.ClusterStatus
		err := m.conn.Request(ctx, "admin.status", api.Empty{}, &st)
		if err == nil && slices.ContainsFunc(st.Gone, func(g api.GoneStorage) bool { return g.Storage == storage }) || wait(ctx, 50*time.Millisecond) != nil {
			return time.Now()
		}
	}
}

// kill ends the process of a storage at once.
func (m *moving) kill(id string) error {
	for i, cmd := range m.cmds {
		if !slices.ContainsFunc(cmd.Args, func(a string) bool { return strings.HasSuffix(a, "id="+id) }) {
			continue
		}
		if err := cmd.Process.Kill(); err != nil {
			return err
		}
		_ = cmd.Wait() // it says that the process was killed
		m.cmds = slices.Delete(m.cmds, i, i+1)
		return nil
	}
	return fmt.Errorf("there is no storage %s", id)
}
