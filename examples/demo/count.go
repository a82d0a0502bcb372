package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// tally is the independent count of words.
type tally struct {
	lines       uint64
	occurrences int64
	counts      map[string]*int64
}

func newTally() *tally { return &tally{counts: map[string]*int64{}} }

func (t *tally) words() int { return len(t.counts) }

// mark is UTF-8's byte order mark, which an import leaves out at the beginning of a file.
var mark = []byte("\xef\xbb\xbf")

// add counts the lines and words of a file. Words lie between ASCII white space; all other bytes, whether
// they are UTF-8 or not, belong to words.
func (t *tally) add(file []byte) {
	file = bytes.TrimPrefix(file, mark)
	t.lines += uint64(bytes.Count(file, []byte{'\n'}))
	if len(file) > 0 && file[len(file)-1] != '\n' {
		t.lines++
	}
	begin := 0
	for i, c := range file {
		if c == ' ' || c >= '\t' && c <= '\r' {
			t.word(file[begin:i])
			begin = i + 1
		}
	}
	t.word(file[begin:])
}

func (t *tally) word(w []byte) {
	if len(w) == 0 {
		return
	}
	t.occurrences++
	n := t.counts[string(w)] // this conversion copies nothing
	if n == nil {
		n = new(int64)
		t.counts[string(w)] = n
	}
	*n++
}

// match compares the tally with the rows of submit run --output tsv, and is used up by it. The error names
// the first words, in the order of their bytes, that differ.
func (t *tally) match(rows io.Reader) error {
	var wrong []string
	in := bufio.NewReaderSize(rows, 256<<10)
	for number := 1; ; number++ {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			break
		}
		if err != nil {
			return fmt.Errorf("reading row %d: %w", number, err)
		}
		word, got, err := parseRow(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return fmt.Errorf("row %d: %w", number, err)
		}
		switch n := t.counts[word]; {
		case n == nil:
			wrong = append(wrong, fmt.Sprintf("%q: the cluster has a row too many, with %d", word, got))
		case *n != got:
			wrong = append(wrong, fmt.Sprintf("%q: the cluster counts %d, plain Go %d", word, got, *n))
		}
		delete(t.counts, word)
	}
	for _, word := range slices.Sorted(maps.Keys(t.counts)) {
		wrong = append(wrong, fmt.Sprintf("%q: the cluster has no row, plain Go counts %d", word, *t.counts[word]))
	}
	if len(wrong) == 0 {
		return nil
	}
	const most = 10
	return fmt.Errorf("%d words differ:\n%s", len(wrong), strings.Join(wrong[:min(most, len(wrong))], "\n"))
}

// parseRow reads word TAB count.
func parseRow(line string) (string, int64, error) {
	key, value, ok := strings.Cut(line, "\t")
	if !ok {
		return "", 0, fmt.Errorf("%q has no tab", line)
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("%q: its count is not a whole number", line)
	}
	word, err := unescape(key)
	return word, n, err
}

// unescape undoes what submit's tsv does to bytes that would not survive in it; see submit run --help.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch rest := s[i:]; {
		case strings.HasPrefix(rest, `\`), strings.HasPrefix(rest, "#"):
			b.WriteByte(rest[0])
		case strings.HasPrefix(rest, "t"):
			b.WriteByte('\t')
		case strings.HasPrefix(rest, "n"):
			b.WriteByte('\n')
		case strings.HasPrefix(rest, "r"):
			b.WriteByte('\r')
		case strings.HasPrefix(rest, "x") && len(rest) >= 3:
			c, err := strconv.ParseUint(rest[1:3], 16, 8)
			if err != nil {
				return "", fmt.Errorf("%q has a broken escape", s)
			}
			b.WriteByte(byte(c))
			i += 2
		default:
			return "", fmt.Errorf("%q has an unknown escape", s)
		}
	}
	return b.String(), nil
}
