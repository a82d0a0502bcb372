package wasmhost

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// Config sets a host's limits. A zero field is its default. What passes a limit is told with the limit's name
// as an operator sets it: guest-memory, guest-table, guest-fuel, guest-output, guest-log-lines, guest-counters,
// module-size, compile-timeout.
type Config struct {
	CacheDir       string        // compiled code is kept here across restarts; empty keeps it in memory only
	MemoryPages    uint32        // guest-memory: of 64 KiB, per instance; default 1024, that is 64 MiB
	TableElements  uint32        // guest-table: to which a table may grow; default 100,000
	ModuleSize     int           // module-size: bytes of a module file; default 32 MiB
	CompileTimeout time.Duration // compile-timeout; default 60 s; not used with Precompile, which has its own
	MaxModules     int           // compiled modules kept while nobody uses them; default 32
	BatchBytes     int           // of frames per call of a guest; one record may be larger; default 64 KiB

	Fuel           int64 // guest-fuel: steps of one job in this process, see [Quota]; default 10^13
	MaxOutputBytes int64 // guest-output: keys and values that a job emits, see [Quota]; default 4 GiB
	MaxLogLines    int   // guest-log-lines: of a job, then the rest is dropped with a note; default 100
	MaxCounters    int   // guest-counters: names of counters of a job; default 64

	// Precompile leaves the compiled code of a metered module in CacheDir, so that this process only has to
	// load it; nil compiles here. Package wasmhost/child does it in a process that can be killed. An
	// [api.Error] of BAD_MODULE says what the compiler found, one of LIMIT_EXCEEDED what it took too much of.
	Precompile func(ctx context.Context, file []byte) error

	Log *slog.Logger // of the host itself; nil is silence
}

// DefaultMemoryPages is 64 MiB.
const DefaultMemoryPages = 1024

func (c Config) withDefaults() Config {
	setDefault(&c.MemoryPages, DefaultMemoryPages)
	setDefault(&c.TableElements, 100_000)
	setDefault(&c.ModuleSize, 32<<20)
	setDefault(&c.CompileTimeout, 60*time.Second)
	setDefault(&c.MaxModules, 32)
	setDefault(&c.BatchBytes, 64<<10)
	setDefault(&c.Fuel, 10_000_000_000_000)
	setDefault(&c.MaxOutputBytes, 4<<30)
	setDefault(&c.MaxLogLines, 100)
	setDefault(&c.MaxCounters, 64)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports the first setting out of range.
func (c Config) Validate() error {
	for _, s := range []struct {
		name            string
		value, min, max int64
	}{
		{"guest-memory (pages of 64 KiB)", int64(c.MemoryPages), 0, 65_536},
		{"guest-table", int64(c.TableElements), 0, 10_000_000},
		{"module-size", int64(c.ModuleSize), 0, 1 << 30},
		{"compile-timeout (ns)", int64(c.CompileTimeout), 0, int64(24 * time.Hour)},
		{"modules kept", int64(c.MaxModules), 0, 1 << 20},
		{"bytes of a batch", int64(c.BatchBytes), 0, 1 << 30},
		{"guest-fuel", c.Fuel, 0, 1 << 62},
		{"guest-output", c.MaxOutputBytes, 0, 1 << 62},
		{"guest-log-lines", int64(c.MaxLogLines), 0, 1 << 40},
		{"guest-counters", int64(c.MaxCounters), 0, 1 << 20},
	} {
		if s.value < s.min || s.value > s.max {
			return fmt.Errorf("wasmhost: %s is %d; it must be from %d to %d, and 0 is the default", s.name, s.value, s.min, s.max)
		}
	}
	if c.Precompile != nil && c.CacheDir == "" {
		return fmt.Errorf("wasmhost: without a CacheDir there is no place for precompiled code")
	}
	return nil
}

// overLimit is the error of what passes a limit: its name, its value and how to raise it.
func overLimit(name, value, format string, args ...any) *api.Error {
	return api.Errorf(api.CodeLimitExceeded, "%s %s (%s)", fmt.Sprintf(format, args...), name, value).
		With("limit", name).With("value", value)
}
