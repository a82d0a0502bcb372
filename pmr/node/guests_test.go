package node_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// Many jobs at once have a guest each, and few of them a second one, however many buckets and places there are.
func TestManyJobsOpenFewGuests(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		const jobs, places, perPlace = 30, 2, 8
		c.put("", "a", "a", "a", "a", "a", "a")
		var open atomic.Int32
		release := make(chan struct{})
		c.mapper.onWord(func(ctx context.Context, _ string, yield func(context.Context) error) error {
			open.Add(1)
			defer open.Add(-1)
			for {
				select {
				case <-release:
					return nil
				case <-time.After(time.Millisecond):
				}
				if err := yield(ctx); err != nil {
					return err
				}
			}
		})
		var all sync.WaitGroup
		for i := range jobs {
			all.Go(func() {
				counts, _, err := c.job(api.JobRequest{Job: fmt.Sprint("j", i), Module: "words", Reduce: "sum"})
				if err != nil || !maps.Equal(counts, map[string]int64{"a": 6}) {
					t.Errorf("job %d: %v, %v", i, counts, err)
				}
			})
		}
		time.Sleep(5 * time.Second)
		if n := open.Load(); n <= jobs || n > jobs+places*perPlace/2 {
			t.Errorf("%d jobs have %d guests", jobs, n)
		}
		close(release)
		all.Wait()
		c.await("nothing is pinned", func() bool { return pins(c.status()) == 0 })
	})
}

// A job that had to begin with one guest gets a second one when others have ended.
func TestAJobWidensWhenThereIsRoom(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		const others = 16 // with a guest each, no second ones are let in
		c.put("others", "wait")
		c.put("late", slices.Repeat([]string{"late"}, 12)...)
		var now, most atomic.Int32
		release := make(chan struct{})
		c.mapper.onWord(func(ctx context.Context, word string, yield func(context.Context) error) error {
			if word == "late" {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
			}
			for n := 0; ; n++ {
				select {
				case <-release:
					if word == "wait" || n > 100 {
						return nil
					}
				default:
				}
				time.Sleep(time.Millisecond)
				if err := yield(ctx); err != nil {
					return err
				}
			}
		})
		var all sync.WaitGroup
		run := func(space string) {
			all.Go(func() {
				_, _, err := c.job(api.JobRequest{Module: "words", Space: space, Reduce: "sum"})
				if err != nil {
					t.Error(err)
				}
			})
		}
		for range others {
			run("others")
		}
		time.Sleep(time.Second)
		run("late")
		time.Sleep(2 * time.Second)
		if n := most.Load(); n != 1 {
			t.Errorf("with %d others there are %d guests of the job", others, n)
		}
		close(release)
		all.Wait()
		if n := most.Load(); n != 2 {
			t.Errorf("alone, the job has %d guests", n)
		}
	})
}
