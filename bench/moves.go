package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

var movesTime = flag.Duration("moves.time", time.Minute, "how long the section moves measures each thing that needs time")

const (
	moveBuckets = node.DefaultBuckets
	moveData    = 64 << 20 // bytes in all, spread over the buckets
	napSpace    = "naps"
	shortNap    = 200 * time.Millisecond // of the map of a job
	napClients  = 4
	writers     = 2
	boundSlack  = 5 * time.Second // beyond a map that everybody waits for
	takeoverPad = 5 * time.Second // from the end of the grace time to the first answer
)

// moving is a cluster for the benchmarks of moves. Its programs are built so that a map can be told to take its time.
type moving struct {
	*processes
	bench  *bench
	owners *owners
}

// moves measures what moves cost writes and jobs, and what they take. Buckets move one at a time, back to back, by the
// queue and the mover that the rebalancer uses too.
func (b *bench) moves(ctx context.Context) (err error) {
	m, err := b.startMoving(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.end()) }()
	fmt.Printf("moves of 1 of %d buckets, back to back, 3 storage processes, %.0f MB of records:\n", moveBuckets, mb(moveData))
	for _, measure := range []func(context.Context) error{m.writes, m.heldJobs, m.longSnapshot, m.longHold, m.bigBucket, m.takeover} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	fmt.Println()
	return nil
}

func (b *bench) startMoving(ctx context.Context) (*moving, error) {
	dir := filepath.Join(b.dir, "naps")
	build := exec.CommandContext(ctx, "go", "build", "-tags", "naps", "-o", dir, "./cmd/engine")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build an engine with naps: %w\n%s", err, out)
	}
	p, err := b.startProcessesOf(ctx, dir)
	if err != nil {
		return nil, err
	}
	m := &moving{processes: p, bench: b}
	if m.owners, err = followOwners(ctx, p.conn); err == nil {
		err = m.prepare(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, m.end())
	}
	return m, nil
}

func (m *moving) end() error {
	if m.owners != nil {
		m.owners.stop()
	}
	return m.stop()
}

// prepare stops the rebalancer, which would put buckets back, and stores what is moved.
func (m *moving) prepare(ctx context.Context) error {
	if err := m.conn.Request(ctx, "admin.topology", api.TopologyRequest{Paused: new(true)}, nil); err != nil {
		return err
	}
	const value = 4 << 10
	if err := m.fill(ctx, "default", moveData/value, value, func(int) bool { return true }); err != nil {
		return err
	}
	// Each bucket has a record, so each storage has something to map.
	return m.fill(ctx, napSpace, 8*moveBuckets, 8, func(int) bool { return true })
}

// fill stores records whose values no compression makes smaller, of those keys that are wanted.
func (m *moving) fill(ctx context.Context, space string, records, size int, wanted func(bucket int) bool) error {
	w, err := m.client.NewWriter(ctx, space)
	if err != nil {
		return err
	}
	source := rand.NewChaCha8([32]byte{1})
	value := make([]byte, size)
	for i := 0; records > 0; i++ {
		key := fmt.Appendf(nil, "key-%d", i)
		if !wanted(int(buckets.Of(key, moveBuckets))) {
			continue
		}
		records--
		_, _ = source.Read(value) // it never fails
		if err := w.Put(key, value); err != nil {
			return err
		}
	}
	return w.Close()
}

// moveWithin is how long any move may take, without a long map beside it.
const moveWithin = time.Minute

// move moves a bucket to the next storage, and returns what that took.
func (m *moving) move(ctx context.Context, bucket uint16, within time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	from, _ := m.owners.of(bucket)
	to := nextStorage(from)
	began := time.Now()
	if err := m.conn.Request(ctx, "admin.move", api.MoveRequest{Buckets: []uint16{bucket}, To: to}, nil); err != nil {
		return 0, err
	}
	err := m.owners.wait(ctx, bucket, to)
	return time.Since(began), err
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

// nextStorage is where a bucket goes from a storage.
func nextStorage(id string) string { return map[string]string{"s1": "s2", "s2": "s3", "s3": "s1"}[id] }

// backToBack moves one bucket after the other until a time is over, and returns how long each move took.
func (m *moving) backToBack(ctx context.Context, until time.Time) (took []time.Duration, err error) {
	for i := 0; time.Now().Before(until); i++ {
		d, err := m.move(ctx, uint16(i*37%moveBuckets), moveWithin)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	return took, nil
}

// beside runs moves, if wanted, and something else at the same time for a while.
func (m *moving) beside(ctx context.Context, moves bool, d time.Duration, do func(until time.Time) error) (took []time.Duration, err error) {
	until := time.Now().Add(d)
	var moved error
	var all sync.WaitGroup
	if moves {
		all.Go(func() { took, moved = m.backToBack(ctx, until) })
	}
	err = do(until)
	all.Wait()
	return took, errors.Join(err, moved)
}

// writes compares the waits of writers with moves and without, in turns.
func (m *moving) writes(ctx context.Context) error {
	const turns = 4
	var waits [2][]time.Duration
	moved := 0
	for turn := range turns {
		with := turn % 2
		took, err := m.beside(ctx, with == 1, *movesTime/turns, func(until time.Time) error {
			list, err := m.write(ctx, until)
			waits[with] = append(waits[with], list...)
			return err
		})
		if err != nil {
			return err
		}
		moved += len(took)
	}
	var p99, most [2]time.Duration
	for i := range waits {
		slices.Sort(waits[i])
		p99[i], most[i] = waits[i][len(waits[i])*99/100], waits[i][len(waits[i])-1]
	}
	fmt.Printf("  writes without moves: %d, p99 %.1f ms, longest %.1f ms; beside %d moves: %d, p99 %.1f ms, longest %.1f ms\n",
		len(waits[0]), ms(p99[0]), ms(most[0]), moved, len(waits[1]), ms(p99[1]), ms(most[1]))
	atMost("p99 of writes with moves / without", p99[1].Seconds()/p99[0].Seconds(), 3)
	return nil
}

// write has some writers put one record after the other, each waiting until it is stored.
func (m *moving) write(ctx context.Context, until time.Time) (waits []time.Duration, err error) {
	errs, lists := make([]error, writers), make([][]time.Duration, writers)
	var all sync.WaitGroup
	value := bytes.Repeat([]byte("x"), 100)
	for i := range writers {
		all.Go(func() {
			for n := 0; time.Now().Before(until) && errs[i] == nil; n++ {
				began := time.Now()
				_, errs[i] = m.client.Put(ctx, "written", fmt.Appendf(nil, "%d-%d", i, n), value)
				lists[i] = append(lists[i], time.Since(began))
			}
		})
	}
	all.Wait()
	return slices.Concat(lists...), errors.Join(errs...)
}

// nap is a job whose map takes so long on each storage.
func nap(mode string, d time.Duration) pinion.Job {
	return pinion.Job{
		Module: "wordcount", Reduce: "count", Space: napSpace, Mode: mode, Timeout: d + 2*time.Minute, Limit: 1,
		Params: map[string][]byte{"nap": []byte(d.String())},
	}
}

// heldJobs has clients run jobs that hold buckets in place, with moves and without, in turns.
func (m *moving) heldJobs(ctx context.Context) error {
	const turns = 2
	var done, failed [2]atomic.Int64
	moved := 0
	for turn := range 2 * turns {
		with := turn % 2
		took, err := m.beside(ctx, with == 1, *movesTime/turns, func(until time.Time) error {
			var all sync.WaitGroup
			var last atomic.Value
			for range napClients {
				all.Go(func() {
					for time.Now().Before(until) && ctx.Err() == nil {
						if _, err := m.client.Run(ctx, nap(api.ModeHold, shortNap)); err != nil {
							failed[with].Add(1)
							last.Store(err)
						} else {
							done[with].Add(1)
						}
					}
				})
			}
			all.Wait()
			if err, ok := last.Load().(error); ok {
				fmt.Printf("  a job failed: %v\n", err)
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
		moved += len(took)
	}
	alone, beside := float64(done[0].Load())/movesTime.Seconds(), float64(done[1].Load())/movesTime.Seconds()
	fmt.Printf("  %d clients with hold jobs whose map lasts %s: %.1f jobs/s without moves, %.1f beside %d moves in %s\n",
		napClients, shortNap, alone, beside, moved, *movesTime)
	atMost("failed jobs", float64(failed[0].Load()+failed[1].Load()), 0)
	atLeast("moves each second beside these jobs", float64(moved)/movesTime.Seconds(), 1)
	atLeast("rate of these jobs beside moves / without", beside/alone, 0.5)
	return nil
}

// longSnapshot compares the rate of moves beside a map that goes on in snapshot mode with that before and after it.
func (m *moving) longSnapshot(ctx context.Context) error {
	during := *movesTime
	before, err := m.backToBack(ctx, time.Now().Add(during/2))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := m.client.Run(ctx, nap(api.ModeSnapshot, during))
		ended <- err
	}()
	if err := m.untilMapping(ctx); err != nil {
		return err
	}
	beside, err := m.backToBack(ctx, time.Now().Add(during*9/10))
	if err != nil {
		return err
	}
	select {
	case err := <-ended:
		return fmt.Errorf("the long job ended before the moves beside it: %w", err)
	default:
	}
	if err := <-ended; err != nil {
		return err
	}
	after, err := m.backToBack(ctx, time.Now().Add(during/2))
	if err != nil {
		return err
	}
	without := slices.Concat(before, after)
	fmt.Printf("  a move takes %.0f ms in the middle without a long map, and %.0f ms beside one of %s in snapshot mode (%d and %d moves)\n",
		ms(medianOf(without)), ms(medianOf(beside)), during, len(without), len(beside))
	atMost("time of a move beside a map in snapshot mode / without", medianOf(beside).Seconds()/medianOf(without).Seconds(), 1.2)
	return nil
}

func medianOf(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// untilMapping waits until all storages map for some job.
func (m *moving) untilMapping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		var st api.ClusterStatus
		if err := m.conn.Request(ctx, "admin.status", api.Empty{}, &st); err != nil {
			return err
		}
		mapping := 0
		for _, s := range st.Storages {
			if slices.ContainsFunc(s.PMRs, func(p api.PMRInfo) bool { return p.State == "mapping" }) {
				mapping++
			}
		}
		if mapping == len(st.Members)-1 {
			return nil
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%d storages map: %w", mapping, err)
		}
	}
}

// longHold orders a move while a map holds all buckets in place. The move waits for that map, and short jobs that come
// meanwhile wait for the move in the end; neither waits longer.
func (m *moving) longHold(ctx context.Context) error {
	began, ended := time.Now(), make(chan error, 1)
	go func() {
		_, err := m.client.Run(ctx, nap(api.ModeHold, *movesTime))
		ended <- err
	}()
	if err := m.untilMapping(ctx); err != nil {
		return err
	}
	var moved atomic.Bool
	var took time.Duration
	var movedErr error
	var all sync.WaitGroup
	all.Go(func() {
		defer moved.Store(true)
		took, movedErr = m.move(ctx, 0, *movesTime+moveWithin)
	})
	jobs, longest := 0, time.Duration(0)
	var jobErr error
	for !moved.Load() && jobErr == nil {
		asked := time.Now()
		_, jobErr = m.client.Run(ctx, nap(api.ModeHold, shortNap))
		jobs, longest = jobs+1, max(longest, time.Since(asked))
	}
	all.Wait()
	if err := errors.Join(jobErr, movedErr, <-ended); err != nil {
		return err
	}
	fmt.Printf("  a map of %s in hold mode, from its beginning %.1f s: a move beside it took %.1f s, the longest of %d short jobs %.1f s\n",
		*movesTime, time.Since(began).Seconds(), took.Seconds(), jobs, longest.Seconds())
	bound := *movesTime + boundSlack
	atMost("wait of the move, s; the goal is the map and 5 s", took.Seconds(), bound.Seconds())
	atMost("longest wait of a short job, s; likewise", longest.Seconds(), bound.Seconds())
	return nil
}

// pidOf is the process of a storage.
func (m *moving) pidOf(id string) int {
	for _, cmd := range m.cmds {
		if slices.ContainsFunc(cmd.Args, func(a string) bool { return strings.HasSuffix(a, "id="+id) }) {
			return cmd.Process.Pid
		}
	}
	return 0
}
