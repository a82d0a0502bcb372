package wasm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Bounds are the largest counts and sizes that Read accepts. Most are those of browsers
// (https://webassembly.github.io/spec/js-api/#limits); segments are more, since Go's linker makes many.
type Bounds struct {
	Size      int // of the file, bytes
	Types     int
	Imports   int
	Functions int
	Exports   int
	Segments  int // elements and data, each
	Arity     int // parameters or results of one function
	Locals    int // of one function
	Tables    int
}

// DefaultBounds are those of [Read].
func DefaultBounds() Bounds {
	return Bounds{
		Size: 32 << 20, Types: 100_000, Imports: 10_000, Functions: 200_000, Exports: 100_000, Segments: 1_000_000,
		Arity: 1_000, Locals: 50_000, Tables: 16,
	}
}

// Read reads a module within [DefaultBounds]. The error is an [*Error]. The module keeps b.
func Read(b []byte) (*Module, error) { return ReadWithin(b, DefaultBounds()) }

// ReadWithin reads a module within bounds of the caller's choice.
func ReadWithin(b []byte, bounds Bounds) (*Module, error) {
	if err := checkHeader(b); err != nil {
		return nil, err
	}
	if len(b) > bounds.Size {
		return nil, &Error{Reason: fmt.Sprintf("the file has %d bytes; the limit is %d", len(b), bounds.Size)}
	}
	r := &reader{cursor: cursor{b: b, at: headerLen, end: len(b)}, bounds: bounds, m: &Module{raw: b}}
	r.sections()
	if r.err != nil {
		return nil, r.err
	}
	return r.m, nil
}

const headerLen = 8

// checkHeader says what the file is instead, if it is no core module.
func checkHeader(b []byte) error {
	magic := []byte("\x00asm")
	switch {
	case len(b) == 0:
		return &Error{Reason: "the file is empty"}
	case bytes.HasPrefix(magic, b):
		return &Error{Offset: len(b), Reason: "the file is truncated here, in its first 8 bytes"}
	case !bytes.HasPrefix(b, magic):
		return &Error{Reason: describe(b)}
	case len(b) < headerLen:
		return &Error{Offset: len(b), Reason: "the file is truncated here, in its first 8 bytes"}
	}
	version, layer := binary.LittleEndian.Uint16(b[4:]), binary.LittleEndian.Uint16(b[6:])
	switch {
	case layer == 1:
		return &Error{Reason: "this is a component (component model); a core module is needed"}
	case version != 1 || layer != 0:
		return &Error{Reason: fmt.Sprintf("the file is of binary version %d, layer %d; version 1, layer 0 is needed", version, layer)}
	}
	return nil
}

func describe(b []byte) string {
	text := bytes.TrimLeft(bytes.TrimPrefix(b[:min(len(b), 4096)], []byte("\xef\xbb\xbf")), " \t\r\n")
	switch {
	case bytes.HasPrefix(b, []byte("\x1f\x8b")):
		return "this is a gzip file, not a WebAssembly module: unpack it first"
	case bytes.HasPrefix(b, []byte("\x28\xb5\x2f\xfd")):
		return "this is a zstd file, not a WebAssembly module: unpack it first"
	case bytes.HasPrefix(b, []byte("PK\x03\x04")):
		return "this is a zip file, not a WebAssembly module: unpack it first"
	case bytes.HasPrefix(b, []byte("\x7fELF")):
		return "this is a program for this machine (ELF), not a WebAssembly module: build it for wasm"
	case bytes.HasPrefix(b, []byte("!<arch>")):
		return "this is a library archive, not a WebAssembly module: link it first"
	case bytes.HasPrefix(text, []byte("(module")) || bytes.HasPrefix(text, []byte(";;")) || bytes.HasPrefix(text, []byte("(;")):
		return "this is WebAssembly text (.wat), not a binary module: assemble it with wat2wasm"
	case bytes.HasPrefix(text, []byte("(component")):
		return "this is a component in WebAssembly text, not a binary module; a core module is needed"
	case isText(b[:min(len(b), 4096)]):
		line, _, _ := bytes.Cut(text, []byte("\n"))
		return fmt.Sprintf("this is a text file that begins with %q, not a WebAssembly module", cut(line, 32))
	default:
		return fmt.Sprintf("this is no WebAssembly module: it begins with bytes % x instead of 00 61 73 6d", b[:min(len(b), 4)])
	}
}

func isText(b []byte) bool {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			return len(b) < utf8.UTFMax && !utf8.FullRune(b)
		}
		if r < ' ' && r != '\n' && r != '\r' && r != '\t' && r != '\f' {
			return false
		}
		b = b[n:]
	}
	return true
}

func cut(b []byte, n int) string {
	b = bytes.TrimSpace(b)
	if len(b) <= n {
		return string(b)
	}
	return string(bytes.ToValidUTF8(b[:n], nil)) + "..."
}

// reader reads the sections of one file.
type reader struct {
	cursor
	bounds Bounds
	m      *Module
	last   int // rank of the last section that was no custom one
	funcs  int // declared by the function section
	data   int // declared by the data count section; -1 if there is none
}

// ranks is the order in which sections come: not that of their ids.
var ranks = map[byte]int{1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 13: 6, 6: 7, 7: 8, 8: 9, 9: 10, 12: 11, 10: 12, 11: 13}

func (r *reader) sections() {
	r.data = -1
	for r.err == nil && r.left() > 0 {
		start := r.at
		id := r.byte("a section's id")
		size := r.u32("a section's size")
		if r.err != nil {
			return
		}
		if int(id) >= len(sectionNames) {
			r.fail(start, "there is no section with id %d", id)
			return
		}
		if uint64(size) > uint64(r.left()) {
			r.fail(len(r.b), "the file is truncated here: the %s section that begins at byte %d needs %d more bytes",
				sectionName(id), start, uint64(size)-uint64(r.left()))
			return
		}
		if id != 0 {
			rank := ranks[id]
			if rank <= r.last {
				r.fail(start, "the %s section is doubled or out of order", sectionName(id))
				return
			}
			r.last = rank
		}
		r.m.Sections = append(r.m.Sections, Section{ID: id, Offset: r.at, Size: int(size)})
		r.section(id, int(size))
	}
	r.checkWhole()
}

// section reads the contents of one section in a cursor that ends with it.
func (r *reader) section(id byte, size int) {
	whole := r.end
	r.end, r.cursor.section = r.at+size, sectionName(id)
	read := map[byte]func(){
		0: r.custom, 1: r.types, 2: r.imports, 3: r.functions, 4: r.tables, 5: r.memories, 6: r.skip, 7: r.exports,
		8: r.start, 9: r.elements, 10: r.code, 11: r.dataSegments, 12: r.dataCount, 13: r.tags,
	}
	read[id]()
	if r.err == nil && r.left() > 0 {
		r.fail(r.at, "%d bytes follow the section's contents", r.left())
	}
	r.end, r.cursor.section = whole, ""
}

// checkWhole compares sections with one another.
func (r *reader) checkWhole() {
	if r.err != nil {
		return
	}
	if n := len(r.m.Bodies); n != r.funcs {
		r.fail(r.end, "%d functions are declared, but %d have code", r.funcs, n)
	}
	if r.data >= 0 && r.data != len(r.m.Data) {
		r.fail(r.end, "%d data segments are declared, but there are %d", r.data, len(r.m.Data))
	}
	for i := range r.m.Exports {
		if !r.resolve(&r.m.Exports[i]) {
			return
		}
	}
	if r.m.HasStart && int(r.m.Start) >= len(r.m.Funcs) {
		r.fail(r.end, "the start function is number %d of %d", r.m.Start, len(r.m.Funcs))
	}
}

// resolve checks an export's index and gives it its type.
func (r *reader) resolve(e *Export) bool {
	of := map[Kind]int{Func: len(r.m.Funcs), Table: len(r.m.Tables), Memory: len(r.m.Memories), Global: 1 << 32}[e.Kind]
	if int(e.Index) >= of {
		r.fail(r.end, "export %.64q is %s number %d of %d", e.Name, e.Kind, e.Index, of)
		return false
	}
	if e.Kind == Func {
		e.Func = r.m.Types[r.m.Funcs[e.Index]]
	}
	return true
}
