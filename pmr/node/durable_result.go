package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
)

const (
	resultVersion = 1
	resultPiece   = 1 << 20  // bytes of rows in one object, about
	resultCache   = 64 << 20 // bytes of pieces that a router keeps to serve them
	storedHome    = "stored" // in place of a router's name in cursors: any router serves them. No router has this name
)

// resultName is the name of a take's result. A take has one result at the most, so no two share a name.
func resultName(job string, take int) string { return job + "." + strconv.Itoa(take) }

// pieceName is the name of a piece of a result.
func pieceName(result string, piece int) string { return result + "." + strconv.Itoa(piece) }

// parseResultName tells of which take an object is.
func parseResultName(name string) (job string, take int, ok bool) {
	job, rest, found := strings.Cut(name, ".")
	number, _, _ := strings.Cut(rest, ".")
	take, err := strconv.Atoi(number)
	return job, take, found && err == nil
}

// storeResult stores the result of a job that is over, and returns its name and size. The head comes last, so that
// what has one is whole.
func (r *Router) storeResult(ctx context.Context, j *job) (name string, size uint64, err error) {
	j.mu.Lock()
	rows, stats, certificate := j.rows, j.stats, j.certificate
	j.mu.Unlock()
	name = resultName(j.id, j.take)
	head := api.ResultIndex{Version: resultVersion, Job: j.id, Take: j.take, Stats: stats, Certificate: certificate}
	var pending []api.Row
	room := resultPiece
	flush := func(first int) error {
		n, err := r.putResult(ctx, pieceName(name, len(head.Pieces)), api.ResultPiece{Version: resultVersion, First: uint64(first), Rows: pending})
		head.Pieces = append(head.Pieces, uint64(first))
		size += n
		pending, room = pending[:0], resultPiece
		return err
	}
	for i := range rows.Len() {
		row := rows.Row(i)
		if n := bareSize(row); n > room && len(pending) > 0 {
			if err := flush(i - len(pending)); err != nil {
				return name, size, err
			}
		}
		pending = append(pending, row)
		room -= bareSize(row)
	}
	if len(head.Pieces) == 0 {
		head.Rows = pending
	} else if err := flush(rows.Len() - len(pending)); err != nil {
		return name, size, err
	}
	n, err := r.putResult(ctx, name, head)
	return name, size + n, err
}

func (r *Router) putResult(ctx context.Context, name string, v any) (uint64, error) {
	body, err := api.Encode(api.Msgpack, v)
	if err != nil {
		return 0, err
	}
	return uint64(len(body)), r.ports.Results.Put(ctx, name, bytes.NewReader(body))
}

// dropResult removes a result that does not count. What stays is swept.
func (r *Router) dropResult(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := r.ports.Results.Delete(ctx, name); err != nil {
		r.logger.Debug("cannot remove a result; it is swept", "result", name, "reason", err)
	}
}

// resultObjects keeps decoded parts of stored results, those last used longest.
type resultObjects struct {
	mu    sync.Mutex
	kept  []keptObject // the one used last at the end
	bytes int
}

type keptObject struct {
	name  string
	bytes int
	value any
}

func (o *resultObjects) get(name string) any {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.kept, func(k keptObject) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	k := o.kept[i]
	o.kept = append(slices.Delete(o.kept, i, i+1), k)
	return k.value
}

func (o *resultObjects) put(k keptObject) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = append(o.kept, k)
	o.bytes += k.bytes
	for o.bytes > resultCache && len(o.kept) > 1 {
		o.bytes -= o.kept[0].bytes
		o.kept = slices.Delete(o.kept, 0, 1)
	}
}

// loadResult reads a part of a stored result. What it returns is shared.
func loadResult[T any](ctx context.Context, r *Router, name string, version func(*T) int) (*T, error) {
	if v, ok := r.results.get(name).(*T); ok {
		return v, nil
	}
	object, err := r.ports.Results.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = object.Close() }()
	body, err := io.ReadAll(object)
	if err != nil {
		return nil, fmt.Errorf("node: result %s: %w", name, err)
	}
	v := new(T)
	if err := api.Decode(body, v, api.Lenient); err != nil {
		return nil, fmt.Errorf("node: result %s: %w", name, err)
	}
	if found := version(v); found > resultVersion {
		return nil, api.Errorf(api.CodeVersion, "the stored result %s has version %d; this program reads %d", name, found, resultVersion).
			WithHint("use the newer program")
	}
	r.results.put(keptObject{name, 4*len(body) + 1024, v}) // rows take more room than their bytes
	return v, nil
}

func (r *Router) resultHead(ctx context.Context, name string) (*api.ResultIndex, error) {
	return loadResult(ctx, r, name, func(h *api.ResultIndex) int { return h.Version })
}

// window is the rows from a number on, under the numbers that they have in the whole.
type window struct {
	first int
	rows  fewRows
}

func (w window) Len() int { return w.first + len(w.rows) }

func (w window) Row(i int) api.Row { return w.rows[i-w.first] }

// storedPage is a page of the stored result of a job that is done: see job.page.
func (r *Router) storedPage(ctx context.Context, rec api.JobRecord, page, maxBytes int) (api.JobReply, error) {
	head, err := r.resultHead(ctx, rec.Result)
	if err != nil {
		return api.JobReply{}, err
	}
	w := window{0, head.Rows}
	if len(head.Pieces) > 0 {
		i, exact := slices.BinarySearch(head.Pieces, uint64(max(page-1, 0)))
		if !exact {
			i--
		}
		piece, err := loadResult(ctx, r, pieceName(rec.Result, i), func(p *api.ResultPiece) int { return p.Version })
		if err != nil {
			return api.JobReply{}, err
		}
		w = window{int(piece.First), piece.Rows}
	}
	j := &job{r: r, id: rec.Job, home: storedHome, rows: w, stats: head.Stats}
	reply, err := j.page(page, maxBytes)
	if err == nil && reply.Next == "" && uint64(w.Len()) < head.Stats.Rows {
		reply.Next = j.cursor(w.Len() + 1)
	}
	return reply, err
}

// storedCertificate is Certificate for a durable job.
func (r *Router) storedCertificate(ctx context.Context, rec api.JobRecord) (c api.Certificate, err error) {
	switch {
	case !rec.State.Over():
		return c, api.Errorf(api.CodeBusy, "job %s has not ended", rec.Job).WithHint("its certificate is made when it is done")
	case rec.Error != nil:
		return c, rec.Error.With("job", rec.Job)
	}
	head, err := r.resultHead(ctx, rec.Result)
	if err == nil {
		err = api.Decode(head.Certificate, &c, api.Strict)
	}
	return c, err
}

// durableResult is Result for a durable job. Its rows can be had when it is done, from any router.
func (r *Router) durableResult(ctx context.Context, id string, wait time.Duration, page, maxBytes int) (api.JobReply, error) {
	rec, err := r.awaitRecord(ctx, id, wait)
	switch {
	case err != nil:
		return api.JobReply{}, err
	case !rec.State.Over():
		return api.JobReply{Job: id, Status: api.JobRunning, Rows: []api.Row{}, Next: storedHome + ".0"}, nil
	case rec.Error != nil:
		return api.JobReply{}, rec.Error.With("job", id)
	}
	return r.storedPage(ctx, rec, page, maxBytes)
}

// awaitRecord reads a durable job's record until it is over or a time has passed.
func (r *Router) awaitRecord(ctx context.Context, id string, wait time.Duration) (api.JobRecord, error) {
	until := time.Now().Add(wait)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		rec, revision, err := r.record(ctx, id)
		switch {
		case err != nil:
			return rec, err
		case revision == 0 || !rec.Durable:
			return rec, r.unknownJob(id)
		case rec.State.Over() || !time.Now().Before(until):
			return rec, nil
		}
		r.mu.Lock()
		here := r.takes[id]
		r.mu.Unlock()
		var ended chan struct{}
		if here != nil {
			ended = here.ended
		}
		timer := time.NewTimer(min(pause, time.Until(until)))
		select {
		case <-timer.C:
		case <-ended:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return rec, ctx.Err()
		}
	}
}
