package main

import (
	"context"
	"log/slog"

	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
	"github.com/pinion-mr/pinion/wasmhost"
)

// compileIn tries whether a host can compile a module.
func compileIn(host *wasmhost.Host) func(ctx context.Context, digest string, file []byte) error {
	return func(ctx context.Context, digest string, file []byte) error {
		module, err := host.Compile(ctx, digest, file)
		if err != nil {
			return err
		}
		module.Close()
		return nil
	}
}

// guests lets nodes run modules in a WASM host. Bytes come from the catalogue at first use.
type guests struct {
	host      *wasmhost.Host
	catalogue node.Catalogue
}

var _ node.Mapper = guests{}

func (g guests) Prepare(ctx context.Context, task node.Task) (node.Program, error) {
	module, ok := g.host.Cached(task.Digest)
	if !ok {
		file, err := g.catalogue.Load(ctx, task.Digest)
		if err != nil {
			return nil, err
		}
		if module, err = g.host.Compile(ctx, task.Digest, file); err != nil {
			return nil, err
		}
	}
	job := wasmhost.Job{
		ID: task.Job, Name: task.Name, Function: task.Function, Params: task.Params, TimeLimit: task.Timeout,
		Numeric: task.Numeric, Quota: g.host.NewQuota(),
		Logger: func(level slog.Level, message string) {
			task.Log.Log(context.Background(), level, "guest", "says", message)
		},
	}
	return program{module, job}, nil
}

type program struct {
	module *wasmhost.Module
	job    wasmhost.Job
}

func (p program) Open(ctx context.Context, yield func(context.Context) error) (node.Guest, error) {
	job := p.job
	job.Yield = yield
	in, err := p.module.Instance(ctx, job)
	if err != nil {
		return nil, err
	}
	return guest{in}, nil
}

func (p program) Close() { p.module.Close() }

type guest struct{ in *wasmhost.Instance }

func (g guest) Map(ctx context.Context, b buckets.ID, in node.Source, out node.Sink) (node.Figures, error) {
	f, err := g.in.Map(ctx, b, in, out)
	return node.Figures{Counters: f.Counters, Fuel: f.Fuel}, err
}

func (g guest) Group(ctx context.Context, function string, in node.Source, out node.Sink) (node.Figures, error) {
	f, err := g.in.Group(ctx, function, in, out)
	return node.Figures{Counters: f.Counters, Fuel: f.Fuel}, err
}

func (g guest) Close() { g.in.Close() }
