package main

import (
	"bufio"
	"bytes"
	"unicode/utf8"

	"github.com/pinion-mr/pinion/api"
)

// The columns of a table are as wide as its first rows need.
const (
	measuredRows  = 1000
	measuredBytes = 1 << 20
	widestKey     = 60 // longer keys push their value to the right
)

// tableWriter prints rows in columns for people. Characters that a terminal would act on are escaped.
type tableWriter struct {
	out      *bufio.Writer
	held     [][2]string
	size     int
	begun    bool
	key, val int // widths; val is 0 unless all values measured are numbers, which are then set to the right
	line     bytes.Buffer
}

func (w *tableWriter) write(row api.Row) error {
	cells := [2]string{string(appendKey(nil, row.Key, printable)), string(appendValue(nil, row.Value, printable))}
	if w.begun {
		return w.print(cells)
	}
	if row.Value.Kind == api.KindBytes {
		w.val = -1
	} else if w.val >= 0 {
		w.val = max(w.val, len(cells[1]))
	}
	w.key = max(w.key, min(utf8.RuneCountInString(cells[0]), widestKey))
	w.held = append(w.held, cells)
	w.size += len(cells[0]) + len(cells[1])
	if len(w.held) < measuredRows && w.size < measuredBytes {
		return nil
	}
	return w.begin()
}

// begin prints the head and the rows that were measured.
func (w *tableWriter) begin() error {
	w.begun = true
	w.key = max(w.key, len("KEY"))
	if w.val > 0 {
		w.val = max(w.val, len("VALUE"))
	}
	if err := w.print([2]string{"KEY", "VALUE"}); err != nil {
		return err
	}
	for _, cells := range w.held {
		if err := w.print(cells); err != nil {
			return err
		}
	}
	w.held = nil
	return nil
}

func (w *tableWriter) print(cells [2]string) error {
	w.line.Reset()
	w.line.WriteString(cells[0])
	w.pad(w.key - utf8.RuneCountInString(cells[0]) + 2)
	w.pad(w.val - len(cells[1]))
	w.line.WriteString(cells[1])
	line := append(bytes.TrimRight(w.line.Bytes(), " "), '\n')
	_, err := w.out.Write(line)
	return err
}

func (w *tableWriter) pad(n int) {
	for range n {
		w.line.WriteByte(' ')
	}
}

func (w *tableWriter) close(api.JobStats) error {
	if !w.begun {
		if err := w.begin(); err != nil {
			return err
		}
	}
	return w.out.Flush()
}
