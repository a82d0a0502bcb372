//go:build !wasip1

package guest

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func plainWords(text []byte) [][]byte {
	return bytes.FieldsFunc(text, func(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' })
}

func sameWords(text []byte) (got, want [][]byte, same bool) {
	for w := range Words(text) {
		got = append(got, w)
	}
	want = plainWords(text)
	return got, want, slices.EqualFunc(got, want, bytes.Equal)
}

// Every byte is white space or not as Go says, at each place of the eight that are looked at together, and
// beside each kind of neighbour.
func TestWordsOfEveryByte(t *testing.T) {
	for c := range 256 {
		for at := range 9 {
			for _, neighbour := range []byte{'a', ' ', 0x00, 0x80, 0xff, byte(c) ^ 0x80} {
				text := bytes.Repeat([]byte{neighbour}, 9)
				text[at] = byte(c)
				if got, want, same := sameWords(text); !same {
					t.Fatalf("%q: got %q, want %q", text, got, want)
				}
			}
		}
	}
}

func TestWordsAgainstGo(t *testing.T) {
	alphabet := []byte(" \t\n\v\f\r\x00\x08\x0e\x1f!\x7f\x80\x85\x89\xa0\xffabcdefgh")
	sizes := rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(60, 70), rapid.IntRange(120, 200))
	rapid.Check(t, func(rt *rapid.T) {
		n := sizes.Draw(rt, "size")
		text := rapid.SliceOfN(rapid.SampledFrom(alphabet), n, n).Draw(rt, "text")
		if rapid.Bool().Draw(rt, "in the input") { // there it reads beyond the end, over what is left of other batches
			whole := alloc(300)
			for i := range whole[:cap(whole)] {
				whole[:cap(whole)][i] = " x"[i%2]
			}
			at := rapid.IntRange(0, 300-n).Draw(rt, "at")
			copy(whole[at:], text)
			text = whole[at : at+n]
		}
		if got, want, same := sameWords(text); !same {
			rt.Fatalf("%q: got %q, want %q", text, got, want)
		}
	})
}

func TestWordsStops(t *testing.T) {
	for w := range Words([]byte("a b c")) {
		if string(w) == "b" {
			return
		}
		if _ = append(w, '!'); string(w) != "a" {
			t.Fatalf("got %q", w)
		}
	}
	t.Error("b did not come")
}
