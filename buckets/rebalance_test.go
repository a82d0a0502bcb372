package buckets

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// party of a test: a storage, what it owns, and how many of that are locked.
type owning struct {
	weight        float64
	owned, locked int
	still         bool
}

// balanceCase makes a table in which storages a, b, c... own what is said, the first of each locked.
func balanceCase(t interface{ Fatal(args ...any) }, n int, list []owning) (*View, []Share, Locks) {
	table := NewTable(n)
	locks := Locks{Buckets: map[ID]bool{}, Storages: map[string]bool{}}
	var shares []Share
	next := ID(0)
	for i, o := range list {
		name := string(rune('a' + i))
		shares = append(shares, Share{name, o.weight})
		if o.still {
			locks.Storages[name] = true
		}
		for k := range o.owned {
			if k < o.locked {
				locks.Buckets[next] = true
			}
			if _, err := table.Own(table.Seq()+1, Own{Bucket: next, Owner: name}); err != nil {
				t.Fatal(err)
			}
			next++
		}
	}
	return table.View(), shares, locks
}

func equal(weights ...int) []owning {
	var list []owning
	for _, n := range weights {
		list = append(list, owning{weight: 1, owned: n})
	}
	return list
}

// The situations of the unit tests of tarantool/vshard's rebalancer, and some more. What each storage owns after the
// plan is checked, and so how many moves it takes.
func TestRebalance(t *testing.T) {
	for _, tc := range []struct {
		name      string
		n         int
		list      []owning
		threshold float64
		after     []int
		note      string // part of one; empty: there is none
	}{
		{"two new ones", 100, []owning{{weight: 50, owned: 100}, {weight: 20}, {weight: 30}}, 1, []int{50, 20, 30}, ""},
		{"one leaves", 7, []owning{{weight: 1, owned: 2}, {weight: 1, owned: 2}, {weight: 0, owned: 3}}, 1, []int{4, 3, 0}, ""},
		{"big weights", 300, []owning{{weight: 1000, owned: 100}, {weight: 2000, owned: 100}, {weight: 500, owned: 100}}, 0, []int{86, 171, 43}, ""},
		{"big weights, within 1 %", 300, []owning{{weight: 1000, owned: 100}, {weight: 2000, owned: 100}, {weight: 500, owned: 100}}, 1, []int{86, 171, 43}, ""},
		{"balanced", 300, equal(100, 100, 100), 1, []int{100, 100, 100}, ""},
		{"a third one", 100, equal(50, 50, 0), 1, []int{33, 34, 33}, ""},
		{"one bucket off", 100, equal(34, 34, 32), 1, []int{33, 34, 33}, ""},
		{"rounding spread over many", 100, equal(13, 13, 13, 13, 13, 12, 12, 11), 1, []int{12, 13, 13, 13, 13, 12, 12, 12}, ""},
		{"weight 0", 100, []owning{{1, 25, 0, false}, {1, 25, 0, false}, {1, 25, 0, false}, {0, 25, 0, false}}, 1, []int{34, 33, 33, 0}, ""},
		{"weight 0 and locked ones", 100, []owning{{0, 30, 25, false}, {1, 25, 25, false}, {1, 25, 25, false}, {0, 20, 0, false}}, 1, []int{25, 38, 37, 0}, "storage a keeps"},
		{"locked beyond the share, all but one", 100, []owning{{1, 33, 26, false}, {1, 33, 24, false}, {1, 34, 30, false}, {1, 0, 0, false}}, 1, []int{26, 24, 30, 20}, "keeps more than its share"},
		{"locked beyond the share, one", 100, []owning{{1, 33, 30, false}, {1, 33, 10, false}, {1, 34, 15, false}, {1, 0, 0, false}}, 1, []int{30, 23, 24, 23}, "storage a keeps more than its share: buckets 0-29 are locked"},
		{"locked beyond the share, found step by step", 100, []owning{{1, 33, 30, false}, {1, 33, 25, false}, {1, 34, 24, false}, {1, 0, 0, false}}, 1, []int{30, 25, 24, 21}, "keeps more than its share"},
		{"one to many", 30000, equal(10000, 10000, 10000, 0), 0, []int{7500, 7500, 7500, 7500}, ""},
		{"one to many, within 10 %", 30000, equal(10000, 10000, 10000, 0), 10, []int{7750, 7750, 7750, 6750}, ""},
		{"within the threshold", 200, equal(95, 105), 5, []int{95, 105}, ""},
		{"just beyond the threshold", 200, equal(94, 106), 5, []int{95, 105}, ""},
		{"no threshold", 200, equal(99, 101), 0, []int{100, 100}, ""},
		{"a threshold that is no number", 200, equal(99, 101), math.NaN(), []int{100, 100}, ""},
		{"a negative threshold", 200, equal(99, 101), -3, []int{100, 100}, ""},
		{"a boundless threshold", 200, equal(0, 200), math.Inf(1), []int{0, 200}, ""},
		{"weight 0 has no threshold", 200, []owning{{1, 199, 0, false}, {0, 1, 0, false}}, 1000, []int{200, 0}, ""},
		{"fractions", 16, []owning{{0.5, 16, 0, false}, {0.25, 0, 0, false}, {0.25, 0, 0, false}}, 1, []int{8, 4, 4}, ""},
		{"weights that are none", 16, []owning{{-1, 8, 0, false}, {math.NaN(), 8, 0, false}, {1, 0, 0, false}}, 1, []int{0, 0, 16}, ""},
		{"endless weights", 16, []owning{{math.Inf(1), 16, 0, false}, {math.Inf(1), 0, 0, false}, {1, 0, 0, false}}, 1, []int{8, 8, 0}, ""},
		{"tiny weights", 16, []owning{{math.SmallestNonzeroFloat64, 16, 0, false}, {math.SmallestNonzeroFloat64, 0, 0, false}}, 1, []int{8, 8}, ""},
		{"one storage", 16, equal(16), 1, []int{16}, ""},
		{"one storage of weight 0", 16, []owning{{0, 16, 0, false}}, 1, []int{16}, "no other storage may take its buckets"},
		{"all of weight 0", 16, []owning{{0, 16, 0, false}, {0, 0, 0, false}}, 1, []int{16, 0}, "no other storage may take its buckets"},
		{"more storages than buckets", 2, equal(2, 0, 0, 0), 1, []int{1, 1, 0, 0}, ""},
		{"more storages than buckets, balanced", 2, equal(0, 1, 0, 1), 1, []int{0, 1, 0, 1}, ""},
		{"all buckets locked", 16, []owning{{1, 16, 16, false}, {1, 0, 0, false}}, 1, []int{16, 0}, "storage a keeps more than its share"},
		{"all storages locked", 16, []owning{{1, 16, 0, true}, {1, 0, 0, true}}, 1, []int{16, 0}, ""},
		{"a locked storage is left out", 30, []owning{{1, 20, 0, true}, {1, 10, 0, false}, {1, 0, 0, false}}, 1, []int{20, 5, 5}, ""},
		{"nobody to drain to", 16, []owning{{0, 10, 0, false}, {1, 6, 0, true}}, 1, []int{10, 6}, "no other storage may take its buckets"},
		{"drained but for locked ones", 16, []owning{{0, 10, 2, false}, {1, 6, 0, false}}, 1, []int{2, 14}, "storage a keeps more than its share: buckets 0-1 are locked"},
		{"drained and locked", 16, []owning{{0, 10, 0, true}, {1, 6, 0, false}}, 1, []int{10, 6}, "storage a has weight 0 and keeps what it owns: it is locked"},
		{"unowned and foreign ones do not count", 30, equal(8, 8), 1, []int{8, 8}, ""},
		{"nobody", 3, nil, 1, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v, shares, locks := balanceCase(t, tc.n, tc.list)
			plan := Rebalance(v, shares, locks, tc.threshold)
			checkPlan(t, v, plan, locks)
			after := v.After(plan.Orders)
			var got []int
			moves := 0
			for i, s := range shares {
				got = append(got, len(after.Of(s.Storage)))
				moves += max(0, got[i]-tc.list[i].owned)
			}
			if !slices.Equal(got, tc.after) {
				t.Errorf("they own %v then, want %v", got, tc.after)
			}
			if n := moved(plan); n != moves {
				t.Errorf("%d moves for %d buckets", n, moves)
			}
			notes := strings.Join(plan.Notes, "; ")
			if tc.note == "" && notes != "" || !strings.Contains(notes, tc.note) {
				t.Errorf("it notes %q, want %q", notes, tc.note)
			}
		})
	}
}

func moved(p Plan) int {
	n := 0
	for _, o := range p.Orders {
		n += len(o.Buckets)
	}
	return n
}

// checkPlan is what holds for every plan.
func checkPlan(t interface{ Fatalf(string, ...any) }, v *View, plan Plan, locks Locks) {
	seen := map[ID]bool{}
	for _, o := range plan.Orders {
		if len(o.Buckets) == 0 || len(o.Buckets) > MostPerMove || o.Src == o.Dst || o.Src == "" || o.Dst == "" || !slices.IsSorted(o.Buckets) {
			t.Fatalf("an order %+v", o)
		}
		if locks.Storages[o.Src] || locks.Storages[o.Dst] {
			t.Fatalf("order %+v concerns a locked storage", o)
		}
		for _, b := range o.Buckets {
			if seen[b] || locks.Buckets[b] || v.Owner(b).Storage != o.Src {
				t.Fatalf("order %+v moves bucket %d: moved before %v, locked %v, owner %s", o, b, seen[b], locks.Buckets[b], v.Owner(b).Storage)
			}
			seen[b] = true
		}
	}
}

func drawCase(t *rapid.T, most int) (*View, []Share, Locks, float64) {
	n := rapid.IntRange(1, most).Draw(t, "buckets")
	shares := drawShares(t)
	locks := Locks{Buckets: map[ID]bool{}, Storages: map[string]bool{}}
	owners := []string{"", "gone"}
	for _, s := range shares {
		owners = append(owners, s.Storage, s.Storage, s.Storage)
		if rapid.IntRange(0, 5).Draw(t, "lock") == 0 {
			locks.Storages[s.Storage] = true
		}
	}
	few := rapid.SampledFrom(owners).Draw(t, "owner of most")
	table := NewTable(n)
	for b := range n {
		owner := few
		if rapid.Bool().Draw(t, "other") {
			owner = rapid.SampledFrom(owners).Draw(t, "owner")
		}
		if rapid.IntRange(0, 4).Draw(t, "lock") == 0 {
			locks.Buckets[ID(b)] = true
		}
		if owner == "" {
			continue
		}
		if _, err := table.Own(uint64(b+1), Own{Bucket: ID(b), Owner: owner}); err != nil {
			t.Fatal(err)
		}
	}
	threshold := rapid.SampledFrom([]float64{0, 1, 1, 5, 10, 33.3, 100, 250}).Draw(t, "threshold")
	return table.View(), shares, locks, threshold
}

// A plan leads into its own bounds, so that the next one is empty; it keeps to the locks; it is the same for the same
// arguments.
func TestRebalanceConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, shares, locks, threshold := drawCase(t, 200)
		plan := Rebalance(v, shares, locks, threshold)
		checkPlan(t, v, plan, locks)
		after := v.After(plan.Orders)
		if names, _ := usable(slices.DeleteFunc(slices.Clone(shares), func(s Share) bool { return locks.Storages[s.Storage] })); len(names) > 0 {
			for _, r := range plan.Bounds {
				if n := len(after.Of(r.Storage)); n < r.Low || n > r.High || r.Low > r.High {
					t.Fatalf("%s owns %d then, not %d to %d", r.Storage, n, r.Low, r.High)
				}
			}
		}
		if again := Rebalance(after, shares, locks, threshold); len(again.Orders) > 0 {
			t.Fatalf("after %+v it plans %+v", plan, again)
		}
		shuffled := rapid.Permutation(shares).Draw(t, "shuffled")
		if again := Rebalance(v, shuffled, locks, threshold); fmt.Sprint(again) != fmt.Sprint(plan) {
			t.Fatalf("%v, in another order of shares %v", plan, again)
		}
		for _, b := range []string{"", "gone"} {
			if !slices.Equal(v.Of(b), after.Of(b)) {
				t.Fatalf("buckets of %q were moved", b)
			}
		}
	})
}

// A plan carried out in part, its orders in any order, leads to no more moves in all.
func TestAPlanMayBeMadeAnewAtAnyTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, shares, locks, threshold := drawCase(t, 120)
		plan := Rebalance(v, shares, locks, threshold)
		if len(plan.Orders) == 0 {
			return
		}
		done := rapid.Permutation(plan.Orders).Draw(t, "done")[:rapid.IntRange(0, len(plan.Orders)).Draw(t, "orders done")]
		rest := Rebalance(v.After(done), shares, locks, threshold)
		if n := moved(Plan{Orders: done}) + moved(rest); n != moved(plan) {
			t.Fatalf("%d moves, and %d when it was made anew after %v", moved(plan), n, done)
		}
	})
}

// No plan of fewer moves leads into the bounds: all distributions of the buckets are tried. The bounds themselves are
// reckoned here from the rules, one storage after the other.
func TestRebalanceIsMinimal(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		list := make([]owning, 1+rng.IntN(4))
		n := 0
		for i := range list {
			o := &list[i]
			o.weight = []float64{0, 1, 1, 2, 0.3}[rng.IntN(5)]
			o.owned = rng.IntN(8)
			if rng.IntN(3) == 0 {
				o.locked = rng.IntN(o.owned + 1)
			}
			n += o.owned
		}
		v, shares, locks := balanceCase(t, n+1, list)
		threshold := []float64{0, 1, 20, 50}[rng.IntN(4)]
		plan := Rebalance(v, shares, locks, threshold)
		bounds := dumbBounds(list, threshold)
		if bounds == nil { // nobody may take
			if moved(plan) > 0 {
				t.Fatalf("%+v: %+v", list, plan)
			}
			continue
		}
		best := math.MaxInt
		distribute(n, bounds, nil, func(after []int) {
			moves := 0
			for i, k := range after {
				moves += max(0, k-list[i].owned)
			}
			best = min(best, moves)
		})
		if moved(plan) != best {
			t.Fatalf("%+v, threshold %v: %d moves, %d are enough; bounds %v; plan %+v", list, threshold, moved(plan), best, bounds, plan)
		}
	}
}

// dumbBounds is the rule of bounds, one storage taken out at a time.
func dumbBounds(list []owning, threshold float64) [][2]int {
	kept := map[int]bool{}
	share := make([]float64, len(list))
	for {
		total, left := 0.0, 0
		for i, o := range list {
			left += o.owned
			if kept[i] {
				left -= o.locked
			} else {
				total += o.weight
			}
		}
		worst, by := -1, 1e-6
		for i, o := range list {
			if kept[i] {
				continue
			}
			share[i] = 0
			if o.weight > 0 {
				share[i] = float64(left) * o.weight / total
			}
			if d := float64(o.locked) - share[i]; d > by {
				worst, by = i, d
			}
		}
		if worst < 0 {
			break
		}
		kept[worst], share[worst] = true, float64(list[worst].locked)
	}
	takers := 0
	var bounds [][2]int
	for i, o := range list {
		low, high := int(math.Round(share[i])), int(math.Round(share[i]))
		if o.weight > 0 {
			takers++
			for low > o.locked && (float64(low) > share[i]-1e-6 && float64(low-1) > share[i]-1+1e-6 || float64(low-1) >= share[i]*(1-threshold/100)-1e-6) {
				low--
			}
			for float64(low) > share[i]+1e-6 && low > o.locked {
				low--
			}
			for float64(high) < share[i]-1e-6 || float64(high+1) <= share[i]*(1+threshold/100)+1e-6 {
				high++
			}
		}
		bounds = append(bounds, [2]int{low, high})
	}
	if takers == 0 {
		return nil
	}
	return bounds
}

// distribute calls fn with every way to give n buckets within bounds.
func distribute(n int, bounds [][2]int, so []int, fn func([]int)) {
	if len(so) == len(bounds) {
		if n == 0 {
			fn(so)
		}
		return
	}
	for k := bounds[len(so)][0]; k <= min(n, bounds[len(so)][1]); k++ {
		distribute(n-k, bounds, append(slices.Clone(so), k), fn)
	}
}

// Neighbours in a plan keep different storages busy, as far as there are any.
func TestOrdersAreSpread(t *testing.T) {
	v, shares, locks := balanceCase(t, 256, equal(128, 128, 0, 0))
	plan := Rebalance(v, shares, locks, 1)
	if len(plan.Orders) != 8 {
		t.Fatalf("%d orders: %v", len(plan.Orders), plan.Orders)
	}
	for i := 0; i < len(plan.Orders); i += 2 {
		a, b := plan.Orders[i], plan.Orders[i+1]
		if a.Src == b.Src || a.Dst == b.Dst {
			t.Errorf("orders %d and %d: %s to %s, %s to %s", i, i+1, a.Src, a.Dst, b.Src, b.Dst)
		}
	}
}

// With one destination, the sources take turns.
func TestSourcesTakeTurns(t *testing.T) {
	v, shares, locks := balanceCase(t, 240, equal(120, 120, 0))
	plan := Rebalance(v, shares, locks, 1)
	for i := range len(plan.Orders) - 1 {
		if plan.Orders[i].Src == plan.Orders[i+1].Src {
			t.Errorf("orders %d and %d are both from %s", i, i+1, plan.Orders[i].Src)
		}
	}
}

func TestTakeover(t *testing.T) {
	v, shares, _ := balanceCase(t, 256, equal(86, 85, 85))
	after := v.After(Takeover(v, "c", shares))
	if a, b, c := len(after.Of("a")), len(after.Of("b")), len(after.Of("c")); a != 128 || b != 128 || c != 0 {
		t.Errorf("a takeover leaves %d, %d and %d", a, b, c)
	}
	for _, o := range Takeover(v, "c", shares) {
		if o.Src != "c" || o.Dst == "c" {
			t.Errorf("order %+v", o)
		}
	}
	if plan := Takeover(v, "c", []Share{{"c", 1}, {"d", 0}}); len(plan) > 0 {
		t.Errorf("nobody may take, and the plan is %v", plan)
	}
	count := map[string]int{}
	for _, o := range Takeover(v, "c", []Share{{"a", 1}, {"b", 3}}) {
		count[o.Dst] += len(o.Buckets)
	}
	if want := map[string]int{"b": 85}; !maps.Equal(count, want) { // its target is 192
		t.Errorf("they take %v, want %v", count, want)
	}
}
