package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/pinion-mr/pinion/api"
)

// goldenRows compares rows, as tsv has them, with those in a file, or writes that file.
type goldenRows struct {
	tsvWriter
	s      *session
	path   string
	update bool
	got    *bytes.Buffer
}

func newGoldenRows(s *session, path string, update bool) *goldenRows {
	got := &bytes.Buffer{}
	return &goldenRows{tsvWriter: tsvWriter{out: bufio.NewWriter(got)}, s: s, path: path, update: update, got: got}
}

// maxDifferences is how many lines of a difference are shown.
const maxDifferences = 10

func (g *goldenRows) close(stats api.JobStats) error {
	if err := g.tsvWriter.close(stats); err != nil {
		return err
	}
	if g.update {
		if err := os.WriteFile(g.path, g.got.Bytes(), 0o644); err != nil {
			return err
		}
		g.s.note("wrote %s to %s", exactly(stats.Rows, "row"), g.path)
		return nil
	}
	want, err := os.ReadFile(g.path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such file; --update writes it", g.path)
	} else if err != nil {
		return err
	}
	want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n")) // as some editors write it
	if len(want) > 0 && want[len(want)-1] != '\n' {
		want = append(want, '\n')
	}
	differences := diffLines(want, g.got.Bytes())
	if len(differences) == 0 {
		g.s.note("%s as in %s", exactly(stats.Rows, "row"), g.path)
		return nil
	}
	for _, line := range differences[:min(len(differences), maxDifferences)] {
		g.s.note("%s", line)
	}
	if n := len(differences) - maxDifferences; n > 0 {
		g.s.note("... and %s more", exactly(uint64(n), "line"))
	}
	return fmt.Errorf("the rows are not those of %s: %s (- in the file, + in the answer; --update writes the answer)",
		g.path, exactly(uint64(len(differences)), "other line"))
}

// diffLines lists the lines that only one of two texts has, in their order: those of a after -, those of b
// after +. Both are sorted as a rule, so lines are matched by what follows.
func diffLines(a, b []byte) []string {
	x, y := bytes.SplitAfter(a, []byte("\n")), bytes.SplitAfter(b, []byte("\n"))
	var out []string
	show := func(mark string, line []byte) {
		if len(line) == 0 {
			return
		}
		out = append(out, mark+string(bytes.Map(shown, bytes.TrimSuffix(line, []byte("\n")))))
	}
	for len(x) > 0 || len(y) > 0 {
		switch {
		case len(x) > 0 && len(y) > 0 && bytes.Equal(x[0], y[0]):
			x, y = x[1:], y[1:]
		case len(y) == 0 || len(x) > 0 && !within(x[0], y):
			show("- ", x[0])
			x = x[1:]
		default:
			show("+ ", y[0])
			y = y[1:]
		}
	}
	return out
}

// within reports whether a line is among the next lines of a text.
func within(line []byte, text [][]byte) bool {
	const ahead = 200
	for _, t := range text[:min(len(text), ahead)] {
		if bytes.Equal(line, t) {
			return true
		}
	}
	return false
}

// shown keeps what a terminal shows and does not act on.
func shown(r rune) rune {
	if r == '\t' || printable(r) {
		return r
	}
	return '\uFFFD'
}
