package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/internal/cli"
	"github.com/pinion-mr/pinion/pmr/node"
	"github.com/pinion-mr/pinion/pmr/reduce"
	"github.com/pinion-mr/pinion/wasmhost"
)

// benchOptions are the flags of module bench.
type benchOptions struct {
	local          localFlag
	params         []string
	reduce, output string
	least          time.Duration
}

func (s *session) moduleBenchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench MODULE [FUNCTION] --local FILE...",
		Short: "Measure how fast a module's function maps files",
		Long: `Measure how fast a module's function maps the records of files, here and without a server: one instance on
one core, metered as on a storage, again and again for --least. The records are in memory, so nothing is
measured but the guest, the host and, with a reduce that needs no function, the table that takes the pairs.
MODULE and the files are those of run --local; --timeout bounds each round, as it bounds a job (default 60s).

  speed    of keys and values read            output  pairs and bytes put out for what was read
  time     for one record, mean               memory  of the guest, at the end
  fuel     steps for one record, mean         best, worst  speed of the fastest and slowest round`,
		Example: "  submit module bench wordcount --local access.log\n" +
			"  submit module bench ./map.go --reduce sum --local input.txt --least 5s",
		Args: o.local.wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, files := o.local.split(args)
			return s.bench(cmd.Context(), o, args, files)
		},
	}
	f := cmd.Flags()
	o.local.register(f)
	f.StringArrayVarP(&o.params, "param", "p", nil, "name=value for the module; may be given several times")
	f.StringVar(&o.reduce, "reduce", "", "sum, count, min, max or none (default: the module's own; none: pairs are dropped)")
	f.DurationVar(&o.least, "least", 2*time.Second, "how long to measure at least")
	f.StringVar(&o.output, "output", "text", "text, or json for one JSON object on stdout")
	return cmd
}

// benchmark is what a bench is made of, and what it found.
type benchmark struct {
	records *dataset
	job     wasmhost.Job
	reducer reduce.Reducer
	drop    bool // the pairs

	rounds      int
	took        time.Duration
	best, worst time.Duration
	total       wasmhost.Figures
	memory      uint64
}

func (s *session) bench(ctx context.Context, o benchOptions, args, files []string) error {
	if !o.local.given {
		return cli.Usagef("bench needs --local FILE...")
	}
	if err := cli.OneOf("output", o.output, "text", "json"); err != nil {
		return err
	}
	if o.reduce == "module" || strings.HasPrefix(o.reduce, "module:") {
		return cli.Usagef("bench measures the map, and no function that reduces: --reduce is sum, count, min, max or none")
	}
	if o.least < 0 || o.least > time.Hour {
		return cli.Usagef("--least is %v; it must be 0 to 1h", o.least)
	}
	params, err := params(o.params)
	if err != nil {
		return err
	}
	if err := s.options.Settle(); err != nil {
		return err
	}
	limit, err := s.options.Timeout(jobTimeout)
	if err != nil {
		return err
	}
	items, err := o.local.items(files)
	if err != nil {
		return err
	}
	name := args[0]
	var file *moduleFile
	if isFile(name) {
		if file, err = s.readModule(ctx, name); err != nil {
			return s.printFaults(name, err)
		}
		name = file.name
	}
	b := &benchmark{job: wasmhost.Job{ID: "local", Name: name, Params: params, TimeLimit: limit}}
	if len(args) > 1 {
		b.job.Function = args[1]
	}
	catalogue := newLocalCatalogue(file)
	module, err := catalogue.Resolve(ctx, name)
	if err != nil {
		return err
	}
	if err := b.setReduce(o.reduce, module.Reduce); err != nil {
		return err
	}
	if b.records, err = s.readDataset(ctx, items, o.local.key); err != nil {
		return err
	}
	if b.records.records == 0 {
		return fmt.Errorf("there is no record in %s: nothing can be measured", strings.Join(files, ", "))
	}
	if err := b.run(ctx, catalogue, module.Digest, o.least); err != nil {
		err = b.records.locate(err)
		s.printFailure(err, nil)
		return err
	}
	return s.printBench(b, o.output)
}

// setReduce says what takes the pairs. One that keeps them all would measure how memory grows.
func (b *benchmark) setReduce(names ...string) error {
	for _, name := range append(names, "none") {
		if name == "" {
			continue
		}
		var err error
		b.reducer, err = reduce.Parse(name)
		b.job.Numeric = b.reducer.Numeric()
		b.drop = name == "none" || b.reducer.Function() != ""
		return err
	}
	return nil
}

// run maps all buckets again and again. The first round is not measured.
func (b *benchmark) run(ctx context.Context, catalogue node.Catalogue, digest string, least time.Duration) error {
	host, err := newHost(ctx, compiledFolder())
	if err != nil {
		return err
	}
	defer func() { _ = host.Close(context.Background()) }()
	file, err := catalogue.Load(ctx, digest)
	if err != nil {
		return err
	}
	module, err := host.Compile(ctx, digest, file)
	if err != nil {
		return err
	}
	defer module.Close()
	for warm := true; warm || b.took < least || b.rounds == 0; warm = false {
		figures, took, err := b.round(ctx, host, module)
		if err != nil {
			return err
		}
		if warm {
			continue
		}
		b.rounds++
		b.took += took
		if b.worst = max(b.worst, took); b.best == 0 || took < b.best {
			b.best = took
		}
		add(&b.total, figures)
	}
	return nil
}

// round maps all buckets once, in a new instance, within the time limit of a job. The time it tells does not
// count how the instance was made.
func (b *benchmark) round(ctx context.Context, host *wasmhost.Host, module *wasmhost.Module) (total wasmhost.Figures, took time.Duration, err error) {
	job := b.job
	job.Quota = host.NewQuota()
	ctx, cancel := context.WithTimeout(ctx, job.TimeLimit)
	defer cancel()
	in, err := module.Instance(ctx, job)
	if err != nil {
		return total, 0, err
	}
	defer in.Close()
	table := reduce.NewTable(b.reducer, node.DefaultAggregation)
	var sink wasmhost.Sink = table
	if b.drop {
		sink = dropped{}
	}
	began := time.Now()
	for i := range buckets.ID(localBuckets) {
		if len(b.records.parts[i].index) == 0 {
			continue
		}
		table.StartBucket(i)
		figures, err := in.Map(ctx, i, &partCursor{p: &b.records.parts[i]}, sink)
		if err != nil {
			return total, 0, err
		}
		add(&total, figures)
	}
	b.memory = max(b.memory, in.MemoryBytes())
	return total, max(time.Since(began), time.Nanosecond), nil
}

func add(total *wasmhost.Figures, f wasmhost.Figures) {
	total.Records += f.Records
	total.Bytes += f.Bytes
	total.Pairs += f.Pairs
	total.Output += f.Output
	total.Fuel += f.Fuel
}

// dropped is where pairs go that nobody wants.
type dropped struct{}

func (dropped) Emit(uint32, []byte, []byte) error { return nil }

// printBench prints the figures, each on a line.
func (s *session) printBench(b *benchmark, output string) error {
	t := b.total
	each := func(n uint64) float64 { return float64(n) / float64(max(t.Records, 1)) }
	rate := func(took time.Duration) float64 {
		return float64(t.Bytes) / float64(b.rounds) / 1e6 / took.Seconds()
	}
	mean := b.took / time.Duration(b.rounds)
	if output == "json" {
		return s.printJSON(map[string]any{
			"records": t.Records / uint64(b.rounds), "bytes": t.Bytes / uint64(b.rounds), "rounds": b.rounds,
			"mb_per_s": rate(mean), "mb_per_s_best": rate(b.best), "mb_per_s_worst": rate(b.worst),
			"ns_per_record": float64(b.took.Nanoseconds()) / float64(t.Records), "fuel_per_record": each(t.Fuel),
			"pairs_per_record": each(t.Pairs), "output_bytes_per_byte": float64(t.Output) / float64(t.Bytes), "memory_bytes": b.memory,
			"reduce": b.reducer.String(), "pairs_dropped": b.drop,
		})
	}
	pairs := "reduced by " + b.reducer.String()
	if b.drop {
		pairs = "dropped"
	}
	return s.printFields([][2]string{
		{"speed", fmt.Sprintf("%.1f MB/s, %s records/s", rate(mean), strings.TrimSpace(decimal(uint64(float64(t.Records)/b.took.Seconds()))))},
		{"time", fmt.Sprintf("%.0f ns a record", float64(b.took.Nanoseconds())/float64(t.Records))},
		{"fuel", fmt.Sprintf("%.0f steps a record", each(t.Fuel))},
		{"output", fmt.Sprintf("%.2f pairs a record, %.2f bytes a byte; %s", each(t.Pairs), float64(t.Output)/float64(t.Bytes), pairs)},
		{"memory", binaryCount(b.memory)},
		{"best", fmt.Sprintf("%.1f MB/s", rate(b.best))},
		{"worst", fmt.Sprintf("%.1f MB/s", rate(b.worst))},
		{"input", fmt.Sprintf("%s, %s; %s in %s", count(t.Records/uint64(b.rounds), "record"), byteCount(t.Bytes/uint64(b.rounds)),
			exactly(uint64(b.rounds), "round"), seconds(b.took))},
	})
}
