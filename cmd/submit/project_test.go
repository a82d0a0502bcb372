package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/internal/cli"
)

// fixture is a file of this package's testdata or beside it, as text.
func fixture(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A folder without Go files is built by its build.sh, and what that says is shown.
func TestRunProject(t *testing.T) {
	module := fixture(t, localModule)
	folder(t, map[string]string{
		"in.txt":            "a\na\n",
		"fine/build.sh":     "cp given.wasm guest.wasm; echo built\n",
		"fine/given.wasm":   module,
		"[odd] *n/build.sh": "cp given.wasm guest.wasm\n", "[odd] *n/given.wasm": module,
		"lacks/build.sh": "echo 'missing: clang (Debian: apt install clang)' >&2; exit 3\n",
		"idle/build.sh":  "",
		"two/a.wat":      "(module)", "two/b.wat": "(module)",
		"empty/README.md": "",
	})
	for _, dir := range []string{"./fine", "./[odd] *n"} {
		got := call(t, "", "run", dir, "--reduce", "sum", "--local", "in.txt")
		if got.code != cli.ExitDone || got.stdout != "a\t2\n" || !strings.HasPrefix(got.stderr, "building "+dir+": sh build.sh\n") {
			t.Errorf("%s: %+v", dir, got)
		}
	}
	for dir, want := range map[string]string{
		"./lacks": "missing: clang (Debian: apt install clang)\nsubmit: ./lacks cannot be built: sh build.sh failed (exit status 3)",
		"./idle":  "wrote no guest.wasm",
		"./two":   "./two holds 2 .wat files: name the one that is meant",
		"./empty": "there are no Go files, no build.sh and no .wat file in it",
	} {
		got := call(t, "", "run", dir, "--local", "in.txt")
		if got.code != cli.ExitFailed || got.stdout != "" || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v, want %q", dir, got, want)
		}
	}
}

func TestRunFolderOfWAT(t *testing.T) {
	needTools(t, "wat")
	folder(t, map[string]string{"in.txt": "a\n", "p/local.wat": fixture(t, "testdata/local.wat")})
	got := call(t, "", "run", "./p", "--local", "in.txt")
	if got.code != cli.ExitDone || got.stdout != "a\t1\n" {
		t.Errorf("%+v", got)
	}
}

// What a new user types is answered with what to type instead.
func TestRunHints(t *testing.T) {
	folder(t, map[string]string{"in.csv": "a\n", "guest.c": "", "guest.rs": "", "guest.ts": ""})
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"run ./guest.c --local in.csv", cli.ExitFailed, "./guest.c is a source in C, not a module (build it first: `sh build.sh`, then name guest.wasm"},
		{"run guest.rs --local in.csv", cli.ExitFailed, "guest.rs is a source in Rust, not a module (build it first"},
		{"module check guest.ts", cli.ExitFailed, "guest.ts is a source in AssemblyScript, not a module (build it first"},
		{"run wordcount ./in.csv", cli.ExitUsage, "./in.csv is a file, not a FUNCTION: files come after --local"},
		{"run wordcount --local nofile.csv", cli.ExitFailed, "submit: nofile.csv: no such file or directory"},
	} {
		got := call(t, "", strings.Fields(tc.args)...)
		if got.code != tc.code || got.stdout != "" || !strings.Contains(got.stderr, tc.want) {
			t.Errorf("submit %s: %+v; want exit %d and %q", tc.args, got, tc.code, tc.want)
		}
	}
}

func TestGoHints(t *testing.T) {
	offline(t)
	guest := strings.ReplaceAll(goGuest, "NUMBER", "1")
	folder(t, map[string]string{
		"in.txt":    "a\n",
		"bare.go":   strings.ReplaceAll(guest, "//go:wasmexport map\n", ""),
		"other.go":  strings.ReplaceAll(guest, "wasmexport map", "wasmexport other"),
		"panics.go": strings.ReplaceAll(guest, "guest.EmitInt(w, 1)", `panic("out of " + string(w))`),
	})
	for file, want := range map[string]string{
		"./bare.go":  "(put `//go:wasmexport map` above the function)",
		"./other.go": `has no function "map" to map with (it has other; name it: submit run ./other.go other)`,
	} {
		got := call(t, "", "run", file, "--local", "in.txt")
		if got.code != cli.ExitFailed || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v, want %q", file, got, want)
		}
	}
	got := call(t, "", "run", "./panics.go", "--local", "in.txt")
	if got.code != cli.ExitFailed || strings.Count(got.stderr, "goroutine 1") != 1 {
		t.Errorf("the trace of a panic is to be shown once: %+v", got)
	}
}

func TestBenchIsAJob(t *testing.T) {
	numbers := write(t, "in.tsv", "a\t1\nb\t2.5\n")
	got := call(t, "", "module", "bench", "../../wasmhost/testdata/command.wasm", "--reduce", "sum", "--least", "0s", "--local", numbers)
	if got.code != cli.ExitDone || !strings.Contains(got.stdout, "reduced by sum") {
		t.Errorf("the numbers of a command are text: %+v", got)
	}
	got = call(t, "", "module", "bench", "../../e2e/testdata/hostile/spins.wasm", "forever", "--timeout", "300ms", "--local", numbers)
	if got.code != cli.ExitFailed || !strings.Contains(got.stderr, "exceeded its time limit of 300ms") {
		t.Errorf("a loop: %+v", got)
	}
	got = call(t, "", "module", "bench", localModule, "--reduce", "module", "--local", numbers)
	if got.code != cli.ExitUsage || !strings.Contains(got.stderr, "bench measures the map") {
		t.Errorf("%+v", got)
	}
}

func TestProjectName(t *testing.T) {
	for dir, want := range map[string]string{"sums": "sums", "a/top_hosts": "top_hosts", "./x/": "x", "my words": "words", "func": "words", "cmd": "words", "top-hosts": "words"} {
		if got := projectName(dir); got != want {
			t.Errorf("%q is %s, want %s", dir, got, want)
		}
	}
	offline(t)
	folder(t, nil)
	if got := call(t, "", "module", "init", "--lang", "go", "sums"); got.code != cli.ExitDone {
		t.Fatalf("%+v", got)
	}
	for file, want := range map[string]string{
		"go.mod": "module sums\n", "map.go": `import "sums/guest"`, "map_test.go": `"sums/guest"`, "README.md": "--name sums ",
	} {
		if text := fixture(t, filepath.Join("sums", file)); !strings.Contains(text, want) || strings.Contains(text, "words/") {
			t.Errorf("%s has no %q:\n%s", file, want, text)
		}
	}
	got := call(t, "", "run", "./sums", "--reduce", "sum", "--golden", "sums/expected.tsv", "--local", "sums/input.txt")
	if got.code != cli.ExitDone {
		t.Errorf("%+v", got)
	}
}
