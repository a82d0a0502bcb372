//go:build unix

package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

var sameSeed = flag.Uint64("same.seed", 0, "what decides about records, jobs and moves of TestSameAnswerWhateverMoves; 0 takes one")

// sameRuns is how many texts and jobs TestSameAnswerWhateverMoves takes.
const sameRuns = 10

// same is a cluster of four storages, one of which owns nothing.
type same struct {
	*cluster
	bus     *bus.Bus
	random  *rand.Rand
	outside string // the storage that owns nothing
	jobs    int
}

// The same job gives the same bytes while nothing moves, while buckets move all the time, while one storage joins and
// another one leaves, and while one is killed.
func TestSameAnswerWhateverMoves(t *testing.T) {
	heavy(t)
	seed := *sameSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("again with the same choices: go test ./e2e -run %s -same.seed=%d", t.Name(), seed)
	s := startSame(t, seed)
	for run := range sameRuns {
		space := fmt.Sprint("run-", run)
		s.importLines(space, newText(s.random.Uint64(), 200+s.random.IntN(scaled(1500))).lines)
		job := s.anyJob(space)
		want, err := s.run(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		s.during("buckets move", job, want, s.moveAround)
		s.during("a storage joins and one leaves", job, want, s.swap)
		s.during("a storage is killed", job, want, s.killAny)
	}
	t.Logf("%d jobs gave the bytes that were given before", s.jobs)
	s.wantNothingPinned()
}

func startSame(t *testing.T, seed uint64) *same {
	t.Helper()
	c := startCluster(t, settings{buckets: 32, checkpoint: "16KiB", window: "2s"})
	s := &same{cluster: c, bus: c.bus(), random: rand.New(rand.NewPCG(seed, 2)), outside: "s4"}
	s.topology(api.TopologyRequest{Weights: map[string]float64{s.outside: 0}, StartWeights: nil}, false)
	late := c.newStorage(s.outside, s.outside)
	late.start()
	c.storages = append(c.storages, late)
	c.wantMember(late)
	s.topology(api.TopologyRequest{Weights: map[string]float64{s.outside: 0}}, true)
	return s
}

// topology changes what is wanted of the cluster; a storage that nobody knows yet is no failure if it need not be.
func (s *same) topology(req api.TopologyRequest, must bool) {
	s.t.Helper()
	if err := s.bus.Request(s.t.Context(), "admin.topology", req, nil); err != nil && must {
		s.t.Fatal(err)
	}
}

// anyJob makes a job over the words of a space, whose answer is more than a few rows.
func (s *same) anyJob(space string) pinion.Job {
	pick := func(of ...string) string { return of[s.random.IntN(len(of))] }
	job := pinion.Job{
		Module: "wordcount", Reduce: pick("sum", "count", "max", "none"), Space: space, Mode: pick(api.ModeHold, api.ModeSnapshot),
		Sort: pick("key", "-key", "value", "-value"), Timeout: 90 * time.Second,
	}
	if job.Reduce == "none" {
		job.Sort = "key"
	}
	if s.random.IntN(4) == 0 {
		job.Module, job.Reduce, job.Sort = "", "none", "key" // the records themselves
	}
	return job
}

// during runs a job again and again while something goes on, and once more after it.
func (s *same) during(what string, job pinion.Job, want []byte, disturb func(done func() int)) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	defer stop()
	var right atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			got, err := s.run(s.t.Context(), job)
			switch {
			case err != nil && !retried(err):
				ended <- fmt.Errorf("the job failed with code %s: %w", api.CodeOf(err), err)
				return
			case err == nil && !bytes.Equal(got, want):
				ended <- errors.New(difference(got, want))
				return
			case err == nil:
				right.Add(1)
			}
		}
		ended <- nil
	}()
	disturb(func() int { return int(right.Load()) })
	stop()
	if err := <-ended; err != nil {
		s.t.Fatalf("while %s, job %+v: %v", what, job, err)
	}
	s.jobs += int(right.Load())
	s.wantRows(job, want)
}

// moveAround moves some buckets of any storage to any other that is to own some, back to back, until some jobs have
// seen it.
func (s *same) moveAround(done func() int) {
	s.t.Helper()
	s.topology(api.TopologyRequest{Paused: new(true)}, true)
	ids := s.inside()
	for moves := 0; moves < 4 || done() < 3; moves++ {
		all := s.bucketsNow(s.t.Context(), s.bus)
		list := []uint16{}
		for _, i := range s.random.Perm(len(all))[:1+s.random.IntN(6)] {
			list = append(list, all[i].Bucket)
		}
		s.moveNow(s.bus, ids[s.random.IntN(len(ids))], list...)
	}
}

// inside are the storages that are to own buckets.
func (s *same) inside() []string {
	return slices.DeleteFunc([]string{"s1", "s2", "s3", "s4"}, func(id string) bool { return id == s.outside })
}

// swap lets the storage that owns nothing have its share, and empties another one.
func (s *same) swap(func() int) {
	s.t.Helper()
	ids := s.inside()
	leaves := ids[s.random.IntN(len(ids))]
	s.topology(api.TopologyRequest{Weights: map[string]float64{leaves: 0}, StartWeights: []string{s.outside}, Paused: new(false)}, true)
	s.waitFor(60*time.Second, leaves+" to own nothing and the others their share", func(ctx context.Context) error {
		var plan api.PlanReply
		if err := s.bus.Request(ctx, "admin.plan", api.Empty{}, &plan); err != nil {
			return err
		}
		for _, share := range plan.Shares {
			if empty := share.Owned == 0; empty != (share.Storage == leaves) {
				return fmt.Errorf("%+v", plan.Shares)
			}
		}
		if !plan.Balanced {
			return fmt.Errorf("%+v", plan.Shares)
		}
		return nil
	})
	s.outside = leaves
}

// killAny kills a storage and starts it again.
func (s *same) killAny(done func() int) {
	s.t.Helper()
	p := s.storages[s.random.IntN(len(s.storages))]
	p.kill()
	p.start()
	s.wantMember(p)
	before := done()
	s.waitFor(60*time.Second, "a job after the kill", func(context.Context) error {
		if done() == before {
			return errors.New("none is done")
		}
		return nil
	})
}
