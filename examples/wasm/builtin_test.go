package examples

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/plugins"
	"github.com/pinion-mr/pinion/plugins/builtin"
	"github.com/pinion-mr/pinion/pmr/reduce"
	"github.com/pinion-mr/pinion/wasmhost"
)

func builtinFile(t *testing.T, name string) []byte {
	t.Helper()
	m, ok := builtin.Get(name)
	if !ok {
		t.Fatalf("no built-in module %s", name)
	}
	return m.File
}

func read(t *testing.T, elems ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elems...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// mapOf runs a module's map over values and returns the rows that a reducer makes of its output.
func mapOf(t *testing.T, in *wasmhost.Instance, reducer string, values ...[]byte) (*reduce.Rows, error) {
	t.Helper()
	r, err := reduce.Parse(reducer)
	if err != nil {
		t.Fatal(err)
	}
	table := reduce.NewTable(r, tableBytes)
	table.StartBucket(0)
	if _, err := in.Map(t.Context(), 0, linesOf(values...), table); err != nil {
		return nil, err
	}
	return table.Rows(reduce.ByKey, 0)
}

func start(t *testing.T, file []byte, params map[string][]byte) *wasmhost.Instance {
	t.Helper()
	in, err := instance(t, compile(t, wasmhost.Config{}, file), job{params: params})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// The built-in modules need no toolchain, so their examples run everywhere.
func TestBuiltinExamples(t *testing.T) {
	for _, name := range []string{"wordcount", "grep"} {
		e, err := exampleOf(name, "wat")
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.run(t, wasmhost.Config{BatchBytes: 100}, builtinFile(t, name), e.jobs[0], 2)
		if err != nil {
			t.Fatal(err)
		}
		if want := string(read(t, name, "expected.tsv")); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// counter is what a word counter of these examples does, in Go.
func counter(values [][]byte) map[string]int64 {
	counts := map[string]int64{}
	for _, v := range values {
		for _, w := range bytes.FieldsFunc(v, func(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' }) {
			counts[string(w)]++
		}
	}
	return counts
}

// What word counters split eight or sixteen bytes at a time is what Go splits one by one.
func TestWordcountAgainstGo(t *testing.T) {
	guests := map[string]func(*testing.T) []byte{"built-in": func(t *testing.T) []byte {
		t.Helper()
		return builtinFile(t, "wordcount")
	}}
	for _, language := range []string{"c", "rust", "go", "assemblyscript"} {
		guests[language] = func(t *testing.T) []byte {
			t.Helper()
			return build(t, filepath.Join("wordcount", language))
		}
	}
	alphabet := []byte(" \t\n\v\f\r\x00\x08\x0e\x1f!\x7f\x80\x85\x89\xa0\xffabcdefgh")
	value := rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 150)
	for name, file := range guests {
		t.Run(name, func(t *testing.T) {
			in := start(t, file(t), nil)
			rapid.Check(t, func(rt *rapid.T) {
				values := rapid.SliceOfN(value, 1, 5).Draw(rt, "values")
				rows, err := mapOf(t, in, "sum", values...)
				if err != nil {
					rt.Fatal(err)
				}
				got := map[string]int64{}
				for i := range rows.Len() {
					got[string(rows.Row(i).Key)] = rows.Row(i).Value.Int
				}
				if want := counter(values); !maps.Equal(got, want) {
					rt.Fatalf("got %v, want %v", got, want)
				}
			})
		})
	}
}

// The catalogue admits what the host supplies: this module imports all of it.
func TestImportsAgree(t *testing.T) {
	file := read(t, "../../wasmhost/testdata/faults.wasm")
	manifest, err := plugins.Inspect(file, plugins.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	in, err := instance(t, compile(t, wasmhost.Config{}, file), job{function: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Imports) != 12 || in.Broken() {
		t.Errorf("imports are %v", manifest.Imports)
	}
}

// Records of any size: larger than the input buffer that the guest begins with, and than its output block.
func TestLargeRecords(t *testing.T) {
	text := append(bytes.Repeat([]byte("word "), 300_000), bytes.Repeat([]byte("x"), 65_535)...)
	in := start(t, builtinFile(t, "wordcount"), nil)
	rows, err := mapOf(t, in, "sum", []byte("word"), text, []byte("word"))
	if err != nil {
		t.Fatal(err)
	}
	if rows.Len() != 2 || rows.Row(0).Value.Int != 300_002 || len(rows.Row(1).Key) != 65_535 {
		t.Errorf("%d words, of which the first is %v", rows.Len(), rows.Row(0).Value)
	}
	_, err = mapOf(t, in, "sum", bytes.Repeat([]byte("x"), 65_536))
	if err == nil || !strings.Contains(err.Error(), "emitted a key of 65536 bytes; the limit is 65535") {
		t.Errorf("a word that is longer than a key: %v", err)
	}
	for _, name := range []string{"wordcount", "grep"} {
		in := start(t, builtinFile(t, name), map[string][]byte{"pattern": []byte("zz")})
		_, err := mapOf(t, in, "none", make([]byte, 70<<20))
		if api.CodeOf(err) != api.CodeGuestFailed || !strings.Contains(err.Error(), "refused to allocate") {
			t.Errorf("%s with a record of 70 MiB: %v", name, err)
		}
	}
}

func TestGrepPattern(t *testing.T) {
	file := builtinFile(t, "grep")
	for name, c := range map[string]struct {
		params map[string][]byte
		want   string
	}{
		"none":  {nil, "the parameter pattern is missing or empty: give -p pattern=TEXT"},
		"empty": {map[string][]byte{"pattern": {}}, "missing or empty"},
		"other": {map[string][]byte{"pattert": []byte("x"), "patterns": []byte("x")}, "missing or empty"},
		"long":  {map[string][]byte{"pattern": make([]byte, 4097)}, "longer than 4096 bytes"},
	} {
		_, err := mapOf(t, start(t, file, c.params), "none", []byte("a"))
		var guest *wasmhost.GuestError
		if !errors.As(err, &guest) || guest.Function != "pmr_init" || !strings.Contains(guest.Message, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pattern := bytes.Repeat([]byte("ab"), 2048)
	rows, err := mapOf(t, start(t, file, map[string][]byte{"pattern": pattern}), "none",
		pattern, pattern[1:], append([]byte("aba"), pattern...))
	if err != nil {
		t.Fatal(err)
	}
	if rows.Len() != 2 {
		t.Errorf("%d records of 2 were found", rows.Len())
	}
}

func TestBuiltinModules(t *testing.T) {
	for _, m := range builtin.All() {
		if len(m.File) >= 16<<10 {
			t.Errorf("%s has %d bytes; the limit is 16 KiB", m.Name, len(m.File))
		}
		if got, ok := builtin.Get(m.Name); !ok || got.Version != m.Version {
			t.Errorf("Get(%s) = %v, %v", m.Name, got.Name, ok)
		}
		if err := errors.Join(plugins.CheckName(m.Name), plugins.CheckVersion(m.Version)); err != nil {
			t.Error(err)
		}
	}
	if _, ok := builtin.Get("none"); ok {
		t.Error("there is a module none")
	}
}
