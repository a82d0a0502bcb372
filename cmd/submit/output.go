package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// outputs are the forms in which rows are printed.
var outputs = []string{"table", "tsv", "ndjson", "json"}

// rowWriter prints rows as they come. close ends the output and writes what is held.
type rowWriter interface {
	write(row api.Row) error
	close(stats api.JobStats) error
}

// newRowWriter makes the writer of a form.
func newRowWriter(form string, w io.Writer) rowWriter {
	out := bufio.NewWriterSize(w, 64<<10)
	switch form {
	case "tsv":
		return &tsvWriter{out: out}
	case "ndjson":
		return &ndjsonWriter{out: out}
	case "json":
		return &jsonWriter{out: out}
	default:
		return &tableWriter{out: out}
	}
}

// appendKey appends a key as text: an assigned one as #sequence.index.bucket, any other escaped; one that
// could be taken for an assigned one with a backslash before it.
func appendKey(dst, key []byte, keep func(rune) bool) []byte {
	if _, _, _, ok := buckets.ParseAssigned(key); ok {
		return append(dst, buckets.KeyText(key)...)
	}
	if _, ok := parseAssigned(string(key)); ok {
		dst = append(dst, '\\')
	}
	return appendEscaped(dst, key, keep)
}

// appendEscaped appends bytes as text. A backslash, the tab and line breaks become \\ \t \n \r; bytes that
// are no UTF-8, and ASCII characters that keep does not allow, become \xHH, others \u{H..}.
func appendEscaped(dst, text []byte, keep func(rune) bool) []byte {
	const hex = "0123456789abcdef"
	for i := 0; i < len(text); {
		c := text[i]
		if c >= 0x20 && c < 0x7f && c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case c == '\\':
			dst = append(dst, '\\', '\\')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case r < 0x80 || r == utf8.RuneError && n == 1:
			dst = append(dst, '\\', 'x', hex[c>>4], hex[c&15])
		case keep(r):
			dst = append(dst, text[i:i+n]...)
		default:
			dst = append(dst, "\\u{"...)
			dst = strconv.AppendInt(dst, int64(r), 16)
			dst = append(dst, '}')
		}
		i += n
	}
	return dst
}

// every keeps all characters; printable keeps those that a terminal shows and does not act on.
func every(rune) bool       { return true }
func printable(r rune) bool { return unicode.IsPrint(r) }

// appendJSONText appends bytes as JSON has them: a string, or {"base64": ".."}.
func appendJSONText(dst, text []byte) []byte {
	for _, c := range text {
		if c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			slow, _ := api.Bytes(text).MarshalJSON() // cannot fail
			return append(dst, slow...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, text...)
	return append(dst, '"')
}

// appendJSONRow appends {"key": .., "value": ..}.
func appendJSONRow(dst []byte, row api.Row) ([]byte, error) {
	dst = append(dst, `{"key":`...)
	if _, _, _, ok := buckets.ParseAssigned(row.Key); ok {
		dst = append(dst, '"')
		dst = append(dst, buckets.KeyText(row.Key)...)
		dst = append(dst, '"')
	} else {
		dst = appendJSONText(dst, row.Key)
	}
	dst = append(dst, `,"value":`...)
	if row.Value.Kind == api.KindBytes {
		dst = appendJSONText(dst, row.Value.Bytes)
	} else {
		number, err := row.Value.MarshalJSON()
		if err != nil {
			return nil, err
		}
		dst = append(dst, number...)
	}
	return append(dst, '}'), nil
}

// printJSON writes one JSON value to stdout.
func (s *session) printJSON(v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := s.stdout.Write(buf.Bytes())
	return err
}
