package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

var someRows = []api.Row{
	{Key: api.Bytes("plain"), Value: api.IntValue(math.MaxInt64)},
	{Key: buckets.AppendAssigned(nil, 48113, 0, 17), Value: api.FloatValue(2)},
	{Key: api.Bytes("#48113.0.17"), Value: api.BytesValue([]byte("tab\tline\nback\\cr\r"))},
	{Key: api.Bytes("\x1b[31m\xff"), Value: api.BytesValue([]byte("é\u202e"))},
	{Key: api.Bytes(""), Value: api.BytesValue(nil)},
	{Key: api.Bytes(`"<&>`), Value: api.FloatValue(math.Inf(1))},
}

func printed(t *testing.T, form string, rows []api.Row) string {
	t.Helper()
	var b strings.Builder
	w := newRowWriter(form, &b)
	for _, row := range rows {
		if err := w.write(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.close(api.JobStats{Cut: 7}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestOutputs(t *testing.T) {
	stats, _ := json.Marshal(api.JobStats{Cut: 7})
	for _, tc := range []struct {
		form string
		rows []api.Row
		want []string
	}{
		{"tsv", nil, nil},
		{"tsv", someRows, []string{
			"plain\t9223372036854775807",
			"#48113.0.17\t2.0",
			`\#48113.0.17` + "\t" + `tab\tline\nback\\cr\r`,
			`\x1b[31m\xff` + "\té\u202e",
			"\t",
			"\"<&>\t+Inf",
		}},
		{"ndjson", nil, nil},
		{"ndjson", someRows, []string{
			`{"key":"plain","value":9223372036854775807}`,
			`{"key":"#48113.0.17","value":2.0}`,
			`{"key":"#48113.0.17","value":"tab\tline\nback\\cr\r"}`,
			`{"key":{"base64":"G1szMW3/"},"value":"é` + "\u202e" + `"}`,
			`{"key":"","value":""}`,
			`{"key":"\"<&>","value":"+Inf"}`,
		}},
		{"json", nil, []string{`{"rows":[],"stats":` + string(stats) + `}`}},
		{"json", someRows[:2], []string{
			`{"rows":[`, `{"key":"plain","value":9223372036854775807},`, `{"key":"#48113.0.17","value":2.0}`, `],"stats":` + string(stats) + `}`,
		}},
		{"table", nil, []string{"KEY  VALUE"}},
		{"table", []api.Row{{Key: api.Bytes("a"), Value: api.IntValue(7)}, {Key: api.Bytes("über"), Value: api.IntValue(1234567)}}, []string{
			"KEY     VALUE", "a           7", "über  1234567",
		}},
		{"table", someRows[3:5], []string{
			"KEY           VALUE", `\x1b[31m\xff  é\u{202e}`, "",
		}},
	} {
		want := strings.Join(append(tc.want, ""), "\n")
		if got := printed(t, tc.form, tc.rows); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", tc.form, got, want)
		}
	}
}

func TestTableOfManyRowsHoldsFew(t *testing.T) {
	var b strings.Builder
	w := newRowWriter("table", &b).(*tableWriter)
	for i := range 5000 {
		if err := w.write(api.Row{Key: api.Bytes(fmt.Sprint(i)), Value: api.IntValue(1)}); err != nil {
			t.Fatal(err)
		}
		if len(w.held) > measuredRows {
			t.Fatalf("%d rows are held", len(w.held))
		}
	}
	if err := w.close(api.JobStats{}); err != nil || strings.Count(b.String(), "\n") != 5001 {
		t.Errorf("%v, %d lines", err, strings.Count(b.String(), "\n"))
	}
}

func TestExportLines(t *testing.T) {
	var b strings.Builder
	w := &valueWriter{out: newRowWriter("tsv", &b).(*tsvWriter).out}
	for _, value := range []string{"one", "", "a\rb", "\xff"} {
		if err := w.write(api.Row{Value: api.BytesValue([]byte(value))}); err != nil {
			t.Fatal(err)
		}
	}
	err := w.write(api.Row{Key: api.Bytes("k"), Value: api.BytesValue([]byte("a\nb"))})
	if err == nil || !strings.Contains(err.Error(), "key k holds a line feed") {
		t.Errorf("got %v", err)
	}
	if err := w.close(api.JobStats{}); err != nil || b.String() != "one\n\na\rb\n\xff\n" {
		t.Errorf("%v, %q", err, b.String())
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestOutputsReportAFullDisk(t *testing.T) {
	for _, form := range outputs {
		w := newRowWriter(form, fullDisk{})
		err := w.write(someRows[0])
		if err == nil {
			err = w.close(api.JobStats{})
		}
		if err == nil {
			t.Errorf("%s loses rows silently", form)
		}
	}
}

func TestFigures(t *testing.T) {
	for got, want := range map[string]string{
		byteCount(0): "0 B", byteCount(999): "999 B", byteCount(1000): "1.0 kB", byteCount(268_435_456): "268 MB", byteCount(99_960): "100 kB",
		byteCount(999_499): "999 kB", byteCount(999_600): "1.0 MB", byteCount(math.MaxUint64): "18.4 EB",
		count(1, "record"): "1 record", count(0, "record"): "0 records", count(999_999, "record"): "999999 records", count(3_210_000, "record"): "3.2 M records",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestKeyArgument(t *testing.T) {
	assigned := string(buckets.AppendAssigned(nil, 48113, 2, 17))
	for text, want := range map[string]string{
		"#48113.2.17": assigned, `\#48113.2.17`: "#48113.2.17", "plain": "plain", `C:\x`: `C:\x`, `\x`: `\x`, "#1.2": "#1.2",
		"#01.2.3": "#01.2.3", "#1.2.70000": "#1.2.70000", "#+1.2.3": "#+1.2.3", "": "",
	} {
		if got := string(keyArgument(text)); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
