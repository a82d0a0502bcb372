package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	ctx, stop := context.WithTimeout(context.Background(), time.Duration(p.req.TimeoutMS)*time.Millisecond)
	p.stop = stop
	s.work.Go(func() {
		defer stop()
		m := &mapping{workers: s.cfg.Workers, memory: s.cfg.Memory, inline: min(inlineOutput, s.ports.Peers.MaxPayload()/2), p: p, req: p.req}
		m.program = sync.OnceValues(func() (Program, error) { return s.prepare(ctx, p.req, s.logger) })
		m.fresh = func(ctx context.Context) (Program, error) {
			return s.prepare(ctx, p.req, slog.New(slog.DiscardHandler))
		}
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
		_ = s.step(pmr.MapOver{PMR: p.id})
	})
}

// prepare gets a map's module ready.
func (s *Storage) prepare(ctx context.Context, req api.MapRequest, log *slog.Logger) (Program, error) {
	return s.ports.Mapper.Prepare(ctx, Task{
		Job: req.Job, Digest: req.Module, Name: req.Name, Function: req.Function, Params: rawParams(req.Params),
		Timeout: time.Duration(req.TimeoutMS) * time.Millisecond,
		Log:     log.With("job", req.Job, "module", req.Name),
	})
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

// mapping is one run of a map over the buckets of a PMR.
type mapping struct {
	workers Workers
	memory  int64
	inline  int // bytes of output that travel with the end message
	program func() (Program, error)
	p       *pinned
	req     api.MapRequest
	fresh   func(context.Context) (Program, error) // one that counts and logs for itself
	next    atomic.Int64                           // index of the next bucket to take
	used    atomic.Int64                           // bytes of all workers' tables

	mu       sync.Mutex
	counters map[string]int64
	failed   error
	stop     context.CancelFunc
	opened   bool // the program was asked for
}

// open makes an instance of the job's module.
func (m *mapping) open(ctx context.Context) (Guest, error) {
	m.mu.Lock()
	m.opened = true
	m.mu.Unlock()
	program, err := m.program()
	if err != nil {
		return nil, err
	}
	return program.Open(ctx)
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
	if len(output) <= m.inline {
		end.Output = output
	}
	return output, end
}

// mapError is how a map's failure is told. The time limit is the job's, whoever noticed it.
func mapError(ctx context.Context, err error) *api.Error {
	e := *api.AsError(err)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
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
	tables := make([]*reduce.Table, min(cap(m.workers), max(1, len(m.p.buckets))))
	var workers sync.WaitGroup
	for i := range tables {
		tables[i] = reduce.NewTable(collected, m.memory)
		workers.Go(func() { m.work(ctx, tables[i]) })
	}
	workers.Wait()
	if m.failed != nil {
		return nil, m.failed
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	all := tables[0]
	for _, t := range tables[1:] {
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

// combine runs the module's combine function over the storage's pairs.
func (m *mapping) combine(ctx context.Context, pairs *reduce.Table, reducer reduce.Reducer) (*reduce.Table, error) {
	out := reduce.NewTable(reducer, m.memory)
	out.StartBucket(m.p.buckets[0]) // combine has no bucket; this one is no other storage's
	select {
	case m.workers <- struct{}{}: // as for a bucket
		defer func() { <-m.workers }()
	case <-ctx.Done():
		return nil, noPlace(ctx, cap(m.workers))
	}
	guest, err := m.open(ctx)
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	return out, group(ctx, guest, m.req.Combine, pairs, out)
}

// group runs a combine or reduce function over the pairs of a table.
func group(ctx context.Context, guest Guest, function string, pairs *reduce.Table, out Sink) error {
	groups, err := pairs.Grouped()
	if err != nil {
		return err
	}
	return guest.Group(ctx, function, groups, out)
}

// work takes buckets in turn until none is left or somebody has failed.
func (m *mapping) work(ctx context.Context, table *reduce.Table) {
	w := &worker{m: m, table: table}
	err := w.run(ctx)
	if w.guest != nil {
		w.guest.Close()
	}
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

// worker runs buckets one after the other, with an instance of its own.
type worker struct {
	m     *mapping
	table *reduce.Table
	guest Guest // opened at the first record

	counted int64 // of the table's bytes, in mapping.used
}

func (w *worker) run(ctx context.Context) error {
	for {
		i := int(w.m.next.Add(1)) - 1
		if i >= len(w.m.p.buckets) {
			return nil
		}
		select {
		case w.m.workers <- struct{}{}:
		case <-ctx.Done():
			return noPlace(ctx, cap(w.m.workers))
		}
		err := w.bucket(ctx, w.m.p.buckets[i])
		<-w.m.workers
		if err == nil {
			err = w.checkMemory()
		}
		if err != nil {
			return err
		}
		w.m.p.progress.buckets.Add(1)
	}
}

// noPlace says that a job's time was over, or it was given up, before there was a place for its guest.
func noPlace(ctx context.Context, places int) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return fmt.Errorf("waited in vain for a place to run: guests of other jobs held all %d: %w", places, ctx.Err())
}

// checkMemory counts the worker's table with those of the others. Each table alone is bounded too, so that
// together they pass the limit by one bucket's output each at the most.
func (w *worker) checkMemory() error {
	now := w.table.Bytes()
	used := w.m.used.Add(now - w.counted)
	w.counted = now
	if used > w.m.memory {
		return reduce.TooMuch(used, w.m.memory)
	}
	return nil
}

func (w *worker) bucket(ctx context.Context, b buckets.ID) error {
	cursor, err := w.m.p.claim.snap.Scan(b, w.m.req.Space)
	if err != nil {
		return err
	}
	in := &source{cursor: cursor, progress: &w.m.p.progress}
	empty, err := in.peek()
	if err == nil && !empty {
		w.table.StartBucket(b)
		err = w.mapBucket(ctx, b, in)
	}
	err = errors.Join(err, cursor.Close())
	if err != nil && ctx.Err() == nil && w.m.req.Module != "" && userFault(err) {
		err = w.locate(ctx, b, err)
	}
	return err
}

// mapBucket runs the job's function over a bucket, or passes its records through.
func (w *worker) mapBucket(ctx context.Context, b buckets.ID, in *source) error {
	if w.m.req.Module == "" {
		return passThrough(ctx, in, w.table)
	}
	if w.guest == nil {
		guest, err := w.m.open(ctx)
		if err != nil {
			return err
		}
		w.guest = guest
	}
	counters, err := w.guest.Map(ctx, b, in, w.table)
	w.m.count(counters)
	return err
}

func (m *mapping) count(counters map[string]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if m.counters == nil {
			m.counters = map[string]int64{}
		}
		m.counters[name] += counters[name]
	}
}

// userFault reports whether the guest or its output was at fault, so that the record can be found.
func userFault(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeGuestFailed, api.CodeTypeMismatch, api.CodeRecordTooBig:
		return true
	}
	return false
}

// locate runs a bucket again in a fresh instance, one record at a time, to find the record at which it
// fails. If it then fails nowhere, the first error stands.
func (w *worker) locate(ctx context.Context, b buckets.ID, first error) error {
	cursor, err := w.m.p.claim.snap.Scan(b, w.m.req.Space)
	if err != nil {
		return first
	}
	program, err := w.m.fresh(ctx)
	if err != nil {
		return errors.Join(first, cursor.Close())
	}
	defer program.Close()
	guest, err := program.Open(ctx)
	if err != nil {
		return errors.Join(first, cursor.Close())
	}
	scratch := reduce.NewTable(w.table.Reducer(), w.m.memory)
	scratch.StartBucket(b)
	_, again := guest.Map(ctx, b, &source{cursor: cursor, single: true}, scratch)
	guest.Close()
	err = cursor.Close()
	if again != nil && ctx.Err() == nil {
		first = again
	}
	if err != nil {
		return errors.Join(first, err)
	}
	return first
}

// passBatch is the size of the batches that a job without a module reads.
const passBatch = 64 << 10

func passThrough(ctx context.Context, in Source, out Sink) error {
	var batch []byte
	for {
		var n int
		var err error
		if batch, n, err = in.Fill(batch[:0], passBatch); err != nil || n == 0 {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for rest := batch; len(rest) > 0; {
			f, tail, err := buckets.CutFrame(rest)
			if err != nil {
				return fmt.Errorf("node: the store's frames: %w", err)
			}
			if err := out.Emit(0, f.Key, f.Value); err != nil {
				return err
			}
			rest = tail
		}
	}
}

// source counts what is read from a cursor. The first batch can be looked at before anything runs.
type source struct {
	cursor   buckets.Cursor
	progress *progress
	single   bool // one record a batch
	first    []byte
	records  int
}

// peek reports whether there is no record at all.
func (s *source) peek() (empty bool, err error) {
	s.first, s.records, err = s.cursor.Fill(nil, passBatch)
	return s.records == 0, err
}

// Fill is buckets.Cursor's.
func (s *source) Fill(dst []byte, limit int) ([]byte, int, error) {
	start := len(dst)
	var n int
	var err error
	switch {
	case s.records > 0:
		dst, n = append(dst, s.first...), s.records
		s.first, s.records = nil, 0
	case s.single:
		dst, n, err = s.cursor.Fill(dst, start+1)
	default:
		dst, n, err = s.cursor.Fill(dst, limit)
	}
	if s.progress != nil && n > 0 {
		s.progress.records.Add(uint64(n))
		s.progress.bytes.Add(uint64(len(dst) - start - n*buckets.FrameHeader))
	}
	return dst, n, err
}
