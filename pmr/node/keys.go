package node

import (
	"slices"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// keysByBucket sorts the keys of a job that names records by bucket, each once; nil if it names none.
func keysByBucket(keys []api.Bytes, n int) map[buckets.ID][][]byte {
	if len(keys) == 0 {
		return nil
	}
	by := map[buckets.ID][][]byte{}
	for _, key := range keys {
		b := buckets.Of(key, n)
		by[b] = append(by[b], key)
	}
	for b, list := range by {
		slices.SortFunc(list, slices.Compare)
		by[b] = slices.CompactFunc(list, slices.Equal)
	}
	return by
}

// cursor reads what the job maps of a bucket.
func (m *mapping) cursor(b buckets.ID) (buckets.Cursor, error) {
	snap := m.p.claim.snap
	if m.keys == nil {
		return snap.Scan(b, m.req.Space)
	}
	return &keyCursor{snap: snap, bucket: b, space: m.req.Space, keys: m.keys[b]}, nil
}

// keyCursor reads single records of a bucket; those that do not exist are left out.
type keyCursor struct {
	snap   buckets.Snapshot
	bucket buckets.ID
	space  string
	keys   [][]byte // not read yet
	next   []byte   // a frame that did not fit
}

// Fill implements [buckets.Cursor].
func (c *keyCursor) Fill(dst []byte, limit int) (out []byte, records int, err error) {
	for {
		if c.next == nil {
			if len(c.keys) == 0 {
				return dst, records, nil
			}
			value, ok, err := c.snap.Get(c.bucket, c.space, c.keys[0])
			if err != nil {
				return dst, records, err
			}
			if ok {
				c.next = buckets.AppendFrame(nil, 0, c.keys[0], value)
			}
			c.keys = c.keys[1:]
			continue
		}
		if records > 0 && len(dst)+len(c.next) > limit {
			return dst, records, nil
		}
		dst, c.next = append(dst, c.next...), nil
		records++
	}
}

// Close implements [buckets.Cursor].
func (c *keyCursor) Close() error { return nil }
