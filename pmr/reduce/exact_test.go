package reduce

import (
	"bytes"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// anyFloat draws finite numbers of every size, with many near the ends of the range and near each other.
func anyFloat() *rapid.Generator[float64] {
	bitsGen := rapid.Custom(func(t *rapid.T) float64 {
		exponent := rapid.OneOf(
			rapid.Uint64Range(0, 3), rapid.Uint64Range(2040, 2046),
			rapid.Uint64Range(1000, 1100), rapid.Uint64Range(0, 2046),
		).Draw(t, "exponent")
		mantissa := rapid.OneOf(
			rapid.Just(uint64(0)), rapid.Just(uint64(1)), rapid.Just(uint64(1)<<52-1),
			rapid.Uint64Range(0, 1<<52-1),
		).Draw(t, "mantissa")
		sign := rapid.Uint64Range(0, 1).Draw(t, "sign")
		return math.Float64frombits(sign<<63 | exponent<<52 | mantissa)
	})
	return bitsGen
}

// bigSum is the sum by math/big, with enough bits to be exact, rounded once.
func bigSum(values []float64) (float64, bool) {
	sum := new(big.Float).SetPrec(2300)
	for _, v := range values {
		sum.Add(sum, new(big.Float).SetPrec(2300).SetFloat64(v))
	}
	f, _ := sum.Float64()
	if f == 0 {
		f = 0 // not -0.0
	}
	return f, !math.IsInf(f, 0)
}

func TestExactEqualsBigFloat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(anyFloat(), 0, 40).Draw(t, "values")
		// Take some back, so that sums cancel.
		for i := range rapid.IntRange(0, len(values)).Draw(t, "cancelled") {
			values = append(values, -values[i])
		}
		var parts [3]exact
		for i, v := range values {
			parts[i%len(parts)].add(v)
		}
		var whole exact
		for _, i := range rapid.Permutation([]int{0, 1, 2}).Draw(t, "order") {
			r := &reader{rest: parts[i].appendState(nil)}
			part := readExact(r)
			if r.err != nil || len(r.rest) > 0 {
				t.Fatalf("state of a part: %v, %d bytes left", r.err, len(r.rest))
			}
			whole.merge(&part)
		}
		want, ok := bigSum(values)
		got, err := whole.float()
		if ok != (err == nil) || ok && math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("%v (%v), want %v", got, err, want)
		}
		var straight exact
		for _, v := range values {
			straight.add(v)
		}
		if a, b := whole.appendState(nil), straight.appendState(nil); !bytes.Equal(a, b) {
			t.Fatalf("merged parts are %x, the whole is %x", a, b)
		}
	})
}

// Halves are rounded to even, and anything beyond the half counts.
func TestExactRounding(t *testing.T) {
	const one = 1.0
	half := math.Ldexp(1, -53)
	for _, tc := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{one, half}, one},
		{[]float64{one, half, math.SmallestNonzeroFloat64}, math.Nextafter(one, 2)},
		{[]float64{math.Nextafter(one, 2), half}, math.Nextafter(math.Nextafter(one, 2), 2)},
		{[]float64{-one, -half, -math.SmallestNonzeroFloat64}, math.Nextafter(-one, -2)},
		{[]float64{2 - math.Ldexp(1, -52), half}, 2},
		{[]float64{2 - math.Ldexp(1, -52), half / 2}, 2 - math.Ldexp(1, -52)},
		{[]float64{math.SmallestNonzeroFloat64, math.SmallestNonzeroFloat64}, 2 * math.SmallestNonzeroFloat64},
		{[]float64{math.Ldexp(1, -1022), -math.SmallestNonzeroFloat64}, math.Ldexp(1, -1022) - math.SmallestNonzeroFloat64},
		{[]float64{math.MaxFloat64, math.Ldexp(1, 969)}, math.MaxFloat64},
	} {
		var x exact
		for _, v := range tc.values {
			x.add(v)
		}
		if got, err := x.float(); err != nil || got != tc.want {
			t.Errorf("sum of %v = %v (%v), want %v", tc.values, got, err, tc.want)
		}
	}
}

// However often tables are merged, a window stays as large as its number.
func TestExactStaysSmall(t *testing.T) {
	for _, f := range []float64{math.MaxFloat64, -math.SmallestNonzeroFloat64} {
		var sum exact
		sum.add(f)
		for range 100 {
			var next exact
			next.add(-f)
			next.add(f)
			next.merge(&sum)
			sum = next
		}
		if got, err := sum.float(); err != nil || got != f {
			t.Errorf("%v (%v), want %v", got, err, f)
		}
		if len(sum.words) > 5 {
			t.Errorf("one number takes %d words", len(sum.words))
		}
	}
	var x exact
	for i := range 100_000 {
		x.add(0.1 * float64(i%1000-500))
	}
	if len(x.words) > 5 {
		t.Errorf("a sum of everyday numbers takes %d words", len(x.words))
	}
}
