package examples

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// missingTool is the status of build.sh where a toolchain is not installed.
const missingTool = 3

// built are the guests of this run by folder, so that each is compiled once.
var built sync.Map

type building struct {
	once   sync.Once
	file   []byte
	status int
	output string
}

// build compiles the guest of a folder. Where its toolchain is missing the test is skipped, or fails if
// PINION_TOOLCHAINS is all. Short runs have the guests in WAT only.
func build(t *testing.T, folder string) []byte {
	t.Helper()
	if testing.Short() && filepath.Base(folder) != "wat" {
		t.Skip("compilers take long, and so does wazero under the race detector")
	}
	entry, _ := built.LoadOrStore(folder, &building{})
	b := entry.(*building)
	b.once.Do(func() { b.run(t, folder) })
	switch {
	case b.status == 0:
	case b.status == missingTool && os.Getenv("PINION_TOOLCHAINS") != "all":
		t.Skip(b.output)
	default:
		t.Fatalf("build.sh %s: status %d\n%s", folder, b.status, b.output)
	}
	return b.file
}

func (b *building) run(t *testing.T, folder string) {
	t.Helper()
	b.status = -1
	out := filepath.Join(t.TempDir(), "guest.wasm")
	text, err := exec.CommandContext(t.Context(), "./build.sh", folder, out).CombinedOutput()
	b.output = strings.TrimSpace(string(text))
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		b.status = exit.ExitCode()
	case err != nil:
		b.output = err.Error()
	default:
		b.status, b.file = 0, read(t, out)
	}
}

// The modules in the repository are what their sources say.
func TestModulesAreAssembled(t *testing.T) {
	wat2wasm, err := exec.LookPath("wat2wasm")
	if err != nil {
		if os.Getenv("PINION_TOOLCHAINS") == "all" {
			t.Fatal(err)
		}
		t.Skip("wat2wasm is not installed (Debian package wabt)")
	}
	pairs := map[string]string{
		"wordcount/wat/wordcount.wat": "../../plugins/builtin/wordcount.wasm",
		"grep/wat/grep.wat":           "../../plugins/builtin/grep.wasm",
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
