package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pinion-mr/pinion/internal/cli"
	"github.com/pinion-mr/pinion/plugins"
	"github.com/pinion-mr/pinion/pmr/node"
	"github.com/pinion-mr/pinion/wasmhost"
	"github.com/pinion-mr/pinion/wasmhost/child"
)

// limits are what an operator lets guests, and the modules they come from, use in one process.
type limits struct {
	memory, output, moduleSize, compileMemory sizeFlag
	fuel                                      int64
	table                                     uint32
	logLines, counters                        int
	compileTimeout, compileCPU                time.Duration
	aggregation, total, collect               sizeFlag
	jobs, jobsQueue, durable                  int
	longestHold                               time.Duration
}

const page = 64 << 10 // bytes of a WebAssembly memory's page

// defaultLimits are those of a process whose operator sets none.
func defaultLimits() limits {
	return limits{
		memory: 64 << 20, output: 4 << 30, moduleSize: 32 << 20, compileMemory: 2 << 30, fuel: 10_000_000_000_000,
		table: 100_000, logLines: 100, counters: 64, compileTimeout: time.Minute, compileCPU: time.Minute,
		aggregation: 256 << 20, total: 1 << 30, collect: node.DefaultCollect,
		jobs: node.DefaultJobs, jobsQueue: node.DefaultQueue, durable: node.DefaultDurable, longestHold: node.DefaultLongestHold,
	}
}

// limitFlags are the flags of all limits, the same for each role.
func limitFlags(l *limits) *pflag.FlagSet {
	f := pflag.NewFlagSet("limits", pflag.ContinueOnError)
	f.SortFlags = false
	f.Var(&l.memory, "guest-memory", "memory of an instance of a module")
	f.Uint32Var(&l.table, "guest-table", l.table, "elements of a table of an instance")
	f.Int64Var(&l.fuel, "guest-fuel", l.fuel, "steps of all guests of a job, about one for an instruction")
	f.Var(&l.output, "guest-output", "keys and values that a job emits")
	f.IntVar(&l.logLines, "guest-log-lines", l.logLines, "log lines of a job; the rest is dropped")
	f.IntVar(&l.counters, "guest-counters", l.counters, "names of counters of a job")
	f.Var(&l.moduleSize, "module-size", "module file")
	f.DurationVar(&l.compileTimeout, "compile-timeout", l.compileTimeout, "time to compile a module")
	f.DurationVar(&l.compileCPU, "compile-cpu", l.compileCPU, "processor time to compile a module")
	f.Var(&l.compileMemory, "compile-memory", "memory to compile a module")
	f.Var(&l.aggregation, "aggregation-memory", "memory for the output of a job, and of a router for results that it keeps")
	f.Var(&l.total, "aggregation-total", "memory for the output of all jobs on a storage, beyond which none begins")
	f.Var(&l.collect, "collect-total", "memory of a router to collect the output of all jobs with; they take turns")
	f.IntVar(&l.jobs, "jobs", l.jobs, fmt.Sprintf("jobs that a router runs at once, up to %d, for which storages keep snapshots; of one client alone, a quarter less", node.MaxJobs))
	f.IntVar(&l.jobsQueue, "jobs-queue", l.jobsQueue, "jobs that wait in a router for their turn")
	f.IntVar(&l.durable, "durable-queue", l.durable, "durable jobs (submit run --detach) that wait or run in the cluster, beyond which a router takes none in")
	f.DurationVar(&l.longestHold, "longest-hold", l.longestHold, "time of a map in mode hold, in which no bucket of the storage moves")
	return f
}

// limitFlags gives a command the flags of limits, in a part of its help of their own.
func (s *session) limitFlags(cmd *cobra.Command) {
	cmd.Flags().AddFlagSet(s.limited)
	s.limited.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	cmd.SetUsageFunc(func(c *cobra.Command) error {
		if err := c.Parent().UsageFunc()(c); err != nil {
			return err
		}
		shown := pflag.NewFlagSet("shown", pflag.ContinueOnError)
		shown.SortFlags = false
		s.limited.VisitAll(func(f *pflag.Flag) {
			open := *f
			open.Hidden = false
			shown.AddFlag(&open)
		})
		_, err := fmt.Fprintf(c.OutOrStderr(), "\nLimits in this process, also as keys of the config file:\n%s", shown.FlagUsages())
		return err
	})
}

// modules are the limits that a module's file is checked against.
func (l *limits) modules() plugins.Limits {
	return plugins.Limits{ModuleBytes: int(l.moduleSize), MemoryPages: l.pages(), TableElements: l.table}
}

func (l *limits) pages() uint32 { return uint32(min(int64(l.memory)/page, 1<<16)) }

// check reports the first limit out of range.
func (l *limits) check() error {
	for _, c := range []struct {
		name         string
		v, low, high int64
	}{
		{"guest-memory", int64(l.memory), page, 4 << 30},
		{"guest-table", int64(l.table), 1, 10_000_000},
		{"guest-fuel", l.fuel, 1, 1 << 62},
		{"guest-output", int64(l.output), 1, 1 << 62},
		{"guest-log-lines", int64(l.logLines), 1, 1_000_000},
		{"guest-counters", int64(l.counters), 1, 10_000},
		{"module-size", int64(l.moduleSize), 1, 1 << 30},
		{"compile-memory", int64(l.compileMemory), 64 << 20, 1 << 40},
		{"aggregation-memory", int64(l.aggregation), 1 << 20, 1 << 40},
		{"aggregation-total", int64(l.total), 1 << 20, 1 << 40},
		{"collect-total", int64(l.collect), 1 << 20, 1 << 40},
		{"jobs", int64(l.jobs), 1, node.MaxJobs},
		{"jobs-queue", int64(l.jobsQueue), 0, 65_536},
		{"durable-queue", int64(l.durable), 1, 1_000_000},
	} {
		if c.v < c.low || c.v > c.high {
			return cli.Usagef("--%s is %d; it must be %d to %d", c.name, c.v, c.low, c.high)
		}
	}
	for _, c := range []struct {
		name string
		v    time.Duration
	}{{"compile-timeout", l.compileTimeout}, {"compile-cpu", l.compileCPU}, {"longest-hold", l.longestHold}} {
		if c.v < time.Second || c.v > time.Hour {
			return cli.Usagef("--%s is %s; it must be 1s to 1h", c.name, c.v)
		}
	}
	return nil
}

// newHost starts the host of a process's guests. It keeps compiled modules in a folder below dir, or in one
// that ends with the process. Call closeHost at the end.
func (s *session) newHost(ctx context.Context, dir string, log *slog.Logger) (host *wasmhost.Host, closeHost func(), err error) {
	l := &s.limits
	if err := l.check(); err != nil {
		return nil, nil, err
	}
	compiled, discard := filepath.Join(dir, "compiled"), func() {}
	if dir == "" {
		if compiled, err = os.MkdirTemp("", "pinion-compiled-*"); err != nil {
			return nil, nil, err
		}
		discard = func() { _ = os.RemoveAll(compiled) } // what is left is in the system's folder for such
	}
	compiler := &child.Compiler{
		Args: []string{cli.CompileModule}, CacheDir: compiled, MemoryPages: l.pages(),
		Timeout: l.compileTimeout, Memory: int64(l.compileMemory), CPU: l.compileCPU,
	}
	host, err = wasmhost.New(ctx, wasmhost.Config{
		CacheDir: compiled, MemoryPages: l.pages(), TableElements: l.table, ModuleSize: int(l.moduleSize), Precompile: compiler.Precompile,
		Fuel: l.fuel, MaxOutputBytes: int64(l.output), MaxLogLines: l.logLines, MaxCounters: l.counters, Log: log,
	})
	if err != nil {
		discard()
		return nil, nil, err
	}
	return host, func() {
		if err := host.Close(context.WithoutCancel(ctx)); err != nil {
			log.Warn("cannot close the WASM host", "reason", err)
		}
		discard()
	}, nil
}
