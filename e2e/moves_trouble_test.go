//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus"
)

// order orders a move of buckets and does not wait for it.
func (c *cluster) order(b *bus.Bus, to string, list ...uint16) api.MoveOrder {
	c.t.Helper()
	var reply api.MoveReply
	if err := b.Request(c.t.Context(), "admin.move", api.MoveRequest{Buckets: list, To: to}, &reply); err != nil {
		c.t.Fatal(err)
	}
	if len(reply.Orders) != 1 {
		c.t.Fatalf("%d orders were made of %d buckets to %s", len(reply.Orders), len(list), to)
	}
	return reply.Orders[0]
}

// waitStep waits until an order is at a step, and what it is told to do there holds.
func (c *cluster) waitStep(b *bus.Bus, order, step string, holds func(api.MoveProgress) bool) {
	c.t.Helper()
	c.waitFor(30*time.Second, "the order to be at step "+step, func(ctx context.Context) error {
		var moves api.MovesReply
		if err := b.Request(ctx, "admin.moves", api.Empty{}, &moves); err != nil {
			return err
		}
		for _, m := range moves.Running {
			if m.Order.ID == order && m.Step == step && holds(m) {
				return nil
			}
		}
		return fmt.Errorf("%+v", moves)
	})
}

// wantOwner demands that a bucket is told to belong to a storage and nothing else is said of it.
func (c *cluster) wantOwner(b *bus.Bus, bucket uint16, owner string) api.BucketInfo {
	c.t.Helper()
	info := c.bucketsNow(c.t.Context(), b)[bucket]
	if info.Owner != owner || info.State != api.BucketOwned {
		c.t.Errorf("bucket %d is %s at %s, want it at %s", bucket, info.State, info.Owner, owner)
	}
	return info
}

// An activation comes late: its gates have ended, and the source went on serving the bucket, or a third storage has
// it. Nobody else becomes owner by it. (Elsewhere such a message made a second owner, and an automatic balancer
// stopped for good once there was one.)
func TestAnActivationThatComesLate(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 32})
	m := c.newMoves(c.bus())
	text := newText(71, scaled(2000))
	c.importLines("", text.lines)
	for name, between := range map[string]func(buckets.ID){
		"the source kept it":   func(buckets.ID) {},
		"a third one has it":   func(b buckets.ID) { c.moveNow(m.bus, "s3", uint16(b)) },
		"the source restarted": func(buckets.ID) { p := c.storage("s1"); p.kill(); p.start(); c.waitHealthy() },
	} {
		if err := m.follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		bucket := m.ownedBy("s1")[0]
		before := m.table.View().Owner(bucket)
		gate := "late-" + strings.ReplaceAll(name, " ", "-")
		fences, err := m.gates(t.Context(), gate, []string{"s1", "s2"})
		if err != nil || fences == nil {
			t.Fatalf("%s: the gates: %v", name, err)
		}
		for _, storage := range []string{"s1", "s2"} {
			if err := m.ungate(t.Context(), storage, gate); err != nil {
				t.Fatal(err)
			}
		}
		c.wantRows(countWords(""), text.rows()) // which pins the bucket where it is
		between(bucket)
		if err := m.follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		now := m.table.View().Owner(bucket)
		own := buckets.Own{Bucket: bucket, Prev: before.Generation, Owner: "s2", Move: gate, FenceSrc: fences["s1"], FenceDst: fences["s2"]}
		body, err := api.Encode(api.Msgpack, own)
		if err == nil {
			_, err = m.log.Append(t.Context(), buckets.OwnSubject(bucket), nil, body, gate)
		}
		if err != nil {
			t.Fatal(err)
		}
		m.wantOwners()
		c.waitFor(10*time.Second, "the owner's log to say that the claim was too late", func(context.Context) error {
			log, err := os.ReadFile(c.storage(now.Storage).log)
			if err == nil && !strings.Contains(string(log), "order="+gate) {
				err = errors.New("it does not name " + gate)
			}
			return err
		})
		if after := c.wantOwner(m.bus, uint16(bucket), now.Storage); after.Generation != now.Generation {
			t.Errorf("%s: bucket %d belongs to %s since %d, and did since %d", name, bucket, after.Owner, after.Generation, now.Generation)
		}
		c.wantRows(countWords(""), text.rows())
	}
	resume := api.TopologyRequest{Paused: new(false)}
	if err := m.bus.Request(t.Context(), "admin.topology", resume, nil); err != nil {
		t.Fatal(err)
	}
	c.moveNow(m.bus, "s2", c.bucketsOf(m.bus, "s3", 1)...) // the mover goes on
	c.wantNothingPinned()
}

// The message with which the destination becomes owner is stuck on its way for longer than the gates last. The move is
// tried again meanwhile or after it; there is one owner at each moment, and no record is counted twice or not at all.
func TestAnActivationStuckOnItsWay(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 32})
	b := c.bus()
	c.pauseRebalancer(b)
	text := newText(72, scaled(2000))
	c.importLines("", text.lines)
	way := newProxy(t, c.server)
	stuck, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	way.look(func(piece []byte) {
		if strings.Contains(string(piece), "PUB pinion."+pinion.DefaultCluster+".log.own.") {
			once.Do(func() {
				close(stuck)
				<-release
			})
		}
	})
	p := c.storage("s2")
	p.terminate()
	p.reroute(way.url)
	p.start()
	c.waitHealthy()
	bucket := c.bucketsOf(b, "s1", 1)[0]
	before := c.wantOwner(b, bucket, "s1")
	order := c.order(b, "s2", bucket)
	select {
	case <-stuck:
	case <-time.After(30 * time.Second):
		t.Fatal("s2 does not want to be owner")
	}
	held := time.NewTimer(12 * time.Second) // longer than gates last, and shorter than it takes to give the connection up
	for over := false; !over; {
		select {
		case <-held.C:
			over = true
		default:
			if _, err := c.run(t.Context(), pinion.Job{Module: "wordcount", Reduce: "sum", Timeout: time.Second}); err != nil && !retried(err) {
				t.Fatal(err)
			}
		}
	}
	close(release)
	c.waitRight(60*time.Second, countWords(""), text.rows())
	c.waitHealthy()
	c.waitFor(60*time.Second, "the order to have an end", func(ctx context.Context) error {
		var moves api.MovesReply
		if err := b.Request(ctx, "admin.moves", api.Empty{}, &moves); err != nil {
			return err
		}
		for _, m := range moves.Ended {
			if m.Order.ID == order.ID && m.Outcome != "again" {
				t.Logf("the order was %s in delivery %d: %s", m.Outcome, m.Delivery, m.Reason)
				return nil
			}
		}
		return fmt.Errorf("%+v", moves)
	})
	after := c.bucketsNow(t.Context(), b)[bucket]
	c.wantVoidEntries(b, bucket, before.Generation, after)
	c.wantRows(countWords(""), text.rows())
	c.wantNothingPinned()
}

// wantVoidEntries demands that the first entry which builds on a generation counted for nothing: it was too late.
func (c *cluster) wantVoidEntries(b *bus.Bus, bucket uint16, prev uint64, now api.BucketInfo) {
	c.t.Helper()
	log, err := b.Log(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	state, err := log.State(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	var claims []uint64
	err = log.ReadTo(c.t.Context(), prev+1, state.Last, []string{buckets.OwnSubject(buckets.ID(bucket))}, func(e api.LogEntry) error {
		claims = append(claims, e.Seq)
		return nil
	})
	if err != nil || len(claims) == 0 {
		c.t.Fatalf("claims to bucket %d after %d: %v, %v", bucket, prev, claims, err)
	}
	if now.Generation == claims[0] {
		c.t.Errorf("bucket %d belongs to %s since %d, which is the entry that was too late", bucket, now.Owner, now.Generation)
	}
	c.t.Logf("claims at %v; bucket %d belongs to %s since %d", claims, bucket, now.Owner, now.Generation)
}

// The destination is killed in the middle of what it receives, and what it had received is gone. It does not take the
// rest for the whole: the move starts anew, and the source keeps the data until the destination is owner.
func TestDestinationKilledWhileItReceives(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	b := c.bus()
	c.pauseRebalancer(b)
	bucket := c.bucketsOf(b, "s1", 1)[0]
	const records = 20_000
	w, err := c.client.NewWriter(t.Context(), "hot")
	if err != nil {
		t.Fatal(err)
	}
	for i, n := 0, 0; n < records; i++ {
		key := fmt.Appendf(nil, "key-%d", i)
		if buckets.Of(key, 16) != buckets.ID(bucket) {
			continue
		}
		n++
		if err := w.Put(key, []byte("a value of some dozen bytes")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	job := pinion.Job{Module: "wordcount", Reduce: "sum", Space: "hot"}
	want, err := c.run(t.Context(), job)
	if err != nil || !strings.Contains(string(want), fmt.Sprintf("value\t%d\n", records)) {
		t.Fatalf("%d records: %v, %s", records, err, want)
	}
	c.set(b, "move_bandwidth", "128KiB")
	order := c.order(b, "s2", bucket)
	c.waitStep(b, order.ID, api.StepReceive, func(m api.MoveProgress) bool { return m.Bytes > 0 })
	p := c.storage("s2")
	p.kill()
	if err := os.RemoveAll(filepath.Join(c.folder("s2"), "records")); err != nil {
		t.Fatal(err)
	}
	c.set(b, "move_bandwidth", "")
	p.start()
	c.waitRight(60*time.Second, job, want)
	c.waitFor(60*time.Second, "the bucket to be at s2", func(ctx context.Context) error {
		if info := c.bucketsNow(ctx, b)[bucket]; info.Owner != "s2" || info.State != api.BucketOwned {
			return fmt.Errorf("it is %s at %s", info.State, info.Owner)
		}
		return nil
	})
	c.wantRows(job, want)
	c.wantNothingPinned()
}

// set changes a setting; an empty value is its default.
func (c *cluster) set(b *bus.Bus, name, value string) {
	c.t.Helper()
	if err := b.Request(c.t.Context(), "admin.topology", api.TopologyRequest{Set: map[string]string{name: value}}, nil); err != nil {
		c.t.Fatal(err)
	}
}

// The source is killed the moment the destination is owner, before it has deleted its copy, and is started again. That
// copy is counted by nobody.
func TestSourceKilledAsItsBucketsLeave(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 32})
	m := c.newMoves(c.bus())
	text := newText(73, scaled(5000))
	c.importLines("", text.lines)
	for range scaled(3) {
		if err := m.follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		list := []uint16{}
		for _, b := range m.ownedBy("s1")[:2] {
			list = append(list, uint16(b))
		}
		c.order(m.bus, "s2", list...)
		for m.table.View().Owner(buckets.ID(list[0])).Storage == "s1" {
			if err := m.follow(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		p := c.storage("s1")
		p.kill()
		p.start()
		c.waitRight(60*time.Second, countWords(""), text.rows())
	}
	c.waitHealthy()
	c.waitFor(20*time.Second, "s1 to have forgotten what it gave away", func(context.Context) error {
		if st := c.status("s1"); st.Loaded != st.Owned {
			return fmt.Errorf("it has loaded %d buckets and owns %d", st.Loaded, st.Owned)
		}
		return nil
	})
	m.wantOwners()
	c.wantRows(countWords(""), text.rows())
}

// A storage that does everything in fits and starts gives and takes buckets all the time, while records are written
// and counted. Each count is right, or an error that passes.
func TestMovesOfASlowStorage(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 32})
	b := c.bus()
	c.pauseRebalancer(b)
	ctx, stop := context.WithCancel(t.Context())
	var y tally
	var busy sync.WaitGroup
	failed := make(chan error, 3)
	busy.Go(func() { failed <- y.write(ctx, c) })
	for _, mode := range []string{api.ModeHold, api.ModeSnapshot} {
		busy.Go(func() { failed <- y.count(ctx, c, mode) })
	}
	list := c.bucketsOf(b, "s1", 4)
	slow := c.storage("s2")
	beat := time.NewTicker(300 * time.Millisecond)
	defer beat.Stop()
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		for i := 0; i < scaled(6) && ctx.Err() == nil; i++ {
			to := []string{"s2", "s1"}[i%2]
			for ctx.Err() == nil && !c.movedTo(ctx, b, to, list) {
			}
		}
	}()
	for i, over := 0, false; !over; i++ {
		select {
		case <-beat.C:
		case <-moved:
			over = true
		}
		if i%3 != 0 { // it stands still for two beats of three
			slow.pause()
		} else {
			slow.resume()
		}
	}
	slow.resume()
	c.waitHealthy()
	stop()
	busy.Wait()
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d jobs right, %d failed for a reason that passes; %d records", y.jobs.Load(), y.refused.Load(), y.acknowledged.Load())
	c.wantTally(&y)
	c.wantNothingPinned()
}

// movedTo orders buckets to go to a storage and reports whether they are there some time later.
func (c *cluster) movedTo(ctx context.Context, b *bus.Bus, to string, list []uint16) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if b.Request(ctx, "admin.move", api.MoveRequest{Buckets: list, To: to}, nil) != nil {
		return false
	}
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for ctx.Err() == nil {
		var reply api.BucketsReply
		err := b.Request(ctx, "admin.buckets", api.BucketsRequest{Buckets: list}, &reply)
		if err == nil && !slices.ContainsFunc(reply.Buckets, func(info api.BucketInfo) bool { return info.Owner != to }) {
			return true
		}
		<-poll.C
	}
	return false
}

// Two moves fail at the same time, each for a reason of its own. The log has both.
func TestTwoFailuresOfMovesAreBothLogged(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	b := c.bus()
	c.pauseRebalancer(b)
	c.set(b, "parallel_moves", "2")
	list := c.bucketsOf(b, "s1", 2)
	text := newText(74, 500)
	c.importLines("", text.lines)
	c.storage("s2").pause()
	c.set(b, "takeover_grace", "10m")
	silent := c.order(b, "s2", list[0])
	c.set(b, "move_bandwidth", "64KiB")
	locked := c.order(b, "s3", list[1])
	lock := api.TopologyRequest{LockBuckets: list[1:]}
	if err := b.Request(t.Context(), "admin.topology", lock, nil); err != nil {
		t.Fatal(err)
	}
	c.waitFor(90*time.Second, "both failures to be in the router's log", func(context.Context) error {
		log, err := os.ReadFile(c.router.log)
		if err != nil {
			return err
		}
		var missing []error
		for order, says := range map[string]string{silent.ID: "s2", locked.ID: "locked"} {
			if !slices.ContainsFunc(strings.Split(string(log), "\n"), func(line string) bool {
				return strings.Contains(line, order) && strings.Contains(line, "a move order") && strings.Contains(line, says)
			}) {
				missing = append(missing, fmt.Errorf("nothing of order %s that says %s", order, says))
			}
		}
		return errors.Join(missing...)
	})
	c.storage("s2").resume()
	c.waitRight(60*time.Second, countWords(""), text.rows())
}

// A job reads what was made of the result of another one while buckets move all the time, and answers as it does when
// nothing moves.
func TestAJobOverTheResultOfAJobWhileBucketsMove(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 32})
	b := c.bus()
	c.pauseRebalancer(b)
	text := newText(75, scaled(2000))
	c.importLines("", text.lines)
	both := func(space string) []byte {
		result, err := c.client.Run(t.Context(), countWords(""))
		if err != nil {
			t.Fatal(err)
		}
		w, err := c.client.NewWriter(t.Context(), space)
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range result.Rows(t.Context()) {
			if err == nil {
				err = w.Put(row.Key, fmt.Appendf(nil, "%d", row.Value.Int)) // how many words are there so many times
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		rows, err := c.run(t.Context(), countWords(space))
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	want := both("still")
	ctx, stop := context.WithCancel(t.Context())
	var moving sync.WaitGroup
	list, moves := c.bucketsOf(b, "s1", 8), 0
	moving.Go(func() {
		for ; ctx.Err() == nil; moves++ {
			c.movedTo(ctx, b, []string{"s2", "s3", "s1"}[moves%3], list)
		}
	})
	for i := range scaled(3) {
		space := fmt.Sprint("moved-", i)
		if got := both(space); string(got) != string(want) {
			t.Errorf("space %s: %s", space, difference(got, want))
		}
	}
	stop()
	moving.Wait()
	t.Logf("%d moves", moves)
	c.wantNothingPinned()
}
