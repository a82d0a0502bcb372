package wasmhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"

	"github.com/tetratelabs/wazero"
	wazeroapi "github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/plugins/wasm"
)

// CompileTo compiles a metered module and leaves the code in a folder, where a host with this CacheDir and as
// many MemoryPages finds it. It is what a compiling process does, see Config.Precompile: nothing stops it.
func CompileTo(ctx context.Context, cacheDir string, memoryPages uint32, file []byte) error {
	cache, err := wazero.NewCompilationCacheWithDir(cacheDir)
	if err != nil {
		return fmt.Errorf("wasmhost: folder for compiled modules: %w", err)
	}
	r := wazero.NewRuntimeWithConfig(ctx, runtimeConfig(memoryPages, cache))
	_, err = r.CompileModule(experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0)), file)
	return errors.Join(err, r.Close(ctx), cache.Close(ctx))
}

// build compiles. wazero's runtime leaked and raced when modules were compiled and closed at the same time
// (wazero#2453), so that is done by one goroutine at a time.
func (h *Host) build(e *entry, file []byte) {
	defer close(e.done)
	if e.err = h.buildEntry(e, file); e.err != nil {
		h.mu.Lock()
		delete(h.byID, e.digest) // the bytes may be sound and the cause passing, as a full disk
		h.mu.Unlock()
	}
}

func (h *Host) buildEntry(e *entry, file []byte) error {
	if len(file) > h.config.ModuleSize {
		return overLimit("module-size", sizeText(uint64(h.config.ModuleSize)), "module %s has %s, more than", shortDigest(e.digest), sizeText(uint64(len(file)))).
			WithHint("strip its debug information, or raise module-size").With("digest", e.digest)
	}
	bounds := wasm.DefaultBounds()
	bounds.Size = h.config.ModuleSize
	m, err := wasm.ReadWithin(file, bounds)
	if err != nil {
		return e.cannotCompile(err.Error())
	}
	if err := h.checkSizes(e, m); err != nil {
		return err
	}
	for _, i := range m.Imports {
		if i.Kind == wasm.Func {
			e.imports++
		}
	}
	e.noteExports(m)
	if start, ok := m.Export("_start"); ok && start.Kind == wasm.Func {
		e.command = true
	}
	metered, err := wasm.Meter(m, h.config.TableElements)
	if err != nil {
		return e.cannotCompile(err.Error())
	}
	if e.compiled, err = h.compileFile(metered); err != nil {
		return e.compileError(err)
	}
	for name, f := range e.compiled.ExportedFunctions() {
		if isBatchFunction(f) && !strings.HasPrefix(name, "pmr_") && !e.command {
			e.functions = append(e.functions, name)
		}
	}
	sort.Strings(e.functions)
	return nil
}

// noteExports keeps the names of exported functions, which stacks are told with.
func (e *entry) noteExports(m *wasm.Module) {
	for _, x := range m.Exports {
		if x.Kind != wasm.Func {
			continue
		}
		if n := int(x.Index); n >= len(e.exports) {
			e.exports = append(e.exports, make([]string, n+1-len(e.exports))...)
		}
		if e.exports[x.Index] == "" {
			e.exports[x.Index] = x.Name
		}
	}
}

// checkSizes refuses a module that begins with more than its instances may have.
func (h *Host) checkSizes(e *entry, m *wasm.Module) error {
	for _, memory := range m.Memories {
		if memory.Min > h.config.MemoryPages {
			return overLimit("guest-memory", sizeText(uint64(h.config.MemoryPages)*65_536), "module %s begins with %s of memory, more than",
				shortDigest(e.digest), sizeText(uint64(memory.Min)*65_536)).
				WithHint("give it less memory when it is linked, or raise guest-memory").With("digest", e.digest)
		}
	}
	for i, table := range m.Tables {
		if table.Min > h.config.TableElements {
			return overLimit("guest-table", strconv.FormatUint(uint64(h.config.TableElements), 10),
				"table %d of module %s begins with %d elements, more than", i, shortDigest(e.digest), table.Min).
				WithHint("raise guest-table").With("digest", e.digest)
		}
	}
	return nil
}

func sizeText(n uint64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

func (e *entry) cannotCompile(reason string) error {
	return api.Errorf(api.CodeBadModule, "module %s cannot be compiled: %s", shortDigest(e.digest), oneLine(reason, maxMessage)).
		With("digest", e.digest)
}

// compileError names the module in what the compiler says.
func (e *entry) compileError(err error) error {
	var known *api.Error
	var path *os.PathError
	switch {
	case errors.As(err, &path):
		return fmt.Errorf("wasmhost: compile module %s: %w", shortDigest(e.digest), err) // a full disk is no fault of the module
	case !errors.As(err, &known):
		return e.cannotCompile(e.originalIndexes(err.Error()))
	case known.Code == api.CodeBadModule:
		return e.cannotCompile(e.originalIndexes(known.Message))
	default:
		out := *known
		out.Message = fmt.Sprintf("module %s: %s", shortDigest(e.digest), known.Message)
		return out.With("digest", e.digest)
	}
}

var codeIndex = regexp.MustCompile(`function\[(\d+)\]`)

// originalIndexes turns the compiler's numbers of functions, which leave out imports, into those of the file.
func (e *entry) originalIndexes(text string) string {
	return codeIndex.ReplaceAllStringFunc(text, func(found string) string {
		n, err := strconv.Atoi(codeIndex.FindStringSubmatch(found)[1])
		if err != nil {
			return found
		}
		return fmt.Sprintf("function %d", n+e.imports)
	})
}

// compileFile compiles, and once more without the files on disk if one of those cannot be read.
func (h *Host) compileFile(file []byte) (wazero.CompiledModule, error) {
	if err := h.precompile(file); err != nil {
		return nil, err
	}
	h.compile.Lock()
	defer h.compile.Unlock()
	compiled, err := h.runtime.CompileModule(context.Background(), file)
	if err == nil || h.config.CacheDir == "" || !strings.HasPrefix(err.Error(), "compilationcache: ") {
		return compiled, err
	}
	h.config.Log.Warn("compiled modules on disk are damaged; they are made anew", "folder", h.config.CacheDir, "error", err)
	if err := h.clearFolder(); err != nil {
		return nil, err
	}
	if err := h.precompile(file); err != nil {
		return nil, err
	}
	return h.runtime.CompileModule(context.Background(), file)
}

// precompile has another process compile, unless a mark says that one did so before.
func (h *Host) precompile(file []byte) error {
	if h.config.Precompile == nil {
		return nil
	}
	mark := h.mark(file)
	if _, err := os.Stat(mark); err == nil {
		return nil
	}
	if err := h.config.Precompile(h.life, file); err != nil {
		return api.AsError(err)
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return fmt.Errorf("wasmhost: mark of compiled code: %w", err)
	}
	return nil
}

// mark is the file that says that the code of a metered module is in the folder. Another version of the
// rewriter makes other bytes, another version of the compiler has another folder: both have other marks. On a
// processor with other features the code is compiled again, here; but it passed before, so that is bounded.
func (h *Host) mark(file []byte) string {
	sum := sha256.Sum256(file)
	return filepath.Join(h.config.CacheDir, "passed-"+wazeroVersion()+"-"+hex.EncodeToString(sum[:]))
}

func wazeroVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/tetratelabs/wazero" {
				return d.Version
			}
		}
	}
	return "unknown"
}

// clearFolder removes all compiled code and its marks.
func (h *Host) clearFolder() error {
	for _, pattern := range []string{"passed-*", filepath.Join("wazero-*", "*")} {
		files, err := filepath.Glob(filepath.Join(h.config.CacheDir, pattern))
		if err != nil {
			return fmt.Errorf("wasmhost: folder for compiled modules: %w", err)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("wasmhost: folder for compiled modules: %w", err)
			}
		}
	}
	return nil
}

// isBatchFunction reports whether a function has the shape (i32, i32) -> i32.
func isBatchFunction(f wazeroapi.FunctionDefinition) bool {
	p, r := f.ParamTypes(), f.ResultTypes()
	return len(p) == 2 && p[0] == i32 && p[1] == i32 && len(r) == 1 && r[0] == i32
}
