package main

import (
	"bufio"
	"encoding/json"

	"github.com/pinion-mr/pinion/api"
)

// ndjsonWriter prints {"key": .., "value": ..}, one row a line.
type ndjsonWriter struct {
	out  *bufio.Writer
	line []byte
}

func (w *ndjsonWriter) write(row api.Row) error {
	var err error
	if w.line, err = appendJSONRow(w.line[:0], row); err != nil {
		return err
	}
	w.line = append(w.line, '\n')
	_, err = w.out.Write(w.line)
	return err
}

func (w *ndjsonWriter) close(api.JobStats) error { return w.out.Flush() }

// jsonWriter prints one object {"rows": [..], "stats": {..}}.
type jsonWriter struct {
	out   *bufio.Writer
	line  []byte
	begun bool
}

func (w *jsonWriter) write(row api.Row) error {
	w.line = append(w.line[:0], ",\n"...)
	if !w.begun {
		w.begun = true
		w.line = append(w.line[:0], "{\"rows\":[\n"...)
	}
	var err error
	if w.line, err = appendJSONRow(w.line, row); err != nil {
		return err
	}
	_, err = w.out.Write(w.line)
	return err
}

func (w *jsonWriter) close(stats api.JobStats) error {
	text, err := json.Marshal(stats)
	if err != nil {
		return err
	}
	begin, end := "", "\n]"
	if !w.begun {
		begin, end = `{"rows":[`, "]"
	}
	if _, err := w.out.WriteString(begin + end + ",\"stats\":" + string(text) + "}\n"); err != nil {
		return err
	}
	return w.out.Flush()
}
