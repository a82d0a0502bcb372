package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

// A router that was cut off for long finds that another one has its job. It leaves the job's message alone: to give
// it back would take the job from that one, and so on.
func TestARouterThatLostAJobDoesNotTakeItBack(t *testing.T) {
	for late := range 6 {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			bubble(t, 2, small, func(t *testing.T, c *cluster) {
				c.startRouter("r2", 2)
				c.put("", "a b", "b")
				c.mapper.setHook(func(ctx context.Context, _ node.Task, _ buckets.ID) error {
					select {
					case <-time.After(20 * time.Second):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				req := wordCount
				req.Job, req.TimeoutMS = "j", 600_000
				_, err := c.submit(req)
				c.must(err)
				first := c.awaitState("j", api.JobRunning)
				time.Sleep(5 * time.Second)
				c.mem.Cut(peerOf(first.Router))
				time.Sleep(25*time.Second + time.Duration(late)*700*time.Millisecond)
				c.mem.Heal(peerOf(first.Router))
				c.await("the job is over", func() bool { return c.info("j").State.Over() })
				if info := c.info("j"); info.State != api.JobDone || info.Take != 2 || info.Router == first.Router {
					t.Errorf("%+v, %v", info, info.Error)
				}
			})
		})
	}
}

// A record that only a newer program reads keeps its result.
func TestTheResultOfANewerRecordIsKept(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		records, err := c.client.KV(t.Context(), "JOBS", false, 1)
		c.must(err)
		_, err = records.Create(t.Context(), "job.new", []byte(`{"version":2,"job":"new","durable":true,"state":"done","take":1,"result":"new.1"}`))
		c.must(err)
		results, err := c.client.Objects(t.Context(), "RESULTS", false, 1)
		c.must(err)
		c.must(results.Put(t.Context(), "new.1", strings.NewReader("x")))
		c.must(results.Put(t.Context(), "gone.1", strings.NewReader("x")))
		c.await("a result that nobody knows is swept", func() bool { return !slices.Contains(c.stored(), "gone.1") })
		if !slices.Contains(c.stored(), "new.1") {
			t.Error("the result of a newer record was swept")
		}
	})
}
