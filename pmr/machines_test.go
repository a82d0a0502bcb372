package pmr_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// TestRouterScripts steps one router by hand: each command but new, table, clock and state is an event.
func TestRouterScripts(t *testing.T) {
	runScripts(t, "router", func() func(command) string { return (&routerScript{}).do })
}

type routerScript struct {
	r     *pmr.Router
	now   time.Duration
	table *buckets.View
}

func (s *routerScript) do(c command) string {
	switch c.name {
	case "new":
		s.r = pmr.NewRouter(pmr.RouterConfig{
			Job: "j1", Space: "books", Deadline: c.duration("deadline", time.Minute),
			Attempts: c.option("attempts", 10), PinTTL: c.duration("ttl", 5*time.Second), Seed: 1,
			Wanted: wantedOf(c), Snapshot: c.opts["mode"] == "snapshot", First: c.option("first", 0),
		})
		return quiet
	case "table": // table buckets=8 s1=0-3@5 s2=4-7@6
		s.table = tableView(c)
		return quiet
	case "clock": // time passes, and nobody tells the machine
		s.now = parseDuration(c.t, c.arg(0))
		return quiet
	case "state":
		return fmt.Sprintf("at %v: %s, wake at %v", s.now, showRouter(s.r), s.r.Wake())
	case "wake": // time passes until the next tick is due
		s.now = s.r.Wake()
		return fmt.Sprintf("at %v\n%s", s.now, showEffects(s.r.Step(s.now, pmr.Tick{})))
	}
	return showEffects(s.r.Step(s.now, s.event(c)))
}

func showRouter(r *pmr.Router) string {
	last := "no failure yet"
	if e := r.LastFailure(); e != nil {
		last = "last failure " + showError(e)
	}
	return fmt.Sprintf("attempt %d, phase %s, %s", r.Attempt(), r.Phase(), last)
}

func (s *routerScript) event(c command) pmr.Event {
	switch c.name {
	case "started":
		return pmr.Started{}
	case "cut": // cut ATTEMPT at=POSITION [space=known]
		return pmr.CutFixed{Attempt: c.number(0), Cut: uint64(c.option("at", 0)), Owners: s.table, SpaceKnown: c.opts["space"] == "known"}
	case "cut-failed":
		return pmr.CutFailed{Attempt: c.number(0), Err: parseError(c.rest(1))}
	case "pinned": // pinned ATTEMPT STORAGE PMR BUCKETS@GENERATION [space=none]
		return pmr.Pinned{Attempt: c.number(0), Storage: c.arg(1), Pin: api.PinReply{
			PMR: c.arg(2), Storage: c.arg(1), Incarnation: "i1", Buckets: parsePins(c.t, c.arg(3)), HasSpace: c.opts["space"] != "none",
		}}
	case "pin-failed":
		return pmr.PinFailed{Attempt: c.number(0), Storage: c.arg(1), Err: parseError(c.rest(2))}
	case "map-refused":
		return pmr.MapRefused{Attempt: c.number(0), Storage: c.arg(1), Err: parseError(c.rest(2))}
	case "map-ended":
		return pmr.MapEnded{Storage: c.arg(0), PMR: c.arg(1), Err: parseError(c.rest(2))}
	case "lost":
		return pmr.StorageLost{Attempt: c.number(0), Storage: c.arg(1), Err: parseError(c.rest(2))}
	case "collected":
		return pmr.Collected{Attempt: c.number(0), Err: parseError(c.rest(1))}
	case "cancel":
		return pmr.Canceled{Err: api.Errorf(api.CodeCanceled, "canceled")}
	case "tick":
		return pmr.Tick{}
	}
	return c.unknown()
}

// wantedOf is the buckets that wanted=BUCKETS names; nil if the option is not there.
func wantedOf(c command) []buckets.ID {
	var wanted []buckets.ID
	for _, b := range parseBuckets(c.t, c.opts["wanted"]) {
		wanted = append(wanted, buckets.ID(b))
	}
	return wanted
}

// tableView is the table that a command's options give.
func tableView(c command) *buckets.View {
	table := buckets.NewTable(c.option("buckets", 8))
	for storage, list := range c.opts {
		if storage == "buckets" {
			continue
		}
		for _, p := range parsePins(c.t, list) {
			if _, err := table.Own(p.Generation, buckets.Own{Bucket: buckets.ID(p.Bucket), Owner: storage}); err != nil {
				c.t.Fatalf("%s: %v", c.at, err)
			}
		}
	}
	return table.View()
}

// TestStorageScripts steps one storage by hand.
func TestStorageScripts(t *testing.T) {
	runScripts(t, "storage", func() func(command) string { return (&storageScript{}).do })
}

type storageScript struct {
	s   *pmr.Storage
	now time.Duration
}

func (s *storageScript) do(c command) string {
	step := func(ev pmr.Event) string { return showEffects(s.s.Step(s.now, ev)) }
	switch c.name {
	case "new":
		s.s = pmr.NewStorage(storageConfig(c))
		return quiet
	case "clock": // time passes, and nobody tells the machine
		s.now = parseDuration(c.t, c.arg(0))
		return quiet
	case "tick": // tick TIME
		s.now = parseDuration(c.t, c.arg(0))
		return step(pmr.Tick{})
	case "pin": // pin PMR ROUTER [job=j1] [age=1] [ttl=5s] [mode=snapshot]
		return step(pmr.PinAsked{
			PMR: c.arg(0), Job: c.text("job", "j1"), Router: c.arg(1), TTL: c.duration("ttl", 5*time.Second),
			Age: uint64(c.option("age", 1)), Snapshot: c.opts["mode"] == "snapshot",
		})
	case "gate": // gate ID [second] [ttl=10s]
		return step(pmr.GateAsked{Gate: c.arg(0), TTL: c.duration("ttl", 10*time.Second), Second: c.rest(1) == "second"})
	case "ungate": // ungate ID
		return step(pmr.GateReleased{Gate: c.arg(0)})
	case "fence-set":
		return step(pmr.FenceSet{})
	case "quotas": // quotas pins=8 gates=4
		return step(pmr.QuotasSet{Quotas: quotas(c)})
	case "gates": // gates ID..: where they are, and how many refused pins are remembered
		return showGates(s.s, c.args)
	case "map":
		return step(pmr.MapAsked{PMR: c.arg(0)})
	case "over":
		return step(pmr.MapOver{PMR: c.arg(0)})
	case "release":
		return step(pmr.ReleaseAsked{PMR: c.arg(0)})
	case "heard":
		return step(pmr.Heard{Router: c.arg(0)})
	case "pmrs":
		return showPMRs(s.s)
	}
	return c.unknown()
}

func storageConfig(c command) pmr.StorageConfig {
	return pmr.StorageConfig{
		Silence: c.duration("silence", 10*time.Second), Retention: c.duration("retention", time.Minute),
		Ticket: c.duration("ticket", 10*time.Second), Quotas: quotas(c),
	}
}

func quotas(c command) pmr.Quotas {
	return pmr.Quotas{Pins: c.option("pins", 8), Gates: c.option("gates", 4)}
}

func showGates(s *pmr.Storage, ids []string) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%s %s; ", id, [...]string{"unknown", "waits", "is held"}[s.Gate(id)])
	}
	waiting, held := s.Gates()
	if held == "" {
		held = "none"
	}
	fmt.Fprintf(&b, "%d waiting, %s held, %d tickets", waiting, held, s.Tickets())
	return b.String()
}

func showPMRs(s *pmr.Storage) string {
	list := make([]string, 0, 4)
	for _, p := range s.PMRs() {
		list = append(list, fmt.Sprintf("%s of %s %s", p.ID, p.Router, p.State))
	}
	if len(list) == 0 {
		list = append(list, "none")
	}
	return fmt.Sprintf("%s; %d running", strings.Join(list, ", "), s.Running())
}
