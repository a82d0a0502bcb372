// Package examples runs the example guests over their data.
package examples

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/plugins"
	"github.com/pinion-mr/pinion/pmr/reduce"
	"github.com/pinion-mr/pinion/wasmhost"
)

// compiled is the folder where hosts keep compiled code, so that each guest is compiled once.
var compiled string

func TestMain(m *testing.M) {
	var err error
	if compiled, err = os.MkdirTemp("", "pinion-examples-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(compiled)
	os.Exit(code)
}

// tableBytes is more than any example's table needs.
const tableBytes = 64 << 20

// split is one way to spread the records of an example.
type split struct {
	buckets int
	batch   int // bytes
}

// Each guest gives its example's rows, however many buckets there are, in whatever order they come and however
// they are cut into batches.
func TestExamples(t *testing.T) {
	guests, err := filepath.Glob("*/*")
	if err != nil || len(guests) == 0 {
		t.Fatalf("no guests were found: %v", err)
	}
	for _, guest := range guests {
		if info, err := os.Stat(guest); err != nil || !info.IsDir() || filepath.Dir(guest) == "testdata" {
			continue
		}
		t.Run(guest, func(t *testing.T) {
			t.Parallel()
			e, err := exampleOf(filepath.Dir(guest), filepath.Base(guest))
			if err != nil {
				t.Fatal(err)
			}
			file := build(t, guest)
			if _, err := plugins.Inspect(file, plugins.DefaultLimits()); err != nil {
				t.Fatal(err)
			}
			for _, j := range e.jobs {
				for _, s := range []split{{1, 64 << 10}, {2, 1}, {5, 100}} {
					got, err := e.run(t, wasmhost.Config{BatchBytes: s.batch}, file, j, s.buckets)
					if err != nil {
						t.Fatalf("%s over %d buckets: %v", j.function, s.buckets, err)
					}
					if want := string(read(t, e.folder, j.expected)); got != want {
						t.Errorf("%s over %d buckets, batches of %d bytes: got\n%s\nwant\n%s", j.function, s.buckets, s.batch, got, want)
					}
				}
			}
		})
	}
}

// run does a job as an engine of two storages would: each maps its buckets with one instance, one of them in
// ascending order and the other in descending, and combines; their states are merged and reduced.
func (e *example) run(t *testing.T, config wasmhost.Config, file []byte, j job, n int) (string, error) {
	t.Helper()
	r, err := reduce.Parse(j.reduce)
	if err != nil {
		return "", err
	}
	m := compile(t, config, file)
	parts := spread(j.input.records(t, e.folder), n)
	all := reduce.NewTable(r, tableBytes)
	for storage := range 2 {
		table, err := mapStorage(t, m, j, r, parts, storage)
		if err != nil {
			return "", err
		}
		state, err := table.AppendState(nil)
		if err != nil {
			return "", err
		}
		if err := all.MergeState(state); err != nil {
			return "", err
		}
	}
	if r.Function() != "" {
		if all, err = group(t, m, j, r.Function(), all, "none", 0); err != nil {
			return "", err
		}
	}
	return tsv(all)
}

// spread puts records into buckets as the engine does, and into the order of keys.
func spread(records []record, n int) [][]record {
	parts := make([][]record, n)
	for _, r := range records {
		b := buckets.Of(r.key, n)
		parts[b] = append(parts[b], r)
	}
	for _, part := range parts {
		slices.SortStableFunc(part, func(a, b record) int { return bytes.Compare(a.key, b.key) })
	}
	return parts
}

// mapStorage maps the buckets of one of two storages: the even ones or the odd ones.
func mapStorage(t *testing.T, m *wasmhost.Module, j job, r reduce.Reducer, parts [][]record, storage int) (*reduce.Table, error) {
	t.Helper()
	collected := r
	if j.combine != "" {
		collected, _ = reduce.Parse("none")
	}
	table := reduce.NewTable(collected, tableBytes)
	in, err := instance(t, m, j)
	if err != nil {
		return nil, err
	}
	var mine []int
	for b := storage; b < len(parts); b += 2 {
		mine = append(mine, b)
	}
	if storage == 1 {
		slices.Reverse(mine)
	}
	for _, b := range mine {
		table.StartBucket(buckets.ID(b))
		if _, err := in.Map(t.Context(), buckets.ID(b), &lines{left: parts[b]}, table); err != nil {
			return nil, err
		}
	}
	if j.combine == "" {
		return table, nil
	}
	return group(t, m, j, j.combine, table, j.reduce, buckets.ID(storage))
}

// group runs a combine or reduce function over the pairs of a table.
func group(t *testing.T, m *wasmhost.Module, j job, function string, pairs *reduce.Table, into string, b buckets.ID) (*reduce.Table, error) {
	t.Helper()
	r, err := reduce.Parse(into)
	if err != nil {
		return nil, err
	}
	in, err := instance(t, m, j)
	if err != nil {
		return nil, err
	}
	groups, err := pairs.Grouped()
	if err != nil {
		return nil, err
	}
	out := reduce.NewTable(r, tableBytes)
	out.StartBucket(b)
	_, err = in.Group(t.Context(), function, groups, out)
	return out, err
}

// instance makes one that is closed with the test.
func instance(t *testing.T, m *wasmhost.Module, j job) (*wasmhost.Instance, error) {
	t.Helper()
	r, _ := reduce.Parse(j.reduce)
	in, err := m.Instance(t.Context(), wasmhost.Job{Name: "example", Function: j.function, Params: j.params, Numeric: r.Numeric()})
	if err == nil {
		t.Cleanup(in.Close)
	}
	return in, err
}

// compile makes a host for the module, both closed with the test.
func compile(t *testing.T, config wasmhost.Config, file []byte) *wasmhost.Module {
	t.Helper()
	config.CacheDir = compiled
	h, err := wasmhost.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	m, err := h.Compile(t.Context(), plugins.Digest(file), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// lines is a source of records.
type lines struct{ left []record }

func (l *lines) Fill(dst []byte, limit int) ([]byte, int, error) {
	n := 0
	for ; len(l.left) > 0; l.left = l.left[1:] {
		r := l.left[0]
		if n > 0 && len(dst)+buckets.FrameHeader+len(r.key)+len(r.value) > limit {
			break
		}
		dst = buckets.AppendFrame(dst, 0, r.key, r.value)
		n++
	}
	return dst, n, nil
}

func linesOf(values ...[]byte) *lines {
	l := &lines{}
	for i, v := range values {
		l.left = append(l.left, record{fmt.Appendf(nil, "%06d", i), v})
	}
	return l
}

// tsv prints a table's rows as submit run --output tsv does.
func tsv(table *reduce.Table) (string, error) {
	rows, err := table.Rows(reduce.ByKey, 0)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for i := range rows.Len() {
		row := rows.Row(i)
		fmt.Fprintf(&out, "%s\t%s\n", escaped(string(row.Key)), escaped(row.Value.Text()))
	}
	return out.String(), nil
}

func escaped(text string) string {
	var out strings.Builder
	for i, r := range text {
		switch {
		case strings.ContainsRune("\\\t\n\r", r):
			out.WriteString(map[rune]string{'\\': `\\`, '\t': `\t`, '\n': `\n`, '\r': `\r`}[r])
		case r == '\uFFFD' && !strings.HasPrefix(text[i:], "\uFFFD"), r < ' ':
			fmt.Fprintf(&out, `\x%02x`, text[i])
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}
