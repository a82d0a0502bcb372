package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/internal/cli"
)

// asProgram has the test's program be submit itself, for the commands that init prints.
const asProgram = "PINION_TEST_AS_SUBMIT"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) == 2 && os.Args[1] == cli.CompileModule {
		os.Exit(untilSignal(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// tools are the programs without which a template cannot be built.
var tools = map[string][]string{
	"go": {"go"}, "c": {"clang", "wasm-ld"}, "rust": {"rustc"}, "assemblyscript": {"asc"}, "wat": {"wat2wasm"},
}

// Each template builds and passes its own test as it is, by the commands that init prints.
func TestInit(t *testing.T) {
	bin := submitProgram(t)
	tools, err := filepath.Abs("../../.tools") // where make puts asc
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", strings.Join([]string{bin, os.Getenv("PATH"), tools}, string(os.PathListSeparator)))
	for _, tmpl := range templates() {
		t.Run(tmpl.lang, func(t *testing.T) {
			offline(t)
			dir := t.TempDir()
			t.Chdir(dir)
			got := call(t, "", "module", "init", "--lang", tmpl.lang, "my words")
			if got.code != cli.ExitDone || !strings.HasPrefix(got.stderr, "wrote ") || !strings.HasSuffix(got.stderr, " to \"my words\"; next:\n") {
				t.Fatalf("%+v", got)
			}
			lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
			if len(lines) != 3 || lines[0] != "cd 'my words'" {
				t.Fatalf("next are %q", lines)
			}
			again := call(t, "", "module", "init", "--lang", tmpl.lang, "my words")
			if again.code != cli.ExitFailed || !strings.Contains(again.stderr, `"my words" is not empty`) {
				t.Errorf("%+v", again)
			}
			needTools(t, tmpl.lang)
			script := lines[0] + "\n" + lines[1]
			if tmpl.lang == "go" {
				script += "\ngo test . && test -z \"$(gofmt -l .)\""
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
			cmd.Env = append(os.Environ(), asProgram+"=1")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), " as in expected.tsv\n") {
				t.Errorf("%q: %v\n%s", lines[1], err, out)
			}
		})
	}
}

// submitProgram returns a folder in which the test's program is called submit.
func submitProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "submit")); err != nil {
		t.Fatal(err)
	}
	return bin
}

// needTools skips the test where a program is missing; PINION_TOOLCHAINS=all says that none may be.
func needTools(t *testing.T, lang string) {
	t.Helper()
	for _, tool := range tools[lang] {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		if os.Getenv("PINION_TOOLCHAINS") == "all" {
			t.Fatalf("%s is not installed", tool)
		}
		t.Skipf("%s is not installed", tool)
	}
}

func TestInitRefuses(t *testing.T) {
	file := write(t, "file", "")
	got := call(t, "", "module", "init", "--lang", "go", file)
	if got.code != cli.ExitFailed || got.stdout != "" || !strings.Contains(got.stderr, "cannot be filled") {
		t.Errorf("%+v", got)
	}
	empty := t.TempDir()
	if got := call(t, "", "module", "init", "--lang", "go", empty); got.code != cli.ExitDone {
		t.Errorf("an empty folder: %+v", got)
	}
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{"words": "words", "./a b": "'./a b'", "it's": `'it'\''s'`, "": "''", "-x": "./-x", "$HOME": "'$HOME'"} {
		if got := shellWord(word); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}
