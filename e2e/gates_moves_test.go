//go:build unix

package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus"
)

const (
	gateTTL  = 10 * time.Second
	gateHeld = "held"
)

// moves takes buckets from one storage to another, as a mover would: with gates on both storages, then ownership
// entries in the log. It follows the log for who owns what.
type moves struct {
	c     *cluster
	bus   *bus.Bus
	log   *bus.Log
	table *buckets.Table
	made  int // buckets that have a new owner
	tried int
}

func (c *cluster) newMoves(b *bus.Bus) *moves {
	c.t.Helper()
	set, err := c.client.Settings(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	log, err := b.Log(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	paused := api.TopologyRequest{Paused: new(true)} // the rebalancer would put buckets back
	if err := b.Request(c.t.Context(), "admin.topology", paused, nil); err != nil {
		c.t.Fatal(err)
	}
	m := &moves{c: c, bus: b, log: log, table: buckets.NewTable(set.Buckets)}
	if err := m.follow(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	return m
}

// follow applies what the log has by now to the table.
func (m *moves) follow(ctx context.Context) error {
	state, err := m.log.State(ctx)
	if err != nil {
		return err
	}
	if state.First > m.table.Seq()+1 {
		return fmt.Errorf("the log begins at %d; the table is at %d", state.First, m.table.Seq())
	}
	err = m.log.ReadTo(ctx, m.table.Seq()+1, state.Last, buckets.TableSubjects(), func(e api.LogEntry) error {
		entry, err := buckets.Decode(e, m.table.View().Len())
		if err != nil {
			return err
		}
		_, _ = m.table.Apply(e.Seq, entry) // an entry that is void changes nothing
		return nil
	})
	if err == nil {
		m.table.Seen(state.Last)
	}
	return err
}

// move gives some buckets of a storage to another. It reports false if the gates were not to be had.
func (m *moves) move(ctx context.Context, src, dst string, list []buckets.ID) (moved bool, err error) {
	gate := strings.ToLower(rand.Text())
	order := []string{min(src, dst), max(src, dst)}
	defer func() {
		for _, storage := range order {
			err = errors.Join(err, m.ungate(ctx, storage, gate))
		}
	}()
	m.tried++
	fences, err := m.gates(ctx, gate, order)
	if err != nil || fences == nil {
		return false, err
	}
	return m.activate(ctx, src, dst, list, gate, fences)
}

// seize gives some buckets of a storage to another without asking either, as when the one is presumed dead.
func (m *moves) seize(ctx context.Context, src, dst string, list []buckets.ID) (moved bool, err error) {
	m.tried++
	return m.activate(ctx, src, dst, list, strings.ToLower(rand.Text()), nil)
}

// activate appends the ownership entries of a move, and reports whether any of them counts.
func (m *moves) activate(ctx context.Context, src, dst string, list []buckets.ID, gate string, fences map[string]uint64) (moved bool, err error) {
	if err := m.follow(ctx); err != nil {
		return false, err
	}
	for _, b := range list {
		own := buckets.Own{Bucket: b, Prev: m.table.View().Owner(b).Generation, Owner: dst, Move: gate, FenceSrc: fences[src], FenceDst: fences[dst]}
		body, err := api.Encode(api.Msgpack, own)
		if err == nil {
			_, err = m.log.Append(ctx, buckets.OwnSubject(b), nil, body, fmt.Sprint(gate, "-", b))
		}
		if err != nil {
			return false, err
		}
	}
	if err := m.follow(ctx); err != nil {
		return false, err
	}
	for _, b := range list {
		if m.table.View().Owner(b).Storage == dst {
			m.made++
			moved = true
		}
	}
	return moved, nil
}

// gates takes a gate on two storages, one after the other, and returns their fences; nil if a gate was waited for in
// vain.
func (m *moves) gates(ctx context.Context, gate string, order []string) (fences map[string]uint64, err error) {
	fences = map[string]uint64{}
	for i, storage := range order {
		for began := time.Now(); fences[storage] == 0; {
			reply, err := m.ask(ctx, storage, gate, time.Second, i > 0)
			switch {
			case retried(err), err == nil && reply.State != gateHeld:
			case err != nil:
				return nil, err
			default:
				fences[storage] = reply.Fence
			}
			if time.Since(began) > gateTTL {
				return nil, nil
			}
			if i > 0 { // the first one is renewed meanwhile
				if first, _ := m.ask(ctx, order[0], gate, 0, false); first.Fence != fences[order[0]] {
					return nil, nil // it is lost, or not to be asked
				}
			}
		}
	}
	return fences, nil
}

func (m *moves) ask(ctx context.Context, storage, gate string, wait time.Duration, second bool) (api.GateReply, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+5*time.Second)
	defer cancel()
	var reply api.GateReply
	req := api.GateRequest{Gate: gate, TTLMS: gateTTL.Milliseconds(), WaitMS: wait.Milliseconds(), Second: second}
	err := m.bus.Request(ctx, "storage."+storage+".gate", req, &reply)
	return reply, err
}

func (m *moves) ungate(ctx context.Context, storage, gate string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := m.bus.Request(ctx, "storage."+storage+".ungate", api.GateName{Gate: gate}, nil); !retried(err) {
		return err
	}
	return nil // it lapses
}

// wantMoved moves buckets, which must succeed.
func (m *moves) wantMoved(src, dst string, list ...buckets.ID) {
	m.c.t.Helper()
	m.c.waitFor(30*time.Second, fmt.Sprintf("%s to go from %s to %s", buckets.Ranges(list), src, dst), func(ctx context.Context) error {
		if moved, err := m.move(ctx, src, dst, list); err != nil || !moved {
			return errors.Join(err, errors.New("the gates were not to be had"))
		}
		return nil
	})
}

// loaded waits until a storage has loaded all that it owns.
func (m *moves) loaded(ctx context.Context, storage string) error {
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		st, err := storageStatus(ctx, m.bus, storage)
		if err == nil && st.Loaded == st.Owned && st.Owned == len(m.table.View().Of(storage)) {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("storage %s has loaded %d of %d buckets", storage, st.Loaded, st.Owned), err)
		}
	}
}

// wantOwners demands that a job finds each bucket where the log says it is.
func (m *moves) wantOwners() {
	m.c.t.Helper()
	m.c.waitFor(30*time.Second, "a job to find the buckets where they are", func(ctx context.Context) error {
		if err := m.follow(ctx); err != nil {
			return err
		}
		var reply api.JobReply
		if err := m.bus.Request(ctx, "job.run", api.JobRequest{Proof: true}, &reply); err != nil {
			return err
		}
		pinned := make([]buckets.Owner, m.table.View().Len())
		for _, p := range reply.Stats.Pinned {
			for _, b := range p.Buckets {
				pinned[b.Bucket] = buckets.Owner{Storage: p.Storage, Generation: b.Generation}
			}
		}
		for b := range pinned {
			if want := m.table.View().Owner(buckets.ID(b)); pinned[b] != want {
				return fmt.Errorf("bucket %d was pinned by %+v, the log says %+v", b, pinned[b], want)
			}
		}
		return nil
	})
}

// ownedBy lists the buckets of a storage.
func (m *moves) ownedBy(storage string) []buckets.ID { return slices.Clone(m.table.View().Of(storage)) }
