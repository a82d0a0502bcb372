package arch

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestRooms(t *testing.T) {
	found, dirs, err := breaches(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
	// The walk has seen the tree, and no line of the rules is about a room that is gone.
	for room := range rooms {
		if room == "e2e" || strings.HasSuffix(room, "/") {
			continue
		}
		if !slices.Contains(dirs, room) {
			t.Errorf("room %q holds no Go file: remove its line from rules_test.go", room)
		}
	}
	for _, room := range pure {
		if _, ok := rooms[room]; !ok {
			t.Errorf("pure room %s is no room", room)
		}
	}
}

// Each breach of a rule is seen, at its line, and what the rules allow is not reported.
func TestBreachesAreSeen(t *testing.T) {
	const ours = `"github.com/pinion-mr/pinion/`
	cases := []struct{ name, file, text, want string }{
		{"right way", "pmr/a.go", `import ` + ours + `api"`, ""},
		{"wrong way", "pmr/a.go", `import ` + ours + `pmr/node"`, "pmr/a.go:2: pmr may not import pmr/node"},
		{"api imports nothing", "api/a.go", `import ` + ours + `buckets"`, "api may not import buckets"},
		{"node and bus", "pmr/node/a.go", `import ` + ours + `bus"`, "pmr/node may not import bus"},
		{"node and store", "pmr/node/a.go", `import ` + ours + `buckets/store"`, "pmr/node may not import buckets/store"},
		{"node and wasmhost", "pmr/node/a.go", `import ` + ours + `wasmhost"`, "pmr/node may not import wasmhost"},
		{"the client", "bus/a.go", `import "github.com/pinion-mr/pinion"`, "bus may not import package pinion"},
		{"root", "a.go", `import ` + ours + `pmr/node"`, "package pinion may not import pmr/node"},
		{"whatever its build tag", "guest/a.go", "//go:build wasip1\n\nimport " + ours + `api"`, "guest may not import api"},
		{"cmd wires", "cmd/engine/a.go", `import ` + ours + `wasmhost"`, ""},
		{"new guest", "examples/wasm/new/a.go", `import ` + ours + `guest"`, ""},
		{"guest and host", "examples/wasm/new/a.go", `import ` + ours + `wasmhost"`, "may not import wasmhost"},
		{"test of a shell", "bus/a_test.go", `import ` + ours + `bus/busmem"`, ""},
		{"test of the core", "pmr/a_test.go", `import ` + ours + `bus/busmem"`, "pmr may not import bus/busmem"},
		{"outer test", "pmr/a_test.go", `import ` + ours + `pmr"`, ""},
		{"no room", "common/a.go", ``, "common/a.go:1: common is no room"},

		{"nats in bus", "bus/a.go", `import "github.com/nats-io/nats.go/jetstream"`, ""},
		{"nats elsewhere", "cmd/engine/a.go", `import "github.com/nats-io/nats.go"`, "may not import github.com/nats-io/nats.go: only bus may"},
		{"nats in a test", "e2e/a_test.go", `import "github.com/nats-io/nats.go"`, "only bus may"},
		{"wazero elsewhere", "plugins/a.go", `import "github.com/tetratelabs/wazero"`, "only wasmhost, bench may"},
		{"pebble elsewhere", "buckets/a.go", `import "github.com/cockroachdb/pebble/v2"`, "only buckets/store may"},
		{"a test's module", "pmr/a_test.go", `import "pgregory.net/rapid"`, ""},
		{"a test's module in code", "pmr/a.go", `import "pgregory.net/rapid"`, "only _test.go may"},
		{"new dependency", "bus/a.go", `import "example.org/x/y"`, "example.org/x/y is a dependency without an owner"},

		{"os", "pmr/a.go", `import "os"`, "pmr is pure: package os is not for it"},
		{"below net", "buckets/a.go", `import "net/url"`, "buckets is pure: package net/url"},
		{"context", "pmr/reduce/a.go", `import "context"`, "pmr/reduce is pure: package context"},
		{"atomic", "pmr/a.go", `import "sync/atomic"`, "pmr is pure: package sync/atomic"},
		{"slog", "pmr/a.go", `import "log/slog"`, "pmr is pure: package log/slog"},
		{"old random", "pmr/a.go", `import "math/rand"`, "pmr is pure: package math/rand"},
		{"shells act", "bus/a.go", "import \"os\"\nimport \"time\"\nvar t = time.Now()", ""},
		{"tests act", "pmr/a_test.go", "import \"os\"\nimport \"time\"\nvar t = time.Now()", ""},
		{"time as a type", "pmr/a.go", "import \"time\"\nvar t time.Time = time.UnixMilli(7)", ""},
		{"clock", "pmr/a.go", "import \"time\"\nvar t = time.Now()", "pmr/a.go:3: pmr is pure: time.Now"},
		{"clock renamed", "pmr/a.go", "import clock \"time\"\nvar now = clock.Since", "pure: time.Since"},
		{"clock by dot", "pmr/a.go", "import . \"time\"\nvar now = Now()", "pure: a dot import of time"},
		{"own source", "pmr/a.go", "import \"math/rand/v2\"\nvar r = rand.New(rand.NewPCG(1, 2))", ""},
		{"global source", "pmr/a.go", "import \"math/rand/v2\"\nvar r = rand.IntN(3)", "pure: rand.IntN"},
		{"goroutine", "pmr/a.go", "func f() {\n\tgo f()\n}", "pmr/a.go:3: pmr is pure: it starts no goroutine"},
		{"channel", "pmr/a.go", "var c chan int", "pure: it has no channel"},
		{"select", "pmr/a.go", "func f() {\n\tselect {}\n}", "pure: it has no channel"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text := "package a\n" + c.text
			if tag, rest, ok := strings.Cut(c.text, "\n\n"); ok {
				text = tag + "\n\npackage a\n" + rest
			}
			found, _, err := breaches(fstest.MapFS{c.file: {Data: []byte(text)}})
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case c.want == "" && len(found) > 0:
				t.Errorf("reported: %q", found)
			case c.want != "" && (len(found) != 1 || !strings.Contains(found[0], c.want)):
				t.Errorf("reported: %q; want one like %q", found, c.want)
			}
		})
	}
}
