package wasmhost

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
)

// Config sets a host's limits. A zero field is its default.
type Config struct {
	CacheDir       string        // compiled code is kept here across restarts; empty keeps it in memory only
	MemoryPages    uint32        // of 64 KiB, per instance; default 1024, that is 64 MiB
	TableElements  uint32        // to which a table may grow; default 10,000
	CompileTimeout time.Duration // default 60 s
	MaxModules     int           // compiled modules kept while nobody uses them; default 32
	BatchBytes     int           // of frames per call of a guest; one record may be larger; default 64 KiB

	MaxOutputBytes int64 // keys and values that a job emits, see [Quota]; default 4 GiB
	MaxLogLines    int   // of a job, then the rest is dropped with a note; default 100
	MaxCounters    int   // names of counters of a job; default 64

	Log *slog.Logger // of the host itself; nil is silence
}

func (c Config) withDefaults() Config {
	setDefault(&c.MemoryPages, 1024)
	setDefault(&c.TableElements, 10_000)
	setDefault(&c.CompileTimeout, 60*time.Second)
	setDefault(&c.MaxModules, 32)
	setDefault(&c.BatchBytes, 64<<10)
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

// Validate reports settings out of range.
func (c Config) Validate() error {
	switch {
	case c.MemoryPages > 65_536:
		return fmt.Errorf("wasmhost: MemoryPages is %d; a memory has at most 65536", c.MemoryPages)
	case c.CompileTimeout < 0, c.MaxModules < 0, c.BatchBytes < 0, c.MaxOutputBytes < 0, c.MaxLogLines < 0, c.MaxCounters < 0:
		return fmt.Errorf("wasmhost: a limit is negative: %+v", c)
	}
	return nil
}

// Host compiles modules and keeps them.
type Host struct {
	config  Config
	runtime wazero.Runtime
	cache   wazero.CompilationCache

	compiling sync.WaitGroup
	compile   sync.Mutex // wazero's compile and close, one at a time (see [Host.build])

	mu     sync.Mutex
	closed bool
	byID   map[string]*entry // by digest
	idle   []*entry          // no references; the one idle longest comes first
}

// New starts a host. Close it.
func New(ctx context.Context, config Config) (*Host, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	cache := wazero.NewCompilationCache()
	if config.CacheDir != "" {
		var err error
		if cache, err = wazero.NewCompilationCacheWithDir(config.CacheDir); err != nil {
			return nil, fmt.Errorf("wasmhost: folder for compiled modules: %w", err)
		}
	}
	h := &Host{config: config, cache: cache, byID: map[string]*entry{}}
	h.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithMemoryLimitPages(config.MemoryPages).
		WithCompilationCache(cache).
		WithCloseOnContextDone(true))
	if err := installImports(ctx, h.runtime); err != nil {
		_ = h.Close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("wasmhost: %w", err)
	}
	return h, nil
}

// Close waits for compilations under way and frees all modules. Instances must be closed before.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.compiling.Wait()
	err := h.runtime.Close(ctx)
	if cacheErr := h.cache.Close(ctx); err == nil {
		err = cacheErr
	}
	if err != nil {
		return fmt.Errorf("wasmhost: close: %w", err)
	}
	return nil
}
