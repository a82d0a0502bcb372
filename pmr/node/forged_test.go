package node_test

import (
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Claims that build on generations that never were change nothing, whatever they say, and nobody loads again
// for them.
func TestForgedClaimsChangeNothing(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c")
		st, err := c.log.State(t.Context())
		c.must(err)
		for _, prev := range []uint64{st.Last, 1 << 60, st.Last - 1} {
			body, err := api.Encode(api.Msgpack, buckets.Own{Bucket: 5, Prev: prev, Owner: "s9"})
			c.must(err)
			_, err = c.log.Append(t.Context(), buckets.OwnSubject(5), nil, body, "")
			c.must(err)
		}
		for _, owner := range []string{"", "a b", "a.*", strings.Repeat("x", 5000)} {
			body, err := api.Encode(api.Msgpack, buckets.Own{Bucket: 5, Prev: 1, Owner: owner})
			c.must(err)
			_, err = c.log.Append(t.Context(), buckets.OwnSubject(5), nil, body, "")
			c.must(err)
		}
		c.put("", "d")
		counts, _, err := c.job(wordCount)
		c.must(err)
		expectCounts(t, counts, map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
		for _, s := range c.status().Storages {
			if s.Reloads > 0 {
				t.Errorf("%s loaded again %d times", s.Storage, s.Reloads)
			}
		}
	})
}

// Ids that cannot be part of a subject are refused wherever they come from.
func TestIDsThatAreNoSubjects(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		for _, id := range []string{"", "a b", "a.b", "*", strings.Repeat("x", 5000)} {
			for subject, req := range map[string]any{
				"storage.s1.pin": api.PinRequest{Job: "j", Router: id, Cut: 1, TTLMS: 1000},
				"job.run":        api.JobRequest{Job: id + ".", Module: "words"},
				"job.result":     api.ResultRequest{Job: "j", Cursor: id + ".1"},
			} {
				if err := c.request(subject, req, nil); api.CodeOf(err) != api.CodeBadRequest {
					t.Errorf("%s with id %.20q: %v", subject, id, err)
				}
			}
		}
	})
}
