package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/internal/cli"
)

// outcome is what a run of the program left behind.
type outcome struct {
	code           int
	stdout, stderr string
}

func call(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := submit(t.Context(), args, strings.NewReader(stdin), &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

func TestWrongUsage(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "pinion.yaml")
	if err := os.WriteFile(config, []byte("sever: nats://x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		want string
	}{
		{"imprt a.txt", `there is no command "imprt"; did you mean import? (see submit --help)`},
		{"frobnicate", `there is no command "frobnicate" (see submit --help)`},
		{"module ad x", `there is no command "ad"; did you mean add?`},
		{"import", "import needs a FILE or - for stdin (see submit import --help)"},
		{"import a.txt --fromat lines", "there is no flag --fromat; did you mean --format?"},
		{"import a.txt -x", "unknown shorthand flag: 'x'"},
		{"import a.txt --format csv", `--format "csv" is not one of lines, ndjson`},
		{"import a.txt --format ndjsn", "did you mean ndjson?"},
		{"import a.txt --key id", "--key needs records with fields, but a.txt is read as lines"},
		{"import a.txt --skip-bad -1", "may not be negative"},
		{"import a.txt --skip-bad many", "invalid argument"},
		{"import - -", "stdin (-) can be read only once"},
		{"run", "run needs a MODULE"},
		{"run a b c", `"c" is too much`},
		{"run a --sort vlaue", "did you mean value?"},
		{"run a --output tabel", "did you mean table?"},
		{"run a --mode snapshto", `--mode "snapshto" is not one of hold, snapshot`},
		{"run a --buckets 3-1", `--buckets "3-1": "3-1" is no bucket or range`},
		{"run a --buckets 1 --key k", "--buckets and --key exclude each other"},
		{"run a --bucket-param 1:n", `--bucket-param "1:n" is not BUCKET:name=value`},
		{"run a --bucket-param 1:n=1 --bucket-param 1:n=2", "--bucket-param 1:n is given twice"},
		{"run a --buckets=", "--buckets names no bucket"},
		{"run a --bucket-param n=1", `--bucket-param "n=1" is not BUCKET:name=value`},
		{"run a --local f --key k", "they have no meaning with --local"},
		{"run a -p x", `-p "x" is not name=value`},
		{"run a -p x=1 -p x=2", "-p x is given twice"},
		{"run a --limit -1", "may not be negative"},
		{"run a --on-error skip:0", `"skip:0" is not one of fail, skip, skip:N`},
		{"run a --timeout soon", `--timeout "soon" is not a time`},
		{"run none map", "MODULE none has no functions"},
		{"export all", `export takes no argument, but was given "all"`},
		{"export --format csv", `--format "csv" is not one of lines, ndjson`},
		{"put", "put needs a KEY"},
		{"put #1.2.3 x", "has the form of assigned keys"},
		{"get", "get needs a KEY"},
		{"get k --output xml", `--output "xml" is not one of text, json`},
		{"module add x.wasm --name Bad!", "is no NAME or NAME@VERSION"},
		{"module check", "needs a FILE"},
		{"spaces --config " + config, `"sever" is not one of server, cluster`},
		{"spaces --config " + dir + "/none.yaml", "no such file"},
	} {
		got := call(t, "", strings.Fields(tc.args)...)
		if got.code != cli.ExitUsage || got.stdout != "" || !strings.Contains(got.stderr, tc.want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("submit %s: exit %d, stdout %q, stderr %q; want exit 2 and %q", tc.args, got.code, got.stdout, got.stderr, tc.want)
		}
	}
}

func TestFailuresWithoutServer(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.wasm")
	if err := os.WriteFile(text, []byte("no module"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ args, want string }{
		{"import " + dir + "/none.txt", "none.txt: no such file"},
		{"import " + dir, "is a directory"},
		{"run " + dir + "/none.wasm", "none.wasm: no such file"},
		{"run " + text, "text.wasm: the module cannot be used"},
		{"module check " + text, "text.wasm: the module cannot be used"},
		{"module add " + text, "text.wasm: the module cannot be used"},
	} {
		got := call(t, "", strings.Fields(tc.args)...)
		if got.code != cli.ExitFailed || got.stdout != "" || !strings.Contains(got.stderr, tc.want) {
			t.Errorf("submit %s: %+v; want exit 1 and %q", tc.args, got, tc.want)
		}
	}
}

func TestNoServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(file, []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"spaces", "run wordcount", "import " + file, "export", "put k v", "get k", "module list"} {
		begin := time.Now()
		got := call(t, "", append(strings.Fields(args), "--server", "nats://127.0.0.1:1")...)
		if got.code != cli.ExitFailed || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 ||
			!strings.Contains(got.stderr, "no NATS server answers at nats://127.0.0.1:1") || !strings.Contains(got.stderr, "engine dev") {
			t.Errorf("submit %s: %+v", args, got)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("submit %s: told only after %v", args, took)
		}
	}
}

// Every command shows an example, the exit codes and only flags that it has.
func TestHelp(t *testing.T) {
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		if cmd.Name() == "completion" || cmd.Hidden { // hidden is what programs call
			return
		}
		got := call(t, "", append(path, "--help")...)
		for _, want := range []string{"Examples:\n  submit", "Exit status:\n  0 ", "--server"} {
			if got.code != cli.ExitDone || !strings.Contains(got.stdout, want) {
				t.Errorf("submit %s --help: exit %d, no %q", strings.Join(path, " "), got.code, want)
			}
		}
		for _, child := range cmd.Commands() {
			walk(child, append(path[:len(path):len(path)], child.Name()))
		}
	}
	walk((&session{}).rootCommand(), nil)
}

func TestOptionsPrecedence(t *testing.T) {
	config := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte("server: nats://file\ncluster: filed\ntimeout: 7s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PINION_SERVER", "nats://env")
	t.Setenv("PINION_CLUSTER", "env")
	t.Setenv("PINION_CONFIG", config)
	s := &session{}
	if err := s.rootCommand().ParseFlags([]string{"--server", "nats://flag"}); err != nil {
		t.Fatal(err)
	}
	if err := s.options.Settle(); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{"server": "nats://flag", "cluster": "env", "timeout": "7s", "creds": ""} {
		if got := s.options.Value(flag); got != want {
			t.Errorf("%s is %q, want %q", flag, got, want)
		}
	}
}

func TestModuleCheck(t *testing.T) {
	good := call(t, "", "module", "check", "../../plugins/builtin/wordcount.wasm")
	if good.code != cli.ExitDone || !strings.Contains(good.stdout, "kind       reactor") || !strings.Contains(good.stdout, "map") {
		t.Errorf("%+v", good)
	}
	asJSON := call(t, "", "module", "check", "../../plugins/builtin/wordcount.wasm", "--output", "json")
	if asJSON.code != cli.ExitDone || !strings.Contains(asJSON.stdout, `"kind":"reactor"`) {
		t.Errorf("%+v", asJSON)
	}
	bare := filepath.Join(t.TempDir(), "bare.wasm")
	if err := os.WriteFile(bare, []byte("\x00asm\x01\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := call(t, "", "module", "check", bare)
	if bad.code != cli.ExitFailed || strings.Count(bad.stderr, "\n") < 3 || !strings.Contains(bad.stderr, "bare.wasm: it does not export pmr_alloc") ||
		!strings.Contains(bad.stderr, "cannot be used: 3 faults") {
		t.Errorf("%+v", bad)
	}
}

func TestNameOf(t *testing.T) {
	for path, want := range map[string]string{"build/Word Count.wasm": "word-count", "m.wasm": "m", "./map.go": "map", "../submit": "submit", ".": "submit", "_x.v2.wasm": "x-v2"} {
		if got := nameOf(path); got != want {
			t.Errorf("%s is named %s, want %s", path, got, want)
		}
	}
}
