package reduce

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/pinion-mr/pinion/api"
)

// exact is a sum of f64 numbers without any rounding: a fixed-point number wide enough for every f64, of
// which only the words in use are stored (Kulisch's accumulator with a sliding window). Adding is therefore
// associative and commutative, also where a running f64 sum would overflow. The result is rounded once, to
// nearest even.
//
// Most sums need three or four words. The sum is words * 2^(64*low - 1074), words being one number in two's
// complement, least significant word first; no words are 0.
type exact struct {
	low   int
	words []uint64
	inf   uint8 // infinities seen
}

const (
	sawPlusInf  = 1
	sawMinusInf = 2

	// An f64 reaches to bit 2,097. 2^64 of them to bit 2,161, in word 33; the rest is
	// room for cover.
	maxExactWords = 40
	// maxReadWords is what a state may contain, so that merging states stays below the former.
	maxReadWords = 36

	mantissaBits = 52
	maxExponent  = 0x7ff
)

// add adds f, which is not NaN.
func (x *exact) add(f float64) {
	b := math.Float64bits(f)
	shift := int(b>>mantissaBits) & maxExponent
	m := b & (1<<mantissaBits - 1)
	negative := b>>63 != 0
	switch {
	case shift == maxExponent && negative:
		x.inf |= sawMinusInf
		return
	case shift == maxExponent:
		x.inf |= sawPlusInf
		return
	case shift > 0: // a normal number: implicit bit, and its exponent counts from 1
		m |= 1 << mantissaBits
		shift--
	}
	if m == 0 {
		return
	}
	// |f| = m * 2^(shift-1074), which lies in two words.
	w, s := shift/64, uint(shift%64)
	x.cover(w, w+3)
	words := x.words[w-x.low:]
	if negative {
		subtract(words, m<<s, m>>(64-s))
	} else {
		carry(words, m<<s, m>>(64-s))
	}
}

// carry adds the number (high, low) to words.
func carry(words []uint64, low, high uint64) {
	var c uint64
	words[0], c = bits.Add64(words[0], low, 0)
	words[1], c = bits.Add64(words[1], high, c)
	for i := 2; c != 0 && i < len(words); i++ {
		words[i], c = bits.Add64(words[i], 0, c)
	}
}

// subtract takes the number (high, low) from words.
func subtract(words []uint64, low, high uint64) {
	var c uint64
	words[0], c = bits.Sub64(words[0], low, 0)
	words[1], c = bits.Sub64(words[1], high, c)
	for i := 2; c != 0 && i < len(words); i++ {
		words[i], c = bits.Sub64(words[i], 0, c)
	}
}

// sign is the word that continues a two's complement number upwards.
func sign(words []uint64) uint64 {
	if n := len(words); n > 0 {
		return uint64(int64(words[n-1]) >> 63)
	}
	return 0
}

// cover makes the window hold words from to to-1 at least. Whoever then adds a number that ends below the
// window's last word changes that word by one at most: it would take 2^63 numbers to overflow it.
func (x *exact) cover(from, to int) {
	if len(x.words) == 0 {
		x.low, x.words = from, make([]uint64, to-from)
		return
	}
	if from < x.low {
		x.words = append(make([]uint64, x.low-from, x.low-from+len(x.words)), x.words...)
		x.low = from
	}
	if x.low+len(x.words) < to {
		s := sign(x.words)
		for x.low+len(x.words) < to {
			x.words = append(x.words, s)
		}
	}
}

// merge adds y.
func (x *exact) merge(y *exact) {
	x.inf |= y.inf
	low, words := y.trimmed() // or the window would grow by a word with every merge
	if len(words) == 0 {
		return
	}
	x.cover(low, low+len(words)+1)
	s := sign(words)
	var c uint64
	for i, rest := low-x.low, words; i < len(x.words); i++ {
		w := s
		if len(rest) > 0 {
			w, rest = rest[0], rest[1:]
		}
		x.words[i], c = bits.Add64(x.words[i], w, c)
	}
}

// trimmed is the canonical form of the sum: no word that says nothing. It shares x's memory.
func (x *exact) trimmed() (low int, words []uint64) {
	low, words = x.low, x.words
	for len(words) > 0 && sign(words[:len(words)-1]) == words[len(words)-1] {
		words = words[:len(words)-1]
	}
	for len(words) > 0 && words[0] == 0 {
		low, words = low+1, words[1:]
	}
	if len(words) == 0 {
		low = 0
	}
	return low, words
}

// float rounds the sum to an f64. OVERFLOW if it is beyond the largest one, or infinite on both sides.
func (x *exact) float() (float64, error) {
	switch x.inf {
	case sawPlusInf:
		return math.Inf(1), nil
	case sawMinusInf:
		return math.Inf(-1), nil
	case sawPlusInf | sawMinusInf:
		return 0, api.Errorf(api.CodeOverflow, "the sum has both +Inf and -Inf")
	}
	var mag [maxExactWords + 1]uint64
	copy(mag[min(x.low, maxExactWords):], x.words)
	var signBit uint64
	if sign(x.words) != 0 {
		signBit = 1 << 63
		negate(mag[x.low : x.low+len(x.words)])
	}
	b, ok := roundToEven(&mag)
	if !ok {
		return 0, api.Errorf(api.CodeOverflow, "the sum leaves the range of an f64")
	}
	return math.Float64frombits(signBit | b), nil
}

func negate(words []uint64) {
	c := uint64(1)
	for i := range words {
		words[i], c = bits.Add64(^words[i], 0, c)
	}
}

// roundToEven returns the bits of the f64 nearest to mag * 2^-1074, false if there is none.
func roundToEven(mag *[maxExactWords + 1]uint64) (uint64, bool) {
	k := len(mag) - 1
	for k >= 0 && mag[k] == 0 {
		k--
	}
	if k < 0 {
		return 0, true
	}
	top := 64*k + bits.Len64(mag[k]) - 1
	if top <= mantissaBits {
		return mag[0], true // subnormal, or the first normal exponent: the bits are the number
	}
	r := top - mantissaBits // bits below are rounded away
	w, s := r/64, uint(r%64)
	m := mag[w] >> s
	if w < k {
		m |= mag[w+1] << (64 - s)
	}
	half := (r - 1) / 64
	halfBit := uint64(1) << uint((r-1)%64)
	sticky := mag[half]&(halfBit-1) != 0
	for i := 0; i < half && !sticky; i++ {
		sticky = mag[i] != 0
	}
	if mag[half]&halfBit != 0 && (sticky || m&1 != 0) {
		m++
	}
	// The exponent field is r+1 and m has the implicit bit, which adds the 1; so does a carry out of m.
	b := uint64(r)<<mantissaBits + m
	return b, b < maxExponent<<mantissaBits
}

func (x *exact) appendState(dst []byte) []byte {
	low, words := x.trimmed()
	dst = append(dst, x.inf, byte(low), byte(len(words)))
	for _, w := range words {
		dst = binary.LittleEndian.AppendUint64(dst, w)
	}
	return dst
}

func readExact(r *reader) exact {
	x := exact{inf: r.byte(), low: int(r.byte())}
	n := int(r.byte())
	if x.inf > sawPlusInf|sawMinusInf || x.low+n > maxReadWords {
		r.fail("an f64 sum of words %d to %d and infinities %d", x.low, x.low+n, x.inf)
		return exact{}
	}
	body := r.take(8 * n)
	if len(body) == 0 {
		return exact{inf: x.inf}
	}
	x.words = make([]uint64, n)
	for i := range x.words {
		x.words[i] = binary.LittleEndian.Uint64(body[8*i:])
	}
	return x
}
