package node_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus/busmem"
	"github.com/pinion-mr/pinion/pmr/node"
)

// fences lists the positions of a storage's fences.
func (c *cluster) fences(storage string) []uint64 {
	c.t.Helper()
	st, err := c.log.State(c.t.Context())
	c.must(err)
	var seqs []uint64
	c.must(c.log.ReadTo(c.t.Context(), 1, st.Last, []string{buckets.FenceSubject(storage)}, func(e api.LogEntry) error {
		seqs = append(seqs, e.Seq)
		return nil
	}))
	return seqs
}

func TestAStorageThatLapsedAnswersOnlyBehindANewFence(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		if n := len(c.fences("s1")); n != 1 {
			t.Fatalf("%d fences at the start", n)
		}
		var held atomic.Bool
		held.Store(true)
		c.mem.SetFaults(busmem.Faults{Append: func(peer, subject string) busmem.AppendFault {
			return busmem.AppendFault{Lost: held.Load() && peer == "s1" && strings.HasPrefix(subject, "fence")}
		}})
		c.mem.Cut("s1")
		time.Sleep(20 * time.Second)
		c.mem.Heal("s1")
		for range 50 {
			if _, err := c.pin("s1", c.cut("j")); api.CodeOf(err) != api.CodeUnavailable {
				t.Fatalf("a pin before the new fence: %v", err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		held.Store(false)
		c.await("s1 serves", func() bool { _, err := c.pin("s1", c.cut("j")); return err == nil })
		if n := len(c.fences("s1")); n != 2 {
			t.Errorf("%d fences", n)
		}
	})
}

// mute is a KV in which nothing with a time to live can be written while it is on. It takes
// its time to say so.
type mute struct {
	node.KV
	on *atomic.Bool
}

func (m mute) Renew(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (uint64, error) {
	if m.on.Load() {
		time.Sleep(15 * time.Second)
		return 0, api.Errorf(api.CodeUnavailable, "no answer")
	}
	return m.KV.Renew(ctx, key, value, revision, ttl)
}

func (m mute) CreateTTL(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	if m.on.Load() {
		time.Sleep(15 * time.Second)
		return 0, api.Errorf(api.CodeUnavailable, "no answer")
	}
	return m.KV.CreateTTL(ctx, key, value, ttl)
}

func TestAStorageThatCannotRenewStopsInTime(t *testing.T) {
	var on atomic.Bool
	o := options{storages: 1, settings: small, tweak: func(peer string, p *node.Ports) {
		if peer == "s1" {
			p.State = mute{p.State, &on}
		}
	}}
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		on.Store(true)
		gone := func() bool {
			for _, m := range c.status().Members {
				if m.ID == "s1" {
					return false
				}
			}
			return true
		}
		for !gone() {
			time.Sleep(100 * time.Millisecond)
		}
		if _, err := c.pin("s1", c.cut("j")); api.CodeOf(err) != api.CodeUnavailable {
			t.Errorf("a pin of a storage whose entry is gone: %v", err)
		}
		on.Store(false)
		c.await("s1 serves", func() bool { _, err := c.pin("s1", c.cut("j")); return err == nil })
		if n := len(c.fences("s1")); n != 2 {
			t.Errorf("%d fences", n)
		}
	})
}

// crash ends a node that cannot say goodbye.
func (c *cluster) crash(id string) {
	c.t.Helper()
	c.mem.Cut(id)
	c.stop(id)
	c.mem.Heal(id)
}

func TestARestartTakesItsPlace(t *testing.T) {
	for folder, within := range map[string][2]time.Duration{
		"the same": {0, time.Second},
		"another":  {5 * time.Second, 20 * time.Second},
	} {
		t.Run(folder, func(t *testing.T) {
			bubble(t, 2, small, func(t *testing.T, c *cluster) {
				c.put("", "a", "b")
				c.crash("s1")
				if folder == "another" {
					c.must(c.nodes["s1"].store.Close())
					c.nodes["s1"] = &running{store: newStore(), dir: "another"}
				}
				began := time.Now()
				c.startStorage("s1")
				for len(c.fences("s1")) < 2 && time.Since(began) < time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(began); took < within[0] || took > within[1] {
					t.Errorf("it came back after %s", took)
				}
				c.expectJob(map[string]int64{"a": 1, "b": 1})
			})
		})
	}
}
