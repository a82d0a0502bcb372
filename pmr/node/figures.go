package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

const (
	mostFigures  = 1024
	countedBatch = 256 << 10
	// Without being told to count, a storage spends a moment on an answer, and leaves out what takes longer.
	countBriefly = 50 * time.Millisecond
	countOne     = 250 * time.Millisecond
)

// counts are what a storage has counted in its buckets. Counting reads a bucket, so it is not done again for one that
// has not changed.
type counts struct {
	counting chan struct{} // the place of the one request that counts; of size 1

	mu sync.Mutex
	of map[buckets.ID]counted
}

func newCounts() counts {
	return counts{counting: make(chan struct{}, 1), of: map[buckets.ID]counted{}}
}

// counted is what a bucket held at a position. It holds as long as generation and last are those of the bucket.
type counted struct {
	records, bytes   uint64
	at               uint64
	generation, last uint64 // last is the bucket's last record entry
}

// Buckets tells what this storage has of buckets.
func (s *Storage) Buckets(ctx context.Context, req api.FiguresRequest) (api.FiguresReply, error) {
	if len(req.Buckets) > mostFigures {
		return api.FiguresReply{}, api.Errorf(api.CodeBadRequest, "%d buckets; at most %d are told at a time", len(req.Buckets), mostFigures)
	}
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return api.FiguresReply{}, err
	}
	defer leave()
	if req.Count { // what was written before the request counts too
		barrier, err := s.applier.Barrier(ctx)
		if err == nil {
			err = s.applier.WaitApplied(ctx, barrier)
		}
		if err != nil {
			return api.FiguresReply{}, s.orStopping(err)
		}
	}
	// Who waits for the place holds no snapshot meanwhile.
	counts, err := s.counts.enter(ctx, req.Count)
	if err != nil {
		return api.FiguresReply{}, s.orStopping(err)
	}
	if counts {
		defer s.counts.leave()
	}
	lasts := map[buckets.ID]uint64{}
	for _, b := range req.Buckets {
		if n := s.cfg.Settings.Buckets; int(b) >= n {
			return api.FiguresReply{}, noSuchBucket(b, n)
		}
		_, _, lasts[buckets.ID(b)] = s.applier.bucketLog(buckets.ID(b))
	}
	f, err := s.applier.freeze()
	if err != nil {
		return api.FiguresReply{}, err
	}
	if counts {
		err = s.count(ctx, f, lasts, req)
	}
	reply := api.FiguresReply{Buckets: []api.BucketFigures{}}
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	for _, n := range req.Buckets {
		b := buckets.ID(n)
		owner := f.view.Owner(b)
		figures := api.BucketFigures{Bucket: n, Owner: owner.Storage, Generation: owner.Generation, Loaded: f.joined[b]}
		if c := s.counts.of[b]; c.at > 0 && c.generation == owner.Generation && f.joined[b] {
			figures.Records, figures.Bytes, figures.CountedAt = c.records, c.bytes, c.at
		}
		reply.Buckets = append(reply.Buckets, figures)
	}
	return reply, errors.Join(s.orStopping(err), f.Close())
}

// enter takes the place of the one who counts. Who need not count does not wait for it.
func (c *counts) enter(ctx context.Context, wait bool) (entered bool, err error) {
	select {
	case c.counting <- struct{}{}:
		return true, nil
	default:
	}
	if !wait {
		return false, nil
	}
	select {
	case c.counting <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func (c *counts) leave() { <-c.counting }

// count counts what has changed since it was counted last: all of it, or what a moment is enough for. lasts are the
// buckets' last record entries as of before the snapshot was taken. The caller has the place of the one who counts.
func (s *Storage) count(ctx context.Context, f *frozen, lasts map[buckets.ID]uint64, req api.FiguresRequest) error {
	c := &s.counts
	began := time.Now()
	for _, n := range req.Buckets {
		b := buckets.ID(n)
		if !f.owns(b, s.ID()) {
			continue
		}
		last := min(lasts[b], f.at.Seq) // what was applied and is not in the snapshot yet shows next time
		now := counted{at: f.at.Seq, generation: f.view.Owner(b).Generation, last: last}
		c.mu.Lock()
		before := c.of[b]
		c.mu.Unlock()
		if before.at > 0 && before.generation == now.generation && before.last == last {
			continue
		}
		within := time.Duration(0)
		if !req.Count {
			if time.Since(began) > countBriefly {
				return nil
			}
			within = countOne
		}
		done, err := f.count(ctx, b, &now, within)
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		c.mu.Lock()
		c.of[b] = now
		c.mu.Unlock()
	}
	return nil
}

// count counts the records and bytes of a bucket. It gives up after a time, if that is not 0.
func (f *frozen) count(ctx context.Context, b buckets.ID, c *counted, within time.Duration) (done bool, err error) {
	began := time.Now()
	spaces, err := f.Spaces(b)
	if err != nil {
		return false, err
	}
	var batch []byte
	for _, space := range spaces {
		cursor, err := f.Scan(b, space)
		if err != nil {
			return false, err
		}
		for {
			var n int
			if batch, n, err = cursor.Fill(batch[:0], countedBatch); n == 0 || err != nil {
				break
			}
			if err = ctx.Err(); err != nil {
				break
			}
			if within > 0 && time.Since(began) > within {
				return false, cursor.Close()
			}
			c.records += uint64(n)
			c.bytes += uint64(len(batch) - n*buckets.FrameHeader)
		}
		if err = errors.Join(err, cursor.Close()); err != nil {
			return false, err
		}
	}
	return true, nil
}
