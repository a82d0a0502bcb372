package wasmhost

import (
	"context"
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"
)

// Host compiles modules and keeps them.
type Host struct {
	config  Config
	runtime wazero.Runtime
	cache   wazero.CompilationCache

	life      context.Context // ends when the host is closed
	stop      context.CancelFunc
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
	h.life, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.runtime = wazero.NewRuntimeWithConfig(ctx, runtimeConfig(config.MemoryPages, cache))
	if err := installImports(ctx, h.runtime); err != nil {
		_ = h.Close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("wasmhost: %w", err)
	}
	return h, nil
}

// runtimeConfig is the same in each process that compiles into a folder, or the code there is not found.
// wazero need not look at contexts: the guests count their own steps and call tick.
func runtimeConfig(memoryPages uint32, cache wazero.CompilationCache) wazero.RuntimeConfig {
	return wazero.NewRuntimeConfig().
		WithMemoryLimitPages(memoryPages).
		WithCompilationCache(cache).
		WithDebugInfoEnabled(false) // the places in it are those of the file before it was rewritten
}

// Close stops compilations under way, waits for those that nothing can stop (without Config.Precompile), and frees all modules. Instances must be closed before.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.stop()
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
