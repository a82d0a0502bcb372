package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/internal/guests"
	"github.com/pinion-mr/pinion/pmr/node"
	"github.com/pinion-mr/pinion/wasmhost"
)

// smallBatch is the size of the batches of the second run, in bytes.
const smallBatch = 4 << 10

// runLocal runs a job over files, in this process, and prints its rows.
func (s *session) runLocal(ctx context.Context, job pinion.Job, file *moduleFile, items []importItem, o runOptions) error {
	records, err := s.readDataset(ctx, items, o.local.key)
	if err != nil {
		return err
	}
	says := &guestLines{s: s}
	host, err := newLocalHost(ctx, file, slog.New(says))
	if err != nil {
		return err
	}
	defer host.close()
	began := time.Now()
	result, err := host.runTwice(ctx, records, job)
	if err != nil {
		err = records.locate(err)
		s.printFailure(err, says)
		return err
	}
	stats, err := writeRows(s.rowWriter(o), result, job.Limit)
	if err != nil {
		return err
	}
	for i := range stats.Skipped {
		r := &stats.Skipped[i]
		if path, line, ok := records.place(int(r.Bucket), r.Record); ok {
			r.Reason = fmt.Sprintf("%s:%d: %s", path, line, r.Reason)
		}
	}
	s.noteUnreduced(job, stats)
	s.noteSkipped(stats)
	if o.verbose {
		s.noteFuel(stats)
	}
	s.printCounters(stats)
	twice := ", in two orders with the same answer"
	if job.Module == "" {
		twice = ""
	}
	s.note("%d/%d buckets here%s; %s, %s, %s%s", stats.Buckets, localBuckets, twice,
		count(stats.Records, "record"), byteCount(stats.Bytes), seconds(time.Since(began)), skippedText(stats))
	return nil
}

// writeRows prints the first rows of a result, and returns the figures that stand for them; a limit of 0 is all.
func writeRows(out rowWriter, result *node.LocalResult, limit int) (api.JobStats, error) {
	rows := result.Len()
	if limit > 0 {
		rows = min(rows, limit)
	}
	for i := range rows {
		if err := out.write(result.Row(i)); err != nil {
			return api.JobStats{}, err
		}
	}
	stats := result.Stats
	stats.Rows, stats.Pinned = uint64(rows), nil
	return stats, out.close(stats)
}

// guestLines is a log's handler that shows a guest's log lines as they are, one a line.
type guestLines struct {
	s    *session
	last string // that was shown
}

func (h *guestLines) Enabled(context.Context, slog.Level) bool { return true }

func (h *guestLines) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == guests.Says {
			h.last = a.Value.String()
			h.s.note("guest %s: %s", r.Level, appendEscaped(nil, []byte(a.Value.String()), printable))
		}
		return true
	})
	return nil
}

// covers reports whether a text of a guest, which may be cut at its beginning, ends with the line shown last.
func (h *guestLines) covers(text string) bool {
	text = strings.TrimSpace(text)
	return h != nil && text != "" && strings.TrimSpace(h.last) == strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

func (h *guestLines) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *guestLines) WithGroup(string) slog.Handler      { return h }

// localHost runs jobs of one module in this process.
type localHost struct {
	host      *wasmhost.Host
	catalogue *localCatalogue
	log       *slog.Logger
}

func newLocalHost(ctx context.Context, file *moduleFile, log *slog.Logger) (*localHost, error) {
	host, err := newHost(ctx, compiledFolder())
	if err != nil {
		return nil, err
	}
	return &localHost{host: host, catalogue: newLocalCatalogue(file), log: log}, nil
}

func (h *localHost) close() { _ = h.host.Close(context.Background()) }

// run runs a job over buckets in an order.
func (h *localHost) run(ctx context.Context, records *dataset, job pinion.Job, order []buckets.ID, w way, log *slog.Logger) (*node.LocalResult, error) {
	w.Mapper = guests.Mapper{Host: h.host, Catalogue: h.catalogue}
	local := node.Local{
		Snapshot: records, Buckets: order, Workers: 1, Logger: log,
		Catalogue: h.catalogue, Mapper: w,
	}
	return local.Run(ctx, requestOf(job))
}

// runTwice runs a job twice: over the buckets as they come, in one instance; and the other way round, each in
// an instance of its own and with smaller batches. What a guest carries from one bucket or batch to the next
// does not survive in both: it fails if the answers differ. The result is that of the first run.
func (h *localHost) runTwice(ctx context.Context, records *dataset, job pinion.Job) (*node.LocalResult, error) {
	job.Limit = 0 // rows that are not shown are compared too
	var order []buckets.ID
	for b := range localBuckets {
		order = append(order, buckets.ID(b))
	}
	first, err := h.run(ctx, records, job, order, way{}, h.log)
	if err != nil || job.Module == "" {
		return first, err
	}
	slices.Reverse(order)
	quiet := slog.New(slog.DiscardHandler)
	second, err := h.run(ctx, records, job, order, way{batch: smallBatch, fresh: true}, quiet)
	if err != nil {
		return nil, fmt.Errorf("the job ran through with one instance for all buckets, but not with one for each and smaller batches: %w", err)
	}
	differs := difference(first, second)
	if differs == "" {
		return first, nil
	}
	third, err := h.run(ctx, records, job, order, way{fresh: true}, quiet)
	if err == nil && difference(first, third) == "" {
		return nil, api.Errorf(api.CodeGuestFailed, "the answer depends on how the records of a bucket are cut into batches: %s", differs).
			WithHint("what the guest gathers over several calls must be emitted at the end of the bucket: guest.OnEnd in Go, pmr_finish in C, onEnd in AssemblyScript, pmr::bucket! in Rust, else pmr_end")
	}
	return nil, api.Errorf(api.CodeGuestFailed, "the guest carries state from bucket to bucket: with an instance for each bucket the answer is another: %s", differs).
		WithHint("begin each bucket anew: guest.OnBegin in Go, pmr_begin in C, onBegin in AssemblyScript, pmr::bucket! in Rust, else pmr_init; an instance serves several buckets, in any order")
}

// difference tells the first row in which two results differ.
func difference(a, b *node.LocalResult) string {
	for i := range max(a.Len(), b.Len()) {
		switch {
		case i >= a.Len():
			return "only the second run has " + rowText(b.Row(i))
		case i >= b.Len():
			return "only the first run has " + rowText(a.Row(i))
		}
		x, y := a.Row(i), b.Row(i)
		if !bytes.Equal(x.Key, y.Key) || x.Value.Kind != y.Value.Kind || x.Value.Text() != y.Value.Text() {
			return fmt.Sprintf("row %d is %s, and then %s", i+1, rowText(x), rowText(y))
		}
	}
	return ""
}

// rowText is a row for a message.
func rowText(row api.Row) string {
	const most = 80
	value := appendValue(nil, row.Value, printable)
	return fmt.Sprintf("key %.80s with value %s", appendKey(nil, row.Key, printable), value[:min(len(value), most)])
}

// requestOf is the job as a router gets it.
func requestOf(job pinion.Job) api.JobRequest {
	req := api.JobRequest{
		Job:    "local", // random numbers of guests are the same each time
		Module: job.Module, Function: job.Function, Combine: job.Combine, Reduce: job.Reduce, Sort: job.Sort, Limit: job.Limit,
		TimeoutMS: job.Timeout.Milliseconds(), OnError: job.OnError, MaxSkip: job.MaxSkip,
	}
	for name, value := range job.Params {
		if req.Params == nil {
			req.Params = map[string]api.Bytes{}
		}
		req.Params[name] = value
	}
	return req
}

var errNotHere = errors.New("a job here has no cluster")
