//go:build unix

package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

var (
	chaosRun   = flag.Bool("chaos", false, "run TestChaos")
	chaosSeed  = flag.Uint64("chaos.seed", 0, "what decides whom TestChaos kills, and for how long; 0 takes one")
	chaosTime  = flag.Duration("chaos.time", time.Minute, "how long TestChaos kills")
	chaosEvery = flag.Duration("chaos.every", 20*time.Second, "from one kill of TestChaos to the next")
	chaosSize  = flag.Int("chaos.size", 200, "megabytes of records that TestChaos moves")
)

const (
	chaosBuckets = 256
	bulkRecord   = 4 << 10 // bytes of each record that is only there to be moved
	bulkSpace    = "bulk"
	lateStorage  = "s4" // joins and leaves all the time
)

// chaos is a cluster of four storages and two routers under load, of which one process after the other is killed.
type chaos struct {
	*cluster
	bus    *bus.Bus
	random *rand.Rand // of the test's own goroutine
	bulk   int        // records
	ids    ledger
	jobs   jobTally
	rounds int // times that the late storage was emptied and filled again; owned by balance
	watch  *watch

	stop   chan struct{} // closed when the load is to end
	ending sync.Once
	load   sync.WaitGroup
	failed chan error
}

// Storages join and leave over and over, which moves buckets all the time, while records are written and counted.
// Every some seconds a process of any kind is killed. No job counts wrong, no record is lost or doubled, and what the
// cluster says of itself was true each second.
func TestChaos(t *testing.T) {
	if !*chaosRun {
		t.Skip("runs with -chaos, as make chaos has it")
	}
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("again with the same victims: make chaos CHAOS_SEED=%d", seed)
	x := startChaos(t, seed)
	x.run(func() error { return x.write(x.stop) })
	for i := range 4 {
		client := x.newClient()
		x.run(func() error { return x.count(client, i) })
	}
	x.run(x.balance)
	x.run(x.watch.follow)
	x.killAll(time.Now().Add(*chaosTime))
	x.settle()
	x.wantRecords()
	x.watch.report(t)
}

// startChaos starts the cluster and stores what is moved.
func startChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	size := *chaosSize << 20
	// About every bucket has a checkpoint and a log behind it, of which the old part is purged.
	checkpoint := fmt.Sprint(max(size/chaosBuckets/2, 64<<10))
	c := startCluster(t, settings{buckets: chaosBuckets, checkpoint: checkpoint, window: "20s"})
	x := &chaos{
		cluster: c, bus: c.bus(), random: rand.New(rand.NewPCG(seed, 1)), bulk: size / bulkRecord,
		stop: make(chan struct{}), failed: make(chan error, 16),
	}
	t.Cleanup(x.endLoad)
	second, late := c.newRouter("r2"), c.newStorage(lateStorage, lateStorage)
	second.start()
	c.wantMember(second)
	c.addModule("paced")
	x.watch = newWatch(x, second)
	x.importBulk(seed)
	late.start()
	c.storages = append(c.storages, late)
	c.wantMember(late)
	// A storage that is gone for some seconds loses its buckets: some victims stay away for longer than that.
	set := api.TopologyRequest{Set: map[string]string{"takeover_grace": "2s"}}
	if err := x.bus.Request(t.Context(), "admin.topology", set, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.client.CreateSpace(t.Context(), idSpace); err != nil {
		t.Fatal(err)
	}
	return x
}

// importBulk stores records that no compression makes smaller. They have keys, so that a part of which it is in doubt
// whether it was stored is stored again.
func (x *chaos) importBulk(seed uint64) {
	x.t.Helper()
	const part = 2048
	for first := 0; first < x.bulk; first += part {
		x.waitFor(2*time.Minute, "records to be stored", func(ctx context.Context) error {
			err := x.putBulk(ctx, seed, first, min(part, x.bulk-first))
			if err != nil && !passing(err) {
				x.t.Fatal(err)
			}
			return errors.Join(err, x.watch.read(ctx)) // before it is purged
		})
	}
}

func (x *chaos) putBulk(ctx context.Context, seed uint64, first, n int) error {
	w, err := x.client.NewWriter(ctx, bulkSpace)
	if err != nil {
		return err
	}
	var source [32]byte
	binary.LittleEndian.PutUint64(source[:], seed+uint64(first))
	random, record := rand.NewChaCha8(source), make([]byte, bulkRecord)
	for i := range n {
		_, _ = random.Read(record) // it never fails
		err = errors.Join(err, w.Put(fmt.Appendf(nil, "bulk-%d", first+i), record))
	}
	return errors.Join(err, w.Close())
}

// newClient opens a connection of its own.
func (x *chaos) newClient() *pinion.Client {
	x.t.Helper()
	client, err := pinion.Connect(x.t.Context(), pinion.Config{Server: x.server})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(client.Close)
	return client
}

// endLoad ends the load, and waits until it has ended.
func (x *chaos) endLoad() {
	x.ending.Do(func() { close(x.stop) })
	x.load.Wait()
}

// run has part of the load go on beside the test.
func (x *chaos) run(fn func() error) {
	x.load.Go(func() {
		if err := fn(); err != nil {
			x.failed <- err
		}
	})
}

// stopping reports whether the load is to end.
func (x *chaos) stopping() bool {
	select {
	case <-x.stop:
		return true
	default:
		return false
	}
}

// pause waits for a time, and reports false if the load is to end.
func (x *chaos) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.stop:
		return false
	}
}

// The kinds of victims. A router is a mover too, and one of the two is the planner.
const (
	kindStorage = iota
	kindRouter
	kindServer
	kinds
)

// killAll kills a process every some seconds and starts it again, until the time is over or the load has failed. Each
// kind has its turn.
func (x *chaos) killAll(end time.Time) {
	x.t.Helper()
	beat := time.NewTicker(*chaosEvery)
	defer beat.Stop()
	var turns []int
	for time.Until(end) > 0 {
		select {
		case <-beat.C:
		case <-time.After(time.Until(end)):
			continue
		case err := <-x.failed:
			x.t.Fatal(err)
		}
		x.wantAllRunning()
		if len(turns) == 0 {
			turns = x.random.Perm(kinds)
		}
		x.killOne(turns[0])
		turns = turns[1:]
	}
}

// longAway is long enough for a takeover: the member entry lapses after 12 s, and then there is the grace time.
const longAway = 25 * time.Second

// killOne kills a process of a kind. One storage in three stays away until others have taken its buckets over.
func (x *chaos) killOne(kind int) {
	x.t.Helper()
	away := time.Duration(x.random.Int64N(int64(3 * time.Second)))
	var p *process
	switch kind {
	case kindStorage:
		p = x.storages[x.random.IntN(len(x.storages))]
		if x.random.IntN(3) == 0 {
			away = longAway
		}
	case kindRouter:
		p = []*process{x.router, x.watch.second}[x.random.IntN(2)]
	default:
		p = x.nats
	}
	x.t.Logf("%s is killed for %.1f s", p.name, away.Seconds())
	x.watch.downed(p.name, true)
	p.kill()
	x.pause(away)
	p.start()
	if kind == kindServer {
		p.listening()
	}
	x.watch.downed(p.name, false)
}

// processes lists all of them.
func (x *chaos) processes() []*process {
	return append(slices.Clone(x.storages), x.router, x.watch.second, x.nats)
}

// wantAllRunning demands that nobody has ended who was not killed.
func (x *chaos) wantAllRunning() {
	x.t.Helper()
	for _, p := range x.processes() {
		if !p.running() {
			x.t.Fatalf("%s has ended by itself:\n%s", p.name, p.logTail())
		}
	}
}

// settle ends the load, and waits until all is well and the buckets are shared out.
func (x *chaos) settle() {
	x.t.Helper()
	x.waitHealthyFor(2 * time.Minute)
	began := time.Now()
	x.endLoad()
	close(x.failed)
	for err := range x.failed {
		x.t.Error(err)
	}
	x.wantAllRunning()
	back := api.TopologyRequest{StartWeights: []string{lateStorage}}
	x.waitFor(time.Minute, "the weight of "+lateStorage+" to be taken back", func(ctx context.Context) error {
		return x.bus.Request(ctx, "admin.topology", back, nil)
	})
	x.waitFor(2*time.Minute, "the buckets to be shared out", func(ctx context.Context) error {
		var plan api.PlanReply
		if err := x.bus.Request(ctx, "admin.plan", api.Empty{}, &plan); err != nil {
			return err
		}
		var moves api.MovesReply
		if err := x.bus.Request(ctx, "admin.moves", api.Empty{}, &moves); err != nil {
			return err
		}
		if !plan.Balanced || len(moves.Queued)+len(moves.Running) > 0 || len(plan.Shares) < len(x.storages) {
			return fmt.Errorf("shares %+v, moves %+v", plan.Shares, moves)
		}
		return nil
	})
	x.wantNothingPinned()
	x.t.Logf("all was well %.1f s after the load's end; %s was emptied and filled %d times; %s; %s", time.Since(began).Seconds(), lateStorage, x.rounds, &x.jobs, &x.ids)
	if x.rounds == 0 && x.jobs.right.Load() == 0 {
		x.t.Error("no job was right and no round of moves was done")
	}
}

// wantRecords demands that all that was moved is there, and every acknowledged record exactly once.
func (x *chaos) wantRecords() {
	x.t.Helper()
	if n, err := x.countOf(x.client, pinion.Job{Space: bulkSpace, Timeout: 5 * time.Minute}); err != nil || n != x.bulk {
		x.t.Errorf("%d records were moved and there are %d at the end (%v)", x.bulk, n, err)
	}
	result, err := x.client.Run(x.t.Context(), pinion.Job{Module: "wordcount", Reduce: "sum", Space: idSpace, Timeout: 5 * time.Minute})
	if err != nil {
		x.t.Fatal(err)
	}
	var rows []api.Row
	for row, err := range result.Rows(x.t.Context()) {
		if err != nil {
			x.t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if err := x.ids.check(rows); err != nil {
		x.t.Error(err)
	}
}

// balance empties the late storage and lets it have its share again, over and over.
func (x *chaos) balance() error {
	for ; ; x.rounds++ {
		empty := api.TopologyRequest{Weights: map[string]float64{lateStorage: 0}, Set: map[string]string{"parallel_moves": fmt.Sprint(1 + x.rounds%2)}}
		if !x.order(empty, func(owned int) bool { return owned == 0 }) {
			return nil
		}
		share := chaosBuckets / len(x.storages)
		if !x.order(api.TopologyRequest{StartWeights: []string{lateStorage}}, func(owned int) bool { return owned >= share-1 }) {
			return nil
		}
	}
}

// order changes the topology and waits until the late storage owns what it should. It reports false if the load is to
// end.
func (x *chaos) order(change api.TopologyRequest, reached func(owned int) bool) bool {
	changed := false
	for x.pause(200 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(x.t.Context(), 5*time.Second)
		var err error
		if !changed {
			err = x.bus.Request(ctx, "admin.topology", change, nil)
			changed = err == nil
		}
		var plan api.PlanReply
		if err == nil {
			err = x.bus.Request(ctx, "admin.plan", api.Empty{}, &plan)
		}
		cancel()
		if err != nil {
			continue // somebody was killed
		}
		at := slices.IndexFunc(plan.Shares, func(s api.ShareInfo) bool { return s.Storage == lateStorage })
		if at >= 0 && reached(plan.Shares[at].Owned) {
			return true
		}
	}
	return false
}

// passing reports whether an error says that something could not be done now, as happens while somebody is away.
func passing(err error) bool {
	return retried(err) || api.CodeOf(err) == api.CodeInDoubt || errors.Is(err, context.DeadlineExceeded)
}
