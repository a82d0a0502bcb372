package node

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/reduce"
)

// How much of skipped records is kept and listed.
const (
	keptKey    = 256 // bytes of a key
	keptReason = 256
	maxListed  = 100 // records in a report
	maxNamed   = 3   // records in an error's message

	mostSkipped = 10_000
)

// bucketSkipping runs the job's function over a bucket and leaves out the records at which it fails. All of
// the bucket's output is that of one run in which nothing failed: it goes to a table of its own first.
func (w *worker) bucketSkipping(ctx context.Context, b buckets.ID) error {
	var skip []uint64
	for {
		scratch := reduce.NewTable(w.table.Reducer(), w.m.memory)
		in, err := w.mapInto(ctx, b, skip, scratch)
		if err == nil {
			return w.table.Merge(scratch)
		}
		if in == nil || ctx.Err() != nil || !userFault(err) {
			return err
		}
		in.undo()
		w.closeGuest()
		bad, err := w.locate(ctx, b, in, err)
		if bad == nil {
			return err
		}
		if err := w.m.skip(skippedRecord(b, bad, err)); err != nil {
			return err
		}
		i, _ := slices.BinarySearch(skip, bad.batch)
		skip = slices.Insert(skip, i, bad.batch)
	}
}

// skippedRecord describes the record at which a source stopped.
func skippedRecord(b buckets.ID, at *source, err error) api.SkippedRecord {
	e := api.AsError(err)
	reason := cmp.Or(e.Details["reason"], e.Message)
	if len(reason) > keptReason {
		reason = strings.ToValidUTF8(reason[:keptReason-3], "") + "..."
	}
	return api.SkippedRecord{Bucket: uint16(b), Record: at.batch, Key: at.key, Reason: reason}
}

// skip notes a record that is left out, and fails if those are too many.
func (m *mapping) skip(r api.SkippedRecord) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skipped = append(m.skipped, r)
	if len(m.skipped) > m.req.MaxSkip {
		return tooManySkipped(m.req.MaxSkip, m.skipped)
	}
	return nil
}

// tooManySkipped is the error of a job whose function fails at more records than may be left out.
func tooManySkipped(limit int, skipped []api.SkippedRecord) error {
	var named []string
	for _, r := range sortSkipped(skipped)[:min(len(skipped), maxNamed)] {
		named = append(named, fmt.Sprintf("bucket %d, record %d of key %.80q: %s", r.Bucket, r.Record, buckets.KeyText(r.Key), r.Reason))
	}
	return api.Errorf(api.CodeLimitExceeded, "the function fails at more than max_skip (%d) records; some are %s", limit, strings.Join(named, "; ")).
		WithHint("mend the function or the records, or allow more: --on-error skip:N").
		With("limit", "max_skip")
}

// firstSkipped are the first records of a list by bucket and number, about so many bytes of it.
func firstSkipped(skipped []api.SkippedRecord, bytes int) []api.SkippedRecord {
	list := sortSkipped(skipped)
	list = list[:min(len(list), maxListed)]
	size := 0
	for i, r := range list {
		if size += skippedSize(r); size > bytes {
			return list[:i]
		}
	}
	return list
}

func sortSkipped(skipped []api.SkippedRecord) []api.SkippedRecord {
	return slices.SortedFunc(slices.Values(skipped), func(a, b api.SkippedRecord) int {
		return cmp.Or(cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(a.Record, b.Record))
	})
}

// skippedSize is at most what a skipped record takes in a message of either format.
func skippedSize(r api.SkippedRecord) int { return 96 + textSize(r.Key) + textSize([]byte(r.Reason)) }

// listedBytes is how much of a message a list of skipped records may take.
func listedBytes(maxPayload int) int { return maxPayload / 8 }

func (j *job) listedBytes() int {
	if j.r.ports.Peers == nil {
		return math.MaxInt // nothing travels
	}
	return listedBytes(j.r.ports.Peers.MaxPayload())
}
