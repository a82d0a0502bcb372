package buckets

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTargets(t *testing.T) {
	for _, tc := range []struct {
		n      int
		shares []Share
		want   map[string]int
	}{
		{256, []Share{{"s1", 1}, {"s2", 1}, {"s3", 1}}, map[string]int{"s1": 86, "s2": 85, "s3": 85}},
		{256, []Share{{"s3", 1}, {"s1", 1}, {"s2", 1}}, map[string]int{"s1": 86, "s2": 85, "s3": 85}},
		{10, []Share{{"a", 1}, {"b", 3}}, map[string]int{"a": 3, "b": 7}}, // 2.5 and 7.5: the tie goes to a
		{10, []Share{{"a", 0}, {"b", 2}}, map[string]int{"a": 0, "b": 10}},
		{10, []Share{{"a", -5}, {"b", 2}}, map[string]int{"a": 0, "b": 10}},
		{10, []Share{{"a", math.NaN()}, {"b", 2}}, map[string]int{"a": 0, "b": 10}},
		{10, []Share{{"a", math.Inf(1)}, {"b", math.Inf(1)}}, map[string]int{"a": 5, "b": 5}},
		{10, []Share{{"a", math.MaxFloat64}, {"b", math.MaxFloat64}}, map[string]int{"a": 5, "b": 5}},
		{10, []Share{{"a", math.SmallestNonzeroFloat64}}, map[string]int{"a": 10}},
		{2, []Share{{"a", 1}, {"b", 1}, {"c", 1}}, map[string]int{"a": 1, "b": 1, "c": 0}},
		{10, []Share{{"a", 0}}, map[string]int{}},
		{10, nil, map[string]int{}},
	} {
		if got := Targets(tc.n, tc.shares); !maps.Equal(got, tc.want) {
			t.Errorf("Targets(%d, %v) = %v, want %v", tc.n, tc.shares, got, tc.want)
		}
	}
}

func drawShares(t *rapid.T) []Share {
	weight := rapid.OneOf(rapid.SampledFrom([]float64{0, 1, 1, 2}), rapid.Float64Range(0, 1e6), rapid.Float64())
	names := rapid.SliceOfNDistinct(rapid.StringMatching("[a-z]{1,2}"), 0, 7, rapid.ID[string]).Draw(t, "storages")
	shares := make([]Share, len(names))
	for i, name := range names {
		shares[i] = Share{name, weight.Draw(t, "weight")}
	}
	return shares
}

func usable(shares []Share) (names []string, total float64) {
	for _, s := range shares {
		if s.Weight > 0 {
			names = append(names, s.Storage)
			total += min(s.Weight, maxWeight)
		}
	}
	slices.Sort(names)
	return names, total
}

// Targets add up, and none is a whole bucket off its exact part.
func TestTargetsAreFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "n")
		shares := drawShares(t)
		names, total := usable(shares)
		targets := Targets(n, shares)
		sum := 0
		for _, s := range shares {
			got := targets[s.Storage]
			sum += got
			exact := 0.0
			if s.Weight > 0 {
				exact = float64(n) * min(s.Weight, maxWeight) / total
			}
			if math.Abs(float64(got)-exact) >= 1+1e-6 {
				t.Fatalf("%s gets %d of %d, its part is %v", s.Storage, got, n, exact)
			}
		}
		if want := map[bool]int{true: n, false: 0}[len(names) > 0]; sum != want {
			t.Fatalf("%d buckets given to %v, want %d", sum, names, want)
		}
	})
}

// Every free bucket is ordered exactly once, to a storage that may own; nobody is filled beyond its target
// who was not there before; and the order of shares does not matter.
func TestAssign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 64).Draw(t, "n")
		table := NewTable(n)
		shares := drawShares(t)
		names, _ := usable(shares)
		for b := range n {
			owner := rapid.SampledFrom(append([]string{"", "", "gone"}, names...)).Draw(t, "owner")
			if owner == "" {
				continue
			}
			if _, err := table.Own(uint64(b+1), Own{Bucket: ID(b), Owner: owner}); err != nil {
				t.Fatal(err)
			}
		}
		v := table.View()
		plan := Assign(v, shares)
		var given []ID
		owned := map[string]int{}
		for i, o := range plan {
			if !slices.Contains(names, o.Dst) || len(o.Buckets) == 0 || !slices.IsSorted(o.Buckets) ||
				i > 0 && plan[i-1].Dst >= o.Dst {
				t.Fatalf("order %d of %v", i, plan)
			}
			given = append(given, o.Buckets...)
			owned[o.Dst] = len(v.Of(o.Dst)) + len(o.Buckets)
		}
		slices.Sort(given)
		if free := v.Of(""); len(names) > 0 && !slices.Equal(given, free) || len(names) == 0 && len(plan) > 0 {
			t.Fatalf("given %v, free %v", given, free)
		}
		if len(v.Of("gone")) == 0 {
			targets := Targets(n, shares)
			for _, name := range names {
				if owned[name] > max(targets[name], len(v.Of(name))) {
					t.Fatalf("%s owns %d then, its target is %d", name, owned[name], targets[name])
				}
			}
		}
		shuffled := rapid.Permutation(shares).Draw(t, "shuffled")
		if again := Assign(v, shuffled); fmt.Sprint(again) != fmt.Sprint(plan) {
			t.Fatalf("%v, in another order of shares %v", plan, again)
		}
	})
}

func TestRanges(t *testing.T) {
	for _, tc := range []struct {
		bs   []ID
		want string
	}{
		{nil, "no buckets"},
		{[]ID{7}, "bucket 7"},
		{[]ID{7, 7}, "bucket 7"},
		{[]ID{0, 1, 2}, "buckets 0-2"},
		{[]ID{170, 2, 0, 1, 65534, 171}, "buckets 0-2, 170-171, 65534"},
		{[]ID{5, 3}, "buckets 3, 5"},
	} {
		if got := Ranges(tc.bs); got != tc.want {
			t.Errorf("Ranges(%v) = %q, want %q", tc.bs, got, tc.want)
		}
	}
}
