package wasmhost

import (
	"context"
	"errors"
	"fmt"

	"github.com/pinion-mr/pinion/buckets"
)

// Source gives the frames that a guest works on; every [buckets.Cursor] is one.
type Source interface {
	// Fill appends whole frames to dst until the next one would make it longer than limit; at least one
	// if any is left. It returns dst and the number of frames appended: 0 at the end.
	Fill(dst []byte, limit int) (out []byte, records int, err error)
}

// numbered is a source that leaves records of its bucket out, and so knows better than who counts them which
// number the first one of the last batch has.
type numbered interface{ First() uint64 }

// Sink takes the pairs that a guest emits, in their order. Flags are buckets.FlagInt, buckets.FlagFloat
// (then value has 8 bytes) or 0. Key and value are valid only during the call. An error ends the guest's
// call.
type Sink interface {
	Emit(flags uint32, key, value []byte) error
}

// Figures say what one Map or Group did.
//
// Fuel counts about what a simple interpreter would execute, from pmr_init to pmr_end, and what the host does
// in between at the same rate. It is the same each time the same records come in the same batches, wherever
// they run, if the guest carries nothing from bucket to bucket: so what an instance needs once, to start and to
// allocate its buffer, is not in it. All steps are taken from the job's [Quota].
type Figures struct {
	Records  uint64 // frames read
	Bytes    uint64 // of their keys and values
	Pairs    uint64 // emitted
	Output   uint64 // bytes of their keys and values
	Fuel     uint64 // steps
	Counters map[string]int64
}

// run is one Map or Group.
type run struct {
	sink    Sink
	group   *given // not nil in Group of a reactor
	figures Figures

	before   uint64 // steps of the instance that do not belong to it
	counters map[string]*int64
}

// Map runs the job's function over one bucket: pmr_init with the job's params, the function per batch,
// pmr_end; the first and the last only if the module exports them. The bucket's output counts only if Map
// returns without an error. A command runs from _start to its end.
//
// Errors: a [*GuestError]; an error of the sink or the source, as it is (an [api.Error] gets the places
// bucket, module and function in its details). The instance is broken then.
func (in *Instance) Map(ctx context.Context, bucket buckets.ID, source Source, sink Sink) (Figures, error) {
	return in.process(ctx, in.job.Function, int(bucket), source, &run{sink: sink})
}

// Group runs a combine or reduce function over frames that are grouped by key and flagged with
// buckets.FlagFirst and buckets.FlagLast; a group may span batches. The function may emit only keys of the
// batch it was given, so before it returns; a command may emit any key that it was given. The flags first and
// last of what is emitted are ignored. Otherwise it is like Map.
func (in *Instance) Group(ctx context.Context, function string, source Source, sink Sink) (Figures, error) {
	if err := in.module.checkFunction(in.job.Name, function); err != nil {
		return Figures{}, err
	}
	r := &run{sink: sink}
	if in.command == nil {
		r.group = &given{}
	} else {
		in.command.keys = newKeySet()
		defer func() { in.command.keys = nil }()
	}
	return in.process(ctx, function, -1, source, r)
}

func (in *Instance) process(ctx context.Context, function string, bucket int, source Source, r *run) (Figures, error) {
	if in.broken {
		return Figures{}, errors.New("wasmhost: the instance is broken; make another")
	}
	in.run, in.place = r, place{function: function, bucket: bucket}
	r.before = in.meter.used()
	in.stderr.reset()
	in.lastLog = in.lastLog[:0]
	in.world.reset(in.job.ID, bucket)
	var err error
	if in.command != nil {
		err = in.runCommand(ctx, function, source)
	} else {
		err = in.batches(ctx, in.function(function), source)
	}
	if err == nil {
		in.flush()
	}
	r.figures.Fuel = in.fuel()
	in.run, in.phase = nil, phaseLoad
	if err != nil {
		in.broken = true
		return Figures{}, err
	}
	// A budget that is passed only now ends the next call: this one is done.
	_ = in.settle()
	for name, n := range r.counters {
		if r.figures.Counters == nil {
			r.figures.Counters = make(map[string]int64, len(r.counters))
		}
		r.figures.Counters[name] = *n
	}
	return r.figures, nil
}

// function returns an export. Each api.Function has a stack of its own, so they are kept.
func (in *Instance) function(name string) export {
	f, ok := in.functions[name]
	if !ok {
		f = export{name: name, Function: in.guest.ExportedFunction(name)}
		in.functions[name] = f
	}
	return f
}

func (in *Instance) batches(ctx context.Context, f export, source Source) error {
	call := in.context(ctx)
	if in.init.Function != nil {
		if err := in.give(call, in.init, phaseLoad, paramFrames(in.job.paramsOf(in.place.bucket))); err != nil {
			return err
		}
	}
	for {
		batch, records, err := in.read(source)
		if err != nil {
			return fmt.Errorf("wasmhost: read bucket %d: %w", in.place.bucket, err)
		}
		if records == 0 {
			break
		}
		if err := in.ended(ctx); err != nil { // batches that are too small for a tick
			return err
		}
		if err := in.enter(source, batch, records); err != nil {
			return err
		}
		if err := in.give(call, f, phaseBatch, batch); err != nil {
			return err
		}
		in.leave(batch, records)
	}
	if in.end.Function == nil {
		return nil
	}
	in.phase = phaseEnd
	return in.check(call, in.end, 0, 0)
}

// read has the source write the next batch into the guest's buffer, if that is surely large enough: so its bytes
// are copied once. Group has to know later which keys it gave, so it needs a batch that the guest cannot change.
func (in *Instance) read(source Source) (batch []byte, records int, err error) {
	limit := in.config.BatchBytes
	if in.run.group == nil && in.capacity >= limit {
		if room, ok := in.memory.Read(in.buffer, uint32(in.capacity)); ok {
			return source.Fill(room[:0], limit) // a record that is larger than the buffer comes in memory of its own
		}
	}
	in.batch, records, err = source.Fill(in.batch[:0], limit)
	return in.batch, records, err
}

// enter notes where the batch lies, and its keys if they matter.
func (in *Instance) enter(source Source, batch []byte, records int) error {
	if s, ok := source.(numbered); ok {
		in.place.record = s.First()
	}
	first, _, err := buckets.CutFrame(batch)
	if err != nil {
		return fmt.Errorf("wasmhost: batch of bucket %d: %w", in.place.bucket, err)
	}
	in.key = append(in.key[:0], first.Key...) // the guest may change the batch before it fails
	in.place.records, in.place.key = records, in.key
	if in.run.group != nil {
		return in.run.group.read(batch)
	}
	return nil
}

func (in *Instance) leave(batch []byte, records int) {
	in.run.figures.Records += uint64(records)
	in.run.figures.Bytes += uint64(len(batch) - records*buckets.FrameHeader)
	in.place.record += uint64(records)
	in.place.records, in.place.key = 0, nil
}

// give calls one of the guest's functions with frames, which it writes into the guest's buffer unless they are there.
func (in *Instance) give(ctx *callContext, f export, p phase, frames []byte) error {
	if err := in.reserve(ctx, len(frames)); err != nil {
		return err
	}
	there, ok := in.memory.Read(in.buffer, uint32(len(frames)))
	if !ok {
		// The range was in the memory when pmr_alloc returned it, and memories do not shrink.
		return in.outside("the buffer", uint64(in.buffer), uint64(len(frames)))
	}
	if len(frames) > 0 && &there[0] != &frames[0] {
		copy(there, frames)
	}
	in.phase = p
	err := in.check(ctx, f, uint64(in.buffer), uint64(len(frames)))
	in.phase = phaseLoad
	return err
}

// check calls a function whose result is 0 if all went well.
func (in *Instance) check(ctx *callContext, f export, a, b uint64) error {
	code, err := in.call(ctx, f, a, b)
	if err != nil || code == 0 {
		return err
	}
	message := fmt.Sprintf("%s returned %d", f.name, int32(code))
	if last := oneLine(string(in.lastLog), maxMessage); last != "" {
		message += "; its last log line: " + last
	}
	return in.fault(f.name, message)
}

// reserve has the guest allocate if the buffer is too small. Guests need not free, so it asks for at least
// twice as much as before, if it can have that: all buffers together are then at most twice the last one.
func (in *Instance) reserve(ctx *callContext, n int) error {
	if n <= in.capacity {
		return nil
	}
	before := in.meter.used()
	defer func() { in.run.before += in.meter.used() - before }()
	if n > 1<<31-1 {
		return in.fault("pmr_alloc", fmt.Sprintf("a batch of %d bytes does not fit a guest's memory", n))
	}
	for _, want := range []int{max(n, in.config.BatchBytes, min(2*in.capacity, 1<<31-1)), n} {
		ptr, err := in.call(ctx, in.alloc, uint64(want), 0)
		if err != nil {
			return err
		}
		if ptr == 0 {
			continue
		}
		if uint64(ptr)+uint64(want) > memorySize(in.memory) {
			return in.outside("what pmr_alloc returned", uint64(ptr), uint64(want))
		}
		in.buffer, in.capacity = ptr, want
		return nil
	}
	return in.fault("pmr_alloc", fmt.Sprintf("refused to allocate %d bytes (memory %d bytes, guest-memory %s)", n,
		memorySize(in.memory), sizeText(uint64(in.config.MemoryPages)*65_536)))
}
