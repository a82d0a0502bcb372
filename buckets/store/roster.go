package store

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pinion-mr/pinion/buckets"
)

// roster knows which buckets are joined and which are being loaded; no bucket is both.
type roster struct {
	joined, loading map[buckets.ID]bool
}

func newRoster() roster {
	return roster{joined: map[buckets.ID]bool{}, loading: map[buckets.ID]bool{}}
}

func (r *roster) joinedList() []buckets.ID { return slices.Sorted(maps.Keys(r.joined)) }

func (r *roster) load(b buckets.ID) {
	delete(r.joined, b)
	r.loading[b] = true
}

func (r *roster) join(bs []buckets.ID) {
	for _, b := range bs {
		delete(r.loading, b)
		r.joined[b] = true
	}
}

func (r *roster) leave(bs []buckets.ID) {
	for _, b := range bs {
		delete(r.loading, b)
		delete(r.joined, b)
	}
}

// known lists all buckets that may have records, ascending.
func (r *roster) known() []buckets.ID {
	bs := slices.AppendSeq(slices.Collect(maps.Keys(r.joined)), maps.Keys(r.loading))
	slices.Sort(bs)
	return bs
}

func (r *roster) knows(b buckets.ID) bool { return r.joined[b] || r.loading[b] }

func (r *roster) checkJoin(bs []buckets.ID) error {
	for _, b := range bs {
		if !r.loading[b] {
			return fmt.Errorf("store: join: bucket %d is not being loaded", b)
		}
	}
	return nil
}

func (r *roster) checkIngest(b buckets.ID) error {
	if !r.loading[b] {
		return fmt.Errorf("store: ingest: bucket %d is not being loaded", b)
	}
	return nil
}

// maxApply is the most bytes of keys and values in one Apply: a batch of Pebble cannot pass 4 GiB.
const maxApply = 1 << 30

// check reports the first write that must not be applied; size is the bytes of all keys and values.
func (r *roster) check(w *buckets.Writes) (size int, err error) {
	var last *buckets.Write
	for i := range w.Records {
		rec := &w.Records[i]
		if size += len(rec.Key) + len(rec.Value); size > maxApply {
			return 0, fmt.Errorf("store: apply: more than %d bytes of keys and values at once; apply them in parts", maxApply)
		}
		if len(rec.Key) > buckets.MaxKey {
			return 0, fmt.Errorf("store: apply: bucket %d, space %q: a key has at most %d bytes, not %d",
				rec.Bucket, rec.Space, buckets.MaxKey, len(rec.Key))
		}
		if last != nil && last.Bucket == rec.Bucket && last.Space == rec.Space {
			continue
		}
		last = rec
		if !r.knows(rec.Bucket) {
			return 0, fmt.Errorf("store: apply: bucket %d is neither joined nor being loaded", rec.Bucket)
		}
		if w.Position.Seq == 0 && r.joined[rec.Bucket] {
			return 0, fmt.Errorf("store: apply: bucket %d is joined, so its records need a position", rec.Bucket)
		}
		if err := buckets.CheckSpace(rec.Space); err != nil {
			return 0, fmt.Errorf("store: apply: bucket %d: %w", rec.Bucket, err)
		}
	}
	return size, nil
}
