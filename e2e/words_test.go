package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// text is a text with its words counted.
type text struct {
	lines [][]byte
	bytes int
	count map[string]int64
}

// newText makes lines of words from a seed. Few words are common and many rare, as in any text; white
// space comes in all its ASCII forms, and some bytes are no UTF-8.
func newText(seed uint64, lines int) *text {
	random := rand.New(rand.NewPCG(seed, 0))
	common := rand.NewZipf(random, 1.2, 4, 20_000)
	spaces := []string{" ", " ", " ", "  ", "\t", "\v", "\f", "\r", " \t "}
	t := &text{count: map[string]int64{}}
	for range lines {
		var line []byte
		for range random.IntN(14) {
			line = append(line, spaces[random.IntN(len(spaces))]...)
			line = append(line, word(common.Uint64())...)
		}
		t.add(line)
	}
	return t
}

func word(n uint64) string {
	switch n % 50 {
	case 7:
		return fmt.Sprintf("naïve\u00a0%d", n) // U+00A0 is no ASCII white space
	case 13:
		return fmt.Sprintf("\xff\xfe%d", n)
	}
	return fmt.Sprintf("w%d", n)
}

// add appends a line and counts its words.
func (t *text) add(line []byte) {
	t.lines = append(t.lines, line)
	t.bytes += len(line)
	for _, w := range splitWords(line) {
		t.count[string(w)]++
	}
}

// splitWords splits at ASCII white space.
func splitWords(line []byte) [][]byte {
	return bytes.FieldsFunc(line, func(r rune) bool {
		return r == ' ' || r >= '\t' && r <= '\r'
	})
}

// rows are the counts as lines of key TAB value, in the order of keys.
func (t *text) rows() []byte {
	var out bytes.Buffer
	for _, w := range slices.Sorted(maps.Keys(t.count)) {
		fmt.Fprintf(&out, "%s\t%d\n", w, t.count[w])
	}
	return out.Bytes()
}

// difference tells where two lists of rows part.
func difference(got, want []byte) string {
	g, w := bytes.SplitAfter(got, []byte("\n")), bytes.SplitAfter(want, []byte("\n"))
	at := 0
	for at < len(g) && at < len(w) && bytes.Equal(g[at], w[at]) {
		at++
	}
	row := func(rows [][]byte) []byte {
		if at < len(rows) {
			return rows[at]
		}
		return nil
	}
	return fmt.Sprintf("%d rows, want %d; row %d is %q, want %q", len(g)-1, len(w)-1, at, row(g), row(w))
}
