package main

import (
	"bufio"

	"github.com/pinion-mr/pinion/api"
)

// tsvWriter prints key TAB value, one row a line. Tabs, line breaks, backslashes, control characters and
// bytes that are not UTF-8 are escaped.
type tsvWriter struct {
	out  *bufio.Writer
	line []byte
}

func (w *tsvWriter) write(row api.Row) error {
	w.line = append(appendKey(w.line[:0], row.Key, every), '\t')
	w.line = append(appendValue(w.line, row.Value, every), '\n')
	_, err := w.out.Write(w.line)
	return err
}

func (w *tsvWriter) close(api.JobStats) error { return w.out.Flush() }

// appendValue appends a number in decimal, or bytes escaped.
func appendValue(dst []byte, v api.Value, keep func(rune) bool) []byte {
	if v.Kind == api.KindBytes {
		return appendEscaped(dst, v.Bytes, keep)
	}
	return append(dst, v.Text()...)
}
