package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/reduce"
)

// worker runs buckets one after the other, with an instance of its own.
type worker struct {
	m     *mapping
	table *reduce.Table
	place *place
	guest Guest // opened at the first record

	counted int64  // of the table's bytes, in pinned.memory
	records uint64 // that the last run of a bucket has read
}

func (w *worker) run(ctx context.Context) error {
	for {
		w.m.widen(ctx)
		next := int(w.m.next.Add(1)) - 1
		if next >= len(w.m.todo) {
			return nil
		}
		i := w.m.todo[next]
		if err := w.turn(ctx); err != nil {
			return noPlace(ctx, w.m.workers.Size())
		}
		before := w.table.Pairs()
		err := w.bucket(ctx, w.m.p.buckets[i])
		w.m.records[i], w.m.pairs[i] = w.records, w.table.Pairs()-before
		if err == nil {
			err = w.checkMemory()
		}
		if err != nil {
			return err
		}
		w.m.p.progress.buckets.Add(1)
	}
}

// turn gets a place. Buckets that take no time share a turn.
func (w *worker) turn(ctx context.Context) error {
	if w.place.held {
		return w.place.yield(ctx)
	}
	return w.place.take(ctx)
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
	used := w.m.p.memory.Add(now - w.counted)
	w.counted = now
	if used > w.m.memory {
		return reduce.TooMuch(used, w.m.memory)
	}
	return nil
}

// bucket runs the job's function over a bucket. If it fails, the record is found at which it does.
func (w *worker) bucket(ctx context.Context, b buckets.ID) error {
	if w.m.req.OnError == api.OnErrorSkip {
		return w.bucketSkipping(ctx, b)
	}
	in, err := w.mapInto(ctx, b, nil, w.table)
	if err != nil && w.m.req.Module != "" && ctx.Err() == nil && userFault(err) {
		w.closeGuest()
		_, err = w.locate(ctx, b, in, err)
	}
	return err
}

// mapInto runs the job's function over a bucket's records, but for some, into a table. It returns what it has
// read, nil if there was nothing to read from.
func (w *worker) mapInto(ctx context.Context, b buckets.ID, skip []uint64, table *reduce.Table) (*source, error) {
	cursor, err := w.m.cursor(b)
	if err != nil {
		return nil, err
	}
	in := newSource(cursor, skip)
	in.progress, in.place = &w.m.p.progress, w.place
	empty, err := in.peek()
	if err == nil && !empty {
		table.StartBucket(b)
		err = w.mapBucket(ctx, b, in, table)
	}
	w.records = in.records
	return in, errors.Join(err, cursor.Close())
}

// mapBucket runs the job's function over a bucket, or passes its records through.
func (w *worker) mapBucket(ctx context.Context, b buckets.ID, in *source, out Sink) error {
	if w.m.req.Module == "" {
		return passThrough(ctx, w.place, in, out)
	}
	if w.guest == nil {
		guest, err := w.m.open(ctx, w.place)
		if err != nil {
			return err
		}
		w.guest = guest
	}
	figures, err := w.guest.Map(ctx, b, in, out)
	if err == nil {
		w.m.countBucket(b, figures)
	}
	return err
}

// closeGuest has the next bucket run in a fresh instance.
func (w *worker) closeGuest() {
	if w.guest != nil {
		w.guest.Close()
		w.guest = nil
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

// locate finds the record at which a bucket fails: it runs the bucket again in a fresh instance, in the same
// batches up to the one that failed, and from there on one record at a time. If no record fails then, all
// run one at a time. It returns what was read up to the failing record, nil if there is none, and the error to
// report. It takes at most half of the time that the job has left.
func (w *worker) locate(ctx context.Context, b buckets.ID, failed *source, first error) (*source, error) {
	if failed == nil {
		return nil, first
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	from := failed.batch
	if failed.ended {
		from = 0 // it was in no batch
	}
	for {
		in, err := w.again(ctx, b, failed.skip, from)
		switch {
		case ctx.Err() != nil || in == nil:
			return nil, first
		case err != nil && !userFault(err):
			return nil, first // that is of this run alone
		case err != nil && in.atRecord():
			return in, err
		case from == 0 && err != nil:
			return nil, err
		case from == 0:
			return nil, first
		}
		from = 0
	}
}

// again runs a bucket in a fresh instance, from a record on one at a time. It returns nothing if that cannot
// be done.
func (w *worker) again(ctx context.Context, b buckets.ID, skip []uint64, single uint64) (*source, error) {
	program, err := w.m.fresh(ctx)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	guest, err := program.Open(ctx, w.place.yield)
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	cursor, err := w.m.cursor(b)
	if err != nil {
		return nil, err
	}
	in := newSource(cursor, skip)
	in.single, in.place = single, w.place
	scratch := reduce.NewTable(w.table.Reducer(), w.m.memory)
	scratch.StartBucket(b)
	if _, err = in.peek(); err == nil {
		_, err = guest.Map(ctx, b, in, scratch)
	}
	return in, errors.Join(err, cursor.Close())
}

// passBatch is the size of the batches that a job without a module reads.
const passBatch = 64 << 10

func passThrough(ctx context.Context, p *place, in Source, out Sink) error {
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
		if err := p.yield(ctx); err != nil {
			return err
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
