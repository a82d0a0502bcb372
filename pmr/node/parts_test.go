package node_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

// keyed puts records of keys k0, k1, ... and returns in which bucket each is.
func (c *cluster) keyed(n int) []buckets.ID {
	c.t.Helper()
	in := make([]buckets.ID, n)
	for i := range n {
		key := api.Bytes(fmt.Sprint("k", i))
		in[i] = buckets.Of(key, c.settings.Buckets)
		c.must(c.request("record.put", api.PutRequest{Key: &key, Value: api.Bytes(fmt.Sprint("v", i))}, nil))
	}
	return in
}

// storagesOf are the storages that a job has asked.
func storagesOf(reply api.JobReply) (list []string, pinned []buckets.ID) {
	for _, p := range reply.Stats.Pinned {
		list = append(list, p.Storage)
		for _, b := range p.Buckets {
			pinned = append(pinned, buckets.ID(b.Bucket))
		}
	}
	slices.Sort(pinned)
	return list, pinned
}

func TestAJobOfBucketsGoesToTheirOwnersAlone(t *testing.T) {
	bubble(t, 3, small, func(t *testing.T, c *cluster) {
		in := c.keyed(30)
		req := wordCount
		req.Buckets = []uint16{uint16(in[0]), uint16(in[0])} // named twice, pinned once
		counts, reply, err := c.job(req)
		c.must(err)
		for i, b := range in {
			if want := int64(0); counts[fmt.Sprint("v", i)] != want && b != in[0] || counts[fmt.Sprint("v", i)] != 1 && b == in[0] {
				t.Errorf("record %d of bucket %d counted %d times", i, b, counts[fmt.Sprint("v", i)])
			}
		}
		storages, pinned := storagesOf(reply)
		if len(storages) != 1 || !slices.Equal(pinned, in[:1]) {
			t.Errorf("the job pinned buckets %v on %v, want bucket %d alone", pinned, storages, in[0])
		}
	})
}

func TestAJobOfKeysReadsTheirRecordsAlone(t *testing.T) {
	bubble(t, 3, small, func(t *testing.T, c *cluster) {
		in := c.keyed(30)
		req := wordCount
		req.Keys = []api.Bytes{api.Bytes("k3"), api.Bytes("k7"), api.Bytes("k3"), api.Bytes("not there")}
		counts, reply, err := c.job(req)
		c.must(err)
		expectCounts(t, counts, map[string]int64{"v3": 1, "v7": 1})
		if reply.Stats.Records != 2 {
			t.Errorf("%d records were read, want 2", reply.Stats.Records)
		}
		want := slices.Compact(slices.Sorted(slices.Values([]buckets.ID{in[3], in[7], buckets.Of([]byte("not there"), 12)})))
		if _, pinned := storagesOf(reply); !slices.Equal(pinned, want) {
			t.Errorf("the job pinned %v, want %v", pinned, want)
		}
	})
}

func TestPartsThatDoNotFitAreRefused(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		key := []api.Bytes{api.Bytes("k")}
		for name, req := range map[string]api.JobRequest{
			"buckets and keys":    {Module: "words", Buckets: []uint16{1}, Keys: key},
			"a bucket too high":   {Module: "words", Buckets: []uint16{3, 12}},
			"params of no bucket": {Module: "words", BucketParams: []api.BucketParams{{Bucket: 12}}},
			"params twice":        {Module: "words", BucketParams: []api.BucketParams{{Bucket: 1}, {Bucket: 1}}},
			"params, no module":   {BucketParams: []api.BucketParams{{Bucket: 1}}},
			"a long key":          {Module: "words", Keys: []api.Bytes{make(api.Bytes, buckets.MaxKey+1)}},
		} {
			if _, _, err := c.job(req); api.CodeOf(err) != api.CodeBadRequest {
				t.Errorf("%s: %v", name, err)
			}
		}
		var many []api.Bytes
		for i := range 10_000 {
			many = append(many, append(make(api.Bytes, 60), fmt.Sprint(i)...))
		}
		if _, _, err := c.job(api.JobRequest{Module: "words", Keys: many}); api.CodeOf(err) != api.CodeLimitExceeded {
			t.Errorf("keys that no message to a storage could hold: %v", err)
		}
		// A space that exists is known, even where the job looks at a bucket without a record of it.
		c.put("rare", "x")
		for b := range uint16(12) {
			if _, _, err := c.job(api.JobRequest{Module: "words", Space: "rare", Buckets: []uint16{b}}); err != nil {
				t.Errorf("bucket %d of a space with one record: %v", b, err)
			}
		}
		if _, _, err := c.job(api.JobRequest{Module: "words", Space: "rear", Buckets: []uint16{1}}); api.CodeOf(err) != api.CodeUnknownSpace {
			t.Errorf("a space that is not there: %v", err)
		}
	})
}

func TestBucketParamsReachTheirBucketsStorage(t *testing.T) {
	bubble(t, 3, small, func(t *testing.T, c *cluster) {
		c.keyed(60)
		var mu sync.Mutex
		seen := map[buckets.ID]string{}
		c.mapper.setHook(func(_ context.Context, task node.Task, b buckets.ID) error {
			mu.Lock()
			defer mu.Unlock()
			seen[b] = string(task.BucketParams[b]["n"])
			return nil
		})
		req := wordCount
		for b := range uint16(12) {
			if b%2 == 0 {
				req.BucketParams = append(req.BucketParams, api.BucketParams{Bucket: b, Params: map[string]api.Bytes{"n": api.Bytes(fmt.Sprint(b))}})
			}
		}
		_, _, err := c.job(req)
		c.must(err)
		for b, n := range seen {
			want := ""
			if b%2 == 0 {
				want = fmt.Sprint(b)
			}
			if n != want {
				t.Errorf("bucket %d was mapped with n=%q, want %q", b, n, want)
			}
		}
		if len(seen) < 10 {
			t.Errorf("only %d buckets were mapped", len(seen))
		}
	})
}

// A bucket that has moved is found where it is at the cut.
func TestAPartFollowsItsBucket(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.pause()
		in := c.keyed(12)
		req := wordCount
		req.Buckets = []uint16{uint16(in[0])}
		_, reply, err := c.job(req)
		c.must(err)
		at := reply.Stats.Pinned[0]
		to := map[string]string{"s1": "s2", "s2": "s1"}[at.Storage]
		own := buckets.Own{
			Bucket: in[0], Prev: at.Buckets[0].Generation, Owner: to, Move: "m1",
			FenceSrc: slices.Max(c.fences(at.Storage)), FenceDst: slices.Max(c.fences(to)),
		}
		body, err := api.Encode(api.Msgpack, own)
		c.must(err)
		_, err = c.log.Append(t.Context(), buckets.OwnSubject(in[0]), nil, body, "")
		c.must(err)
		counts, reply, err := c.job(req)
		c.must(err)
		if storages, _ := storagesOf(reply); counts["v0"] != 1 || !slices.Equal(storages, []string{to}) {
			t.Errorf("after bucket %d went from %s to %s, %v counted %v", in[0], at.Storage, to, storages, counts)
		}
	})
}
