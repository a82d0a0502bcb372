package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr/node"
)

const (
	rivalJobs    = 16 // run without a pause
	rivalGates   = 4  // asked for without a pause, each on two storages in the order of their ids
	rivalTime    = 10 * time.Second
	gateHeldFor  = 5 * time.Millisecond
	gateTTL      = 10 * time.Second
	longestPause = 120 * time.Millisecond // of a router between two tries of a job
)

// fairness saturates three storage processes with jobs that hold buckets in place and with gates, and prints the
// longest wait of either side beside what the quotas allow.
//
// A gate waits for the maps that run and for pin_quota further pins, each of which may come as the last one ends,
// for the gates before it, and for the jobs that were refused before: each comes back within a pause, once for every
// storage at the most. A job waits at each storage for gate_quota gates before it comes first, and tries again
// within a pause. How long jobs and gates take is what they take at the most without the other side, in this run.
func (b *bench) fairness(ctx context.Context) (err error) {
	p, err := b.startProcesses(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.client.CreateSpace(ctx, "nothing"); err != nil {
		return err
	}
	aloneJob, _, err := p.rivals(ctx, rivalJobs, 0)
	if err != nil {
		return err
	}
	_, aloneGate, err := p.rivals(ctx, 0, rivalGates)
	if err != nil {
		return err
	}
	job, gate, err := p.rivals(ctx, rivalJobs, rivalGates)
	if err != nil {
		return err
	}
	const storages = 3
	drained := (node.DefaultPinQuota + 1) * aloneJob.worst
	gateBound := drained + rivalGates*aloneGate.worst + storages*(longestPause+aloneJob.worst)
	jobBound := aloneJob.worst + storages*(node.DefaultGateQuota*(drained+aloneGate.worst)+longestPause)
	fmt.Printf("%d jobs and %d gates at a time, each asking again at once, 3 storage processes, quotas %d and %d:\n",
		rivalJobs, rivalGates, node.DefaultPinQuota, node.DefaultGateQuota)
	for _, side := range []struct {
		name          string
		alone, beside *waits
	}{{"jobs", aloneJob, job}, {"gates", aloneGate, gate}} {
		fmt.Printf("  %-6s alone  %7.1f/s, longest %8.1f ms      beside the others %7.1f/s, longest %8.1f ms\n", side.name,
			float64(side.alone.n)/rivalTime.Seconds(), ms(side.alone.worst), float64(side.beside.n)/rivalTime.Seconds(), ms(side.beside.worst))
	}
	atMost("longest wait of a job, ms; the goal is what quotas allow", ms(job.worst), ms(jobBound))
	atMost("longest wait of a gate, ms; likewise", ms(gate.worst), ms(gateBound))
	fmt.Println()
	return nil
}

// waits sums up how long one side waited.
type waits struct {
	mu    sync.Mutex
	n     int
	worst time.Duration
}

func (w *waits) add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	w.worst = max(w.worst, d)
}

// rivals has jobs and gates come one after the other for a while.
func (p *processes) rivals(ctx context.Context, jobs, gates int) (*waits, *waits, error) {
	var job, gate waits
	errs := make([]error, jobs+gates)
	var all sync.WaitGroup
	until := time.Now().Add(rivalTime)
	again := func(i int, w *waits, do func() error) {
		all.Go(func() {
			for time.Now().Before(until) && errs[i] == nil {
				began := time.Now()
				errs[i] = do()
				w.add(time.Since(began))
			}
		})
	}
	for i := range jobs {
		again(i, &job, func() error {
			_, err := p.client.Run(ctx, pinion.Job{Module: "wordcount", Space: "nothing"})
			return err
		})
	}
	pairs := [][2]string{{"s1", "s2"}, {"s2", "s3"}, {"s1", "s3"}}
	for i := range gates {
		n := 0
		again(jobs+i, &gate, func() error {
			n++
			return p.gates(ctx, fmt.Sprintf("gate-%d-%d-%d", until.UnixNano(), i, n), pairs[i%len(pairs)])
		})
	}
	all.Wait()
	return &job, &gate, errors.Join(errs...)
}

// gates takes a gate on two storages, as a move does, holds both for a moment and gives them back.
func (p *processes) gates(ctx context.Context, id string, storages [2]string) error {
	for i, storage := range storages {
		for held := false; !held; {
			var reply api.GateReply
			req := api.GateRequest{Gate: id, TTLMS: gateTTL.Milliseconds(), WaitMS: 1000, Second: i > 0}
			if err := p.conn.Request(ctx, "storage."+storage+".gate", req, &reply); err != nil {
				return err
			}
			held = reply.State == "held"
			if i > 0 && !held { // the first one is renewed meanwhile
				req.Second, req.WaitMS = false, 0
				if err := p.conn.Request(ctx, "storage."+storages[0]+".gate", req, &reply); err != nil {
					return err
				}
			}
		}
	}
	time.Sleep(gateHeldFor)
	var errs []error
	for _, storage := range storages {
		errs = append(errs, p.conn.Request(ctx, "storage."+storage+".ungate", api.GateName{Gate: id}, nil))
	}
	return errors.Join(errs...)
}
