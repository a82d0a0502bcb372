package pinion

import (
	"context"
	"iter"
	"slices"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Result is a finished job.
type Result struct {
	Job   string
	Stats api.JobStats

	client    *Client
	first     api.JobReply // the first page
	pageBytes int
	job       Job
}

// Rows yields the rows in the job's order. They are fetched page by page, so that a result of any size can be
// read; after an error nothing follows. It can be called again while the router keeps the result, which is
// some minutes. A row's bytes are the caller's.
func (r *Result) Rows(ctx context.Context) iter.Seq2[api.Row, error] {
	return func(yield func(api.Row, error) bool) {
		page := r.first
		for {
			for _, row := range page.Rows {
				if !yield(row, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			last := page.Next
			var err error
			page, err = r.client.fetch(ctx, api.ResultRequest{Job: r.Job, Cursor: last, MaxBytes: r.pageBytes})
			if err == nil && page.Next == last {
				err = api.Errorf(api.CodeInternal, "the router answered cursor %s with the same one", last)
			}
			if err != nil {
				yield(api.Row{}, err)
				return
			}
		}
	}
}

// Wanted lists the buckets that the job had to cover, ascending, in a cluster of n.
func (r *Result) Wanted(n int) []uint16 {
	var list []uint16
	switch {
	case len(r.job.Keys) > 0:
		for _, key := range r.job.Keys {
			list = append(list, uint16(buckets.Of(key, n)))
		}
	case len(r.job.Buckets) > 0:
		list = slices.Clone(r.job.Buckets)
	default:
		for b := range n {
			list = append(list, uint16(b))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// CheckCoverage looks the proof of the job over: that of n buckets each that the job had to cover was pinned,
// exactly once, and no other. The error is a COVERAGE one that names the buckets.
func (r *Result) CheckCoverage(n int) error {
	times := make([]int, n)
	for _, b := range r.Wanted(n) {
		times[b]-- // pinned once, it is 0
	}
	var wrong []buckets.ID
	for _, p := range r.Stats.Pinned {
		for _, b := range p.Buckets {
			if int(b.Bucket) >= n {
				wrong = append(wrong, buckets.ID(b.Bucket))
				continue
			}
			times[b.Bucket]++
		}
	}
	for b, count := range times {
		if count != 0 {
			wrong = append(wrong, buckets.ID(b))
		}
	}
	if len(wrong) > 0 {
		return api.Errorf(api.CodeCoverage, "job %s did not read each bucket exactly once: %s", r.Job, buckets.Ranges(wrong)).With("job", r.Job)
	}
	return nil
}
