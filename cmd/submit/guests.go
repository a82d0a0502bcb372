package main

import (
	"context"
	"log/slog"

	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
	"github.com/pinion-mr/pinion/wasmhost"
)

// guestSays is the attribute of a guest's log line that holds its text.
const guestSays = "says"

// way is how guests are run here, within what they may rely on.
type way struct {
	batch int  // bytes of a batch at most, but for one record; 0 leaves it to the host
	fresh bool // each bucket has an instance of its own
}

// guests runs modules for jobs here.
type guests struct {
	host      *wasmhost.Host
	catalogue node.Catalogue
	way       way
}

var _ node.Mapper = guests{}

func (g guests) Prepare(ctx context.Context, task node.Task) (node.Program, error) {
	file, err := g.catalogue.Load(ctx, task.Digest)
	if err != nil {
		return nil, err
	}
	module, err := g.host.Compile(ctx, task.Digest, file)
	if err != nil {
		return nil, err
	}
	return localProgram{module, g.way, wasmhost.Job{
		ID: task.Job, Name: task.Name, Function: task.Function, Params: task.Params, TimeLimit: task.Timeout,
		Numeric: task.Numeric, Quota: g.host.NewQuota(),
		Logger: func(level slog.Level, message string) {
			task.Log.Log(context.Background(), level, "guest", guestSays, message)
		},
	}}, nil
}

type localProgram struct {
	module *wasmhost.Module
	way    way
	job    wasmhost.Job
}

func (p localProgram) Open(ctx context.Context, yield func(context.Context) error) (node.Guest, error) {
	job := p.job
	job.Yield = yield
	in, err := p.module.Instance(ctx, job)
	if err != nil {
		return nil, err
	}
	return &localGuest{in: in, way: p.way, renew: func(ctx context.Context) (*wasmhost.Instance, error) {
		return p.module.Instance(ctx, job)
	}}, nil
}

func (p localProgram) Close() { p.module.Close() }

type localGuest struct {
	in    *wasmhost.Instance
	used  bool
	way   way
	renew func(context.Context) (*wasmhost.Instance, error)
}

func (g *localGuest) Map(ctx context.Context, b buckets.ID, in node.Source, out node.Sink) (node.Figures, error) {
	if g.way.fresh && g.used {
		another, err := g.renew(ctx)
		if err != nil {
			return node.Figures{}, err
		}
		g.in.Close()
		g.in = another
	}
	g.used = true
	f, err := g.in.Map(ctx, b, batches{in, g.way.batch}, out)
	return node.Figures{Counters: f.Counters, Fuel: f.Fuel}, err
}

func (g *localGuest) Group(ctx context.Context, function string, in node.Source, out node.Sink) (node.Figures, error) {
	f, err := g.in.Group(ctx, function, batches{in, g.way.batch}, out)
	return node.Figures{Counters: f.Counters, Fuel: f.Fuel}, err
}

func (g *localGuest) Close() { g.in.Close() }

// batches makes the batches of a source smaller.
type batches struct {
	node.Source
	limit int
}

func (b batches) Fill(dst []byte, limit int) ([]byte, int, error) {
	if b.limit > 0 {
		limit = min(limit, len(dst)+b.limit)
	}
	return b.Source.Fill(dst, limit)
}
