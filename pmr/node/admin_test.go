package node_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr/node"
)

// refused wants an error of a code that says certain words.
func refused(t *testing.T, err error, code api.Code, words ...string) {
	t.Helper()
	if api.CodeOf(err) != code {
		t.Errorf("code %s, want %s: %v", api.CodeOf(err), code, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func (c *cluster) order(to string, list ...uint16) (api.MoveReply, error) {
	var reply api.MoveReply
	err := c.request("admin.move", api.MoveRequest{Buckets: list, To: to}, &reply)
	return reply, err
}

// of lists the buckets of a storage.
func (c *cluster) of(storage string) []uint16 {
	var list []uint16
	for _, b := range c.buckets() {
		if b.Owner == storage {
			list = append(list, b.Bucket)
		}
	}
	return list
}

func TestMovesByHand(t *testing.T) {
	bubble(t, 2, api.Settings{Buckets: 64}, func(t *testing.T, c *cluster) {
		c.pause() // the rebalancer would take some back
		mine := c.of("s1")
		reply, err := c.order("s2", append(mine[:20:20], c.of("s2")[0], mine[0])...)
		c.must(err)
		if len(reply.Orders) != 2 || len(reply.Orders[0].Buckets) != 16 || len(reply.There) != 1 {
			t.Errorf("ordered %+v", reply)
		}
		c.awaitOwned(map[string]int{"s1": 12, "s2": 52})
		var moves api.MovesReply
		c.await("the moves have ended", func() bool {
			c.must(c.request("admin.moves", api.Empty{}, &moves))
			return len(moves.Running)+len(moves.Queued) == 0
		})
		for _, o := range reply.Orders {
			if !slices.ContainsFunc(moves.Ended, func(m api.MoveProgress) bool { return m.Order.ID == o.ID && m.Outcome == "done" }) {
				t.Errorf("order %s is not among the ended ones: %+v", o.ID, moves.Ended)
			}
		}
		if !moves.Paused {
			t.Error("the answer does not say that the rebalancer is paused")
		}
	})
}

func TestMovesByHandThatCannotBe(t *testing.T) {
	bubble(t, 3, even, func(t *testing.T, c *cluster) {
		c.pause()
		one, two := c.of("s1"), c.of("s2")
		c.topology(api.TopologyRequest{LockBuckets: one[:1], LockStorages: []string{"s3"}})
		for _, tc := range []struct {
			to      string
			buckets []uint16
			code    api.Code
			words   []string
		}{
			{"s22", one[1:2], api.CodeNotFound, []string{`no storage "s22"`, "did you mean s2?"}},
			{"elsewhere", one[1:2], api.CodeNotFound, []string{"there are: s1, s2, s3"}},
			{"s2", []uint16{24}, api.CodeBadRequest, []string{"no bucket 24", "0 to 23"}},
			{"s2", nil, api.CodeBadRequest, []string{"0 buckets"}},
			{"s2", one[:1], api.CodeBadRequest, []string{"is locked", "engine unlock bucket"}},
			{"s3", one[1:2], api.CodeBadRequest, []string{"storage s3 is locked", "engine unlock storage s3"}},
			{"s1", c.of("s3"), api.CodeBadRequest, []string{"on storage s3, which is locked"}},
			{"s2", make([]uint16, 4097), api.CodeBadRequest, []string{"4097 buckets", "in several requests"}},
		} {
			_, err := c.order(tc.to, tc.buckets...)
			refused(t, err, tc.code, tc.words...)
		}
		c.topology(api.TopologyRequest{Weights: map[string]float64{"s2": 0}})
		_, err := c.order("s2", one[1])
		refused(t, err, api.CodeBadRequest, "storage s2 has weight 0", "engine weight s2 1")
		c.crash("s2")
		c.nodes["s2"].ended <- nil
		c.await("s2 is gone", func() bool { return len(c.status().Gone) == 1 })
		_, err = c.order("s2", one[1])
		refused(t, err, api.CodeUnavailable, "storage s2 is not there")
		_, err = c.order("s1", two[0])
		refused(t, err, api.CodeUnavailable, "which owns bucket", "takeover")
		if moved := c.owned(); !maps.Equal(moved, map[string]int{"s1": 8, "s2": 8, "s3": 8}) {
			t.Errorf("they own %v", moved)
		}
	})
}

func TestTopologyIsChangedAsAWholeOrNotAtAll(t *testing.T) {
	bubble(t, 2, even, func(t *testing.T, c *cluster) {
		c.pause()
		for _, tc := range []struct {
			req   api.TopologyRequest
			code  api.Code
			words []string
		}{
			{api.TopologyRequest{LockBuckets: []uint16{24}}, api.CodeBadRequest, []string{"no bucket 24"}},
			{api.TopologyRequest{LockStorages: []string{"s11"}}, api.CodeNotFound, []string{"did you mean s1?"}},
			{api.TopologyRequest{Weights: map[string]float64{"s1": -1}}, api.CodeBadRequest, []string{"weight of storage s1", "relative to each other"}},
			{api.TopologyRequest{Set: map[string]string{"pin_quote": "3"}}, api.CodeBadRequest, []string{"did you mean pin_quota?"}},
			{api.TopologyRequest{Set: map[string]string{"nonsense": "3"}}, api.CodeBadRequest, []string{"gate_quota, move_bandwidth"}},
			{api.TopologyRequest{Set: map[string]string{"parallel_moves": "0"}}, api.CodeBadRequest, []string{"parallel_moves cannot be \"0\"", "1 to 64"}},
			{api.TopologyRequest{Set: map[string]string{"pin_quota": "0", "gate_quota": "0"}}, api.CodeBadRequest, []string{"may not both be 0"}},
			{api.TopologyRequest{Set: map[string]string{"threshold": "NaN"}}, api.CodeBadRequest, []string{"a number from 0 to 1000"}},
			{api.TopologyRequest{Set: map[string]string{"takeover_grace": "20"}}, api.CodeBadRequest, []string{"a time such as 20s"}},
			{api.TopologyRequest{Set: map[string]string{"move_bandwidth": "99999999999GiB"}}, api.CodeBadRequest, []string{"a size such as 50MiB"}},
		} {
			tc.req.Paused = new(false) // goes with the rest
			refused(t, c.request("admin.topology", tc.req, &api.TopologyReply{}), tc.code, tc.words...)
		}
		if got := c.topology(api.TopologyRequest{}); !got.Paused || len(got.LockedBuckets)+len(got.Weights) > 0 {
			t.Errorf("the topology is %+v", got)
		}
	})
}

func TestSettings(t *testing.T) {
	bubble(t, 1, even, func(t *testing.T, c *cluster) {
		values := map[string]string{
			"gate_quota": "7", "move_bandwidth": "50MiB", "parallel_moves": "3", "pin_quota": "0", "takeover_grace": "1m30s", "threshold": "2.5",
		}
		told := map[string]string{
			"gate_quota": "7", "move_bandwidth": "52428800", "parallel_moves": "3", "pin_quota": "0", "takeover_grace": "1m30s", "threshold": "2.5",
		}
		settings := func(req api.TopologyRequest) (now, defaults map[string]string) {
			var reply api.TopologyReply
			c.must(c.request("admin.topology", req, &reply))
			now, defaults = map[string]string{}, map[string]string{}
			for _, s := range reply.Settings {
				if s.About == "" {
					t.Errorf("nothing is said about %s", s.Name)
				}
				now[s.Name], defaults[s.Name] = s.Value, s.Default
			}
			return now, defaults
		}
		before, defaults := settings(api.TopologyRequest{})
		if !maps.Equal(before, defaults) || len(before) != len(values) {
			t.Errorf("at first %v, by default %v", before, defaults)
		}
		if now, _ := settings(api.TopologyRequest{Set: values}); !maps.Equal(now, told) {
			t.Errorf("after the change %v, want %v", now, told)
		}
		var q api.Quotas
		c.must(c.request("admin.quotas", api.QuotasRequest{}, &q))
		if q != (api.Quotas{Pins: 0, Gates: 7}) {
			t.Errorf("the quotas are %+v", q)
		}
		// The quotas fit each other once both are set, whatever the order of their names.
		settings(api.TopologyRequest{Set: map[string]string{"gate_quota": "0", "pin_quota": "5"}})
		settings(api.TopologyRequest{Set: map[string]string{"gate_quota": "5", "pin_quota": "0"}})
		settings(api.TopologyRequest{Set: map[string]string{"gate_quota": "0", "pin_quota": "5"}})
		back := map[string]string{}
		for name := range values {
			back[name] = ""
		}
		if now, _ := settings(api.TopologyRequest{Set: back}); !maps.Equal(now, defaults) {
			t.Errorf("back at the defaults: %v", now)
		}
	})
}

// slowTopology is a KV that takes its time, so that everybody has read before anybody writes.
type slowTopology struct{ node.KV }

func (s slowTopology) Get(ctx context.Context, key string) (api.KVEntry, error) {
	e, err := s.KV.Get(ctx, key)
	if key == "topology" {
		time.Sleep(time.Second)
	}
	return e, err
}

// Changes at the same time all count.
func TestTopologyChangesDoNotLoseEachOther(t *testing.T) {
	o := options{storages: 1, settings: even, tweak: func(peer string, p *node.Ports) {
		if peer == "r1" {
			p.State = slowTopology{p.State}
		}
	}}
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		c.topology(api.TopologyRequest{Paused: new(true)}) // it exists
		ended := make(chan error, 5)
		for b := range uint16(5) {
			go func() {
				ended <- c.request("admin.topology", api.TopologyRequest{LockBuckets: []uint16{b}}, &api.TopologyReply{})
			}()
		}
		for range 5 {
			c.must(<-ended)
		}
		if got := c.topology(api.TopologyRequest{}); !slices.Equal(got.LockedBuckets, []uint16{0, 1, 2, 3, 4}) {
			t.Errorf("locked are %v", got.LockedBuckets)
		}
	})
}

func TestFiguresOfBuckets(t *testing.T) {
	bubble(t, 2, even, func(t *testing.T, c *cluster) {
		c.put("", "a", "bb", "ccc")
		c.put("other", "dddd")
		c.put("", "e") // bucket 0 again: 3 records, of 15 bytes of key each
		var reply api.BucketsReply
		for _, count := range []bool{true, false} {
			c.must(c.request("admin.buckets", api.BucketsRequest{Buckets: []uint16{2, 0, 2}, Count: count}, &reply))
			if len(reply.Buckets) != 2 || reply.Next != 0 {
				t.Fatalf("the answer is %+v", reply)
			}
			zero, two := reply.Buckets[0], reply.Buckets[1]
			if zero.Bucket != 0 || zero.Records != 3 || zero.Bytes != 3*15+1+4+1 || zero.CountedAt == 0 || zero.State != api.BucketOwned {
				t.Errorf("bucket 0 is %+v", zero)
			}
			if two.Bucket != 2 || two.Records != 1 || two.Bytes != 15+3 || two.Generation == 0 || two.Owner == "" {
				t.Errorf("bucket 2 is %+v", two)
			}
		}
		c.put("", "f")
		c.must(c.request("admin.buckets", api.BucketsRequest{Buckets: []uint16{0}, Count: true}, &reply))
		if reply.Buckets[0].Records != 4 {
			t.Errorf("after one more record bucket 0 is %+v", reply.Buckets[0])
		}
		refused(t, c.request("admin.buckets", api.BucketsRequest{Buckets: []uint16{99}}, &reply), api.CodeBadRequest, "no bucket 99", "0 to 23")
	})
}

func TestManyBucketsAreToldPieceByPiece(t *testing.T) {
	bubble(t, 1, api.Settings{Buckets: 600}, func(t *testing.T, c *cluster) {
		all := c.buckets()
		if len(all) != 600 {
			t.Fatalf("%d buckets", len(all))
		}
		for i, b := range all {
			if int(b.Bucket) != i || b.State != api.BucketOwned {
				t.Fatalf("at %d: %+v", i, b)
			}
		}
	})
}

// Every state has its name while a bucket goes from one storage to another, and when storages go.
func TestStatesOfBuckets(t *testing.T) {
	var hold holder
	o := options{storages: 2, settings: even, tweak: func(peer string, p *node.Ports) {
		if peer == "s2" {
			p.Manifests = held{p.Manifests, &hold}
		}
	}}
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		c.pause()
		b := c.of("s1")[0]
		state := func() string {
			var reply api.BucketsReply
			c.must(c.request("admin.buckets", api.BucketsRequest{Buckets: []uint16{b}}, &reply))
			return reply.Buckets[0].State + " " + reply.Buckets[0].Owner + " " + reply.Buckets[0].To
		}
		want := func(s string) {
			t.Helper()
			if got := state(); got != s {
				t.Errorf("bucket %d is %q, want %q", b, got, s)
			}
		}
		want("owned s1 ")
		hold.set(true)
		_, err := c.order("s2", b)
		c.must(err)
		time.Sleep(2 * time.Second)
		want("receiving s1 s2")
		hold.set(false)
		c.await("it has moved", func() bool { return state() == "owned s2 " })

		var pinned api.PinReply // it keeps the gate of s1 closed for 5 s
		c.must(c.request("storage.s1.pin", api.PinRequest{Job: "j", Attempt: 1, Router: "nobody", Cut: c.cut("j"), TTLMS: 5000, Mode: "hold"}, &pinned))
		_, err = c.order("s1", b)
		c.must(err)
		time.Sleep(2 * time.Second)
		want("moving s2 s1")
		c.must(c.request("storage.s1.release", api.PMRRequest{PMR: pinned.PMR}, &api.Empty{}))
		c.await("it has moved back", func() bool { return state() == "owned s1 " })

		c.mem.Cut("s1")
		time.Sleep(time.Second)
		want("silent s1 ")
		c.await("it is gone", func() bool { return state() == "gone s1 " })
		c.mem.Heal("s1")
		c.await("it is back", func() bool { return state() == "owned s1 " })
	})
}

// holder stops reads of manifests.
type holder struct {
	mu sync.Mutex
	c  chan struct{}
}

func (h *holder) set(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on {
		h.c = make(chan struct{})
		return
	}
	close(h.c)
	h.c = nil
}

type held struct {
	node.KV
	hold *holder
}

func (h held) Get(ctx context.Context, key string) (api.KVEntry, error) {
	h.hold.mu.Lock()
	c := h.hold.c
	h.hold.mu.Unlock()
	if c != nil {
		select {
		case <-c:
		case <-ctx.Done():
			return api.KVEntry{}, ctx.Err()
		}
	}
	return h.KV.Get(ctx, key)
}
