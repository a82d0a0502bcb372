package buckets

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/pinion-mr/pinion/api"
)

// MostPerMove is how many buckets one move has at the most: they share one pair of gates.
const MostPerMove = api.MostMoved

// Locks are what must stay in place.
type Locks struct {
	Buckets  map[ID]bool     // they do not move
	Storages map[string]bool // they neither give nor take
}

// maxThreshold is as good as no bound.
const maxThreshold = 1e6

// Plan is what [Rebalance] found.
type Plan struct {
	Orders []Order  // at most MostPerMove buckets each, no bucket twice
	Bounds []Bounds // by storage
	Notes  []string // why a storage keeps more than it should
}

// Bounds say how many buckets a storage may own for the cluster to count as balanced.
type Bounds struct {
	Storage   string
	Owned     int     // before the plan
	Share     float64 // its exact part
	Low, High int     // within the threshold, both included
	Locked    bool    // the storage is: all of it stays
}

// Rebalance plans the fewest moves after which every storage owns its share of the buckets, give or take the threshold
// (in percent of the share; a whole bucket more or less where the share is no whole number is always allowed). A share
// is in proportion to the storage's weight.
//
// Locked storages are left out, with what they own. A storage whose locked buckets are more than its share keeps just
// these, and the rest is shared anew among the others, as tarantool/vshard does it; there the etalon is met exactly
// once the threshold is passed, here moves end at the threshold. Buckets without an owner, and of storages that are
// not among the shares, are not moved and not shared.
//
// The orders are spread: neighbours in the list have different sources and destinations where there are any. The same
// arguments give the same plan, in whatever order the shares are.
func Rebalance(v *View, shares []Share, locks Locks, threshold float64) Plan {
	if math.IsNaN(threshold) {
		threshold = 0
	}
	threshold = min(max(threshold, 0), maxThreshold)
	parties := newParties(v, shares, locks)
	divide(parties)
	for i := range parties {
		parties[i].bound(threshold)
	}
	var plan Plan
	if somebody := slices.ContainsFunc(parties, func(p party) bool { return p.mayTake() }); somebody {
		settle(parties)
		plan.Orders = spread(pair(parties))
	}
	for _, p := range parties {
		plan.Bounds = append(plan.Bounds, Bounds{Storage: p.Storage, Owned: p.owned, Share: p.share, Low: p.low, High: p.high, Locked: p.still})
		plan.Notes = append(plan.Notes, p.notes()...)
	}
	return plan
}

// party is a storage in the making of a plan.
type party struct {
	Share
	owned     int
	loose     []ID // buckets that may leave
	locked    []ID
	still     bool // the storage is locked
	fixed     bool // it keeps just its locked buckets
	share     float64
	low, high int
	after     int // what it owns when the plan is carried out
}

func newParties(v *View, shares []Share, locks Locks) []party {
	var parties []party
	for _, s := range shares {
		p := party{Share: s, still: locks.Storages[s.Storage]}
		for _, b := range v.Of(s.Storage) {
			if p.owned++; locks.Buckets[b] {
				p.locked = append(p.locked, b)
			} else {
				p.loose = append(p.loose, b)
			}
		}
		p.after = p.owned
		parties = append(parties, p)
	}
	slices.SortFunc(parties, func(a, b party) int { return cmp.Compare(a.Storage, b.Storage) })
	return parties
}

// rounding is what sums of floating-point shares may be off.
const rounding = 1e-9

// divide sets the shares. Each round takes out who holds more locked buckets than its share; the others' shares get
// smaller by that, so there may be another round.
func divide(parties []party) {
	for again := true; again; {
		again = false
		total, left := 0.0, 0
		for _, p := range parties {
			switch {
			case p.still:
			case p.fixed:
				left += p.owned - len(p.locked)
			default:
				left += p.owned
				total += p.weight()
			}
		}
		for i := range parties {
			p := &parties[i]
			switch {
			case p.still:
				p.share = float64(p.owned)
				continue
			case p.fixed:
				continue
			case p.weight() > 0:
				p.share = float64(left) * (p.weight() / total)
			default:
				p.share = 0
			}
			if float64(len(p.locked)) > p.share+rounding {
				p.fixed, p.share, again = true, float64(len(p.locked)), true
			}
		}
	}
}

// bound sets how many buckets are enough and not too many.
func (p *party) bound(threshold float64) {
	if p.still || p.weight() == 0 {
		p.low = int(p.share)
		p.high = p.low
		return
	}
	few := math.Ceil(p.share*(1-threshold/100) - rounding)
	many := math.Floor(min(p.share*(1+threshold/100), MaxBuckets) + rounding)
	p.low = max(int(min(few, math.Floor(p.share+rounding))), len(p.locked))
	p.high = int(max(many, math.Ceil(p.share-rounding)))
}

func (p *party) mayTake() bool { return !p.still && p.weight() > 0 }

// settle decides what each party owns in the end. What is above the bounds of some or below those of others must
// move; where one is more than the other, further parties give or take within their bounds.
func settle(parties []party) {
	balance := 0 // given, and not taken yet
	for i := range parties {
		p := &parties[i]
		p.after = min(max(p.owned, p.low), p.high)
		balance += p.owned - p.after
	}
	for ; balance > 0; balance-- {
		p := furthest(parties, func(p party) (float64, bool) { return p.share - float64(p.after), p.after < p.high && p.mayTake() })
		p.after++
	}
	for ; balance < 0; balance++ {
		p := furthest(parties, func(p party) (float64, bool) { return float64(p.after) - p.share, p.after > p.low && !p.still })
		p.after--
	}
}

// furthest is the party with the greatest distance among those that may be taken, the first by name of several.
func furthest(parties []party, distance func(party) (d float64, ok bool)) *party {
	best, most := -1, math.Inf(-1)
	for i, p := range parties {
		if d, ok := distance(p); ok && d > most {
			best, most = i, d
		}
	}
	return &parties[best]
}

// pair makes the orders, from one source after another to one destination after another.
func pair(parties []party) []Order {
	var orders []Order
	dst, taken := 0, 0 // taken by the destination so far
	for _, src := range parties {
		give := src.loose[min(len(src.loose), len(src.loose)-(src.owned-src.after)):]
		for len(give) > 0 {
			for taken >= parties[dst].after-parties[dst].owned {
				dst, taken = dst+1, 0
			}
			n := min(len(give), parties[dst].after-parties[dst].owned-taken, MostPerMove)
			orders = append(orders, Order{Src: src.Storage, Dst: parties[dst].Storage, Buckets: give[:n:n]})
			taken += n
			give = give[n:]
		}
	}
	return orders
}

// spread puts next whose source and destination have had nothing to do for longest.
func spread(orders []Order) []Order {
	last := map[string]int{} // number of the storage's latest order
	var out []Order
	for left := slices.Clone(orders); len(left) > 0; {
		next := 0
		for i, o := range left {
			n := left[next]
			busy, least := max(last[o.Src], last[o.Dst]), max(last[n.Src], last[n.Dst])
			if busy < least || busy == least && min(last[o.Src], last[o.Dst]) < min(last[n.Src], last[n.Dst]) {
				next = i
			}
		}
		out = append(out, left[next])
		last[left[next].Src], last[left[next].Dst] = len(out), len(out)
		left = slices.Delete(left, next, next+1)
	}
	return out
}

// notes says why a party keeps what it should give away.
func (p *party) notes() []string {
	switch {
	case p.still && p.weight() == 0 && p.owned > 0:
		return []string{fmt.Sprintf("storage %s has weight 0 and keeps what it owns: it is locked", p.Storage)}
	case p.still:
		return nil
	case p.weight() == 0 && p.after > len(p.locked):
		return []string{fmt.Sprintf("storage %s has weight 0, but no other storage may take its buckets: each is locked, has weight 0 or is not there", p.Storage)}
	case p.fixed:
		return []string{fmt.Sprintf("storage %s keeps more than its share: %s locked", p.Storage, are(p.locked))}
	}
	return nil
}

func are(bs []ID) string {
	if len(bs) == 1 {
		return Ranges(bs) + " is"
	}
	return Ranges(bs) + " are"
}

// After is the table as it would be if all orders were carried out; the generations stay.
func (v *View) After(orders []Order) *View {
	w := &View{owners: slices.Clone(v.owners), fences: v.fences}
	for _, o := range orders {
		for _, b := range o.Buckets {
			if int(b) < len(w.owners) {
				w.owners[b].Storage = o.Dst
			}
		}
	}
	return w
}
