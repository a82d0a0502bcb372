package node_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

// watchedLog tells of every purge before it is done.
type watchedLog struct {
	node.Log
	purge func(upTo uint64)
}

func (l watchedLog) Purge(ctx context.Context, upTo uint64) error {
	l.purge(upTo)
	return l.Log.Purge(ctx, upTo)
}

func TestWhatIsPurged(t *testing.T) {
	var mu sync.Mutex
	var purges []uint64
	var c *cluster
	settings := eager
	settings.DuplicateMS = 20_000
	o := options{storages: 2, settings: settings, tweak: func(peer string, p *node.Ports) {
		if peer != "r1" {
			return
		}
		log := p.Log
		p.Log = watchedLog{log, func(upTo uint64) {
			mu.Lock()
			defer mu.Unlock()
			purges = append(purges, upTo)
			e, err := log.Entry(context.Background(), upTo)
			if age := time.Since(e.Time); err != nil || age < 2*20*time.Second {
				t.Errorf("purged to %d, %s after it was written, %v", upTo, age, err)
			}
			if saved := c.savedTable().Seq(); saved < upTo {
				t.Errorf("purged to %d, the saved table is of %d", upTo, saved)
			}
			for b, m := range c.manifests() {
				if m.Position.Seq < upTo {
					t.Errorf("purged to %d, bucket %d is at %d", upTo, b, m.Position.Seq)
				}
			}
		}}
	}}
	bubbleWith(t, o, func(t *testing.T, cl *cluster) {
		c = cl
		for range 60 {
			c.put("", fill("a"), fill("b"), fill("c"), fill("d"))
			time.Sleep(time.Second)
		}
		c.await("the log is purged", func() bool { return c.status().Log.First > 150 })
		mu.Lock()
		defer mu.Unlock()
		if len(purges) < 2 {
			t.Errorf("purged %v", purges)
		}
	})
}

func TestIdleBucketsDoNotHoldTheLog(t *testing.T) {
	bubble(t, 2, eager, func(t *testing.T, c *cluster) {
		c.put("", "first", "first", "first", "first")
		for range 100 { // all in bucket 0
			c.put("", fill("w"))
		}
		c.await("the log is purged", func() bool { return c.status().Log.First > 80 })
		ms := c.manifests()
		for b := range buckets.ID(4) {
			if ms[b].Position.Seq < 80 {
				t.Errorf("bucket %d is at %d", b, ms[b].Position.Seq)
			}
		}
		c.loseFolder("s1")
		c.startStorage("s1")
		counts, _, err := c.job(wordCount)
		c.must(err)
		if counts["first"] != 4 || counts["w"] != 100 {
			t.Errorf("counted %v", counts)
		}
	})
}

// barred is a KV in which one key cannot be made while it is on.
type barred struct {
	node.KV
	key string
	on  *atomic.Bool
}

func (b barred) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	if key == b.key && b.on.Load() {
		return 0, api.Errorf(api.CodeUnavailable, "no answer")
	}
	return b.KV.Create(ctx, key, value)
}

func TestOneMissingManifestHoldsTheLog(t *testing.T) {
	var on atomic.Bool
	on.Store(true)
	o := options{storages: 2, settings: eager, tweak: func(_ string, p *node.Ports) {
		p.Manifests = barred{p.Manifests, "2", &on}
	}}
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		c.put("", slices.Repeat([]string{fill("w")}, 200)...)
		c.await("the others have checkpoints", func() bool { return len(c.manifests()) == 3 })
		time.Sleep(30 * time.Second)
		if first := c.status().Log.First; first != 1 {
			t.Errorf("the log was purged to %d", first)
		}
		on.Store(false)
		c.await("the log is purged", func() bool { return c.status().Log.First > 100 })
	})
}

// A log of which nobody has saved the table is not purged.
func TestNoPurgeWithoutASavedTable(t *testing.T) {
	var on atomic.Bool
	on.Store(true)
	o := options{storages: 1, settings: eager, tweak: func(_ string, p *node.Ports) {
		p.State = barred{p.State, "table", &on}
	}}
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		c.put("", slices.Repeat([]string{fill("w")}, 200)...)
		c.await("there are checkpoints", func() bool { return len(c.inUse()) == 4 })
		time.Sleep(30 * time.Second)
		if first := c.status().Log.First; first != 1 {
			t.Errorf("the log was purged to %d", first)
		}
		on.Store(false)
		c.await("the log is purged", func() bool { return c.status().Log.First > 100 })
	})
}
