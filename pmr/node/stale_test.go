package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus/busmem"
)

// pastFor has the log's server answer one peer with the extent of now, whatever comes.
func (c *cluster) pastFor(peer string) {
	c.t.Helper()
	past, err := c.log.State(c.t.Context())
	c.must(err)
	c.mem.SetFaults(busmem.Faults{State: func(p string, now api.LogState) api.LogState {
		if p == peer {
			return past
		}
		return now
	}})
}

var replicated = api.Settings{Buckets: 4, Replicas: 3, CheckpointBytes: 1024, DuplicateMS: 1000}

func TestNothingIsAnsweredFromThePast(t *testing.T) {
	bubble(t, 2, replicated, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		c.pastFor("s1")
		c.put("", "a", "b", "c", "d")
		short := wordCount
		short.TimeoutMS = 10_000
		if _, _, err := c.job(short); api.CodeOf(err) != api.CodeTimeout {
			t.Errorf("a job ended with %v", err)
		}
		for subject, body := range map[string]any{
			"get": api.GetRequest{Bucket: 0, Space: api.DefaultSpace, Key: []byte("k")}, "spaces": api.Empty{},
		} {
			if err := c.request("storage.s1."+subject, body, nil); api.CodeOf(err) != api.CodeUnavailable {
				t.Errorf("%s ended with %v", subject, err)
			}
		}
		c.mem.SetFaults(busmem.Faults{})
		c.expectJob(map[string]int64{"a": 2, "b": 2, "c": 2, "d": 2})
	})
}

// The table of a router at a cut need not be verified: what the storages pin is.
func TestAJobIsRightWhileItsRouterIsToldThePast(t *testing.T) {
	bubble(t, 2, replicated, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		c.pastFor("r1")
		c.put("", "a", "b", "c", "d")
		c.expectJob(map[string]int64{"a": 2, "b": 2, "c": 2, "d": 2})
	})
}

func TestNoCheckpointIsMadeOfThePast(t *testing.T) {
	bubble(t, 1, replicated, func(t *testing.T, c *cluster) {
		c.pastFor("s1")
		for range 60 {
			c.put("", fill("a"), fill("b"), fill("c"), fill("d"))
		}
		time.Sleep(10 * time.Second)
		if n := len(c.manifests()); n > 0 {
			t.Errorf("%d buckets have checkpoints", n)
		}
		c.mem.SetFaults(busmem.Faults{})
		c.await("there are checkpoints", func() bool { return len(c.manifests()) == 4 })
	})
}

func TestNoBucketIsJoinedFromThePast(t *testing.T) {
	bubble(t, 2, replicated, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d")
		c.loseFolder("s1")
		c.pastFor("s1")
		c.put("", "a", "b", "c", "d")
		c.startStorage("s1")
		time.Sleep(10 * time.Second)
		for _, s := range c.status().Storages {
			if s.Storage == "s1" && s.Loaded > 0 {
				t.Errorf("s1 has loaded %d buckets", s.Loaded)
			}
		}
		c.mem.SetFaults(busmem.Faults{})
		c.expectJob(map[string]int64{"a": 2, "b": 2, "c": 2, "d": 2})
	})
}

// An old answer looks as if the log had lost its tail. Nothing may be thrown away for it.
func TestAnAnswerFromThePastIsNoLoss(t *testing.T) {
	for _, peer := range []string{"s1", "r1"} {
		t.Run(peer, func(t *testing.T) {
			bubble(t, 2, replicated, func(t *testing.T, c *cluster) {
				c.pastFor(peer)
				c.put("", "a", "b", "c", "d")
				_, _, _ = c.job(api.JobRequest{Module: "words", Reduce: "sum", TimeoutMS: 3000}) // brings all nodes forward
				c.mem.Cut(peer)
				time.Sleep(time.Second)
				c.mem.Heal(peer)
				time.Sleep(10 * time.Second)
				c.mem.SetFaults(busmem.Faults{})
				c.expectJob(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1})
				if p := c.problems(); strings.Contains(p, "lost") {
					t.Errorf("problems: %s", p)
				}
				for _, s := range c.status().Storages {
					if s.Reloads > 0 {
						t.Errorf("%s was emptied", s.Storage)
					}
				}
			})
		})
	}
}
