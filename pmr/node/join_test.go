package node_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus/busmem"
	"github.com/pinion-mr/pinion/pmr/node"
)

// busyLog has more written before each part of the log is read.
type busyLog struct {
	node.Log
	write func()
}

func (l busyLog) ReadTo(ctx context.Context, from, to uint64, filters []string, fn func(api.LogEntry) error) error {
	l.write()
	err := l.Log.ReadTo(ctx, from, to, filters, fn)
	l.write()
	return err
}

func TestWritesDuringAJoin(t *testing.T) {
	var c *cluster
	var busy atomic.Bool
	var mu sync.Mutex
	want := map[string]int64{}
	write := func() {
		if !busy.Load() {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for b := range small.Buckets {
			n := len(want)
			for i, v := range []string{fmt.Sprintf("old%d", n), fmt.Sprintf("w%d", n)} { // the second replaces the first
				key := keyIn(buckets.ID(b), small.Buckets, n)
				_, err := c.log.Append(context.Background(), buckets.RecSubject(buckets.ID(b)), nil, buckets.AppendFrame(nil, 0, key, []byte(v)), "")
				if err != nil {
					t.Error(i, err)
				}
			}
			want[fmt.Sprintf("w%d", n)] = 1
		}
		c.cut("other") // the applier goes past it
		time.Sleep(10 * time.Millisecond)
	}
	o := options{storages: 2, settings: small, tweak: func(peer string, p *node.Ports) {
		if peer == "s1" {
			p.Log = busyLog{p.Log, write}
		}
	}}
	bubbleWith(t, o, func(t *testing.T, cl *cluster) {
		c = cl
		busy.Store(true)
		write()
		c.loseFolder("s1")
		c.startStorage("s1")
		c.await("s1 has loaded all", func() bool { return c.status().Healthy })
		busy.Store(false)
		if len(want) <= 12 {
			t.Fatal("nothing was written during the join")
		}
		c.expectJob(want)
	})
}

// keyIn finds a key of a bucket, the n-th of its kind.
func keyIn(b buckets.ID, of, n int) []byte {
	for i := 0; ; i++ {
		if key := fmt.Appendf(nil, "k%d-%d", n, i); buckets.Of(key, of) == b {
			return key
		}
	}
}

// oldManifests answers once as if there were no manifest yet.
type oldManifests struct {
	node.KV
	on *atomic.Bool
}

func (o oldManifests) Get(ctx context.Context, key string) (api.KVEntry, error) {
	if key == "2" && o.on.CompareAndSwap(true, false) {
		return api.KVEntry{Key: key}, nil
	}
	return o.KV.Get(ctx, key)
}

// A checkpoint and a purge pass between reading the manifest and the log.
func TestAPurgeDuringAJoin(t *testing.T) {
	var on atomic.Bool
	o := options{storages: 1, settings: eager, tweak: func(peer string, p *node.Ports) {
		if peer == "s1" {
			p.Manifests = oldManifests{p.Manifests, &on}
		}
	}}
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		var words []string
		want := map[string]int64{}
		for i := range 200 {
			w := fmt.Sprintf("w%d", i)
			words, want[w] = append(words, fill(w)), 1
		}
		want[fillWord] = 200
		c.put("", words...)
		c.await("the log is purged", func() bool { return c.status().Log.First > 100 })
		c.loseFolder("s1")
		on.Store(true)
		c.startStorage("s1")
		c.expectJob(want)
		if on.Load() {
			t.Error("the manifest was not asked for")
		}
	})
}

// unassigned is a cluster whose router waits for storages that never come.
func unassigned(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Helper()
	bubbleWith(t, options{storages: 2, settings: small, expect: 9}, func(t *testing.T, c *cluster) {
		c.await("both serve", func() bool { return len(c.fences("s1")) == 1 && len(c.fences("s2")) == 1 })
		time.Sleep(time.Second)
		test(t, c)
	})
}

// take has a storage receive buckets that nobody owns, and activate them.
func (c *cluster) take(storage, order string, bs ...uint16) error {
	c.receive(storage, order, bs...)
	req := api.ActivateRequest{Order: order}
	for _, b := range bs {
		req.Buckets = append(req.Buckets, api.BucketPin{Bucket: b})
	}
	return c.request("storage."+storage+".activate", req, nil)
}

// receive waits until a storage has received buckets.
func (c *cluster) receive(storage, order string, bs ...uint16) {
	c.t.Helper()
	c.await(storage+" has received", func() bool {
		var reply api.ReceiveReply
		c.must(c.request("storage."+storage+".receive", api.ReceiveRequest{Order: order, Buckets: bs, TTLMS: 60_000, WaitMS: 5000}, &reply))
		return !slices.ContainsFunc(reply.Buckets, func(r api.Received) bool { return r.State != api.ReceiveReady })
	})
}

func TestTakeAskedTwice(t *testing.T) {
	unassigned(t, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		c.must(c.take("s2", "rest", 6, 7, 8, 9, 10, 11))
		var asked sync.WaitGroup
		for range 3 {
			asked.Go(func() { c.must(c.take("s1", "order", 0, 1, 2, 3, 4, 5)) })
		}
		asked.Wait()
		c.must(c.take("s1", "order", 0, 1, 2, 3, 4, 5))
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
		st, err := c.log.State(t.Context())
		c.must(err)
		claims := 0
		c.must(c.log.ReadTo(t.Context(), 1, st.Last, []string{"own.*"}, func(api.LogEntry) error { claims++; return nil }))
		if claims != 12 {
			t.Errorf("%d claims to 12 buckets", claims)
		}
	})
}

func TestTakeThatLostItsBucket(t *testing.T) {
	unassigned(t, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		c.must(c.take("s2", "rest", 6, 7, 8, 9, 10, 11))
		var once sync.Once
		c.mem.SetFaults(busmem.Faults{Append: func(peer, subject string) busmem.AppendFault {
			if peer == "s1" && subject == buckets.OwnSubject(3) {
				once.Do(func() { // s2 is faster
					body, err := api.Encode(api.Msgpack, buckets.Own{Bucket: 3, Owner: "s2", Move: "rival"})
					c.must(err)
					_, err = c.log.Append(context.Background(), subject, nil, body, "")
					c.must(err)
				})
			}
			return busmem.AppendFault{}
		}})
		c.must(c.take("s1", "order", 0, 1, 2, 3, 4, 5))
		c.await("s1 has let go", func() bool {
			n := 0
			for _, s := range c.status().Storages {
				if s.Owned == s.Loaded && len(s.Warnings) == 0 {
					n += s.Owned
				}
			}
			return n == 12
		})
		held, err := c.nodes["s1"].store.Snapshot()
		c.must(err)
		if spaces, err := held.Spaces(3); err != nil || len(spaces) > 0 {
			t.Errorf("s1 holds records of bucket 3: %v, %v", spaces, err)
		}
		c.must(held.Close())
		c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
	})
}
