package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/internal/cli"
)

// Times of the commands of administration.
const (
	adminWithin = 15 * time.Second // for one answer
	countWithin = 2 * time.Minute  // for one that has records counted
	adminPoll   = 300 * time.Millisecond
)

// admin is one command of administration.
type admin struct {
	s      *session
	output string
	detach bool
	bus    *bus.Bus
	told   string // the last line of progress
}

// adminCommand makes a command that changes or shows something. fn runs with a connection.
func (s *session) adminCommand(cmd *cobra.Command, fn func(ctx context.Context, a *admin, args []string) error) *cobra.Command {
	a := &admin{s: s}
	cmd.Flags().StringVar(&a.output, "output", "table", "table or json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.OneOf("output", a.output, "table", "json"); err != nil {
			return err
		}
		timeout, err := s.options.Timeout(0)
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		connecting, done := context.WithTimeout(ctx, adminWithin)
		defer done()
		if a.bus, err = s.connect(connecting, cmd.Name(), nil); err != nil {
			return err
		}
		defer a.bus.Close()
		return fn(ctx, a, args)
	}
	return cmd
}

// waiting is adminCommand for what takes its time: with --detach the command does not wait.
func (s *session) waiting(cmd *cobra.Command, fn func(ctx context.Context, a *admin, args []string) error) *cobra.Command {
	var detach bool
	cmd = s.adminCommand(cmd, func(ctx context.Context, a *admin, args []string) error {
		a.detach = detach
		return fn(ctx, a, args)
	})
	cmd.Flags().BoolVar(&detach, "detach", false, "do not wait until it is done")
	return cmd
}

// ask sends a request to any router.
func (a *admin) ask(ctx context.Context, subject string, in, out any) error {
	return a.askFor(ctx, adminWithin, subject, in, out)
}

// askFor is ask for an answer that may take another time.
func (a *admin) askFor(ctx context.Context, within time.Duration, subject string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return a.bus.Request(ctx, "admin."+subject, in, out)
}

// change changes the topology, and returns it as it was and as it is.
func (a *admin) change(ctx context.Context, req api.TopologyRequest) (before, after api.Topology, err error) {
	var reply api.TopologyReply
	if err := a.ask(ctx, "topology", api.TopologyRequest{}, &reply); err != nil {
		return before, after, err
	}
	before = reply.Topology
	reply = api.TopologyReply{}
	err = a.ask(ctx, "topology", req, &reply)
	return before, reply.Topology, err
}

// plan asks what the rebalancer would do.
func (a *admin) plan(ctx context.Context) (plan api.PlanReply, err error) {
	return plan, a.ask(ctx, "plan", api.Empty{}, &plan)
}

// moves asks what is under way.
func (a *admin) moves(ctx context.Context) (moves api.MovesReply, err error) {
	return moves, a.ask(ctx, "moves", api.Empty{}, &moves)
}

// tell writes a line on stderr, unless it says what the last one said.
func (a *admin) tell(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); line != a.told {
		a.told = line
		fmt.Fprintln(a.s.stderr, line)
	}
}

// print writes the command's one JSON value, or calls table.
func (a *admin) print(v any, table func() error) error {
	if a.output != "json" {
		return table()
	}
	enc := json.NewEncoder(a.s.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// say writes a line on stdout, of a command that prints no table.
func (a *admin) say(format string, args ...any) {
	if a.output != "json" {
		fmt.Fprintf(a.s.stdout, format+"\n", args...)
	}
}

// wait calls look until it is done. Routers may come and go meanwhile. If ctx ends first, the error says that what was
// begun goes on.
func (a *admin) wait(ctx context.Context, look func(ctx context.Context) (done bool, err error)) error {
	for {
		done, err := look(ctx)
		switch code := api.CodeOf(err); {
		case ctx.Err() != nil:
			return a.goesOn(ctx)
		case code == api.CodeUnavailable || code == api.CodeTimeout:
			a.tell("no answer: %v; asking again", err)
		case err != nil || done:
			return err
		}
		select {
		case <-time.After(adminPoll):
		case <-ctx.Done():
			return a.goesOn(ctx)
		}
	}
}

func (a *admin) goesOn(ctx context.Context) error {
	why := "interrupted"
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		why = "not done within --timeout"
	}
	return fmt.Errorf("%s; what was ordered goes on: `engine rebalance status` shows it, and `engine rebalance pause` stops what is not ordered by hand", why)
}

// parseBuckets reads the buckets that arguments name: 3 7-9 20,21.
func parseBuckets(args []string) ([]uint16, error) {
	if len(args) == 0 {
		return nil, nil
	}
	return cli.ParseBuckets(strings.Join(args, ","))
}

// ranges names buckets for people.
func ranges(list []uint16) string {
	ids := make([]buckets.ID, len(list))
	for i, b := range list {
		ids[i] = buckets.ID(b)
	}
	return buckets.Ranges(ids)
}

// arguments names buckets as commands take them.
func arguments(list []uint16) string {
	text := ranges(list)
	_, numbers, _ := strings.Cut(text, " ")
	return strings.ReplaceAll(numbers, ", ", " ")
}
