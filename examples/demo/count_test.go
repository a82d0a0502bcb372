package main

import (
	"slices"
	"strings"
	"testing"
)

func count(files ...string) *tally {
	t := newTally()
	for _, f := range files {
		t.add([]byte(f))
	}
	return t
}

func TestTally(t *testing.T) {
	cases := []struct {
		name, file         string
		lines, occurrences int
		words              []string
	}{
		{"empty", "", 0, 0, nil},
		{"no end of line", "a b\nc", 2, 3, []string{"a", "b", "c"}},
		{"empty lines", "\n\na\n", 3, 1, []string{"a"}},
		{"every white space", "a\tb\vc\fd\re f\na", 2, 7, []string{"a", "b", "c", "d", "e", "f"}},
		{"other white space is of the word", "a\u00a0b\u0085\u2003c", 1, 1, []string{"a\u00a0b\u0085\u2003c"}},
		{"not UTF-8", "\xff\xfe a\x00", 1, 2, []string{"a\x00", "\xff\xfe"}},
		{"mark at the beginning", "\xef\xbb\xbfa \xef\xbb\xbfb", 1, 2, []string{"a", "\xef\xbb\xbfb"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := count(c.file)
			var words []string
			for w := range got.counts {
				words = append(words, w)
			}
			slices.Sort(words)
			if got.lines != uint64(c.lines) || got.occurrences != int64(c.occurrences) || !slices.Equal(words, c.words) {
				t.Errorf("%d lines, %d occurrences, %q", got.lines, got.occurrences, words)
			}
		})
	}
}

func TestMatch(t *testing.T) {
	const file = "a a b #1.2.3 c\\d \xff"
	const same = "\\#1.2.3\t1\na\t2\nb\t1\nc\\\\d\t1\n\\xff\t1\n"
	cases := []struct{ name, rows, want string }{
		{"same", same, ""},
		{"another order", "b\t1\na\t2\n" + same[strings.Index(same, "c"):] + "\\#1.2.3\t1\n", ""},
		{"one too few", strings.Replace(same, "a\t2", "a\t1", 1), `1 words differ:` + "\n" + `"a": the cluster counts 1, plain Go 2`},
		{"row missing", strings.Replace(same, "b\t1\n", "", 1), `"b": the cluster has no row, plain Go counts 1`},
		{"row too many", same + "z\t9\n", `"z": the cluster has a row too many, with 9`},
		{"row twice", same + "b\t1\n", `"b": the cluster has a row too many, with 1`},
		{"nothing", "", "5 words differ"},
		{"no tab", "a 2\n", `row 1: "a 2" has no tab`},
		{"no number", "a\t2\nb\t1.5\n", `row 2: "b\t1.5": its count is not a whole number`},
		{"bad escape", "\\q\t1\n", `row 1: "\\q" has an unknown escape`},
		{"broken escape", "\\xg0\t1\n", `row 1: "\\xg0" has a broken escape`},
		{"cut off", "a\t2\nb", `reading row 2: EOF`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := count(file).match(strings.NewReader(c.rows))
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %s", err, c.want)
			}
		})
	}
}

func TestUnescape(t *testing.T) {
	got, err := unescape(`a\\b\t\n\r\x00\xFf\#é`)
	if want := "a\\b\t\n\r\x00\xff#é"; err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, bad := range []string{`\`, `\x`, `\x1`, `\u{41}`} {
		if got, err := unescape(bad); err == nil {
			t.Errorf("unescape(%q) = %q", bad, got)
		}
	}
}

func TestChunks(t *testing.T) {
	cases := []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"aa", "bb", "cc"}, "aa bb|cc"},
		{[]string{"longer than the limit", "b"}, "longer than the limit|b"},
		{[]string{"a", "longer than the limit"}, "a|longer than the limit"},
	}
	for _, c := range cases {
		var got []string
		for _, piece := range chunks(c.names, 6) {
			got = append(got, strings.Join(piece, " "))
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("chunks(%q) = %s; want %s", c.names, s, c.want)
		}
	}
}
