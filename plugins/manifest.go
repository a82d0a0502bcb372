package plugins

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/pinion-mr/pinion/plugins/wasm"
)

// Kind says how a module is run.
type Kind string

// The kinds of modules.
const (
	Reactor Kind = "reactor" // its functions are called with batches of frames
	Command Kind = "command" // a WASI program: _start reads records from stdin
)

// Limits are what a module may ask for.
type Limits struct {
	ModuleBytes   int    // of the file
	MemoryPages   uint32 // of 64 KiB, that it begins with
	TableElements uint32 // that each of its tables begins with
}

// DefaultLimits are 32 MiB, 1,024 pages (64 MiB) and 100,000 elements.
func DefaultLimits() Limits {
	return Limits{ModuleBytes: 32 << 20, MemoryPages: 1024, TableElements: 100_000}
}

// Manifest is what a module file says about itself.
type Manifest struct {
	Digest    string // SHA-256, 64 hex digits
	Size      int
	Kind      Kind
	Name      string   // from the file, may be empty; the catalogue's name is another matter
	Functions []string // exports of shape (i32, i32) -> i32 that jobs may name, sorted
	Imports   []string // as module.name, sorted
	HasInit   bool     // exports pmr_init
	HasEnd    bool     // exports pmr_end
	Memory    wasm.Range
}

// Digest is the SHA-256 of a file as 64 hex digits: how modules are addressed.
func Digest(file []byte) string {
	sum := sha256.Sum256(file)
	return hex.EncodeToString(sum[:])
}
