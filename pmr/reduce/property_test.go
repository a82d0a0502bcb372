package reduce

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"pgregory.net/rapid"
)

// emission is a pair of the dumb model, which keeps them all.
type emission struct {
	bucket buckets.ID
	key    string
	value  api.Value
}

func drawKey(t *rapid.T) string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "b", "a\x00", "prefix..", "prefix..1", "prefix..2"}),
		rapid.SampledFrom([]string{"twenty-two bytes long.", "twenty-three bytes long", "twenty-three bytes lonh"}),
	).Draw(t, "key")
}

// drawValue draws values that the reducer takes; a key's type is a function of the key.
func drawValue(t *rapid.T, reducer, key string) api.Value {
	ints := rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Int64())
	floats := rapid.OneOf(anyFloat(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1)}))
	raws := rapid.SampledFrom([]string{"", "x", "xy", "y", "\xff"})
	kind := (len(key) + 1) % 3
	switch reducer {
	case "sum":
		kind = 1 + len(key)%2
	case "none", "count", "module":
		kind = rapid.IntRange(0, 2).Draw(t, "kind")
	}
	switch kind {
	case 0:
		return text(raws.Draw(t, "raw"))
	case 1:
		return i64(ints.Draw(t, "int"))
	}
	return f64(floats.Draw(t, "float"))
}

func drawEmissions(t *rapid.T, reducer string) []emission {
	n := rapid.IntRange(0, 60).Draw(t, "pairs")
	es := make([]emission, n)
	for i := range es {
		key := drawKey(t)
		es[i] = emission{buckets.ID(rapid.IntRange(0, 5).Draw(t, "bucket")), key, drawValue(t, reducer, key)}
	}
	// The pairs of a bucket come one after another, as a worker gets them.
	slices.SortStableFunc(es, func(a, b emission) int { return cmp.Compare(a.bucket, b.bucket) })
	return es
}

// feed gives the pairs of some buckets to a table, bucket by bucket.
func feed(t *rapid.T, table *Table, es []emission, order []buckets.ID) {
	for _, b := range order {
		table.StartBucket(b)
		for _, e := range es {
			if e.bucket != b {
				continue
			}
			if err := emit(table, e.key, e.value); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// split aggregates as a cluster does: buckets over workers, workers over storages, storages merged in any
// order, by state or directly.
func split(t *rapid.T, reducer string, es []emission) *Table {
	r, err := Parse(reducer)
	if err != nil {
		t.Fatal(err)
	}
	owner := rapid.SliceOfN(rapid.IntRange(0, 5), 6, 6).Draw(t, "workers of buckets")
	byWorker := make([][]buckets.ID, 6)
	for _, b := range rapid.Permutation([]buckets.ID{0, 1, 2, 3, 4, 5}).Draw(t, "order of buckets") {
		byWorker[owner[b]] = append(byWorker[owner[b]], b)
	}
	storages := []*Table{NewTable(r, 0), NewTable(r, 0), NewTable(r, 0)}
	for w, bs := range byWorker {
		worker := NewTable(r, 0)
		feed(t, worker, es, bs)
		if err := storages[w%3].Merge(worker); err != nil {
			t.Fatal(err)
		}
	}
	router := NewTable(r, 0)
	for _, s := range rapid.Permutation(storages).Draw(t, "order of storages") {
		var err error
		if rapid.Bool().Draw(t, "by state") {
			var state []byte
			state, err = s.AppendState([]byte("before"))
			err = errors.Join(err, router.MergeState(bytes.TrimPrefix(state, []byte("before"))))
		} else {
			err = router.Merge(s)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return router
}

// modelRows reduces by the rules of the package's documentation, in the dumbest way. ok is false if a sum
// leaves its range.
func modelRows(reducer string, es []emission) (rows []api.Row, ok bool) {
	byKey := map[string][]api.Value{}
	for _, e := range es { // in order of bucket and emission
		byKey[e.key] = append(byKey[e.key], e.value)
	}
	for key, values := range byKey {
		switch reducer {
		case "none":
			for _, v := range values {
				rows = append(rows, api.Row{Key: api.Bytes(key), Value: v})
			}
			continue
		case "count":
			rows = append(rows, api.Row{Key: api.Bytes(key), Value: i64(int64(len(values)))})
			continue
		case "sum":
			v, fits := modelSum(values)
			if !fits {
				return nil, false
			}
			rows = append(rows, api.Row{Key: api.Bytes(key), Value: v})
			continue
		}
		order := modelLess
		if reducer == "max" {
			order = func(a, b api.Value) bool { return modelLess(b, a) }
		}
		best := values[0]
		for _, v := range values {
			if order(v, best) {
				best = v
			}
		}
		rows = append(rows, api.Row{Key: api.Bytes(key), Value: best})
	}
	slices.SortStableFunc(rows, func(a, b api.Row) int { return bytes.Compare(a.Key, b.Key) })
	return rows, true
}

func modelSum(values []api.Value) (api.Value, bool) {
	if values[0].Kind == api.KindInt {
		sum := new(big.Int)
		for _, v := range values {
			sum.Add(sum, big.NewInt(v.Int))
		}
		return i64(sum.Int64()), sum.IsInt64()
	}
	var finite []float64
	infinite := false
	for _, v := range values {
		if math.IsInf(v.Float, 1) {
			infinite = true
			continue
		}
		finite = append(finite, v.Float)
	}
	if infinite {
		return f64(math.Inf(1)), true
	}
	f, ok := bigSum(finite)
	return f64(f), ok
}

// modelLess compares two values of one kind.
func modelLess(a, b api.Value) bool {
	switch a.Kind {
	case api.KindInt:
		return a.Int < b.Int
	case api.KindFloat:
		if a.Float == 0 && b.Float == 0 {
			return math.Signbit(a.Float) && !math.Signbit(b.Float)
		}
		return a.Float < b.Float
	}
	return string(a.Bytes) < string(b.Bytes)
}

func TestAnySplitGivesTheRowsOfTheModel(t *testing.T) {
	for _, reducer := range []string{"sum", "count", "min", "max", "none"} {
		t.Run(reducer, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				es := drawEmissions(t, reducer)
				table := split(t, reducer, es)
				if table.Pairs() != uint64(len(es)) {
					t.Fatalf("%d pairs, want %d", table.Pairs(), len(es))
				}
				want, ok := modelRows(reducer, es)
				rows, err := table.Rows(ByKey, 0)
				if !ok {
					if api.CodeOf(err) != api.CodeOverflow {
						t.Fatalf("%v, want OVERFLOW", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got := make([]string, rows.Len())
				for i := range got {
					got[i] = line(rows.Row(i))
				}
				wanted := make([]string, len(want))
				for i := range wanted {
					wanted[i] = line(want[i])
				}
				if !slices.Equal(got, wanted) {
					t.Fatalf("rows\n%q, want\n%q", got, wanted)
				}
			})
		})
	}
}

func TestAnySplitGivesTheSameState(t *testing.T) {
	for _, reducer := range []string{"sum", "count", "min", "max", "none", "module"} {
		t.Run(reducer, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				es := drawEmissions(t, reducer)
				r, err := Parse(reducer)
				if err != nil {
					t.Fatal(err)
				}
				whole := NewTable(r, 0)
				feed(t, whole, es, []buckets.ID{0, 1, 2, 3, 4, 5})
				want, err := whole.AppendState(nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := split(t, reducer, es).AppendState(nil)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("state\n%x, want\n%x", got, want)
				}
			})
		})
	}
}

// A sorted, limited result is the beginning of the whole one, and the whole one is in order.
func TestSortsAgainstTheModel(t *testing.T) {
	orders := map[Sort]func(a, b api.Row) int{
		ByKey:             func(a, b api.Row) int { return bytes.Compare(a.Key, b.Key) },
		ByKeyDescending:   func(a, b api.Row) int { return bytes.Compare(b.Key, a.Key) },
		ByValue:           func(a, b api.Row) int { return compareValues(a.Value, b.Value) },
		ByValueDescending: func(a, b api.Row) int { return compareValues(b.Value, a.Value) },
	}
	for _, reducer := range []string{"count", "min", "none"} {
		t.Run(reducer, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				es := drawEmissions(t, reducer)
				want, _ := modelRows(reducer, es) // by key, pairs in order
				s := rapid.SampledFrom([]Sort{ByKey, ByKeyDescending, ByValue, ByValueDescending}).Draw(t, "sort")
				slices.SortStableFunc(want, orders[s])
				limit := rapid.IntRange(0, len(want)+1).Draw(t, "limit")
				if limit > 0 && limit < len(want) {
					want = want[:limit]
				}
				rows, err := split(t, reducer, es).Rows(s, limit)
				if err != nil {
					t.Fatal(err)
				}
				if rows.Len() != len(want) {
					t.Fatalf("%d rows, want %d", rows.Len(), len(want))
				}
				for i, w := range want {
					if got := line(rows.Row(i)); got != line(w) {
						t.Fatalf("sort %s, limit %d: row %d is %s, want %s", s, limit, i, got, line(w))
					}
				}
			})
		})
	}
}

func TestCompareValuesIsATotalOrder(t *testing.T) {
	ordered := []api.Value{
		f64(math.Inf(-1)), f64(-math.MaxFloat64), i64(math.MinInt64), f64(math.MinInt64), f64(-1.5), i64(-1), f64(-1),
		f64(-0.5), i64(0), f64(math.Copysign(0, -1)), f64(0), f64(0.5), i64(1), f64(1), f64(1.5), i64(1 << 53),
		f64(1 << 53), i64(1<<53 + 1), f64(1<<53 + 2), i64(math.MaxInt64), f64(1 << 63), f64(math.MaxFloat64),
		f64(math.Inf(1)), f64(math.NaN()), text(""), text("1"), text("10"), text("9"),
	}
	for i, a := range ordered {
		for j, b := range ordered {
			if got, want := compareValues(a, b), cmp.Compare(i, j); got != want {
				t.Errorf("compare(%s %s, %s %s) = %d, want %d", a.Kind, a.Text(), b.Kind, b.Text(), got, want)
			}
		}
	}
}

func TestSmallestIsTheBeginningOfSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOf(rapid.IntRange(0, 20)).Draw(t, "xs")
		limit := rapid.IntRange(0, 25).Draw(t, "limit")
		want := slices.Clone(xs)
		slices.Sort(want)
		if limit > 0 && limit < len(want) {
			want = want[:limit]
		}
		if got := smallest(xs, limit, cmp.Compare[int]); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func TestParseSort(t *testing.T) {
	for name, want := range map[string]Sort{
		"": ByKey, "key": ByKey, "-key": ByKeyDescending,
		"value": ByValue, "-value": ByValueDescending, "none": Unordered,
	} {
		got, err := ParseSort(name)
		if err != nil || got != want || name != "" && got.String() != name {
			t.Errorf("ParseSort(%q) = %s (%v), want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"Key", "+key", "values", "--value"} {
		if _, err := ParseSort(name); api.CodeOf(err) != api.CodeBadRequest || api.AsError(err).Hint == "" {
			t.Errorf("ParseSort(%q): %v, want BAD_REQUEST with a hint", name, err)
		}
	}
}

// frames reads groups to their end in batches of a limit.
func frames(t *rapid.T, g *Groups, limit int) []buckets.Frame {
	var out []buckets.Frame
	for {
		batch, n, err := g.Fill([]byte("head"), limit)
		if err != nil {
			t.Fatal(err)
		}
		rest := batch[len("head"):]
		if n == 0 {
			if len(rest) > 0 {
				t.Fatalf("%d bytes without a frame", len(rest))
			}
			return out
		}
		if n > 1 && len(batch) > limit {
			t.Fatalf("%d frames make %d bytes, the limit is %d", n, len(batch), limit)
		}
		for ; n > 0; n-- {
			var f buckets.Frame
			if f, rest, err = buckets.CutFrame(rest); err != nil {
				t.Fatal(err)
			}
			out = append(out, f)
		}
		if len(rest) > 0 {
			t.Fatalf("%d bytes after the last frame", len(rest))
		}
	}
}

// The frames of groups, given back to a table of none, are the rows of the table they came from.
func TestGroupsAreTheRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		es := drawEmissions(t, "none")
		groups, err := split(t, "module", es).Grouped()
		if err != nil {
			t.Fatal(err)
		}
		fs := frames(t, groups, rapid.IntRange(0, 400).Draw(t, "limit"))
		want, _ := modelRows("none", es)
		if len(fs) != len(want) {
			t.Fatalf("%d frames, want %d", len(fs), len(want))
		}
		for i, f := range fs {
			var p pair
			if err := p.read(f.Flags, f.Value); err != nil {
				t.Fatal(err)
			}
			v := api.BytesValue(p.raw)
			if p.kind != api.KindBytes {
				v = numberValue(p.kind, p.num)
			}
			if got := line(api.Row{Key: f.Key, Value: v}); got != line(want[i]) {
				t.Fatalf("frame %d is %s, want %s", i, got, line(want[i]))
			}
			first := i == 0 || !bytes.Equal(want[i-1].Key, f.Key)
			last := i+1 == len(want) || !bytes.Equal(want[i+1].Key, f.Key)
			if first != (f.Flags&buckets.FlagFirst != 0) || last != (f.Flags&buckets.FlagLast != 0) {
				t.Fatalf("frame %d of key %q has flags %d; first %v, last %v", i, f.Key, f.Flags, first, last)
			}
		}
	})
}

func TestOnlyListsAreGrouped(t *testing.T) {
	if _, err := newTable(t, "sum").Grouped(); err == nil {
		t.Error("a table of sums was grouped")
	}
}

// A combine function's output has no place of its own; equal places are ordered by value.
func TestPairsOfEqualPlaceHaveAnOrder(t *testing.T) {
	values := []api.Value{text("b"), i64(2), f64(2), text("a"), i64(1)}
	var first []string
	for range 20 {
		table := newTable(t, "none")
		for _, v := range values {
			part := newTable(t, "none")
			if err := errors.Join(emit(part, "k", v), table.Merge(part)); err != nil {
				t.Fatal(err)
			}
		}
		got := lines(t, table, ByKey, 0)
		if first == nil {
			first = got
		}
		if len(got) != len(values) || !slices.Equal(got, first) {
			t.Fatalf("%q, before %q", got, first)
		}
		values = append(values[1:], values[0])
	}
}

func ExampleTable() {
	r, _ := Parse("count")
	table := NewTable(r, 0)
	table.StartBucket(17)
	for _, word := range []string{"the", "cat", "the", "hat"} {
		if err := table.Emit(0, []byte(word), nil); err != nil {
			fmt.Println(err)
			return
		}
	}
	rows, err := table.Rows(ByValueDescending, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range rows.Len() {
		fmt.Println(string(rows.Row(i).Key), rows.Row(i).Value.Text())
	}
	// Output:
	// the 2
	// cat 1
}
