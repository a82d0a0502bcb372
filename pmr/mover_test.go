package pmr_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// TestMoverScripts steps one mover by hand.
func TestMoverScripts(t *testing.T) {
	runScripts(t, "mover", func() func(command) string { return (&moverScript{}).do })
}

type moverScript struct {
	m   *pmr.Mover
	now time.Duration
}

func (s *moverScript) do(c command) string {
	switch c.name {
	case "new": // new [delivery=1] [patience=1m]
		s.m, s.now = pmr.NewMover(pmr.MoverConfig{Gate: "g", Delivery: c.option("delivery", 1), Patience: c.duration("patience", time.Minute)}), 0
		return quiet
	case "clock":
		s.now = parseDuration(c.t, c.arg(0))
		return quiet
	case "state":
		step, waiting := s.m.State()
		return fmt.Sprintf("%s: %s", step, waiting)
	}
	return showEffects(s.m.Step(s.now, s.event(c)))
}

func (s *moverScript) event(c command) pmr.Event {
	switch c.name {
	case "ordered": // ordered SRC DST BUCKETS [takeover]; SRC - is nobody
		return pmr.Ordered{Order: api.MoveOrder{
			ID: "m1", Src: strings.Trim(c.arg(0), "-"), Dst: strings.Trim(c.arg(1), "-"), Buckets: parseBuckets(c.t, strings.Trim(c.arg(2), "-")), Takeover: c.rest(3) == "takeover",
		}}
	case "looked": // looked s1=0-3@5 [fences=s1@7,s2@8] [alive=s1,s2] [locked=BUCKETS] [locked-storages=s1]
		return pmr.Looked{Sight: sightOf(c)}
	case "look-failed":
		return pmr.Looked{Err: parseError(c.rest(0))}
	case "received": // received [ready=BUCKETS] [loading=BUCKETS] [failed=BUCKETS CODE message] [bytes=0]
		var list []api.Received
		for _, state := range []string{api.ReceiveReady, api.ReceiveLoading, api.ReceiveFailed} {
			for _, b := range parseBuckets(c.t, c.opts[state]) {
				r := api.Received{Bucket: b, State: state, Bytes: int64(c.option("bytes", 0))}
				if state == api.ReceiveFailed {
					r.Error = parseError(c.rest(0))
				}
				list = append(list, r)
			}
		}
		return pmr.Received{Buckets: list}
	case "receive-failed":
		return pmr.Received{Err: parseError(c.rest(0))}
	case "held": // held FENCE
		return pmr.Gated{Held: true, Fence: uint64(c.number(0))}
	case "waits": // waits RUNNING [longest=0s]
		return pmr.Gated{Running: c.number(0), Longest: c.duration("longest", 0)}
	case "gate-failed":
		return pmr.Gated{Err: parseError(c.rest(0))}
	case "activated": // activated [CODE message]
		return pmr.Activated{Err: parseError(c.rest(0))}
	case "stop":
		return pmr.Canceled{Err: api.Errorf(api.CodeUnavailable, "the router stops")}
	}
	return c.unknown()
}

// sightOf is a cluster of eight buckets.
func sightOf(c command) pmr.Sight {
	table := buckets.NewTable(8)
	for _, storage := range []string{"s1", "s2", "s3"} {
		if c.opts[storage] == "" {
			continue
		}
		for _, p := range parsePins(c.t, c.opts[storage]) {
			if _, err := table.Own(p.Generation, buckets.Own{Bucket: buckets.ID(p.Bucket), Owner: storage}); err != nil {
				c.t.Fatalf("%s: %v", c.at, err)
			}
		}
	}
	for f := range strings.SplitSeq(c.text("fences", "s1@7,s2@8"), ",") {
		storage, at, _ := strings.Cut(f, "@")
		table.Fence(uint64(parseNumber(c.t, at)), buckets.Fence{Storage: storage})
	}
	s := pmr.Sight{Table: table.View(), Alive: strings.Split(c.text("alive", "s1,s2,s3"), ","), LockedBuckets: parseBuckets(c.t, c.opts["locked"])}
	if locked := c.opts["locked-storages"]; locked != "" {
		s.LockedStorages = strings.Split(locked, ",")
	}
	return s
}

func showMoverEffect(e pmr.Effect) string {
	switch e := e.(type) {
	case pmr.Look:
		return "Look"
	case pmr.AskReceive:
		return fmt.Sprintf("AskReceive %s buckets=%v%s", e.Dst, e.Buckets, showTimes(e.Pause, e.Wait))
	case pmr.AskGate:
		s := fmt.Sprintf("AskGate %s %s%s", e.Storage, e.Gate, showTimes(e.Pause, e.Wait))
		if e.Second {
			s += " second"
		}
		return s
	case pmr.AskActivate:
		s := fmt.Sprintf("AskActivate %s gate=%q", e.Dst, e.Gate)
		for _, b := range e.Buckets {
			s += fmt.Sprintf(" %d@%d", b.Bucket, b.Generation)
		}
		return s + fmt.Sprintf(" fences=%d,%d", e.FenceSrc, e.FenceDst)
	case pmr.Ungate:
		return fmt.Sprintf("Ungate %s %s", e.Storage, e.Gate)
	case pmr.Done:
		if e.Left != nil {
			return "Done, but " + showError(e.Left)
		}
		return "Done"
	case pmr.Again:
		return fmt.Sprintf("Again after=%v %s", e.After, showError(e.Reason))
	case pmr.Dropped:
		return "Dropped " + showError(e.Reason)
	}
	return fmt.Sprintf("%T, which no script knows", e)
}

func showTimes(pause, wait time.Duration) string {
	s := ""
	if pause > 0 {
		s += fmt.Sprintf(" pause=%v", pause)
	}
	if wait > 0 {
		s += fmt.Sprintf(" wait=%v", wait)
	}
	return s
}

// A destination that receives slowly but surely is waited for, however long that takes.
func TestAMoverWaitsForASlowDestination(t *testing.T) {
	m := pmr.NewMover(pmr.MoverConfig{Gate: "g", Delivery: 1, Patience: time.Minute})
	m.Step(0, pmr.Ordered{Order: api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: []uint16{0}}})
	table := buckets.NewTable(8)
	if _, err := table.Own(5, buckets.Own{Bucket: 0, Owner: "s1"}); err != nil {
		t.Fatal(err)
	}
	m.Step(0, pmr.Looked{Sight: pmr.Sight{Table: table.View(), Alive: []string{"s1", "s2"}}})
	now := time.Duration(0)
	for bytes := int64(1); now < 5*time.Hour; bytes++ {
		now += 20 * time.Second
		m.Step(now, pmr.Received{Buckets: []api.Received{{Bucket: 0, State: api.ReceiveLoading, Bytes: bytes}}})
		if step, _ := m.State(); step != pmr.MoveReceives {
			t.Fatalf("after %v the mover is at %v", now, step)
		}
	}
	effects := m.Step(now+time.Second, pmr.Received{Buckets: []api.Received{{Bucket: 0, State: api.ReceiveReady, Bytes: 10_000}}})
	if shown := showEffects(effects); !strings.HasPrefix(shown, "AskGate s1") {
		t.Errorf("when all is there: %s", shown)
	}
}

// However answers come, and come late, a mover ends: it asks for one thing at a time, gives up every gate that it
// asked for before it ends, and activates only under both.
func TestAMoverEndsWhateverItIsAnswered(t *testing.T) {
	for seed := range uint64(2000) {
		r := moverRun{rng: rand.New(rand.NewPCG(seed, 0)), m: pmr.NewMover(pmr.MoverConfig{Gate: "g", Delivery: 1 + int(seed%6), Patience: time.Minute}), open: map[string]bool{}}
		if problem := r.run(); problem != "" {
			t.Fatalf("seed %d: %s\n%s", seed, problem, strings.Join(r.trace, "\n"))
		}
	}
}

// moverRun answers a mover at random.
type moverRun struct {
	rng   *rand.Rand
	m     *pmr.Mover
	now   time.Duration
	open  map[string]bool // gates that were asked for and not given up
	held  map[string]uint64
	trace []string
}

func (r *moverRun) run() string {
	r.held = map[string]uint64{}
	ev := pmr.Event(pmr.Ordered{Order: api.MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: []uint16{0, 1, 2}}})
	for steps := 0; ; steps++ {
		if steps > 100_000 {
			return "it does not end"
		}
		effects := r.m.Step(r.now, ev)
		r.trace = append(r.trace, fmt.Sprintf("%v %T %+v", r.now, ev, ev), showEffects(effects))
		if len(effects) == 0 {
			return "nothing is to be done"
		}
		for i, e := range effects {
			if _, ok := e.(pmr.Ungate); ok != (i < len(effects)-1) {
				return "it does several things at a time"
			}
		}
		for _, e := range effects {
			if e, ok := e.(pmr.Ungate); ok {
				delete(r.open, e.Storage)
				delete(r.held, e.Storage)
			}
		}
		r.now += time.Duration(r.rng.Int64N(int64(3 * time.Second)))
		switch e := effects[len(effects)-1].(type) {
		case pmr.Done, pmr.Again, pmr.Dropped:
			if len(r.open) > 0 {
				return "it leaves gates behind"
			}
			return ""
		case pmr.AskActivate:
			if e.FenceSrc != r.held["s1"] || e.FenceDst != r.held["s2"] || e.FenceSrc == 0 || e.FenceDst == 0 {
				return "it activates under fences that it has no gates of"
			}
			ev = pmr.Activated{Err: r.maybeError()}
		case pmr.AskGate:
			r.open[e.Storage] = true
			ev = r.gated(e)
		case pmr.AskReceive:
			ev = r.received(e)
		case pmr.Look:
			ev = r.looked()
		}
	}
}

func (r *moverRun) maybeError() *api.Error {
	if r.rng.IntN(8) == 0 {
		return api.Errorf(api.CodeUnavailable, "no answer")
	}
	return nil
}

func (r *moverRun) gated(e pmr.AskGate) pmr.Event {
	switch {
	case r.rng.IntN(10) == 0:
		return pmr.Gated{Err: api.Errorf(api.CodeUnavailable, "no answer")}
	case r.held[e.Storage] != 0 && r.rng.IntN(20) > 0:
		return pmr.Gated{Held: true, Fence: r.held[e.Storage]}
	case r.held[e.Storage] == 0 && r.rng.IntN(3) == 0:
		r.held[e.Storage] = uint64(10 + r.rng.IntN(5))
		return pmr.Gated{Held: true, Fence: r.held[e.Storage]}
	}
	delete(r.held, e.Storage)
	return pmr.Gated{Running: 1}
}

func (r *moverRun) received(e pmr.AskReceive) pmr.Event {
	if err := r.maybeError(); err != nil {
		return pmr.Received{Err: err}
	}
	var list []api.Received
	state := []string{api.ReceiveReady, api.ReceiveReady, api.ReceiveReady, api.ReceiveLoading}[r.rng.IntN(4)]
	for _, b := range e.Buckets {
		list = append(list, api.Received{Bucket: b, State: state, Bytes: int64(r.rng.IntN(3))})
	}
	return pmr.Received{Buckets: list}
}

func (r *moverRun) looked() pmr.Event {
	if err := r.maybeError(); err != nil && r.rng.IntN(4) == 0 {
		return pmr.Looked{Err: err}
	}
	table := buckets.NewTable(3)
	for b := range 3 {
		owner := "s1"
		if r.rng.IntN(12) == 0 {
			owner = []string{"s2", "s3"}[r.rng.IntN(2)]
		}
		_, _ = table.Own(uint64(b+1), buckets.Own{Bucket: buckets.ID(b), Owner: owner})
	}
	for storage, fence := range r.held {
		if r.rng.IntN(20) == 0 {
			fence++
		}
		table.Fence(fence, buckets.Fence{Storage: storage})
	}
	alive := []string{"s1", "s2"}
	if r.rng.IntN(30) == 0 {
		alive = slices.Delete(alive, 0, 1)
	}
	return pmr.Looked{Sight: pmr.Sight{Table: table.View(), Alive: alive}}
}
