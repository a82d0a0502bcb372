package wasmhost

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	wazeroapi "github.com/tetratelabs/wazero/api"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/plugins/wasm"
)

// Job is what an instance needs to know of the job it works for.
type Job struct {
	ID       string // seeds the guest's random numbers, with the bucket
	Name     string // the module as its user calls it, for messages; the digest if empty
	Function string // that Map calls; default map
	Params   map[string][]byte
	// BucketParams hold for one bucket, beside Params and before those of the same name.
	BucketParams map[buckets.ID]map[string][]byte
	TimeLimit    time.Duration // of the job, for messages only: the context has the deadline
	Quota        *Quota        // shared by the instances of the job; nil: this one has its own

	// Logger gets the guest's log lines, cut to 4 KiB each; may be nil. It is called by the goroutine that
	// runs the instance.
	Logger func(level slog.Level, message string)

	// Yield is called about every 100,000 steps of the guest and of what the host does for it. It may block,
	// to give the guest's place to others; an error ends the guest's call. May be nil.
	Yield func(ctx context.Context) error

	// Numeric says that the job's reducer adds up numbers. A command writes text, so of its values those that
	// are decimal numbers as a whole then become numbers: an i64, or an f64 with a fraction or an exponent.
	Numeric bool
}

// Instance is a running module: its memory and globals. It serves one job, bucket after bucket, and one
// goroutine at a time. That of a command is a program that runs anew for each bucket.
type Instance struct {
	module *Module
	config Config
	job    Job
	guest  wazeroapi.Module
	memory wazeroapi.Memory
	alloc  export
	init   export
	end    export
	began  time.Time

	meter   meter
	running context.Context // of the call under way
	command *command        // of a WASI program; nil for a reactor

	functions map[string]export

	buffer   uint32 // in the guest's memory, from pmr_alloc
	capacity int
	batch    []byte // frames that were not read into the buffer
	key      []byte // of the first record of the batch

	phase  phase
	place  place
	run    *run  // the Map or Group under way
	stop   error // why the host ended the call
	broken bool

	lastLog []byte
	stderr  tail
	world   world
	stack   [2]uint64
	number  [8]byte
}

// phase says what the guest may do.
type phase uint8

const (
	phaseLoad phase = iota // start function, _initialize, pmr_init, pmr_alloc: nothing may be emitted
	phaseBatch
	phaseEnd // pmr_end
)

// place is where a failure happens.
type place struct {
	function string
	bucket   int
	record   uint64
	records  int
	key      []byte
}

// Instance makes an instance and runs its start function and _initialize; nothing runs of a command before
// Map or Group. It fails with an UNKNOWN_FUNCTION [api.Error] that lists the functions there are, with
// BAD_MODULE if the module lacks something it must have, BAD_REQUEST for params that a command cannot have, or
// with a [*GuestError].
func (m *Module) Instance(ctx context.Context, job Job) (*Instance, error) {
	if job.Function == "" {
		job.Function = "map"
	}
	if job.Name == "" {
		job.Name = m.entry.digest
	}
	if job.Quota == nil {
		job.Quota = m.host.NewQuota()
	}
	if err := m.checkFunction(job.Name, job.Function); err != nil {
		return nil, err
	}
	in := &Instance{
		module: &Module{host: m.host, entry: m.entry}, config: m.host.config, job: job, began: time.Now(),
		functions: map[string]export{}, place: place{function: "start", bucket: -1},
	}
	in.world.args = []string{job.Name}
	in.world.reset(job.ID, -1)
	m.host.mu.Lock()
	m.host.retain(m.entry)
	m.host.mu.Unlock()
	start := in.start
	if m.entry.command {
		start = in.prepareCommand
	}
	if err := start(ctx); err != nil {
		in.Close()
		return nil, err
	}
	return in, nil
}

// checkFunction reports a function that the module does not have.
func (m *Module) checkFunction(name, function string) error {
	if m.entry.command || slices.Contains(m.entry.functions, function) {
		return nil
	}
	hint := "it exports no function of the shape (i32, i32) -> i32"
	if len(m.entry.functions) > 0 {
		hint = "it has " + oneLine(strings.Join(m.entry.functions, ", "), 300)
	}
	return api.Errorf(api.CodeUnknownFunction, "module %q (%s) has no function %q", name, shortDigest(m.entry.digest), function).
		WithHint("%s", hint).With("module", name).With("digest", m.entry.digest).With("function", function)
}

func (in *Instance) start(ctx context.Context) error {
	call := in.context(ctx)
	if err := in.instantiate(call); err != nil {
		return err
	}
	in.alloc, in.init, in.end = in.function("pmr_alloc"), in.function("pmr_init"), in.function("pmr_end")
	start := in.function("_initialize")
	if err := in.checkExports(start); err != nil || start.Function == nil {
		return err
	}
	_, err := in.call(call, start, 0, 0)
	return err
}

// instantiate makes the module's memory and globals, and runs its start function.
func (in *Instance) instantiate(call *callContext) error {
	in.running = call.Context
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	with, free := withMemory(call)
	guest, err := in.module.host.runtime.InstantiateModule(with, in.module.entry.compiled, config)
	if err != nil {
		defer func() {
			free()
			in.memory = nil
		}()
		if in.stop == nil && !isGuestFailure(err) {
			return api.Errorf(api.CodeBadModule, "module %q (%s) cannot be started: %s", in.job.Name,
				shortDigest(in.module.entry.digest), oneLine(err.Error(), maxMessage)).With("digest", in.module.entry.digest)
		}
		return in.failure(err)
	}
	in.guest = guest
	in.enterModule(guest)
	return nil
}

// enterModule notes what the host needs of a module that begins to run.
func (in *Instance) enterModule(mod wazeroapi.Module) {
	in.memory = mod.ExportedMemory("memory")
	if left, ok := mod.ExportedGlobal(wasm.FuelExport).(wazeroapi.MutableGlobal); ok {
		in.meter.left = left
	}
}

// checkExports reports what a reactor must have. The catalogue says it in full when a module is added; this
// guards the calls below.
func (in *Instance) checkExports(start export) error {
	var fault string
	switch {
	case in.memory == nil:
		fault = "its memory as \"memory\""
	case !in.alloc.has(1, 1):
		fault = "pmr_alloc as (i32) -> i32"
	case in.init.Function != nil && !in.init.has(2, 1):
		fault = "pmr_init as (i32, i32) -> i32"
	case in.end.Function != nil && !in.end.has(0, 1):
		fault = "pmr_end as () -> i32"
	case start.Function != nil && !start.has(0, 0):
		fault = "_initialize as ()"
	default:
		return nil
	}
	return in.mustExport(fault)
}

func (in *Instance) mustExport(what string) error {
	return api.Errorf(api.CodeBadModule, "module %q (%s) must export %s", in.job.Name, shortDigest(in.module.entry.digest), what).
		With("digest", in.module.entry.digest)
}

// has reports whether the function is there and has so many parameters and results, all of type i32.
func (f export) has(params, results int) bool {
	if f.Function == nil {
		return false
	}
	d := f.Definition()
	for _, t := range append(slices.Clone(d.ParamTypes()), d.ResultTypes()...) {
		if t != i32 {
			return false
		}
	}
	return len(d.ParamTypes()) == params && len(d.ResultTypes()) == results
}

// Broken reports whether the guest was stopped in the middle of a call: such an instance cannot be used.
func (in *Instance) Broken() bool { return in.broken }

// MemoryBytes is the size of the guest's memory.
func (in *Instance) MemoryBytes() uint64 {
	if in.memory == nil {
		return 0
	}
	return memorySize(in.memory)
}

// Close frees the instance's memory.
func (in *Instance) Close() {
	if in.guest != nil {
		_ = in.guest.Close(context.Background()) // its own errors are those of files, which guests have none
	}
	in.broken = true
	in.module.Close()
}

// paramsOf are the params that hold for a bucket; -1 is none.
func (j *Job) paramsOf(bucket int) map[string][]byte {
	own := j.BucketParams[buckets.ID(bucket)]
	if bucket < 0 || len(own) == 0 {
		return j.Params
	}
	all := maps.Clone(own)
	for name, value := range j.Params {
		if _, ok := own[name]; !ok {
			all[name] = value
		}
	}
	return all
}

func paramFrames(params map[string][]byte) []byte {
	var frames []byte
	for _, name := range slices.Sorted(maps.Keys(params)) {
		frames = buckets.AppendFrame(frames, 0, []byte(name), params[name])
	}
	return frames
}

// memorySize is right also for a memory of 4 GiB, whose Size is 0 in 32 bits.
func memorySize(m wazeroapi.Memory) uint64 {
	if size := m.Size(); size > 0 {
		return uint64(size)
	}
	pages, _ := m.Grow(0)
	return uint64(pages) * 65_536
}
