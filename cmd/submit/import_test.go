package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
)

// notebook is a recordWriter that keeps what it is given.
type notebook struct {
	records []string // value, or key=value
	max     int
	broken  bool
}

func (n *notebook) Add(value []byte) error { return n.note(string(value), len(value)) }

func (n *notebook) Put(key, value []byte) error {
	return n.note(string(key)+"="+string(value), len(key)+len(value))
}

func (n *notebook) note(text string, size int) error {
	if n.broken {
		return &pinion.WriteError{Err: api.Errorf(api.CodeInDoubt, "nobody answers")}
	}
	if size > n.max {
		return api.Errorf(api.CodeRecordTooBig, "the record has %d bytes", size)
	}
	n.records = append(n.records, text)
	return nil
}

func zip(t *testing.T, text string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func zst(t *testing.T, text string) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll([]byte(text), nil)
}

// load imports bytes as a file of a name.
func load(t *testing.T, in *importer, name string, content []byte) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := findSource(path)
	if err != nil {
		t.Fatal(err)
	}
	src.name = name
	return in.file(t.Context(), importItem{src, formatOf(path)}, nil)
}

func newImporter(t *testing.T, skipBad int) (*importer, *notebook, *[]string) {
	var notes []string
	n := &notebook{max: 1000}
	in := &importer{w: n, max: n.max, skipBad: skipBad, bar: &progress{}, note: func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf(format, args...))
	}}
	return in, n, &notes
}

func TestImportFiles(t *testing.T) {
	long := strings.Repeat("z", 1001)
	for _, tc := range []struct {
		name, content string
		want          []string
		fault         string
	}{
		{"a.txt", "one\ntwo\r\n\nthree", []string{"one", "two", "", "three"}, ""},
		{"empty.txt", "", nil, ""},
		{"bom.txt", "\xef\xbb\xbfone\ntwo\n", []string{"one", "two"}, ""},
		{"onlybom.txt", "\xef\xbb\xbf", nil, ""},
		{"utf16.txt", "\xff\xfea\x00\n\x00", nil, "utf16.txt: the text is UTF-16"},
		{"utf16be.ndjson", "\xfe\xff\x00{", nil, "UTF-16"},
		{"long.txt", "one\n" + long + "\nthree\n", []string{"one"}, "long.txt:2: the line has 1001 bytes; the limit max_record is 1000"},
		{"a.txt.gz", string(zip(t, "one\ntwo\n")), []string{"one", "two"}, ""},
		{"unnamed", string(zip(t, "one\n")) + string(zip(t, "two\n")), []string{"one", "two"}, ""},
		{"A.NDJSON.ZST", string(zst(t, "1\n\n2\n")), []string{"1", "2"}, ""},
		{"cut.txt.gz", string(zip(t, "one\n"+strings.Repeat("two\n", 100))[:20]), nil, "cut.txt.gz: cannot be read beyond line"},
		{"false.gz", "one\n", nil, "false.gz: the name ends with .gz, but the file is not compressed so"},
		{"empty.gz", "", nil, ""},
		{"bom.jsonl", "\xef\xbb\xbf{\"v\":1}\r\n{\"v\":2}", []string{`{"v":1}`, `{"v":2}`}, ""},
		{"blank.ndjson", "\n \n{\"i\":1}\r\n\t\n\r\n{\"i\":2}\nx\n", []string{`{"i":1}`, `{"i":2}`}, "blank.ndjson:7: x is not JSON"},
		{"two.ndjson", "{\"i\":1}\n{\"i\":2}{\"i\":3}\n{\"i\":4}\n", []string{`{"i":1}`}, "two.ndjson:2: a second JSON value begins on the line"},
	} {
		in, n, _ := newImporter(t, 0)
		err := load(t, in, tc.name, []byte(tc.content))
		if tc.fault == "" && err != nil || tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.fault)
		}
		if fmt.Sprintf("%q", n.records) != fmt.Sprintf("%q", tc.want) && tc.name != "cut.txt.gz" {
			t.Errorf("%s: got %q, want %q", tc.name, n.records, tc.want)
		}
	}
}

func TestImportKeys(t *testing.T) {
	in, n, _ := newImporter(t, 0)
	in.key = "id"
	err := load(t, in, "k.ndjson", []byte("{\"id\":\"a\"}\n{\"id\":2}\n{\"x\":3}\n"))
	var bad *badLine
	if !errors.As(err, &bad) || bad.line != 3 || !strings.Contains(err.Error(), `k.ndjson:3: the object has no field "id"`) {
		t.Errorf("got %v", err)
	}
	if fmt.Sprint(n.records) != `[a={"id":"a"} 2={"id":2}]` {
		t.Errorf("got %q", n.records)
	}
}

func TestSkipBad(t *testing.T) {
	content := []byte("{\"i\":1,\"v\":1.5}\n{\"i\":2,\"v\":NaN}\n{\"i\":3,\"v\":Infinity}\n{\"i\":4,\"v\":-Infinity}\n" +
		"{\"i\":5,\"v\":1e999}\n{\"i\":6,\"v\":2.5}\n\"" + strings.Repeat("x", 2000) + "\"\n7\n")
	in, n, notes := newImporter(t, 5)
	if err := load(t, in, "nan.ndjson", content); err != nil {
		t.Fatal(err)
	}
	if len(n.records) != 3 || in.bad != 5 || len(*notes) != 5 {
		t.Errorf("%d records, %d bad, notes %q", len(n.records), in.bad, *notes)
	}
	if !strings.Contains((*notes)[0], "left out: nan.ndjson:2: NaN is not JSON") || !strings.Contains((*notes)[4], "nan.ndjson:7: the line has 2002 bytes") {
		t.Errorf("notes %q", *notes)
	}
	in, n, _ = newImporter(t, 4)
	if err := load(t, in, "nan.ndjson", content); err == nil || !strings.Contains(err.Error(), "nan.ndjson:7") || len(n.records) != 2 {
		t.Errorf("%v after %d records", err, len(n.records))
	}
}

// A log that fails is no bad line.
func TestSkipBadDoesNotSkipFailures(t *testing.T) {
	in, n, _ := newImporter(t, 100)
	n.broken = true
	err := load(t, in, "a.txt", []byte("1\n2\n"))
	if api.CodeOf(err) != api.CodeInDoubt || in.bad != 0 {
		t.Errorf("%v, %d bad", err, in.bad)
	}
}

func TestImportStopsWithItsContext(t *testing.T) {
	in, n, _ := newImporter(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	src, _ := findSource(stdinName)
	err := in.file(ctx, importItem{src, "lines"}, strings.NewReader("1\n2\n"))
	if !errors.Is(err, context.Canceled) || len(n.records) != 0 {
		t.Errorf("%v after %d records", err, len(n.records))
	}
}

func TestFormatOf(t *testing.T) {
	for path, want := range map[string]string{
		"a.ndjson": "ndjson", "a.JSONL.gz": "ndjson", "a.ndjson.zst": "ndjson", "a.log": "lines", "dir.ndjson/a": "lines", "-": "lines", "a.gz": "lines",
	} {
		if got := formatOf(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

func BenchmarkImportLines(b *testing.B) {
	text := bytes.Repeat([]byte("127.0.0.1 - - [01/Jan/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1234\n"), 10_000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		lines := newLineReader(bytes.NewReader(text), 1<<20)
		for {
			if _, err := lines.next(); err != nil {
				break
			}
		}
	}
}
