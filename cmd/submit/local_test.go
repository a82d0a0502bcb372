package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/internal/cli"
)

// localModule has the functions map, once, calls and logs: see its source.
const localModule = "testdata/local.wasm"

// write makes a file in a folder of the test.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// manyLines are enough lines that each bucket has several batches.
func manyLines() string {
	var b strings.Builder
	for i := range 3000 {
		b.WriteString(strings.Repeat("x", 20+i%50) + "\n")
	}
	return b.String()
}

func TestRunLocal(t *testing.T) {
	first, second := write(t, "a.txt", "b a\nc\n"), write(t, "b.txt", "a\n\na")
	got := call(t, "", "run", "wordcount", "--local", first, second)
	if got.code != cli.ExitDone || got.stdout != "a\t3\nb\t1\nc\t1\n" {
		t.Errorf("%+v", got)
	}
	if want := "16/16 buckets here, in two orders with the same answer; 5 records, 81 B, "; !strings.HasPrefix(got.stderr, want) {
		t.Errorf("stderr is %q, want %q", got.stderr, want)
	}
	got = call(t, "x y\ny", "run", "wordcount", "--sort", "-value", "--limit", "1", "--output", "ndjson", "--local", "-")
	if got.code != cli.ExitDone || got.stdout != "{\"key\":\"y\",\"value\":2}\n" {
		t.Errorf("%+v", got)
	}
	got = call(t, "", "run", localModule, "logs", "--local", first)
	if got.code != cli.ExitDone || strings.Count(got.stderr, "guest INFO: n\n") != 2 {
		t.Errorf("each of two buckets logs once: %+v", got)
	}
	got = call(t, "", "run", "none", "--local", first, second)
	if want := "#1.1.0\tb a\n#1.2.1\tc\n#2.1.2\ta\n#2.2.3\t\n#2.3.4\ta\n"; got.code != cli.ExitDone || got.stdout != want {
		t.Errorf("%+v, want %q", got, want)
	}
}

// Of the records with one key the last one stands, as after an import; its line is found when it fails.
func TestRunLocalWithKeys(t *testing.T) {
	file := write(t, "a.ndjson", `{"id":"x","n":1}`+"\n"+`{"id":"y","n":2}`+"\n\n"+`{"id":"x","n":3}`+"\n")
	got := call(t, "", "run", "none", "--local-key", "id", "--local", file)
	if want := "x\t{\"id\":\"x\",\"n\":3}\ny\t{\"id\":\"y\",\"n\":2}\n"; got.code != cli.ExitDone || got.stdout != want {
		t.Errorf("%+v, want %q", got, want)
	}
	bad := call(t, "", "run", "none", "--local-key", "nr", "--local", file)
	if bad.code != cli.ExitFailed || !strings.Contains(bad.stderr, `a.ndjson:1: the object has no field "nr"`) {
		t.Errorf("%+v", bad)
	}
}

func TestGolden(t *testing.T) {
	file := write(t, "in.txt", "a b b\nc c\n")
	golden := write(t, "golden.tsv", "a\t1\r\nb\t3\r\nbb\t1\r\nc\t2")
	run := func(args ...string) outcome {
		return call(t, "", append(append([]string{"run", "wordcount", "--golden", golden}, args...), "--local", file)...)
	}
	got := run()
	if want := "- b\t3\n- bb\t1\n+ b\t2\n"; got.code != cli.ExitFailed || got.stdout != "" || !strings.HasPrefix(got.stderr, want) ||
		!strings.Contains(got.stderr, "are not those of "+golden+": 3 other lines") {
		t.Errorf("%+v, want %q", got, want)
	}
	if got := run("--update"); got.code != cli.ExitDone || !strings.Contains(got.stderr, "wrote 3 rows to "+golden) {
		t.Errorf("%+v", got)
	}
	if got := run(); got.code != cli.ExitDone || got.stdout != "" || !strings.Contains(got.stderr, "3 rows as in "+golden) {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(golden); err != nil {
		t.Fatal(err)
	}
	if got := run(); got.code != cli.ExitFailed || !strings.Contains(got.stderr, "golden.tsv: no such file; --update writes it") {
		t.Errorf("%+v", got)
	}
}

// A guest that carries something on answers otherwise in other instances, or with other batches.
func TestRunLocalFindsState(t *testing.T) {
	file := write(t, "in.txt", manyLines())
	for _, tc := range []struct{ function, reduce, want string }{
		{"once", "sum", "the guest carries state from bucket to bucket: with an instance for each bucket the answer is another: row 1 is key n with value 1, and then key n with value 16"},
		{"calls", "sum", "the answer depends on how the records of a bucket are cut into batches: row 1 is key n with value 16, and then key n"},
	} {
		got := call(t, "", "run", localModule, tc.function, "--reduce", tc.reduce, "--local", file)
		if got.code != cli.ExitFailed || got.stdout != "" || !strings.Contains(got.stderr, tc.want) || !strings.Contains(got.stderr, "guest.On") {
			t.Errorf("%s: %+v, want %q", tc.function, got, tc.want)
		}
	}
}

func TestRunLocalNamesTheLine(t *testing.T) {
	good := write(t, "good.txt", "one\n")
	file := write(t, "in.txt", strings.Repeat("fine\n", 32)+"!\n"+strings.Repeat("fine\n", 32))
	got := call(t, "", "run", localModule, "--reduce", "sum", "--local", good, file)
	for _, want := range []string{"stack of the guest:\n", file + ":33: module \"local.wasm\"", "map trapped on bucket 1, record 2 of key \"#2.33.1\": unreachable"} {
		if got.code != cli.ExitFailed || got.stdout != "" || !strings.Contains(got.stderr, want) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

func TestRunLocalSkips(t *testing.T) {
	file := write(t, "in.txt", "a\n!\na\n")
	got := call(t, "", "run", localModule, "--reduce", "sum", "--on-error", "skip", "--verbose", "--local", file)
	if got.code != cli.ExitDone || got.stdout != "a\t2\n" {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{"failed at 1 record,", "bucket 1, record 0, key #1.2.1: " + file + ":2: unreachable\n", "fuel: ", ", 1 record skipped\n"} {
		if !strings.Contains(got.stderr, want) || strings.Count(got.stderr, "bucket 1, record 0") != 1 {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

func TestRunLocalFails(t *testing.T) {
	file := write(t, "in.txt", "a\n")
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"run --local " + file, cli.ExitUsage, "run needs a MODULE before --local"},
		{"run wordcount --local", cli.ExitUsage, "flag needs an argument: --local"},
		{"run a b c --local " + file, cli.ExitUsage, `"c" is too much`},
		{"run wordcount --local-key id", cli.ExitUsage, "say how the files of --local are read"},
		{"run wordcount --local-key id --local " + file, cli.ExitUsage, "--key needs records with fields"},
		{"run wordcount --update --local " + file, cli.ExitUsage, "--update writes the file of --golden"},
		{"run wordcount --golden g --output tsv --local " + file, cli.ExitUsage, "--output has no meaning with it"},
		{"run wordcount --local " + file + " " + file + ".none", cli.ExitFailed, "no such file"},
		{"run wordcuont --local " + file, cli.ExitFailed, `there is no module "wordcuont" among the built-in modules`},
		{"run wordcount count --local " + file, cli.ExitFailed, `has no function "count" to map with`},
		{"run wordcount --reduce smu --local " + file, cli.ExitFailed, "did you mean sum?"},
		{"run ./none.go --local " + file, cli.ExitFailed, "./none.go: no such file or directory"},
		{"module bench wordcount", cli.ExitUsage, "bench needs --local FILE..."},
		{"module init words", cli.ExitUsage, "init needs --lang, one of go, c, rust, assemblyscript, wat"},
		{"module init --lang golang words", cli.ExitUsage, `--lang "golang" is not one of go, c`},
	} {
		got := call(t, "", strings.Fields(tc.args)...)
		if got.code != tc.code || got.stdout != "" || !strings.Contains(got.stderr, tc.want) {
			t.Errorf("submit %s: %+v; want exit %d and %q", tc.args, got, tc.code, tc.want)
		}
	}
}

func TestBench(t *testing.T) {
	file := write(t, "in.txt", manyLines())
	got := call(t, "", "module", "bench", "wordcount", "--least", "0s", "--local", file)
	for _, want := range []string{"speed ", "time ", "fuel ", "output  1.00 pairs a record", "reduced by sum", "memory ", "input   3000 records"} {
		if got.code != cli.ExitDone || !strings.Contains(got.stdout, want) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
	got = call(t, "", "module", "bench", localModule, "calls", "--output", "json", "--least", "0s", "--local", file)
	if got.code != cli.ExitDone || !strings.Contains(got.stdout, `"pairs_dropped":true`) || !strings.Contains(got.stdout, `"records":3000`) {
		t.Errorf("%+v", got)
	}
}
