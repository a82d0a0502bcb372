package wasmhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/pinion-mr/pinion/api"
)

// entry is a compiled module, or one that is being compiled.
type entry struct {
	digest    string
	done      chan struct{} // closed when compiled or err is set
	compiled  wazero.CompiledModule
	functions []string // that a job may name, sorted; none of a command
	command   bool     // a WASI program
	imports   int      // imported functions of the file
	exports   []string // name of each exported function by its number in the file; "" for others
	err       error
	refs      int // under Host.mu
}

// Module is a compiled module. Close it when it is not needed; its instances may live on.
type Module struct {
	host  *Host
	entry *entry
	once  sync.Once
}

// Compile compiles a module, or returns the one that was compiled before. digest is the SHA-256 of file in
// hex. It fails with a BAD_MODULE [api.Error] if the file is no module, with LIMIT_EXCEEDED if it begins with
// more than an instance may have or takes too much to compile (without Config.Precompile the compiler cannot
// be stopped: it goes on in the background, and its result is kept), or with the context's error.
func (h *Host) Compile(ctx context.Context, digest string, file []byte) (*Module, error) {
	e, err := h.entry(digest, file)
	if err != nil {
		return nil, err
	}
	m := &Module{host: h, entry: e}
	var late <-chan time.Time
	if h.config.Precompile == nil {
		timer := time.NewTimer(h.config.CompileTimeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-e.done:
		err = e.err
	case <-ctx.Done():
		err = fmt.Errorf("wasmhost: compile %s: %w", shortDigest(digest), ctx.Err())
	case <-late:
		err = overLimit("compile-timeout", limitText(h.config.CompileTimeout), "module %s took longer to compile than", shortDigest(digest)).
			WithHint("split large functions or raise compile-timeout").With("digest", digest)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Cached returns the module of a digest if it is compiled already, so that its file need not be fetched.
func (h *Host) Cached(digest string) (m *Module, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byID[digest]
	if e == nil || h.closed {
		return nil, false
	}
	select {
	case <-e.done:
	default:
		return nil, false
	}
	if e.err != nil {
		return nil, false
	}
	h.retain(e)
	return &Module{host: h, entry: e}, true
}

// entry returns the entry of a digest with one more reference, and starts to compile it if it is new.
func (h *Host) entry(digest string, file []byte) (*entry, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errors.New("wasmhost: the host is closed")
	}
	if e := h.byID[digest]; e != nil {
		h.retain(e)
		return e, nil
	}
	if sum := sha256.Sum256(file); hex.EncodeToString(sum[:]) != digest {
		return nil, api.Errorf(api.CodeBadModule, "the bytes of module %s have another digest, %x", shortDigest(digest), sum[:8]).
			WithHint("add the module again").With("digest", digest)
	}
	e := &entry{digest: digest, done: make(chan struct{}), refs: 1}
	h.byID[digest] = e
	h.compiling.Go(func() { h.build(e, file) })
	return e, nil
}

// retain adds a reference; mu is held.
func (h *Host) retain(e *entry) {
	if e.refs == 0 {
		h.idle = slices.DeleteFunc(h.idle, func(o *entry) bool { return o == e })
	}
	e.refs++
}

// release drops a reference and closes the module that was idle longest, if there are too many.
func (h *Host) release(e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.refs--
	if e.refs > 0 || h.closed || h.byID[e.digest] != e {
		return
	}
	h.idle = append(h.idle, e)
	if len(h.idle) > h.config.MaxModules {
		oldest := h.idle[0]
		h.idle = h.idle[1:]
		delete(h.byID, oldest.digest)
		h.compiling.Go(func() { h.discard(oldest) })
	}
}

func (h *Host) discard(e *entry) {
	<-e.done
	if e.compiled != nil {
		h.compile.Lock()
		defer h.compile.Unlock()
		_ = e.compiled.Close(context.Background()) // always nil
	}
}

// Digest is the SHA-256 of the module's file, in hex.
func (m *Module) Digest() string { return m.entry.digest }

// Command reports whether the module is a WASI program: it has no functions to name, and a job's function is
// its first argument.
func (m *Module) Command() bool { return m.entry.command }

// Functions lists the exports of shape (i32, i32) -> i32 that a job may name, sorted. A command has none.
func (m *Module) Functions() []string { return slices.Clone(m.entry.functions) }

// Close gives the module back. The host keeps up to Config.MaxModules that nobody uses.
func (m *Module) Close() { m.once.Do(func() { m.host.release(m.entry) }) }

func shortDigest(digest string) string { return "sha256 " + digest[:min(len(digest), 8)] }
