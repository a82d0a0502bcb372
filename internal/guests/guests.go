// Package guests runs the modules of jobs in a WASM host: what nodes ask for on one side, what wasmhost has on the
// other. Both programs use it, engine for the jobs of a cluster and submit for jobs over files.
//
//	ports.Mapper = guests.Mapper{Host: host, Catalogue: catalogue}
package guests

import (
	"context"
	"log/slog"

	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
	"github.com/pinion-mr/pinion/wasmhost"
)

// Says is the attribute that holds the text in a guest's log line.
const Says = "says"

// Mapper lets nodes run modules in a host. Bytes come from the catalogue at first use.
type Mapper struct {
	Host      *wasmhost.Host
	Catalogue node.Catalogue
}

var _ node.Mapper = Mapper{}

// Prepare loads and compiles the module of a task, if nobody has yet.
func (m Mapper) Prepare(ctx context.Context, task node.Task) (node.Program, error) {
	module, ok := m.Host.Cached(task.Digest)
	if !ok {
		file, err := m.Catalogue.Load(ctx, task.Digest)
		if err != nil {
			return nil, err
		}
		if module, err = m.Host.Compile(ctx, task.Digest, file); err != nil {
			return nil, err
		}
	}
	job := wasmhost.Job{
		ID: task.Job, Name: task.Name, Function: task.Function, Params: task.Params, BucketParams: task.BucketParams, TimeLimit: task.Timeout,
		Numeric: task.Numeric, Quota: m.Host.NewQuota(),
		Logger: func(level slog.Level, message string) {
			task.Log.Log(context.Background(), level, "guest", Says, message)
		},
	}
	return napping(program{module, job}, task), nil
}

// Compile tries whether a host can compile a module: see plugins.Catalogue.
func Compile(host *wasmhost.Host) func(ctx context.Context, digest string, file []byte) error {
	return func(ctx context.Context, digest string, file []byte) error {
		module, err := host.Compile(ctx, digest, file)
		if err != nil {
			return err
		}
		module.Close()
		return nil
	}
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
