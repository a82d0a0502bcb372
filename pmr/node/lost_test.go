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
	"github.com/pinion-mr/pinion/pmr/node"
)

// inLog counts the words of all records that the log holds.
func (c *cluster) inLog() map[string]int64 {
	c.t.Helper()
	st, err := c.log.State(c.t.Context())
	c.must(err)
	counts := map[string]int64{}
	c.must(c.log.ReadTo(c.t.Context(), st.First, st.Last, nil, func(e api.LogEntry) error {
		entry, err := buckets.Decode(e, c.settings.Buckets)
		if err != nil {
			return err
		}
		if r, ok := entry.(buckets.Records); ok {
			r.Each(func(_, value []byte, _ bool) {
				for word := range strings.FieldsSeq(string(value)) {
					counts[word]++
				}
			})
		}
		return nil
	}))
	return counts
}

// cutAll takes all nodes off the network and lets them notice.
func (c *cluster) cutAll() {
	for id := range c.nodes {
		c.mem.Cut(id)
	}
	time.Sleep(100 * time.Millisecond)
}

func (c *cluster) healAll() {
	for id := range c.nodes {
		c.mem.Heal(id)
	}
}

// expectJob runs a job until it is done; nodes that have just come back may need some time.
func (c *cluster) expectJob(want map[string]int64) {
	c.t.Helper()
	counts, _, err := c.job(wordCount)
	c.must(err)
	expectCounts(c.t, counts, want)
}

// problems is what is wrong with the cluster, as one text.
func (c *cluster) problems() string { return strings.Join(c.status().Problems, "\n") }

// lossesTold are the nodes whose status tells that the log has lost its tail; "" is the router.
func (c *cluster) lossesTold() []string {
	told := []string{}
	for _, p := range c.status().Problems {
		if strings.Contains(p, "was not the one that this node had applied") {
			name, _, _ := strings.Cut(strings.TrimPrefix(p, "storage "), ":")
			if strings.HasPrefix(p, "the log's entry") {
				name = "router"
			}
			told = append(told, name)
		}
	}
	slices.Sort(told)
	return told
}

func TestALostTailIsNoticed(t *testing.T) {
	for _, when := range []string{"at a reconnect", "at a start"} {
		for _, grown := range []string{"still shorter", "grown again", "grown beyond"} {
			t.Run(when+", "+grown, func(t *testing.T) {
				// Whoever hears late of the reconnect has applied what has grown since.
				bubbleWith(t, options{storages: 2, settings: small, hears: time.Second}, func(t *testing.T, c *cluster) {
					c.put("", "kept", "kept")
					c.put("", "lost", "lost", "lost", "lost")
					c.expectJob(map[string]int64{"kept": 2, "lost": 4})
					before, err := c.log.State(t.Context())
					c.must(err)
					if when == "at a start" {
						c.stop("s1")
						c.stop("s2")
						c.mem.Cut("r1")
						time.Sleep(100 * time.Millisecond)
					} else {
						c.cutAll()
					}
					for c.inLog()["lost"] > 1 {
						c.mem.LoseTail(1)
					}
					for n := 0; grown != "still shorter"; n++ {
						st, err := c.log.State(t.Context())
						c.must(err)
						if st.Last == before.Last && grown == "grown again" || st.Last > before.Last+3 {
							break
						}
						c.put("", "new")
					}
					want := c.inLog()
					if when == "at a start" {
						c.startStorage("s1")
						c.startStorage("s2")
						c.mem.Heal("r1")
					} else {
						c.healAll()
						time.Sleep(2 * time.Second)
					}
					c.expectJob(want)
					if told := strings.Join(c.lossesTold(), " "); told != "router s1 s2" {
						t.Errorf("told by %q:\n%s", told, c.problems())
					}
					for _, s := range c.status().Storages {
						if s.Reloads != 1 {
							t.Errorf("%s loaded again %d times", s.Storage, s.Reloads)
						}
					}
				})
			})
		}
	}
}

// The log loses even who owned what, and the fences: everything is assigned anew.
func TestALostTailThatHeldTheOwners(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", "lost", "lost")
		st, err := c.log.State(t.Context())
		c.must(err)
		c.cutAll()
		c.mem.LoseTail(int(st.Last))
		c.healAll()
		c.await("the buckets are owned again", func() bool { return len(c.status().Unowned) == 0 })
		c.put("", "new")
		c.expectJob(map[string]int64{"new": 1})
	})
}

// gate holds up one call once it is shut, and tells that it came.
type gate struct {
	shut    atomic.Bool
	reached chan struct{}
	open    chan struct{}
}

// close shuts the gate. It makes the channels, which must be of the test's bubble.
func (g *gate) close() {
	g.reached, g.open = make(chan struct{}), make(chan struct{})
	g.shut.Store(true)
}

// reach waits until somebody stands at the gate.
func (c *cluster) reach(g *gate) {
	c.t.Helper()
	select {
	case <-g.reached:
	case <-time.After(time.Minute):
		c.t.Fatalf("nobody came; status %+v", c.status())
	}
}

func (g *gate) pass() {
	if g.shut.CompareAndSwap(true, false) {
		close(g.reached)
		<-g.open
	}
}

// gatedLog holds up ReadTo, which joins use.
type gatedLog struct {
	node.Log
	gate *gate
}

func (l gatedLog) ReadTo(ctx context.Context, from, to uint64, filters []string, fn func(api.LogEntry) error) error {
	l.gate.pass()
	return l.Log.ReadTo(ctx, from, to, filters, fn)
}

// gatedObjects holds up Put, which checkpoints use.
type gatedObjects struct {
	node.Objects
	gate *gate
}

func (o gatedObjects) Put(ctx context.Context, name string, r io.Reader) error {
	o.gate.pass()
	return o.Objects.Put(ctx, name, r)
}

func TestALostTailDuringAJoin(t *testing.T) {
	g := &gate{}
	o := options{storages: 2, settings: small, tweak: func(peer string, p *node.Ports) {
		if peer == "s1" {
			p.Log = gatedLog{p.Log, g}
		}
	}}
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		c.put("", "kept", "kept")
		c.put("", "lost", "lost", "lost")
		c.expectJob(map[string]int64{"kept": 2, "lost": 3})
		c.loseFolder("s1")
		g.close()
		c.startStorage("s1")
		c.reach(g)
		time.Sleep(time.Second)
		c.cutAll()
		for c.inLog()["lost"] > 0 {
			c.mem.LoseTail(1)
		}
		c.put("", "new", "new", "new", "new", "new", "new", "new", "new")
		close(g.open)
		c.healAll()
		c.expectJob(map[string]int64{"kept": 2, "new": 8})
	})
}

// loseFolder stops a storage and gives it an empty store.
func (c *cluster) loseFolder(id string) {
	c.t.Helper()
	c.stop(id)
	c.must(c.nodes[id].store.Close())
	c.nodes[id] = &running{store: newStore(), dir: id + "-new", replace: true}
}

// eager are settings with which checkpoints and purges come soon.
var eager = api.Settings{Buckets: 4, CheckpointBytes: 1024, DuplicateMS: 1000}

// fill is a value of about 100 bytes, of one word that counts and one that fills.
func fill(word string) string { return word + " " + fillWord }

var fillWord = strings.Repeat("x", 100)

func TestALostTailDuringACheckpoint(t *testing.T) {
	g := &gate{}
	o := options{storages: 1, settings: eager, tweak: func(peer string, p *node.Ports) {
		if peer == "s1" {
			p.Checkpoints = gatedObjects{p.Checkpoints, g}
		}
	}}
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		g.close()
		c.put("", slices.Repeat([]string{fill("lost")}, 60)...)
		c.reach(g)
		c.cutAll()
		for c.inLog()["lost"] > 10 {
			c.mem.LoseTail(1)
		}
		c.healAll()
		c.await("the loss is noticed", func() bool { return slices.Contains(c.lossesTold(), "s1") })
		time.Sleep(time.Second)
		close(g.open)
		time.Sleep(time.Second)
		st, err := c.log.State(t.Context())
		c.must(err)
		for b, m := range c.manifests() {
			if m.Position.Seq > st.Last {
				t.Errorf("the checkpoint of bucket %d is of %d, the log ends at %d", b, m.Position.Seq, st.Last)
			}
		}
		c.expectJob(c.inLog())
	})
}

func TestACheckpointAheadOfTheLogIsRefused(t *testing.T) {
	for _, grown := range []bool{false, true} {
		bubble(t, 1, eager, func(t *testing.T, c *cluster) {
			st, err := c.log.State(t.Context())
			c.must(err)
			c.put("", slices.Repeat([]string{fill("w")}, 60)...)
			c.await("all is in checkpoints", func() bool {
				ms := c.manifests()
				for _, m := range ms {
					if m.Position.Seq < st.Last+40 {
						return false
					}
				}
				return len(ms) == 4
			})
			c.stop("s1")
			now, err := c.log.State(t.Context())
			c.must(err)
			c.mem.LoseTail(int(now.Last - st.Last))
			for range int(now.Last-st.Last) + 10 {
				if grown {
					c.put("", "other")
				}
			}
			c.startStorage("s1")
			c.await("the status tells", func() bool {
				return strings.Contains(c.problems(), "the checkpoint of bucket 0 covers log entry") &&
					strings.Contains(c.problems(), "the log has lost its tail")
			})
			_, _, err = c.job(api.JobRequest{Module: "words", Reduce: "sum", TimeoutMS: 10_000})
			if api.CodeOf(err) != api.CodeTimeout {
				t.Errorf("a job that lacks records ended with %v", err)
			}
			if first := c.status().Log.First; first > 1 {
				t.Errorf("the log was purged to %d for checkpoints that do not cover it", first)
			}
		})
	}
}

// A router that begins with the saved table has not seen the entry there: that is no loss.
func TestARouterAtTheSavedTableReconnects(t *testing.T) {
	bubble(t, 1, eager, func(t *testing.T, c *cluster) {
		c.put("", slices.Repeat([]string{fill("w")}, 200)...)
		c.await("the log is purged", func() bool { return c.status().Log.First > 100 })
		c.stop("s1") // nothing more is written
		c.stop("r1")
		st, err := c.log.State(t.Context())
		c.must(err)
		c.mem.LoseTail(int(st.Last - c.savedTable().Seq())) // down to what the table covers
		c.startRouter("r1", 1)
		time.Sleep(100 * time.Millisecond)
		c.mem.Cut("r1")
		c.mem.Heal("r1")
		time.Sleep(100 * time.Millisecond)
		if told := c.lossesTold(); len(told) > 0 {
			t.Errorf("told by %v", told)
		}
		c.startStorage("s1")
		c.await("s1 serves", func() bool { return len(c.status().Storages) == 1 })
	})
}

// The saved table is of a log whose end was lost: what it says about owners is of no use.
func TestASavedTableAheadOfTheLogIsRefused(t *testing.T) {
	bubble(t, 1, eager, func(t *testing.T, c *cluster) {
		c.put("", slices.Repeat([]string{fill("w")}, 200)...)
		c.await("the log is purged", func() bool { return c.status().Log.First > 100 })
		c.stop("s1")
		c.stop("r1")
		st, err := c.log.State(t.Context())
		c.must(err)
		c.mem.LoseTail(int(st.Last - c.savedTable().Seq() + 1))
		c.startRouter("r1", 1)
		c.await("the status tells", func() bool {
			return strings.Contains(c.problems(), "the table was saved at")
		})
		c.startStorage("s1")
		c.await("s1 is a member", func() bool { return len(c.status().Members) == 2 })
	})
}
