package reduce

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pinion-mr/pinion/buckets"
)

// wordList is words one after another, as a block of frames has them.
type wordList struct {
	text []byte
	ends []int32
}

// zipfWords makes words as a text has them: few are very common, many are rare.
func zipfWords(n, vocabulary int) wordList {
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.07, 3, uint64(vocabulary-1))
	const letters = "etaoinshrdlucmfw"
	var l wordList
	for range n {
		rank := zipf.Uint64()
		begin := len(l.text)
		for r := rank*2654435761 + 1; len(l.text)-begin < 3+int(rank%9); r = r*6364136223846793005 + 1 {
			l.text = append(l.text, letters[r>>60])
		}
		l.text = fmt.Appendf(l.text, "%d", rank%97)
		l.ends = append(l.ends, int32(len(l.text)))
	}
	return l
}

func (l wordList) each(f func(word []byte)) {
	begin := int32(0)
	for _, end := range l.ends {
		f(l.text[begin:end])
		begin = end
	}
}

func benchmarkEmit(b *testing.B, reducer string, flags uint32, value []byte, vocabulary int) {
	words := zipfWords(benchPairs, vocabulary)
	r, err := Parse(reducer)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		t := NewTable(r, 0)
		words.each(func(w []byte) {
			if err := t.Emit(flags, w, value); err != nil {
				b.Fatal(err)
			}
		})
	}
	perPair(b)
}

const benchPairs = 1_000_000

func perPair(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchPairs, "ns/pair")
}

var vocabularies = []int{10_000, 1_000_000}

// BenchmarkEmitWords counts the words of a list into a new table.
func BenchmarkEmitWords(b *testing.B) {
	one := binary.LittleEndian.AppendUint64(nil, 1)
	for _, v := range vocabularies {
		b.Run(fmt.Sprintf("sum/%d", v), func(b *testing.B) { benchmarkEmit(b, "sum", buckets.FlagInt, one, v) })
	}
	b.Run("count/1000000", func(b *testing.B) { benchmarkEmit(b, "count", buckets.FlagInt, one, 1_000_000) })
	b.Run("none/1000000", func(b *testing.B) { benchmarkEmit(b, "none", buckets.FlagInt, one, 1_000_000) })
}

// BenchmarkGoMap is the same with a Go map, as most programs would do it.
func BenchmarkGoMap(b *testing.B) {
	for _, v := range vocabularies {
		words := zipfWords(benchPairs, v)
		b.Run(fmt.Sprint(v), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m := map[string]*int64{}
				words.each(func(w []byte) {
					if n := m[string(w)]; n != nil {
						*n++
						return
					}
					n := int64(1)
					m[string(w)] = &n
				})
			}
			perPair(b)
		})
	}
}

// BenchmarkSumFloats adds f64 numbers of a wide range exactly.
func BenchmarkSumFloats(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, 4096)
	for i := range values {
		values[i] = rng.NormFloat64() * 1e6
	}
	var x exact
	i := 0
	for b.Loop() {
		x.add(values[i%len(values)])
		i++
	}
}
