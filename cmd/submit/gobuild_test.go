package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/internal/cli"
)

// goGuest is a guest in one file, which emits each word with a number.
const goGuest = `package main

import "github.com/pinion-mr/pinion/guest"

//go:wasmexport map
func words(ptr, size uint32) uint32 {
	for r := range guest.Records(ptr, size) {
		for w := range guest.Words(r.Value()) {
			guest.EmitInt(w, NUMBER)
		}
	}
	return guest.Flush()
}

func main() {}
`

// goCommand is the same as a WASI command, without an SDK.
const goCommand = `package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

func main() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		for _, w := range strings.Fields(in.Text()) {
			fmt.Printf("%s\t2\n", w)
		}
	}
}
`

// offline keeps the go tool from the network and from this repository's own go.mod.
func offline(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds guests")
	}
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOTOOLCHAIN", "local")
}

// folder makes a folder with files, and makes it the working folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	return dir
}

// names lists the files of a folder.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestRunGoSource(t *testing.T) {
	offline(t)
	guest := strings.ReplaceAll(goGuest, "NUMBER", "2")
	dir := folder(t, map[string]string{
		"map.go":           guest,
		"other.go":         "package other // is not part of map.go\n",
		"in.txt":           "a b\nb\n",
		"package/map.go":   guest,
		"command/main.go":  goCommand,
		"module/go.mod":    "module example.org/mine\n\ngo 1.24\n",
		"module/cmd/m.go":  guest,
		"bad/map.go":       strings.ReplaceAll(goGuest, "NUMBER", `"x"`),
		"library/map.go":   "package library\n",
		"unknown/go.mod":   "module example.org/unknown\n\ngo 1.24\n",
		"unknown/guest.go": strings.ReplaceAll(guest, "import ", "import _ `example.org/missing`\n\nimport "),
	})
	for _, module := range []string{"map.go", "./package", "module/cmd", "./command", filepath.Join(dir, "map.go")} {
		got := call(t, "", "run", module, "--reduce", "sum", "--local", "in.txt")
		if got.code != cli.ExitDone || got.stdout != "a\t2\nb\t4\n" {
			t.Errorf("%s: %+v", module, got)
		}
	}
	if got := names(t, dir) + names(t, "package") + names(t, "module"); strings.Contains(got, sdkFolder) || strings.Contains(got, ".wasm") || strings.Contains(names(t, dir), "go.mod") {
		t.Errorf("the build left something behind: %s", got)
	}
	for module, want := range map[string]string{
		"bad/map.go": "bad/map.go:9:21: cannot use \"x\"",
		"./bad":      "bad/map.go:9:21: cannot use \"x\"",
		"./library":  "./library is no program but package library",
		"./unknown":  "unknown/guest.go:3:8: no required module provides package example.org/missing",
		"library":    "there is a folder of that name: to run the program in it, write ./library",
	} {
		got := call(t, "", "run", module, "--local", "in.txt")
		if got.code != cli.ExitFailed || got.stdout != "" || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v, want %q", module, got, want)
		}
	}
}

// Equal sources give equal bytes wherever they lie, so that a cluster compiles them once.
func TestGoBuildsAreReproducible(t *testing.T) {
	offline(t)
	digest := func() string {
		folder(t, map[string]string{"map.go": strings.ReplaceAll(goGuest, "NUMBER", "1")})
		got := call(t, "", "module", "check", "./map.go", "--output", "json")
		var m struct {
			Digest  string
			Metered int `json:"metered_size"`
			Size    int
		}
		if err := json.Unmarshal([]byte(got.stdout), &m); err != nil || m.Digest == "" || m.Size == 0 || m.Metered <= m.Size {
			t.Fatalf("%v: %+v", err, got)
		}
		return m.Digest
	}
	a, b := digest(), digest()
	if a != b {
		t.Errorf("the module is %s and then %s", a, b)
	}
	r := newRouter(t)
	if got := call(t, "", "run", "map.go"); got.code != cli.ExitDone || r.job.Module != a {
		t.Errorf("the job names module %q, want %q: %+v", r.job.Module, a, got)
	}
}

func TestGoIsMissing(t *testing.T) {
	folder(t, map[string]string{"map.go": goGuest, "m.wat": "(module)"})
	t.Setenv("PATH", t.TempDir())
	for file, want := range map[string]string{
		"./map.go": "./map.go cannot be built: there is no program go here (install Go 1.24 or later",
		"./m.wat":  "./m.wat cannot be built: there is no program wat2wasm here (it comes with WABT",
	} {
		got := call(t, "", "run", file)
		if got.code != cli.ExitFailed || !strings.Contains(got.stderr, want) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

func TestGoMinor(t *testing.T) {
	for version, want := range map[string]int{"go1.24.3": 24, "go1.26": 26, "go1.25rc1": 25, "go1.9": 9, "devel go1.27-abc": -1, "go2": -1} {
		if got := goMinor(version); got != want {
			t.Errorf("%s is %d, want %d", version, got, want)
		}
	}
}

func TestRunWAT(t *testing.T) {
	if _, err := exec.LookPath("wat2wasm"); err != nil {
		t.Skip("wat2wasm is not installed")
	}
	got := call(t, "", "run", "testdata/local.wat", "--reduce", "sum", "--local", write(t, "in.txt", "a\na\n"))
	if got.code != cli.ExitDone || got.stdout != "a\t2\n" {
		t.Errorf("%+v", got)
	}
}
