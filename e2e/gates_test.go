//go:build unix

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// gateWatch polls a storage's status closely and notes what may never be seen together.
type gateWatch struct {
	replies, mapping, stopping, held int
	wrong                            []string
}

// look takes one status. A PMR that holds buckets in place and a gate that is held exclude each other.
func (w *gateWatch) look(st api.StorageStatus) {
	w.replies++
	if st.Gate != "" {
		w.held++
	}
	for _, p := range st.PMRs {
		if p.Snapshot {
			continue
		}
		switch p.State {
		case "mapping":
			w.mapping++
		case "stopping":
			w.stopping++
		}
		if st.Gate != "" && p.State != "mapped" {
			w.wrong = append(w.wrong, fmt.Sprintf("gate %s is held while PMR %.8s is %s", st.Gate, p.PMR, p.State))
		}
	}
}

// follow polls until stop is called, which returns when the last status was looked at.
func (w *gateWatch) follow(b *bus.Bus, storage string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var polling sync.WaitGroup
	polling.Go(func() {
		poll := time.NewTicker(time.Millisecond)
		defer poll.Stop()
		for {
			if st, err := storageStatus(ctx, b, storage); err == nil {
				w.look(st)
			}
			select {
			case <-poll.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		polling.Wait()
	}
}

// A map outlives its job's time, or its router: the order is always guest dead, then pin released, then gate open.
// (Elsewhere a move was seen to begin 1.2 s after the start of a map of 8 s, whose router had given up after 1 s.)
func TestGateOpensAfterTheGuestIsDead(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	c.addPaced()
	m := c.newMoves(c.bus())
	m.gateAfter("the job's time is over", time.Second, false)
	m.gateAfter("the router is killed", time.Minute, true)
	c.wantNothingPinned()
	c.wantRows(paced(1, 1), pacedRows)
}

// gateAfter asks for a gate beside a map that would go on for minutes. The job ends by its timeout, or with its router.
func (m *moves) gateAfter(name string, timeout time.Duration, kill bool) {
	c, t := m.c, m.c.t
	t.Helper()
	var watch gateWatch
	stop := watch.follow(m.bus, "s1")
	// Nobody waits for this job's answer, who would ask the next router for it.
	req := api.JobRequest{
		Job: fmt.Sprint("gate-", timeout.Milliseconds()), Module: "paced", Reduce: "count", TimeoutMS: timeout.Milliseconds(), WaitMS: 1,
		Params: map[string]api.Bytes{"map": api.Bytes("1000000")},
	}
	if err := m.bus.Request(t.Context(), "job.run", req, &api.JobReply{}); err != nil {
		t.Fatal(err)
	}
	c.wantPMRs(m.bus, "s1", "mapping", req.Job)
	const id = "the-gate"
	gate := make(chan error, 1)
	go func() {
		fences, err := m.gates(t.Context(), id, []string{"s1"})
		for err == nil && fences == nil { // it took long
			fences, err = m.gates(t.Context(), id, []string{"s1"})
		}
		gate <- err
	}()
	if kill {
		c.router.kill()
	}
	select {
	case err := <-gate:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(60 * time.Second):
		t.Fatalf("the gate does not open when %s", name)
	}
	c.wantGuestDead("s1")
	if err := m.ungate(t.Context(), "s1", id); err != nil {
		t.Error(err)
	}
	stop()
	for _, wrong := range watch.wrong[:min(len(watch.wrong), 3)] {
		t.Errorf("when %s: %s", name, wrong)
	}
	if watch.mapping == 0 || watch.held == 0 {
		t.Errorf("the map was seen %d times and the held gate %d times in %d replies", watch.mapping, watch.held, watch.replies)
	}
	t.Logf("when %s: %d replies, mapping in %d, stopping in %d, the gate held in %d", name, watch.replies, watch.mapping, watch.stopping, watch.held)
	if kill {
		c.router.start()
		c.waitHealthy()
		return
	}
	err := m.bus.Request(t.Context(), "job.result", api.ResultRequest{Job: req.Job, WaitMS: 10_000}, &api.JobReply{})
	if api.CodeOf(err) != api.CodeTimeout {
		t.Errorf("the job failed with %v, want TIMEOUT", err)
	}
}

// wantGuestDead demands that a storage has nothing more to compute. It looks at the processor time that the process
// uses, which a guest that goes on in it would.
func (c *cluster) wantGuestDead(storage string) {
	c.t.Helper()
	p := c.storage(storage)
	before, ok := p.processorTime()
	if !ok {
		return // this system does not tell
	}
	const window = 100
	began := time.Now()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for range window {
		<-poll.C
	}
	after, _ := p.processorTime()
	if used, passed := after-before, time.Since(began); used > passed/2 {
		c.t.Errorf("with the gate held, %s used %s of processor time in %s: a guest still runs", storage, used, passed)
	}
}

// processorTime is what the process has used so far, where the system tells it in /proc.
func (p *process) processorTime() (time.Duration, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, false
	}
	_, fields, _ := strings.Cut(string(stat), ") ") // the program's name may hold anything
	list := strings.Fields(fields)
	if len(list) < 13 {
		return 0, false
	}
	var user, system int64
	if _, err := fmt.Sscan(list[11]+" "+list[12], &user, &system); err != nil {
		return 0, false
	}
	const tick = 10 * time.Millisecond // of Linux, everywhere
	return time.Duration(user+system) * tick, true
}

// Buckets move all the time, with gates and without, while jobs of both modes count the same records. Each answer is
// exact.
func TestJobsWhileBucketsMove(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 32})
	text := newText(21, 2_000)
	c.importLines("", text.lines)
	want := text.rows()
	c.wantRows(countWords(""), want)
	m := c.newMoves(c.bus())

	jobs, moved := int64(60), 8
	if long() {
		jobs, moved = 200, 60
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	failed := make(chan error, 16)
	var right, refused atomic.Int64
	var enough atomic.Bool
	var readers sync.WaitGroup
	for i := range 8 {
		readers.Go(func() {
			job := countWords("")
			job.Timeout = 30 * time.Second
			job.Mode = []string{api.ModeHold, api.ModeSnapshot}[i%2]
			for ctx.Err() == nil && (right.Load() < jobs || !enough.Load()) {
				if err := c.countsRight(ctx, job, want, &right, &refused); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	go func() {
		defer stop()
		readers.Wait()
	}()
	random := rand.New(rand.NewPCG(1, 2))
	deadline := time.Now().Add(4 * time.Minute)
	for ctx.Err() == nil && time.Now().Before(deadline) {
		seen := right.Load()
		if err := m.moveAny(ctx, random); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		enough.Store(m.made >= moved)
		breathe(ctx, func() bool { return right.Load() > seen })
	}
	stop()
	readers.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	t.Logf("%d jobs right, %d failed for a reason that passes; %d buckets moved, %d moves begun", right.Load(), refused.Load(), m.made, m.tried)
	if right.Load() < jobs || m.made < moved {
		t.Errorf("%d jobs were right and %d buckets moved, want %d and %d", right.Load(), m.made, jobs, moved)
	}
	m.wantOwners()
	c.wantRows(countWords(""), want)
	c.wantNothingPinned()
}

// breathe gives the jobs a moment, until one was right: each move has the new owner load the buckets, and no job is
// done meanwhile.
func breathe(ctx context.Context, right func() bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !right() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

// countsRight runs a job and counts how it ended. It fails with what no job may come to.
func (c *cluster) countsRight(ctx context.Context, job pinion.Job, want []byte, right, refused *atomic.Int64) error {
	rows, err := c.run(ctx, job)
	var wrong error
	switch {
	case ctx.Err() != nil: // the test is over
	case retried(err):
		refused.Add(1)
	case err != nil:
		wrong = fmt.Errorf("a job failed with code %s: %w", api.CodeOf(err), err)
	case !bytes.Equal(rows, want):
		wrong = fmt.Errorf("a wrong answer in mode %s: %s", job.Mode, difference(rows, want))
	default:
		right.Add(1)
	}
	return wrong
}

// moveAny moves one to three buckets between two storages and waits until they are loaded there.
func (m *moves) moveAny(ctx context.Context, random *rand.Rand) error {
	all := []string{"s1", "s2", "s3"}
	src := random.IntN(3)
	dst := (src + 1 + random.IntN(2)) % 3
	owned := m.ownedBy(all[src])
	if len(owned) < 4 {
		return nil
	}
	random.Shuffle(len(owned), func(i, j int) { owned[i], owned[j] = owned[j], owned[i] })
	way := m.move
	if random.IntN(2) == 0 {
		way = m.seize
	}
	if moved, err := way(ctx, all[src], all[dst], owned[:1+random.IntN(3)]); err != nil || !moved {
		return err
	}
	return m.loaded(ctx, all[dst])
}
