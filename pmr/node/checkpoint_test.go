package node_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/buckets/store"
	"github.com/pinion-mr/pinion/pmr/node"
)

func newStore() buckets.Store { return store.NewMem() }

// manifests reads all manifests, by bucket.
func (c *cluster) manifests() map[buckets.ID]node.Manifest {
	c.t.Helper()
	kv, err := c.client.KV(c.t.Context(), "MANIFESTS", false, 1)
	c.must(err)
	entries, err := kv.List(c.t.Context(), "")
	c.must(err)
	all := map[buckets.ID]node.Manifest{}
	for _, e := range entries {
		var m node.Manifest
		c.must(api.Decode(e.Value, &m, api.Lenient))
		all[m.Bucket] = m
	}
	return all
}

// savedTable reads the table of which a new applier begins; it has seen nothing if there is none.
func (c *cluster) savedTable() *buckets.Table {
	c.t.Helper()
	kv, err := c.client.KV(c.t.Context(), "STATE", false, 1)
	c.must(err)
	e, err := kv.Get(c.t.Context(), "table")
	c.must(err)
	if e.Revision == 0 {
		return buckets.NewTable(c.settings.Buckets)
	}
	table, err := buckets.ParseTable(e.Value, c.settings.Buckets)
	c.must(err)
	return table
}

// objects lists the checkpoint store.
func (c *cluster) objects() []string {
	c.t.Helper()
	objects, err := c.client.Objects(c.t.Context(), "CHECKPOINTS", false, 1)
	c.must(err)
	list, err := objects.List(c.t.Context())
	c.must(err)
	var names []string
	for _, o := range list {
		names = append(names, o.Name)
	}
	return names
}

// inUse lists the table files that manifests hold on to.
func (c *cluster) inUse() []string {
	var names []string
	for _, m := range c.manifests() {
		for _, f := range m.Files {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return names
}

// tidy reports whether the checkpoint store holds what manifests use, and nothing else.
func (c *cluster) tidy() bool {
	for _, m := range c.manifests() {
		if len(m.Pending)+len(m.Dead) > 0 {
			return false
		}
	}
	return slices.Equal(c.objects(), c.inUse())
}

// meddle calls fn once, between the upload of a table file and what follows.
type meddle struct {
	node.Objects
	fn *atomic.Pointer[func(name string) error]
}

func (m meddle) Put(ctx context.Context, name string, r io.Reader) error {
	if err := m.Objects.Put(ctx, name, r); err != nil {
		return err
	}
	if fn := m.fn.Swap(nil); fn != nil {
		return (*fn)(name)
	}
	return nil
}

func meddling(fn *atomic.Pointer[func(name string) error]) options {
	return options{storages: 1, settings: eager, tweak: func(peer string, p *node.Ports) {
		if peer == "s1" {
			p.Checkpoints = meddle{p.Checkpoints, fn}
		}
	}}
}

func TestAManifestThatChangedDiscardsTheCheckpoint(t *testing.T) {
	var fn atomic.Pointer[func(string) error]
	bubbleWith(t, meddling(&fn), func(t *testing.T, c *cluster) {
		kv, err := c.client.KV(t.Context(), "MANIFESTS", false, 1)
		c.must(err)
		discarded := make(chan string, 1)
		interfere := func(name string) error {
			key, _, _ := strings.Cut(name, "-")
			e, err := kv.Get(t.Context(), key)
			c.must(err)
			_, err = kv.Update(t.Context(), key, e.Value, e.Revision) // another owner's, say
			c.must(err)
			discarded <- name
			return nil
		}
		fn.Store(&interfere)
		c.put("", slices.Repeat([]string{fill("w")}, 60)...)
		name := <-discarded
		time.Sleep(time.Second)
		if slices.Contains(c.inUse(), name) {
			t.Errorf("a manifest names %s, whose checkpoint was to be discarded", name)
		}
		c.await("the bucket has a checkpoint after all", func() bool { return len(c.inUse()) == 4 })
		if !slices.Contains(c.objects(), name) {
			t.Error("the file was deleted before its grace time")
		}
		for range 3 { // files are looked after when checkpoints are made
			c.put("", slices.Repeat([]string{fill("w")}, 60)...)
			time.Sleep(40 * time.Second)
		}
		c.await("it is tidy", c.tidy)
	})
}

func TestACrashDuringACheckpointLeavesNothing(t *testing.T) {
	var fn atomic.Pointer[func(string) error]
	bubbleWith(t, meddling(&fn), func(t *testing.T, c *cluster) {
		crashed := make(chan string, 1)
		crash := func(name string) error {
			c.mem.Cut("s1")
			c.nodes["s1"].stop()
			crashed <- name
			return io.ErrClosedPipe
		}
		fn.Store(&crash)
		c.put("", slices.Repeat([]string{fill("w")}, 60)...)
		name := <-crashed
		if err := <-c.nodes["s1"].ended; err != nil {
			t.Error(err)
		}
		c.mem.Heal("s1")
		if !slices.Contains(c.objects(), name) || slices.Contains(c.inUse(), name) {
			t.Fatal("the test did not bring about what it is about")
		}
		c.startStorage("s1")
		dead := func() bool {
			for _, m := range c.manifests() {
				for _, d := range m.Dead {
					if d.Name == name {
						return true
					}
				}
			}
			return false
		}
		c.await("it is dead", dead)
		since := time.Now()
		c.await("it is deleted", func() bool { return !slices.Contains(c.objects(), name) })
		if after := time.Since(since); after < 55*time.Second {
			t.Errorf("it was deleted after %s", after)
		}
		time.Sleep(3 * time.Minute)
		c.await("it is tidy", c.tidy)
		c.expectJob(map[string]int64{"w": 60, fillWord: 60})
	})
}

func TestAManifestNeverMovesBackwards(t *testing.T) {
	for _, what := range []string{"position", "generation"} {
		t.Run(what, func(t *testing.T) {
			bubble(t, 1, eager, func(t *testing.T, c *cluster) {
				ahead := node.Manifest{Version: 1, Bucket: 2}
				if what == "position" {
					ahead.Position.Seq = 1_000_000
				} else {
					ahead.Generation = 1_000_000
				}
				body, err := api.Encode(api.JSON, ahead)
				c.must(err)
				kv, err := c.client.KV(t.Context(), "MANIFESTS", false, 1)
				c.must(err)
				_, err = kv.Create(t.Context(), "2", body)
				c.must(err)
				c.put("", slices.Repeat([]string{fill("w")}, 80)...)
				c.await("the others have checkpoints", func() bool { return len(c.inUse()) == 3 })
				time.Sleep(10 * time.Second)
				if m := c.manifests()[2]; m.Position.Seq != ahead.Position.Seq || m.Generation != ahead.Generation || len(m.Files) > 0 {
					t.Errorf("bucket 2 moved to %+v", m)
				}
			})
		})
	}
}
