package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// readLines reads everything; a line over the limit is noted by its size.
func readLines(t *testing.T, r io.Reader, limit int) []string {
	t.Helper()
	var all []string
	lines := newLineReader(r, limit)
	for {
		line, err := lines.next()
		var long *tooLong
		switch {
		case errors.Is(err, io.EOF):
			return all
		case errors.As(err, &long):
			all = append(all, fmt.Sprintf("<%d bytes>", long.size))
		case err != nil:
			t.Fatal(err)
		default:
			all = append(all, string(line))
		}
		if lines.number != len(all) {
			t.Fatalf("line %d is numbered %d", len(all), lines.number)
		}
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 700_000)
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"a", []string{"a"}},
		{"a\n", []string{"a"}},
		{"a\r\nb\n\n\r\nc", []string{"a", "b", "", "", "c"}},
		{"a\rb\rc\r", []string{"a\rb\rc\r"}},
		{"a\r\r\n", []string{"a\r"}},
		{"\x00\xff\n\xfe", []string{"\x00\xff", "\xfe"}},
		{"a\n" + long + "\r\nb\n", []string{"a", long, "b"}},
		{long, []string{long}},
		{long + "x\nb\n", []string{"<700001 bytes>", "b"}},
		{long + long + "\r\n" + long + "\r\nb", []string{"<1400000 bytes>", long, "b"}},
		{long + "\r", []string{"<700001 bytes>"}},
		{"a\n" + long + "xx", []string{"a", "<700002 bytes>"}},
	} {
		got := readLines(t, strings.NewReader(tc.text), len(long))
		if fmt.Sprint(got) != fmt.Sprint(tc.want) || len(got) != len(tc.want) {
			t.Errorf("%.40q: got %.80q, want %.80q", tc.text, got, tc.want)
		}
	}
}

// Wherever the reader's buffer ends, in a line or between CR and LF, the lines are the same.
func TestLinesAtBufferBoundaries(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var text bytes.Buffer
		var want []string
		for text.Len() < 3*readBuffer {
			n := rng.IntN(200)
			switch rng.IntN(40) {
			case 0: // so that the next CR LF straddles a boundary
				n = readBuffer - text.Len()%readBuffer - 1
			case 1:
				n = readBuffer + rng.IntN(10)
			}
			line := strings.Repeat("y", n)
			want = append(want, line)
			text.WriteString(line + []string{"\n", "\r\n"}[rng.IntN(2)])
		}
		got := readLines(t, bytes.NewReader(text.Bytes()), 1<<20)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatal("the lines differ")
		}
	}
}

func TestLinesDropsALineThatIsCutOff(t *testing.T) {
	broken := errors.New("the disk is gone")
	lines := newLineReader(io.MultiReader(strings.NewReader("a\nhalf of"), iotest.ErrReader(broken)), 100)
	if line, err := lines.next(); string(line) != "a" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if line, err := lines.next(); !errors.Is(err, broken) {
		t.Errorf("%q, %v", line, err)
	}
}
