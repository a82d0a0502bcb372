package node_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

// beside runs four clients in a loop with jobs whose maps take 0.2 s, for a third of a minute, next to back-to-back moves if there
// are to be any. It counts the jobs that were done and the moves.
func (c *cluster) beside(moves bool) (jobs, moved int64) {
	c.mapper.setHook(func(ctx context.Context, _ node.Task, b buckets.ID) error {
		if b%6 == 0 { // one bucket of each storage takes all the time
			return wait(ctx, 200*time.Millisecond)
		}
		return nil
	})
	ctx, stop := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer stop()
	var busy sync.WaitGroup
	var done atomic.Int64
	for range 4 {
		busy.Go(func() {
			for ctx.Err() == nil {
				if _, _, err := c.job(wordCount); err != nil {
					c.t.Errorf("a job failed: %v", err)
					return
				}
				done.Add(1)
			}
		})
	}
	if moves {
		b := c.owning("s1", 2)[1]
		for ; ctx.Err() == nil; moved++ {
			c.moveOnce(fmt.Sprint("m", moved), b)
		}
	}
	busy.Wait()
	return done.Load(), moved
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// moveOnce moves a bucket to the other one of two storages, and waits until it is there.
func (c *cluster) moveOnce(id string, b uint16) {
	c.t.Helper()
	src := c.table().Owner(buckets.ID(b)).Storage
	dst := map[string]string{"s1": "s2", "s2": "s1"}[src]
	c.publish(api.MoveOrder{ID: id, Src: src, Dst: dst, Buckets: []uint16{b}})
	for c.table().Owner(buckets.ID(b)).Storage != dst {
		time.Sleep(20 * time.Millisecond)
	}
}

// Jobs that hold buckets and moves both go on: no job fails, the jobs keep at least half of their rate, and a bucket
// moves each second.
func TestJobsAndMovesBothGoOn(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
		alone, _ := c.beside(false)
		jobs, moved := c.beside(true)
		t.Logf("in 20 s %d jobs alone; %d jobs beside %d moves", alone, jobs, moved)
		if 2*jobs < alone || moved < 20 {
			t.Errorf("in 20 s %d jobs alone; %d jobs beside %d moves", alone, jobs, moved)
		}
	})
}

// Moves beside a long map of a snapshot take the time that they take without it.
func TestALongMapOfASnapshotDelaysNoMove(t *testing.T) {
	settled(t, options{storages: 2, settings: small}, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
		b := c.owning("s1", 1)[0]
		move := func(name string) time.Duration {
			began := time.Now()
			for i := range 20 {
				c.moveOnce(fmt.Sprint(name, i), b)
			}
			return time.Since(began)
		}
		alone := move("alone")
		mapping, free := c.block()
		req := wordCount
		req.Mode = api.ModeSnapshot
		done := c.background(req)
		<-mapping
		beside := move("beside")
		free()
		c.must(<-done)
		if beside > alone+alone/5 {
			t.Errorf("20 moves take %s, and %s beside a map of a snapshot", alone, beside)
		}
	})
}
