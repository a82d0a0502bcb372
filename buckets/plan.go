package buckets

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Share is a storage that may own buckets, and its part of them.
type Share struct {
	Storage string
	Weight  float64 // 0 owns nothing, and so do negative numbers and NaN
}

// maxWeight keeps sums of weights finite.
const maxWeight = 1e100

func (s Share) weight() float64 {
	if s.Weight > 0 {
		return min(s.Weight, maxWeight)
	}
	return 0
}

// Order tells a storage to take buckets.
type Order struct {
	Src     string // who owns them; empty: nobody
	Dst     string
	Buckets []ID // ascending
}

// Targets says how many of n buckets each storage should own: in proportion to its weight, rounded by
// largest remainder, ties by name. The result is by name. All are 0 if no weight is positive.
func Targets(n int, shares []Share) map[string]int {
	shares = slices.Clone(shares)
	slices.SortFunc(shares, func(a, b Share) int { return cmp.Compare(a.Storage, b.Storage) })
	total := 0.0
	for _, s := range shares {
		total += s.weight()
	}
	targets := make(map[string]int, len(shares))
	if total <= 0 {
		return targets
	}
	type remainder struct {
		storage string
		part    float64
	}
	var rest []remainder
	left := n
	for _, s := range shares {
		exact := float64(n) * s.weight() / total
		targets[s.Storage] = int(exact)
		left -= int(exact)
		if s.weight() > 0 {
			rest = append(rest, remainder{s.Storage, exact - float64(int(exact))})
		}
	}
	slices.SortStableFunc(rest, func(a, b remainder) int { return cmp.Compare(b.part, a.part) })
	for i := range left {
		targets[rest[i%len(rest)].storage]++
	}
	return targets
}

// Assign plans owners for the buckets that have none: as many to each storage as it lacks of its target, in
// runs, by name. It moves nothing that has an owner.
func Assign(v *View, shares []Share) []Order { return assign(v, "", shares) }

// Takeover plans new owners for all buckets of a storage that is gone, in the manner of [Assign]. The plan is empty if
// no other share has a weight.
func Takeover(v *View, gone string, shares []Share) []Order {
	return assign(v, gone, slices.DeleteFunc(slices.Clone(shares), func(s Share) bool { return s.Storage == gone }))
}

func assign(v *View, src string, shares []Share) []Order {
	free := v.Of(src)
	missing := map[string]int{}
	var names []string
	targets := Targets(v.Len(), shares)
	for _, s := range shares {
		if s.weight() > 0 {
			missing[s.Storage] = targets[s.Storage] - len(v.Of(s.Storage))
			names = append(names, s.Storage)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	count := map[string]int{}
	for range free {
		dst := slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(missing[a], missing[b]) })
		missing[dst]--
		count[dst]++
	}
	var plan []Order
	for _, name := range names {
		if n := count[name]; n > 0 {
			plan = append(plan, Order{Src: src, Dst: name, Buckets: free[:n:n]})
			free = free[n:]
		}
	}
	return plan
}

// Ranges is a list of buckets as people read it: "bucket 7", "buckets 0-84, 170", "no buckets".
func Ranges(bs []ID) string {
	if len(bs) == 0 {
		return "no buckets"
	}
	bs = slices.Compact(slices.Sorted(slices.Values(bs)))
	var b strings.Builder
	for i := 0; i < len(bs); {
		j := i
		for j+1 < len(bs) && bs[j+1] == bs[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, bs[i])
		if j > i {
			fmt.Fprintf(&b, "-%d", bs[j])
		}
		i = j + 1
	}
	if len(bs) == 1 {
		return "bucket " + b.String()
	}
	return "buckets " + b.String()
}
