package reduce

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

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

// BenchmarkBlocks sums the words of a list that come in blocks, as guests emit them, into a new table.
func BenchmarkBlocks(b *testing.B) {
	sum, err := Parse("sum")
	if err != nil {
		b.Fatal(err)
	}
	for _, v := range vocabularies {
		blocks := blocksOf(zipfWords(benchPairs, v))
		b.Run(fmt.Sprintf("sum/%d", v), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				t := NewTable(sum, 0)
				for _, block := range blocks {
					if _, err := t.EmitBlock(block); err != nil {
						b.Fatal(err)
					}
				}
			}
			perPair(b)
		})
	}
}

func blocksOf(words wordList) (blocks [][]byte) {
	one := binary.LittleEndian.AppendUint64(nil, 1)
	var block []byte
	words.each(func(w []byte) {
		if block = buckets.AppendFrame(block, buckets.FlagInt, w, one); len(block) > blockBytes {
			blocks, block = append(blocks, block), nil
		}
	})
	return append(blocks, block)
}

const blockBytes = 64 << 10

// BenchmarkManyKeys sums pairs whose keys are spread evenly, four of a key, into a new table and into a Go map. The
// time is that of the sums alone, not of making the blocks.
func BenchmarkManyKeys(b *testing.B) {
	sum, err := Parse("sum")
	if err != nil {
		b.Fatal(err)
	}
	for _, keys := range []int{500_000, 5_000_000} {
		b.Run(fmt.Sprintf("table/%d", keys), func(b *testing.B) {
			benchmarkKeys(b, keys, func() func(block []byte) {
				t := NewTable(sum, 0)
				return func(block []byte) {
					if _, err := t.EmitBlock(block); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
		b.Run(fmt.Sprintf("gomap/%d", keys), func(b *testing.B) {
			benchmarkKeys(b, keys, func() func(block []byte) {
				sums := map[string]*uint64{}
				return func(block []byte) { addToMap(sums, block) }
			})
		})
	}
}

func addToMap(sums map[string]*uint64, block []byte) {
	for len(block) > 0 {
		f, rest, err := buckets.CutFrame(block)
		if err != nil {
			return
		}
		n := sums[string(f.Key)]
		if n == nil {
			n = new(uint64)
			sums[string(f.Key)] = n
		}
		*n += binary.LittleEndian.Uint64(f.Value)
		block = rest
	}
}

func benchmarkKeys(b *testing.B, keys int, begin func() func(block []byte)) {
	if testing.Short() && keys > 1_000_000 {
		b.Skip("takes long")
	}
	one := binary.LittleEndian.AppendUint64(nil, 1)
	pairs := 4 * keys
	var took time.Duration
	var key, block []byte
	for b.Loop() {
		add := begin()
		for i := range pairs {
			key = strconv.AppendUint(append(key[:0], "user"...), uint64(i)*7_368_787%uint64(keys), 10) // a prime
			block = buckets.AppendFrame(block, buckets.FlagInt, key, one)
			if len(block) < blockBytes && i < pairs-1 {
				continue
			}
			began := time.Now()
			add(block)
			took += time.Since(began)
			block = block[:0]
		}
	}
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/float64(pairs), "ns/pair")
}

// BenchmarkMerge merges a table of 1,000,000 keys into one that has half of them.
func BenchmarkMerge(b *testing.B) {
	sum, err := Parse("sum")
	if err != nil {
		b.Fatal(err)
	}
	const keys = 1_000_000
	fill := func(from int) *Table {
		t := NewTable(sum, 0)
		one := binary.LittleEndian.AppendUint64(nil, 1)
		for i := range keys {
			if err := t.Emit(buckets.FlagInt, strconv.AppendUint(nil, uint64((from+i)*7_368_787%(2*keys)), 10), one); err != nil {
				b.Fatal(err)
			}
		}
		return t
	}
	var took time.Duration
	for b.Loop() {
		into, from := fill(0), fill(keys/2)
		began := time.Now()
		if err := into.Merge(from); err != nil {
			b.Fatal(err)
		}
		took += time.Since(began)
	}
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/keys, "ns/key")
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
