package pmr_test

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/pmr"
)

var walks = flag.Int("explore.walks", 300, "how many ways TestExploreWalks goes")

// TestExploreWalks goes at random where no search comes to an end: two jobs, one of them on a snapshot, a chain of moves,
// one that meets it and a takeover of a storage that is only slow, records and purges, and every fault several times.
// Each world on the way is checked as in a search, and at the end of each way everything must come to its end, in both
// fair orders.
func TestExploreWalks(t *testing.T) {
	m := &model{
		name: "walk", storages: 3, buckets: 4, jobs: 2, snapshot: true, attempts: 6,
		orders:     []order{one(0, 0, 1), oneAfter(0, 1, 2), one(2, 1, 0), takeover(1, 0, 2)},
		deliveries: 3, rivals: 2, late: true, losses: 3, doubles: 3, crashes: 2, expiries: 6, deadlines: 1, lapses: 1,
		slow: []int{0, 2}, data: true, writes: 4, purges: 2,
	}
	for seed := range uint64(*walks) {
		m.quotas = []pmr.Quotas{fair, strict}[seed%2]
		e := &explorer{m: m}
		w := newWorld(m)
		rng := rand.New(rand.NewPCG(seed, 0))
		var way []string
		for range 20 + rng.IntN(120) {
			a, ok := w.random(rng)
			if !ok {
				break
			}
			way = append(way, w.show(a))
			next, err := w.after(a)
			if err != nil {
				t.Fatalf("seed %d: %v, by\n%s", seed, err, strings.Join(way, "\n"))
			}
			w = next
		}
		if f := e.settle(&hasher{}, w, 0); f != nil {
			t.Fatalf("seed %d: %v, by\n%s\nfrom here on nothing goes wrong any more:\n%s", seed, f, strings.Join(way, "\n"), strings.Join(f.fair, "\n"))
		}
	}
}

// random chooses what happens next, mostly something useful. There is nothing if all is over.
func (w *world) random(rng *rand.Rand) (action, bool) {
	now, patient := w.useful()
	list := w.possible()
	switch p := rng.IntN(20); {
	case p < 14 && len(now) > 0:
		list = now
	case p < 18 && len(now)+len(patient) > 0:
		list = append(now, patient...)
	}
	if len(list) == 0 {
		return action{}, false
	}
	return list[rng.IntN(len(list))], true
}
