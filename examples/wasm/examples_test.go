// Package examples runs the example guests over their data.
package examples

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/plugins"
	"github.com/pinion-mr/pinion/plugins/builtin"
	"github.com/pinion-mr/pinion/wasmhost"
)

// lines is a source of the lines of a text, with keys 000000, 000001 and so on.
type lines struct {
	left [][]byte
	next int
}

func (l *lines) Fill(dst []byte, limit int) ([]byte, int, error) {
	n := 0
	for len(l.left) > 0 && (n == 0 || len(dst)+buckets.FrameHeader+6+len(l.left[0]) <= limit) {
		dst = buckets.AppendFrame(dst, 0, fmt.Appendf(nil, "%06d", l.next), l.left[0])
		l.left = l.left[1:]
		l.next++
		n++
	}
	return dst, n, nil
}

func linesOf(text []byte) *lines {
	return &lines{left: bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))}
}

// rows adds up numbers and keeps raw values.
type rows struct {
	sums   map[string]int64
	values []string
}

func (r *rows) Emit(flags uint32, key, value []byte) error {
	switch flags {
	case buckets.FlagInt:
		r.sums[string(key)] += int64(binary.LittleEndian.Uint64(value))
	case 0:
		r.values = append(r.values, fmt.Sprintf("%s\t%s\n", key, value))
	default:
		return fmt.Errorf("flags %d", flags)
	}
	return nil
}

func (r *rows) tsv() string {
	out := slices.Clone(r.values)
	for _, key := range slices.Sorted(maps.Keys(r.sums)) {
		out = append(out, key+"\t"+strconv.FormatInt(r.sums[key], 10)+"\n")
	}
	return strings.Join(out, "")
}

func newRows() *rows { return &rows{sums: map[string]int64{}} }

// start checks and compiles a module and makes an instance of it.
func start(t *testing.T, config wasmhost.Config, file []byte, job wasmhost.Job) (*plugins.Manifest, *wasmhost.Instance) {
	t.Helper()
	manifest, err := plugins.Inspect(file, plugins.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	h, err := wasmhost.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	m, err := h.Compile(t.Context(), manifest.Digest, file)
	if err != nil {
		t.Fatal(err)
	}
	in, err := m.Instance(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		m.Close()
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return manifest, in
}

func builtinFile(t *testing.T, name string) []byte {
	t.Helper()
	m, ok := builtin.Get(name)
	if !ok {
		t.Fatalf("no built-in module %s", name)
	}
	return m.File
}

// goModule builds the Go example with the installed toolchain.
func goModule(t *testing.T) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", out, "./wordcount-go")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	return read(t, out)
}

func read(t *testing.T, elems ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elems...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// check runs a module over its folder's input, in batches of several sizes, and compares the rows.
func check(t *testing.T, folder string, file []byte, params map[string][]byte) {
	t.Helper()
	for _, size := range []int{1, 100, 64 << 10} {
		_, in := start(t, wasmhost.Config{BatchBytes: size}, file, wasmhost.Job{Name: folder, Params: params})
		for _, b := range []buckets.ID{3, 1} { // an instance takes any bucket after any other
			got := newRows()
			figures, err := in.Map(t.Context(), b, linesOf(read(t, folder, "input.txt")), got)
			if err != nil {
				t.Fatal(err)
			}
			if want := string(read(t, folder, "expected.tsv")); got.tsv() != want {
				t.Errorf("batches of %d, bucket %d: got\n%s\nwant\n%s", size, b, got.tsv(), want)
			}
			if n := uint64(bytes.Count(read(t, folder, "input.txt"), []byte("\n"))); figures.Records != n {
				t.Errorf("%d records were read, want %d", figures.Records, n)
			}
		}
	}
}

func TestWordcount(t *testing.T) { check(t, "wordcount", builtinFile(t, "wordcount"), nil) }

func TestGrep(t *testing.T) {
	check(t, "grep", builtinFile(t, "grep"), map[string][]byte{"pattern": []byte("404"), "else": []byte("x")})
}

func TestWordcountInGo(t *testing.T) {
	file := goModule(t)
	check(t, "wordcount-go", file, nil)
	manifest, in := start(t, wasmhost.Config{BatchBytes: 40}, file, wasmhost.Job{Name: "wordcount-go"})
	if want := []string{"map", "reduce"}; !slices.Equal(manifest.Functions, want) {
		t.Errorf("functions are %v, want %v", manifest.Functions, want)
	}
	got := newRows()
	if _, err := in.Group(t.Context(), "reduce", &ones{keys: "aaabcc"}, got); err != nil {
		t.Fatal(err)
	}
	if got.tsv() != "a\t3\nb\t1\nc\t2\n" {
		t.Errorf("reduced to\n%s", got.tsv())
	}
}

// ones is a source of groups: each byte of keys is a key with 1, and equal ones stand together.
type ones struct {
	keys string
	next int
}

func (o *ones) Fill(dst []byte, limit int) ([]byte, int, error) {
	n := 0
	for o.next < len(o.keys) && (n == 0 || len(dst)+buckets.FrameHeader+9 <= limit) {
		flags, at := buckets.FlagInt, o.next
		if at == 0 || o.keys[at-1] != o.keys[at] {
			flags |= buckets.FlagFirst
		}
		if at == len(o.keys)-1 || o.keys[at+1] != o.keys[at] {
			flags |= buckets.FlagLast
		}
		dst = buckets.AppendFrame(dst, flags, []byte(o.keys[at:at+1]), []byte{1, 0, 0, 0, 0, 0, 0, 0})
		o.next++
		n++
	}
	return dst, n, nil
}

// What the guest splits eight bytes at a time is what Go splits one by one.
func TestWordcountAgainstGo(t *testing.T) {
	_, in := start(t, wasmhost.Config{}, builtinFile(t, "wordcount"), wasmhost.Job{})
	alphabet := []byte(" \t\n\v\f\r\x00\x08\x0e\x1f!\x7f\x80\x85\x89\xa0\xffabcdefgh")
	value := rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 60)
	rapid.Check(t, func(rt *rapid.T) {
		values := rapid.SliceOfN(value, 1, 5).Draw(rt, "values")
		want := map[string]int64{}
		for _, v := range values {
			for _, w := range bytes.FieldsFunc(v, func(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' }) {
				want[string(w)]++
			}
		}
		got := newRows()
		if _, err := in.Map(t.Context(), 0, &lines{left: values}, got); err != nil {
			rt.Fatal(err)
		}
		if !maps.Equal(got.sums, want) {
			rt.Fatalf("got %v, want %v", got.sums, want)
		}
	})
}

// The catalogue admits what the host supplies: this module imports all of it.
func TestImportsAgree(t *testing.T) {
	manifest, in := start(t, wasmhost.Config{}, read(t, "../../wasmhost/testdata/faults.wasm"), wasmhost.Job{Function: "echo"})
	if len(manifest.Imports) != 12 || in.Broken() {
		t.Errorf("imports are %v", manifest.Imports)
	}
}

// Records of any size: larger than the input buffer that the guest begins with, and than its output block.
func TestLargeRecords(t *testing.T) {
	text := append(bytes.Repeat([]byte("word "), 300_000), bytes.Repeat([]byte("x"), 65_535)...)
	_, in := start(t, wasmhost.Config{}, builtinFile(t, "wordcount"), wasmhost.Job{})
	got := newRows()
	if _, err := in.Map(t.Context(), 0, &lines{left: [][]byte{[]byte("word"), text, []byte("word")}}, got); err != nil {
		t.Fatal(err)
	}
	if got.sums["word"] != 300_002 || got.sums[strings.Repeat("x", 65_535)] != 1 || len(got.sums) != 2 {
		t.Errorf("%d words, of which word is %d", len(got.sums), got.sums["word"])
	}
	_, err := in.Map(t.Context(), 0, &lines{left: [][]byte{bytes.Repeat([]byte("x"), 65_536)}}, newRows())
	if err == nil || !strings.Contains(err.Error(), "emitted a key of 65536 bytes; the limit is 65535") {
		t.Errorf("a word that is longer than a key: %v", err)
	}
	for _, name := range []string{"wordcount", "grep"} {
		_, in := start(t, wasmhost.Config{}, builtinFile(t, name), wasmhost.Job{Params: map[string][]byte{"pattern": []byte("zz")}})
		_, err := in.Map(t.Context(), 0, &lines{left: [][]byte{make([]byte, 70<<20)}}, newRows())
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
		_, in := start(t, wasmhost.Config{}, file, wasmhost.Job{Params: c.params})
		_, err := in.Map(t.Context(), 0, linesOf([]byte("a")), newRows())
		var guest *wasmhost.GuestError
		if !errors.As(err, &guest) || guest.Function != "pmr_init" || !strings.Contains(guest.Message, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, in := start(t, wasmhost.Config{}, file, wasmhost.Job{Params: map[string][]byte{"pattern": bytes.Repeat([]byte("ab"), 2048)}})
	got := newRows()
	in1 := bytes.Repeat([]byte("ab"), 2048)
	if _, err := in.Map(t.Context(), 0, &lines{left: [][]byte{in1, in1[1:], append([]byte("aba"), in1...)}}, got); err != nil {
		t.Fatal(err)
	}
	if len(got.values) != 2 {
		t.Errorf("%d records of 2 were found", len(got.values))
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

// The modules in the repository are what their sources say.
func TestModulesAreAssembled(t *testing.T) {
	wat2wasm, err := exec.LookPath("wat2wasm")
	if err != nil {
		t.Skip("wat2wasm is not installed (Debian package wabt)")
	}
	pairs := map[string]string{
		"wordcount/wordcount.wat": "../../plugins/builtin/wordcount.wasm",
		"grep/grep.wat":           "../../plugins/builtin/grep.wasm",
	}
	for _, folder := range []string{"../../wasmhost/testdata", "../../plugins/testdata"} {
		sources, err := filepath.Glob(filepath.Join(folder, "*.wat"))
		if err != nil || len(sources) == 0 {
			t.Fatalf("no sources in %s: %v", folder, err)
		}
		for _, s := range sources {
			pairs[s] = strings.TrimSuffix(s, ".wat") + ".wasm"
		}
	}
	for source, module := range pairs {
		out := filepath.Join(t.TempDir(), "out.wasm")
		if text, err := exec.CommandContext(t.Context(), wat2wasm, source, "-o", out).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", source, err, text)
			continue
		}
		if !bytes.Equal(read(t, out), read(t, module)) {
			t.Errorf("%s is not what %s says: run make wasm", module, source)
		}
	}
}
