//go:build unix

package e2e

import (
	"slices"
	"testing"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/bus"
)

// A router is killed while it has jobs in every phase. The durable ones are done once, right and in the next take, on
// the other router; the interactive ones have a right answer or a clear error in time.
func TestRouterKilledInEachPhase(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	c.addPaced()
	b := c.bus()
	alive, other := c.router, c.newRouter("r2")
	for range scaledRounds() {
		c.killRouterInEachPhase(b, alive, other)
		alive, other = other, alive
		c.router = alive
	}
}

// scaledRounds is how often a test repeats what it does with processes: once, or three times in the long variants.
func scaledRounds() int {
	if long() {
		return 3
	}
	return 1
}

func (c *cluster) killRouterInEachPhase(b *bus.Bus, alive, other *process) {
	c.t.Helper()
	pair := func(phase string, job pinion.Job) []*trial {
		return []*trial{
			c.start(b, "the interactive job in phase "+phase, false, job),
			c.start(b, "the durable job in phase "+phase, true, job),
		}
	}
	part := paced(c.turns(0.6), 1) // of two storages, since the third one will be stopped
	m := c.newMoves(b)
	for _, bucket := range append(m.ownedBy("s1"), m.ownedBy("s3")...) {
		part.Buckets = append(part.Buckets, uint16(bucket))
	}
	quick := part
	quick.Params = paced(1, 1).Params
	partRows, err := c.run(c.t.Context(), quick)
	if err != nil {
		c.t.Fatal(err)
	}

	reducing := pair("reduce", paced(1, c.turns(5)))
	for _, tr := range reducing {
		tr.wantPhase("reduce")
	}
	mapping := pair("map", part)
	c.wantPMRs(b, "s1", "mapping", idsOf(mapping)...)
	stopped := c.storage("s2")
	stopped.pause() // what is asked to pin cannot go on
	pinning := pair("pin", paced(1, 1))
	c.wantPMRs(b, "s1", "pinned", idsOf(pinning)...)
	other.start()
	c.wantMember(other)
	for phase, list := range map[string][]*trial{"reduce": reducing, "map": mapping, "pin": pinning} {
		for _, tr := range list {
			if err := tr.inPhase(c.t.Context(), phase); err != nil {
				c.t.Errorf("%s when its router is killed: %v", tr.name, err)
			}
		}
	}
	alive.kill()
	stopped.resume()
	want := map[*trial][]byte{mapping[0]: partRows, mapping[1]: partRows}
	for _, tr := range slices.Concat(reducing, mapping, pinning) {
		if want[tr] == nil {
			want[tr] = pacedRows
		}
		if !tr.durable {
			tr.wantSound(want[tr])
		} else if info := tr.wantRight(want[tr]); info.Take != 2 {
			c.t.Errorf("%s was done in take %d, want 2", tr.name, info.Take)
		}
	}
	c.wantNothingPinned()
	for _, tr := range slices.Concat(reducing, mapping, pinning) {
		if n := tr.ends(); tr.durable && n != 1 {
			c.t.Errorf("%s was told to be done %d times", tr.name, n)
		}
	}
}

// A storage is killed while it has pinned for some jobs and maps for others, and is started again.
func TestStorageKilledPinnedAndMapping(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	c.addPaced()
	b := c.bus()
	for range scaledRounds() {
		mapping := []*trial{
			c.start(b, "the interactive job that maps", false, paced(c.turns(0.4), 1)),
			c.start(b, "the durable job that maps", true, paced(c.turns(0.4), 1)),
		}
		c.wantPMRs(b, "s1", "mapping", idsOf(mapping)...)
		c.storage("s2").pause()
		pinning := []*trial{
			c.start(b, "the interactive job that pins", false, paced(1, 1)),
			c.start(b, "the durable job that pins", true, paced(1, 1)),
		}
		c.wantPMRs(b, "s1", "pinned", idsOf(pinning)...)
		c.storage("s1").kill()
		c.storage("s2").resume()
		c.storage("s1").start()
		for _, tr := range append(mapping, pinning...) {
			tr.wantSound(pacedRows)
			if tr.durable && tr.err == nil {
				tr.wantRight(pacedRows)
			}
		}
		c.wantNothingPinned()
	}
}
