package arch

import "slices"

// modulePath is what imports of this repository begin with.
const modulePath = "github.com/pinion-mr/pinion"

// anything is the permission of the packages that wire the others together.
const anything = "*"

// rooms says what the code of a folder may import of this repository. The key "" is the root, package
// pinion; a key that ends in "/" holds for every folder below it that has no line of its own. Tests of a
// room that is not pure may borrow other rooms.
var rooms = map[string][]string{
	"":                         {"api", "buckets", "bus", "pmr"},
	"api":                      {},
	"buckets":                  {"api"},
	"buckets/store":            {"buckets"},
	"bus":                      {"api"},
	"bus/busmem":               {"api", "bus"},
	"bus/internal/conformance": {"api", "bus"},
	"guest":                    {},
	"internal/arch":            {},
	"internal/cli":             {"", "api", "wasmhost/child"},
	"internal/devengine":       {},
	"internal/mutants":         {},
	"internal/schema":          {},
	"internal/guests":          {"buckets", "pmr/node", "wasmhost"},
	"sdk":                      {},
	"sim":                      {}, // only tests
	"plugins":                  {"api", "plugins/builtin", "plugins/wasm"},
	"plugins/builtin":          {},
	"plugins/wasm":             {},
	"pmr":                      {"api", "buckets"},
	"pmr/node":                 {"api", "buckets", "pmr", "pmr/reduce"},
	"pmr/reduce":               {"api", "buckets"},
	"wasmhost":                 {"api", "buckets", "plugins/wasm"},
	"wasmhost/child":           {"api", "wasmhost"},

	"cmd/":           {anything},
	"e2e":            {anything},
	"bench":          {"", "api", "buckets", "bus", "internal/devengine", "plugins/builtin", "plugins/wasm", "pmr/node", "pmr/reduce", "wasmhost"},
	"examples/demo":  {"internal/devengine"}, // else it uses the programs, as a user does
	"examples/wasm":  {},                     // only tests
	"examples/wasm/": {"guest"},
}

// pure lists the rooms whose code may not act. Their tests may.
var pure = []string{"api", "buckets", "plugins/wasm", "pmr", "pmr/reduce"}

// impure are the packages that no pure room may import; those below them are meant too.
var impure = []string{"context", "crypto/rand", "log", "math/rand", "net", "os", "runtime", "sync", "syscall"}

// mayRandom are the names of math/rand/v2 that a pure room may use: a source of its own, with a seed that it
// was given. Package time is free of restrictions but for clock.
var (
	mayRandom = []string{"New", "NewPCG", "NewChaCha8", "Rand", "PCG", "ChaCha8", "Source"}
	clock     = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}
)

// owners says where a third party's module may be imported, also by tests. A room stands for the folders
// below it too.
var owners = map[string][]string{
	"github.com/nats-io":                {"bus"},
	"github.com/tetratelabs/wazero":     {"wasmhost", "bench"}, // bench: guests as they were before they were metered
	"github.com/cockroachdb":            {"buckets/store"},
	"github.com/vmihailenco/msgpack":    {"api"},
	"github.com/cespare/xxhash":         {"buckets", "pmr"},
	"github.com/klauspost/compress":     {"buckets/store", "bus", "cmd"},
	"github.com/schollz/progressbar":    {"cmd"},
	"github.com/spf13":                  {"cmd", "internal/cli"},
	"golang.org/x/term":                 {"cmd"},
	"gopkg.in/yaml.v3":                  {"internal/cli"},
	"pgregory.net/rapid":                {testsOnly},
	"go.uber.org/goleak":                {testsOnly},
	"github.com/anishathalye/porcupine": {testsOnly},
}

// testsOnly is the owner of modules that any test may import, and nothing else.
const testsOnly = "_test.go"

// roomOf returns the key in rooms of a folder, and whether there is one.
func roomOf(dir string) (string, bool) {
	if _, ok := rooms[dir]; ok {
		return dir, true
	}
	best := ""
	for key := range rooms {
		if len(key) > len(best) && key[len(key)-1] == '/' && len(dir) > len(key) && dir[:len(key)] == key {
			best = key
		}
	}
	return best, best != ""
}

func isPure(room string) bool { return slices.Contains(pure, room) }
