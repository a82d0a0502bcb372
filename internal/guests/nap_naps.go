//go:build naps

package guests

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

const (
	napParam = "nap"                 // of a job: how long its map takes on each storage, as 200ms
	napTurn  = 10 * time.Millisecond // after which others have their turn
)

// napping has the map of a job take as long on each storage as its param nap says, whatever the machine does: the
// first bucket is mapped after a sleep. Benchmarks of moves measure with it; releases are built without it.
func napping(p node.Program, task node.Task) node.Program {
	d, err := time.ParseDuration(string(task.Params[napParam]))
	if err != nil || d <= 0 {
		return p
	}
	return &napper{Program: p, nap: d}
}

type napper struct {
	node.Program
	nap   time.Duration
	slept atomic.Bool // or sleeps
}

func (p *napper) Open(ctx context.Context, yield func(context.Context) error) (node.Guest, error) {
	g, err := p.Program.Open(ctx, yield)
	if err != nil {
		return nil, err
	}
	return napGuest{g, p, yield}, nil
}

type napGuest struct {
	node.Guest
	of    *napper
	yield func(context.Context) error
}

func (g napGuest) Map(ctx context.Context, b buckets.ID, in node.Source, out node.Sink) (node.Figures, error) {
	if g.of.slept.CompareAndSwap(false, true) {
		for until := time.Now().Add(g.of.nap); time.Now().Before(until); {
			turn := time.NewTimer(min(napTurn, time.Until(until)))
			select {
			case <-turn.C:
			case <-ctx.Done():
				turn.Stop()
				return node.Figures{}, ctx.Err()
			}
			if err := g.yield(ctx); err != nil {
				return node.Figures{}, err
			}
		}
	}
	return g.Guest.Map(ctx, b, in, out)
}
