package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
	"github.com/pinion-mr/pinion/pmr/reduce"
)

// appendCut fixes a position of the log for a job's attempt.
func appendCut(ctx context.Context, log Log, job string, attempt int) (uint64, error) {
	cut := buckets.Cut{Job: job, Attempt: attempt}
	return appendEntry(ctx, log, buckets.SubjectCut, cut, fmt.Sprintf("cut-%s-%d-%s", job, attempt, newID()))
}

// collect merges the output of all maps, in order of storage, reduces it and brings it into order.
func (j *job) collect(ctx context.Context, attempt int) {
	ends := map[string]api.MapEnd{}
	j.mu.Lock()
	for _, m := range j.maps {
		ends[m.storage] = *m.end
	}
	j.mu.Unlock()
	free, err := j.allot(ctx, ends)
	if err == nil {
		err = j.collectInto(ctx, ends, free)
	}
	if err != nil {
		j.tell(pmr.Collected{Attempt: attempt, Err: api.AsError(err)})
		return
	}
	j.tell(pmr.Collected{Attempt: attempt})
}

// collectInto collects with memory that was allotted.
func (j *job) collectInto(ctx context.Context, ends map[string]api.MapEnd, free func()) error {
	rows, memory, err := j.reduce(ctx, ends)
	var output string
	if err == nil {
		output, err = digestRows(ctx, rows)
	}
	if err != nil {
		free()
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended.IsZero() { // else the job ran out of time meanwhile
		j.rows, j.memory, j.output = rows, memory, output
	}
	j.keepAllotted(free)
	return nil
}

func (j *job) reduce(ctx context.Context, ends map[string]api.MapEnd) (resultRows, int64, error) {
	if err := j.checkSkips(ends); err != nil {
		return nil, 0, err
	}
	all := reduce.NewTable(j.reducer, j.r.cfg.Memory)
	for _, storage := range slices.Sorted(maps.Keys(ends)) {
		output, err := j.fetch(ctx, ends[storage])
		if err != nil {
			return nil, 0, about(storage, "fetch", err)
		}
		if err := all.MergeState(output); err != nil {
			return nil, 0, fmt.Errorf("node: output of storage %s: %w", storage, err)
		}
	}
	if fn := j.reducer.Function(); fn != "" {
		none, err := reduce.Parse("none")
		if err != nil {
			return nil, 0, err
		}
		reduced := reduce.NewTable(none, j.r.cfg.Memory)
		if err := j.runReduce(ctx, fn, all, reduced); err != nil {
			return nil, 0, err
		}
		all = reduced
	}
	rows, err := all.Rows(j.sort, j.req.Limit)
	if err != nil {
		return nil, 0, err
	}
	if j.req.Limit > 0 {
		few := copyRows(rows)
		return few, few.bytes(), nil
	}
	return rows, all.Bytes(), nil
}

// checkSkips fails if the storages together left out more records than the job allows.
func (j *job) checkSkips(ends map[string]api.MapEnd) error {
	var skipped []api.SkippedRecord
	n := uint64(0)
	for _, storage := range slices.Sorted(maps.Keys(ends)) {
		n += ends[storage].Skips
		skipped = append(skipped, ends[storage].Skipped...)
	}
	if n > uint64(j.req.MaxSkip) {
		return tooManySkipped(j.req.MaxSkip, skipped)
	}
	return nil
}

// resultRows is a job's result in order, kept for paging.
type resultRows interface {
	Len() int
	Row(i int) api.Row
}

// fewRows are rows without the table that they came from.
type fewRows []api.Row

func (r fewRows) Len() int { return len(r) }

func (r fewRows) Row(i int) api.Row { return r[i] }

func (r fewRows) bytes() int64 {
	n := int64(0)
	for _, row := range r {
		n += int64(rowSize(row))
	}
	return n
}

func copyRows(rows *reduce.Rows) fewRows {
	few := make(fewRows, rows.Len())
	for i := range few {
		row := rows.Row(i)
		row.Key, row.Value.Bytes = slices.Clone(row.Key), slices.Clone(row.Value.Bytes)
		few[i] = row
	}
	return few
}

// runReduce runs the module's reduce function over all pairs, in this process.
func (j *job) runReduce(ctx context.Context, function string, pairs, out *reduce.Table) error {
	left := j.timeout - time.Since(j.began)
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	program, err := j.r.ports.Mapper.Prepare(ctx, Task{
		Job: j.id, Digest: j.module.Digest, Name: j.moduleName(), Function: function, Params: rawParams(j.req.Params),
		Timeout: j.timeout, Log: j.r.logger.With("job", j.id, "module", j.req.Module),
	})
	if err != nil {
		return err
	}
	defer program.Close()
	j.r.cfg.Workers.admit(true)
	defer j.r.cfg.Workers.dismiss()
	p := j.r.cfg.Workers.place(owner{j.req.Client, j.id})
	if err := p.take(ctx); err != nil {
		return mapError(ctx, noPlace(ctx, j.r.cfg.Workers.Size()))
	}
	defer p.leave()
	guest, err := program.Open(ctx, p.yield)
	if err != nil {
		return mapError(ctx, err)
	}
	defer guest.Close()
	figures, err := group(ctx, guest, p, function, pairs, out)
	if err != nil {
		return mapError(ctx, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reduced = figures
	return nil
}

// fetch returns a map's output: what came with its end, or piece by piece.
func (j *job) fetch(ctx context.Context, end api.MapEnd) ([]byte, error) {
	if uint64(len(end.Output)) == end.Size {
		return end.Output, nil
	}
	output := make([]byte, 0, min(end.Size, uint64(j.r.cfg.Memory)))
	for uint64(len(output)) < end.Size {
		piece, err := j.fetchPiece(ctx, end, uint64(len(output)))
		if err != nil {
			return nil, err
		}
		output = append(output, piece...)
	}
	return output, nil
}

func (j *job) fetchPiece(ctx context.Context, end api.MapEnd, cursor uint64) (api.Bytes, error) {
	var reply api.FetchReply
	err := retry(ctx, DefaultSilence, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		req := api.FetchRequest{PMR: end.PMR, Cursor: cursor, MaxBytes: min(pieceBytes, j.r.ports.Peers.MaxPayload()-envelope)}
		return j.r.ports.Peers.Request(ctx, "storage."+end.Storage+".fetch", req, &reply)
	})
	switch {
	case api.CodeOf(err) == api.CodeTimeout && ctx.Err() == nil: // the storage is gone, the job's time is not over
		return nil, api.Errorf(api.CodeLost, "storage %s does not give its output: %v", end.Storage, err)
	case err != nil:
		return nil, err
	case xxhash.Sum64(reply.Data) != reply.Checksum || len(reply.Data) == 0 || reply.Size != end.Size:
		return nil, api.Errorf(api.CodeLost, "the piece at %d of %d bytes is damaged", cursor, end.Size)
	}
	return reply.Data, nil
}
