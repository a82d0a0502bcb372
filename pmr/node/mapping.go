package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
	"github.com/pinion-mr/pinion/pmr/reduce"
)

// progress counts what a map has read.
type progress struct {
	records, bytes atomic.Uint64
	buckets        atomic.Int64
}

func (p *progress) read() api.Progress {
	return api.Progress{Records: p.records.Load(), Bytes: p.bytes.Load(), Buckets: int(p.buckets.Load())}
}

// startMap runs the map of a PMR in the background; mu is held.
func (s *Storage) startMap(p *pinned) {
	ctx, stop := s.mapContext(p)
	p.stop = stop
	s.work.Go(func() {
		defer stop()
		m := s.newMapping(ctx, p)
		m.inline = min(inlineOutput, s.ports.Peers.MaxPayload()/2)
		m.listed = listedBytes(s.ports.Peers.MaxPayload())
		quiet := make(chan struct{})
		s.work.Go(func() { s.publishProgress(p, quiet) })
		output, end := m.run(ctx)
		m.close()
		close(quiet)
		end.PMR, end.Job, end.Storage = p.id, p.job, s.ID()
		if end.Error != nil && !errors.Is(ctx.Err(), context.Canceled) {
			s.logger.Warn("a map failed", "job", p.job, "module", p.req.Name, "reason", end.Error.Message)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		p.output, p.end = output, end
		close(p.mapped)
		p.memory.Store(int64(len(output)))
		_ = s.step(pmr.MapOver{PMR: p.id})
	})
}

// mapContext ends with the job's time, or with the time that a map may hold buckets in place.
func (s *Storage) mapContext(p *pinned) (context.Context, context.CancelFunc) {
	left := time.Duration(p.req.TimeoutMS) * time.Millisecond
	if longest := s.cfg.LongestHold; !p.snapshot && longest < left {
		return context.WithTimeoutCause(context.Background(), longest, heldTooLong(longest))
	}
	return context.WithTimeout(context.Background(), left)
}

// heldTooLong is the error of a map in mode hold that ran for longer than such a map may.
func heldTooLong(longest time.Duration) *api.Error {
	return api.Errorf(api.CodeTimeout, "the map ran for longest-hold (%s), while no bucket of its storage can move", longest).
		WithHint("--mode snapshot lets buckets move meanwhile, and has the same answer; or split the job by buckets, or raise --longest-hold of the storages").
		With("limit", "longest-hold")
}

// newMapping is a map that has not run yet. No output travels with its end, and its lists have no bound.
func (s *Storage) newMapping(ctx context.Context, p *pinned) *mapping {
	m := &mapping{workers: s.cfg.Workers, memory: s.cfg.Memory, listed: math.MaxInt, p: p, req: p.req, keys: keysByBucket(p.req.Keys, s.cfg.Settings.Buckets)}
	m.records, m.pairs = make([]uint64, len(p.buckets)), make([]uint64, len(p.buckets))
	m.program = once(func() (Program, error) { return s.prepare(ctx, p.req, s.logger) })
	m.fresh = func(ctx context.Context) (Program, error) {
		return s.prepare(ctx, p.req, slog.New(slog.DiscardHandler))
	}
	return m
}

// once has the first caller call load, and the others wait for what it returns.
func once(load func() (Program, error)) func() (Program, error) {
	var begun atomic.Bool
	var program Program
	var err error
	done := make(chan struct{})
	return func() (Program, error) {
		if begun.CompareAndSwap(false, true) {
			program, err = load()
			close(done)
		}
		<-done
		return program, err
	}
}

// prepare gets a map's module ready.
func (s *Storage) prepare(ctx context.Context, req api.MapRequest, log *slog.Logger) (Program, error) {
	return s.ports.Mapper.Prepare(ctx, Task{
		Job: req.Job, Digest: req.Module, Name: req.Name, Function: req.Function, Params: rawParams(req.Params),
		BucketParams: rawBucketParams(req.BucketParams),
		Timeout:      time.Duration(req.JobTimeoutMS) * time.Millisecond, Numeric: isNumeric(req.Reduce),
		Log: log.With("job", req.Job, "module", req.Name),
	})
}

func isNumeric(name string) bool {
	reducer, err := reduce.Parse(name)
	return err == nil && reducer.Numeric()
}

func (s *Storage) publishProgress(p *pinned, quiet <-chan struct{}) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			now := p.progress.read()
			now.Job, now.PMR, now.Storage = p.job, p.id, s.ID()
			if err := s.ports.Peers.Publish("router."+p.router+".progress", now); err != nil {
				s.logger.Debug("cannot publish progress", "reason", err)
			}
		case <-quiet:
			return
		}
	}
}

func rawParams(params map[string]api.Bytes) map[string][]byte {
	raw := make(map[string][]byte, len(params))
	for name, v := range params {
		raw[name] = v
	}
	return raw
}

func rawBucketParams(list []api.BucketParams) map[buckets.ID]map[string][]byte {
	raw := make(map[buckets.ID]map[string][]byte, len(list))
	for _, own := range list {
		raw[buckets.ID(own.Bucket)] = rawParams(own.Params)
	}
	return raw
}

// mapping is one run of a map over the buckets of a PMR.
type mapping struct {
	workers *Workers
	memory  int64
	inline  int // bytes of output that travel with the end message
	listed  int // bytes of the list of skipped records, about
	program func() (Program, error)
	loaded  atomic.Bool // program has returned
	p       *pinned
	req     api.MapRequest
	fresh   func(context.Context) (Program, error) // one that counts and logs for itself
	todo    []int                                  // indices of the buckets that hold records of the job's space
	next    atomic.Int64                           // index of the next of todo to take
	records []uint64                               // that were read, by index of the bucket
	pairs   []uint64                               // that were emitted
	keys    map[buckets.ID][][]byte                // of the records to map, ascending; nil if all are

	mu       sync.Mutex
	counters map[string]int64
	fuel     api.Fuel
	skipped  []api.SkippedRecord
	failed   error
	stop     context.CancelFunc
	opened   bool            // the program was asked for
	tables   []*reduce.Table // of the workers

	collected reduce.Reducer // of the tables
	crew      sync.WaitGroup // the workers
}

// open makes an instance of the job's module that runs in a place. The first time the module is loaded and
// compiled, for which nobody needs a place.
func (m *mapping) open(ctx context.Context, p *place) (Guest, error) {
	m.mu.Lock()
	m.opened = true
	m.mu.Unlock()
	if !m.loaded.Load() {
		err := p.aside(ctx, func() error {
			_, err := m.program()
			return err
		})
		if err != nil {
			return nil, err
		}
		m.loaded.Store(true)
	}
	program, err := m.program()
	if err != nil {
		return nil, err
	}
	return program.Open(ctx, p.yield)
}

func (m *mapping) close() {
	if !m.opened {
		return
	}
	if program, err := m.program(); err == nil {
		program.Close()
	}
}

// run maps every bucket, merges what the workers aggregated, and combines it if the job says so.
func (m *mapping) run(ctx context.Context) ([]byte, *api.MapEnd) {
	end := &api.MapEnd{}
	output, err := m.aggregate(ctx, end)
	if err != nil {
		end.Error = mapError(ctx, err)
		return nil, end
	}
	end.Counters, end.Size = m.counters, uint64(len(output))
	now := m.p.progress.read()
	end.Records, end.Bytes = now.Records, now.Bytes
	end.BucketRecords, end.BucketPairs = m.records, m.pairs
	end.Fuel = perRecord(m.fuel, end.Records)
	end.Skips, end.Skipped = uint64(len(m.skipped)), firstSkipped(m.skipped, m.listed)
	if len(output) <= m.inline {
		end.Output = output
	}
	return output, end
}

// mapError is how a map's failure is told. The time limit is the job's, whoever noticed it, or that of a map that
// holds buckets in place.
func mapError(ctx context.Context, err error) *api.Error {
	e := *api.AsError(err)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		var held *api.Error
		if errors.As(context.Cause(ctx), &held) {
			return held
		}
		e.Code = api.CodeTimeout
		if errors.Is(err, context.DeadlineExceeded) {
			e.Message = strings.TrimSuffix("the map did not end within the job's time: "+strings.TrimSuffix(err.Error(), context.DeadlineExceeded.Error()), ": ")
		}
		return (&e).WithHint("a longer time: --timeout")
	}
	return &e
}

func (m *mapping) aggregate(ctx context.Context, end *api.MapEnd) ([]byte, error) {
	reducer, err := reduce.Parse(m.req.Reduce)
	if err != nil {
		return nil, err
	}
	collected := reducer
	if m.req.Combine != "" {
		if collected, err = reduce.Parse("none"); err != nil { // combine needs the pairs themselves
			return nil, err
		}
	}
	ctx, m.stop = context.WithCancel(ctx)
	defer m.stop()
	m.collected = collected
	if err := m.plan(); err != nil {
		return nil, err
	}
	for range m.workers.Size() {
		m.widen(ctx)
	}
	m.crew.Wait()
	if m.failed != nil {
		return nil, m.failed
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	all := m.tables[0]
	for _, t := range m.tables[1:] {
		if err := all.Merge(t); err != nil {
			return nil, err
		}
	}
	end.Pairs = all.Pairs()
	if m.req.Combine != "" {
		if all, err = m.combine(ctx, all, reducer); err != nil {
			return nil, err
		}
	}
	return all.AppendState(nil)
}

// plan finds the buckets with something to map.
func (m *mapping) plan() error {
	all := m.p.buckets
	holding, err := m.p.claim.snap.Holding(all, m.req.Space, len(all))
	if err != nil {
		return err
	}
	m.p.progress.buckets.Store(int64(len(all) - len(holding)))
	m.todo = make([]int, len(holding))
	i := 0
	for k, b := range holding {
		for all[i] != b {
			i++
		}
		m.todo[k] = i
	}
	return nil
}

// combine runs the module's combine function over the storage's pairs.
func (m *mapping) combine(ctx context.Context, pairs *reduce.Table, reducer reduce.Reducer) (*reduce.Table, error) {
	out := reduce.NewTable(reducer, m.memory)
	out.StartBucket(m.p.buckets[0]) // combine has no bucket; this one is no other storage's
	m.workers.admit(true)
	defer m.workers.dismiss()
	p := m.workers.place(m.owner())
	if err := p.take(ctx); err != nil {
		return nil, noPlace(ctx, m.workers.Size())
	}
	defer p.leave()
	guest, err := m.open(ctx, p)
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	figures, err := group(ctx, guest, p, m.req.Combine, pairs, out)
	m.count(figures)
	return out, err
}

// group runs a combine or reduce function over the pairs of a table.
func group(ctx context.Context, guest Guest, p *place, function string, pairs *reduce.Table, out Sink) (Figures, error) {
	groups, err := pairs.Grouped()
	if err != nil {
		return Figures{}, err
	}
	return guest.Group(ctx, function, batches{groups, p}, out)
}

// owner is for whom the map's guests run.
func (m *mapping) owner() owner { return owner{m.req.Client, m.req.Job} }

// widen starts one more worker, if there is work for it and there are not too many guests; the first in any case.
func (m *mapping) widen(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.tables)
	if n == m.workers.Size() || n > 0 && max(n, int(m.next.Load())+1) >= len(m.todo) || !m.workers.admit(n == 0) {
		return
	}
	table := reduce.NewTable(m.collected, m.memory)
	m.tables = append(m.tables, table)
	m.crew.Go(func() {
		defer m.workers.dismiss()
		m.work(ctx, table)
	})
}

// work takes buckets in turn until none is left or somebody has failed.
func (m *mapping) work(ctx context.Context, table *reduce.Table) {
	w := &worker{m: m, table: table, place: m.workers.place(m.owner())}
	err := w.run(ctx)
	w.closeGuest()
	w.place.leave()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		return
	}
	// A worker that only waited for its turn knows less than one whose guest was stopped.
	if m.failed == nil || errors.Is(m.failed, context.Canceled) || errors.Is(m.failed, context.DeadlineExceeded) {
		m.failed = err
	}
	m.stop()
}

// count adds figures to the map's.
func (m *mapping) count(f Figures) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counters = addCounters(m.counters, f.Counters)
	m.fuel.Total += f.Fuel
}

// countBucket adds a bucket's figures.
func (m *mapping) countBucket(b buckets.ID, f Figures) {
	m.count(f)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fuel = largerBucket(m.fuel, api.Fuel{Bucket: int(b), BucketMax: f.Fuel})
}

// addCounters adds counters to a sum that may still be nil.
func addCounters(sum, counters map[string]int64) map[string]int64 {
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if sum == nil {
			sum = map[string]int64{}
		}
		sum[name] += counters[name]
	}
	return sum
}

// largerBucket is f with the larger of two largest buckets, of equal ones the first.
func largerBucket(f, other api.Fuel) api.Fuel {
	if other.BucketMax > f.BucketMax || other.BucketMax == f.BucketMax && other.BucketMax > 0 && other.Bucket < f.Bucket {
		f.Bucket, f.BucketMax = other.Bucket, other.BucketMax
	}
	return f
}

// perRecord completes the figures of guests; nil if none ran.
func perRecord(f api.Fuel, records uint64) *api.Fuel {
	if f.Total == 0 {
		return nil
	}
	if records > 0 {
		f.PerRecord = float64(f.Total) / float64(records)
	}
	return &f
}
