package node_test

import (
	"context"
	"fmt"
	"slices"
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

// slowIdentity is a mute KV in which the claim of an identity takes its time while it is on.
type slowIdentity struct {
	mute
	slow *atomic.Bool
}

func (s slowIdentity) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if s.slow.Load() && strings.HasPrefix(key, "identity.") {
		time.Sleep(2 * time.Second)
	}
	return s.KV.Update(ctx, key, value, revision)
}

// lapse has s1's entry vanish while s1 waits for a renewal, which it may repeat then.
func (c *cluster) lapse(on *atomic.Bool) {
	c.t.Helper()
	on.Store(true)
	c.await("s1 has lapsed", func() bool {
		return !slices.ContainsFunc(c.status().Members, func(m api.Member) bool { return m.ID == "s1" })
	})
	on.Store(false)
}

// Between the new entry and the new fence others count on the member again: it must not go on as if it had never been
// away.
func TestAStorageThatIsBackDoesNotServeUnderItsOldFence(t *testing.T) {
	var on, slow atomic.Bool
	o := options{storages: 1, settings: small, tweak: func(peer string, p *node.Ports) {
		if peer == "s1" {
			p.State = slowIdentity{mute{p.State, &on}, &slow}
		}
	}}
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		slow.Store(true)
		c.lapse(&on)
		c.await("s1 serves", func() bool { _, err := c.pin("s1", c.cut("j")); return err == nil })
		if n := len(c.fences("s1")); n != 2 {
			t.Errorf("it serves with %d fences", n)
		}
	})
}

// slowAnswer is a log that stores a fence and says so late, once.
type slowAnswer struct {
	node.Log
	once *atomic.Bool
}

func (l slowAnswer) Append(ctx context.Context, subject string, header map[string]string, data []byte, msgID string) (uint64, error) {
	seq, err := l.Log.Append(ctx, subject, header, data, msgID)
	if strings.HasPrefix(subject, "fence") && l.once.CompareAndSwap(true, false) {
		time.Sleep(8 * time.Second)
	}
	return seq, err
}

// The fence of a membership and that after a gate are appended at the same time, and the first one is heard of last: the
// table has the other one, and so has the storage.
func TestOfTwoFencesTheLaterOneCounts(t *testing.T) {
	for _, gateFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("gate first %v", gateFirst), func(t *testing.T) { laterFenceCounts(t, gateFirst) })
	}
}

func laterFenceCounts(t *testing.T, gateFirst bool) {
	var on, once atomic.Bool
	o := options{storages: 1, settings: small, tweak: func(peer string, p *node.Ports) {
		if peer == "s1" {
			p.State, p.Log = mute{p.State, &on}, slowAnswer{p.Log, &once}
		}
	}}
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		c.must(c.request("storage.s1.gate", api.GateRequest{Gate: "g1", TTLMS: 60_000, WaitMS: 1000}, nil))
		c.lapse(&on)
		once.Store(true)
		if !gateFirst {
			c.awaitFence("s1", 2)
		}
		c.must(c.request("storage.s1.ungate", api.GateName{Gate: "g1"}, nil))
		c.awaitFence("s1", 3)
		var g api.GateReply
		c.await("s1 serves", func() bool {
			return c.request("storage.s1.gate", api.GateRequest{Gate: "g2", TTLMS: 10_000, WaitMS: 1000}, &g) == nil && g.State == "held"
		})
		if fences := c.fences("s1"); len(fences) != 3 || g.Fence != fences[2] {
			t.Errorf("the gate's fence is %d of %v", g.Fence, fences)
		}
		c.must(c.request("storage.s1.ungate", api.GateName{Gate: "g2"}, nil))
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
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", "a", "b")
		c.crash("s1")
		began := time.Now()
		c.startStorage("s1")
		c.awaitFence("s1", 2)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it came back after %s", took)
		}
		c.expectJob(map[string]int64{"a": 1, "b": 1})
	})
}

func (c *cluster) awaitFence(storage string, n int) {
	c.t.Helper()
	c.await("a fence", func() bool { return len(c.fences(storage)) >= n })
}

// startAs runs a storage of an id on a folder until it ends, at the latest after a minute.
func (c *cluster) startAs(id, folder string) error {
	c.t.Helper()
	b, ports := c.ports("another " + id)
	defer b.Close()
	store := newStore()
	defer func() { c.must(store.Close()) }()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	return node.NewStorage(node.StorageConfig{
		Member: api.Member{ID: id, Weight: 1, Folder: folder, Host: "another host"}, Settings: c.settings, Workers: node.NewWorkers(1),
	}, ports, store).Run(ctx)
}

// A second storage of an id does not start, whatever state the first one is in.
func TestOfTwoWithOneIDTheSecondDoesNotStart(t *testing.T) {
	for state, bring := range map[string]func(c *cluster){
		"runs":       func(*cluster) {},
		"is cut off": func(c *cluster) { c.mem.Cut("s1"); time.Sleep(30 * time.Second) },
		"has died":   func(c *cluster) { c.crash("s1"); c.nodes["s1"].ended <- nil },
		"is stopped": func(c *cluster) { c.stop("s1"); c.nodes["s1"].ended <- nil; time.Sleep(time.Hour) },
	} {
		t.Run("the first "+state, func(t *testing.T) {
			bubble(t, 2, small, func(t *testing.T, c *cluster) {
				bring(c)
				began := time.Now()
				err := c.startAs("s1", "another folder")
				if api.CodeOf(err) != api.CodeNameTaken || !strings.Contains(api.AsError(err).Hint, "--replace") {
					t.Errorf("the second ended with %v", err)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %s to say so", took)
				}
				c.mem.Heal("s1")
			})
		})
	}
}

// A folder that is lost for good is replaced on demand, and is the stranger then.
func TestALostFolderIsReplaced(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", "a", "b")
		lost := c.nodes["s1"].dir
		c.crash("s1")
		c.must(c.nodes["s1"].store.Close())
		c.nodes["s1"] = &running{store: newStore(), dir: "another folder", replace: true}
		began := time.Now()
		c.startStorage("s1")
		c.awaitFence("s1", 2)
		if took := time.Since(began); took < 5*time.Second {
			t.Errorf("it did not wait until the first one's entry had lapsed: %s", took)
		}
		c.expectJob(map[string]int64{"a": 1, "b": 1})
		if err := c.startAs("s1", lost); api.CodeOf(err) != api.CodeNameTaken {
			t.Errorf("the first one came back: %v", err)
		}
		c.stop("s1")
		c.nodes["s1"].replace = false
		c.startStorage("s1") // it needs no flag any more
		c.awaitFence("s1", 3)
		c.expectJob(map[string]int64{"a": 1, "b": 1})
	})
}

// The flag holds for the start alone: who was replaced does not come back by having had it.
func TestAReplacedStorageStopsWhenItIsBack(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		first := c.nodes["s1"]
		c.stop("s1")
		first.replace = true
		c.startStorage("s1")
		c.awaitFence("s1", 2)
		c.mem.Cut("s1")
		time.Sleep(20 * time.Second)
		c.startReplacement("s1", "another folder")() // it has stopped again, and its entry is gone
		c.mem.Heal("s1")
		select {
		case err := <-first.ended:
			if api.CodeOf(err) != api.CodeNameTaken {
				t.Errorf("the first ended with %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the first one goes on")
		}
		first.ended <- nil
	})
}

// startReplacement runs a storage of an id beside the one that is cut off, until the returned function is called.
func (c *cluster) startReplacement(id, folder string) (stop func()) {
	c.t.Helper()
	b, ports := c.ports("another " + id)
	store := newStore()
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	st := node.NewStorage(node.StorageConfig{
		Member: api.Member{ID: id, Weight: 1, Folder: folder}, Settings: c.settings, Workers: node.NewWorkers(1), Replace: true,
	}, ports, store)
	go func() { ended <- st.Run(ctx) }()
	time.Sleep(time.Minute)
	return func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("the replacement ended with %v", err)
		}
		b.Close()
		c.must(store.Close())
	}
}
