package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// The times of the test driver of moves, which has gates of two storages, gives a bucket from one to the other,
// and lets the gates go.
const (
	gateTTL     = 8 * time.Second
	gatePatient = 12 * time.Second // for both gates
)

// takeOver gives a bucket to another storage by an entry of its own, as if its owner were presumed dead: nobody is
// asked.
func (w *world) takeOver() {
	b := buckets.ID(w.rng.IntN(w.settings.Buckets))
	to := w.someStorage()
	owner := w.oracle.view().Owner(b)
	if owner.Storage == to {
		return
	}
	body, err := api.Encode(api.Msgpack, buckets.Own{Bucket: b, Prev: owner.Generation, Owner: to})
	w.must(err)
	seq, err := w.oracle.log.Append(context.Background(), buckets.OwnSubject(b), nil, body, "")
	w.must(err)
	w.tracef("%s takes bucket %d over from %s at %d", to, b, owner.Storage, seq)
	w.did("takeover", true)
}

func (w *world) someStorage() string { return fmt.Sprintf("s%d", 1+w.rng.IntN(w.plan.storages)) }

// relocate has the driver move a bucket.
func (w *world) relocate() {
	b := buckets.ID(w.rng.IntN(w.settings.Buckets))
	m := &move{w: w, bucket: b, src: w.oracle.view().Owner(b).Storage, dst: w.someStorage()}
	if m.src == m.dst {
		return
	}
	w.moves = append(w.moves, m)
	m.gate = fmt.Sprintf("%sg%d", gatePrefix, len(w.moves))
	w.tracef("driver moves bucket %d from %s to %s with gate %s", b, m.src, m.dst, m.gate)
	w.background(func() {
		m.run()
		w.mu.Lock()
		defer w.mu.Unlock()
		m.over = true
	})
}

const gatePrefix = "driver-"

// move is one move of the driver.
type move struct {
	w        *world
	gate     string
	bucket   buckets.ID
	src, dst string
	over     bool // guarded by the world's mu
}

func (m *move) run() {
	storages := []string{m.src, m.dst}
	slices.Sort(storages)
	defer func() {
		for _, s := range storages {
			m.end(s)
		}
	}()
	fences := map[string]uint64{}
	until := time.Now().Add(gatePatient)
	for i, s := range storages {
		for fences[s] == 0 {
			if time.Now().After(until) {
				return
			}
			if i == 1 { // the first is kept meanwhile
				if first := m.ask(storages[0], 0, true); first == 0 || first != fences[storages[0]] {
					return
				}
			}
			fences[s] = m.ask(s, time.Second, i == 1)
		}
	}
	v, err := m.w.pool.wait(context.Background(), m.w.driver, opLook, fmt.Sprint("owner of ", m.bucket))
	if err != nil || v.view.Owner(m.bucket).Storage != m.src {
		return
	}
	own := buckets.Own{
		Bucket: m.bucket, Prev: v.view.Owner(m.bucket).Generation, Owner: m.dst, Move: m.gate, FenceSrc: fences[m.src], FenceDst: fences[m.dst],
	}
	body, err := api.Encode(api.Msgpack, own)
	m.w.must(err)
	// Where the answer is lost or late the move counts or not: the log tells.
	_, _ = m.w.driverLog.Append(context.Background(), buckets.OwnSubject(m.bucket), nil, body, m.gate)
}

// ask asks a storage for the gate, and returns its fence if the gate is held.
func (m *move) ask(storage string, wait time.Duration, second bool) (fence uint64) {
	var reply api.GateReply
	req := api.GateRequest{Gate: m.gate, TTLMS: gateTTL.Milliseconds(), WaitMS: wait.Milliseconds(), Second: second}
	if err := m.w.askAs(m.w.driver, "storage."+storage+".gate", req, &reply); err != nil || reply.State != "held" {
		time.Sleep(50 * time.Millisecond)
		return 0
	}
	return reply.Fence
}

// end lets the gate go, if the storage hears of it.
func (m *move) end(storage string) {
	for range 2 {
		if m.w.askAs(m.w.driver, "storage."+storage+".ungate", api.GateName{Gate: m.gate}, &api.Empty{}) == nil {
			return
		}
	}
}

// activated looks at an ownership entry that counts. One that had gates finds no map-reduce on either storage that
// holds buckets in place, and no guest of one that was stopped: invariant C.
func (w *world) activated(own buckets.Own, before buckets.Owner, seq uint64) {
	if !strings.HasPrefix(own.Move, gatePrefix) && !w.checkOrdered(own, before, seq) {
		return
	}
	w.did("move", true)
	w.tracef("bucket %d goes from %s to %s at %d", own.Bucket, before.Storage, own.Owner, seq)
	for _, m := range w.machines {
		if m.id != before.Storage && m.id != own.Owner || m.process == nil || m.process.hasEnded() || m.process.isDead() {
			continue
		}
		w.checkGuests(m.process, fmt.Sprintf("bucket %d moved at %d", own.Bucket, seq))
		st, err := m.process.storage.Status(context.Background(), api.Empty{})
		w.must(err)
		for _, p := range st.PMRs {
			if !p.Snapshot && p.State != "mapped" {
				w.oracle.failf("bucket %d moved at %d while %s was %s on %s", own.Bucket, seq, w.oracle.name(p.PMR), p.State, m.process.peer)
			}
		}
	}
}

// checkGuests makes sure that no guest of a job that holds buckets in place runs in a process. Nodes call it.
func (w *world) checkGuests(p *process, what string) {
	w.mu.Lock()
	snapshots := maps.Clone(w.snapshots)
	w.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for job := range p.mapping {
		if !snapshots[job] {
			w.oracle.failf("%s while guests of %s ran on %s", what, job, p.peer)
		}
	}
}
