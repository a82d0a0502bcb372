package wasm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Read reads a module within [DefaultBounds]. The error is [Faults]. The module keeps b.
func Read(b []byte) (*Module, error) { return ReadWithin(b, DefaultBounds()) }

// ReadWithin reads a module within bounds of the caller's choice.
func ReadWithin(b []byte, bounds Bounds) (*Module, error) {
	if err := checkHeader(b); err != nil {
		return nil, Faults{err}
	}
	if len(b) > bounds.Size {
		return nil, Faults{{Reason: fmt.Sprintf("the file has %d bytes; the limit is %d", len(b), bounds.Size)}}
	}
	r := &reader{bounds: bounds, m: &Module{raw: b}, broken: map[byte]bool{}, data: -1}
	r.cursor = cursor{b: b, at: headerLen, end: len(b)}
	r.maxTargets = bounds.Targets
	r.sections()
	if len(r.faults) > 0 {
		r.nameFunctions()
		return nil, r.faults
	}
	return r.m, nil
}

const headerLen = 8

// checkHeader says what the file is instead, if it is no core module.
func checkHeader(b []byte) *Error {
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
	decoder
	bounds Bounds
	m      *Module
	faults Faults
	broken map[byte]bool // sections that could not be read to their end: what they declare is not known

	last    int // rank of the last section that was no custom one
	funcs   int // declared by the function section
	data    int // declared by the data count section; -1 if there is none
	locals  uint64
	load    load // of one function
	weight  int  // of all functions
	branch  int  // targets of all br_table
	strings int  // bytes of all names
	items   int  // elements of all segments
	frames  []frame

	importedGlobals int
}

// ranks is the order in which sections come: not that of their ids.
var ranks = map[byte]int{1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 13: 6, 6: 7, 7: 8, 8: 9, 9: 10, 12: 11, 10: 12, 11: 13}

// fault notes what is wrong without ending the reading of the section.
func (r *reader) fault(at int, format string, args ...any) {
	if r.err == nil && len(r.faults) < maxFaults {
		r.faults = append(r.faults, &Error{Offset: at, Section: r.section, Reason: fmt.Sprintf(format, args...)})
	}
}

// resume notes the error that ended the reading of a part, and reports whether there was one.
func (r *reader) resume() bool {
	if r.err == nil {
		return false
	}
	if len(r.faults) < maxFaults {
		r.faults = append(r.faults, r.err)
	}
	r.err = nil
	return true
}

func (r *reader) sections() {
	for r.left() > 0 {
		if !r.nextSection() {
			r.resume()
			return // without the frame of a section nothing behind it can be read
		}
	}
	r.checkWhole()
}

func (r *reader) nextSection() bool {
	start := r.at
	id := r.byte("a section's id")
	size := r.u32("a section's size")
	if r.err == nil && uint64(size) > uint64(r.left()) {
		r.fail(len(r.b), "the file is truncated here: the %s section that begins at byte %d needs %d more bytes",
			sectionName(id), start, uint64(size)-uint64(r.left()))
	}
	if r.err == nil && len(r.m.Sections) >= r.bounds.Sections {
		r.fail(start, "there are more than %d sections, the limit", r.bounds.Sections)
	}
	if r.err == nil && int(id) >= len(sectionNames) {
		r.fail(start, "there is no section with id %d", id)
	}
	if r.err != nil {
		return false
	}
	if rank := ranks[id]; id != 0 && rank <= r.last {
		r.fault(start, "the %s section is doubled or out of order", sectionName(id))
		r.at += int(size)
		return true
	} else if id != 0 {
		r.last = rank
	}
	r.m.Sections = append(r.m.Sections, Section{ID: id, Offset: r.at, Size: int(size)})
	r.contents(id, int(size))
	return true
}

// contents reads one section in a cursor that ends with it, and goes on behind it whatever was wrong.
func (r *reader) contents(id byte, size int) {
	whole, end := r.end, r.at+size
	r.end, r.section = end, sectionName(id)
	read := map[byte]func(){
		0: r.custom, 1: r.types, 2: r.imports, 3: r.functions, 4: r.tables, 5: r.memories, 6: r.globals, 7: r.exports,
		8: r.start, 9: r.elements, 10: r.code, 11: r.dataSegments, 12: r.dataCount, 13: r.tags,
	}
	read[id]()
	if r.err == nil && r.left() > 0 {
		r.fail(r.at, "%d bytes follow the section's contents", r.left())
	}
	if r.resume() {
		r.broken[id] = true
	}
	r.at, r.end, r.section = end, whole, ""
}

// checkWhole compares sections with one another.
func (r *reader) checkWhole() {
	if n := len(r.m.Bodies); n != r.funcs && !r.broken[3] && !r.broken[10] {
		r.fault(r.end, "%d functions are declared, but %d have code", r.funcs, n)
	}
	if r.data >= 0 && r.data != len(r.m.Data) && !r.broken[11] {
		r.fault(r.end, "%d data segments are declared, but there are %d", r.data, len(r.m.Data))
	}
}

// inRange checks an index of a kind of thing. Where a section that declares such things could not be read,
// there is nothing to compare with.
func (r *reader) inRange(at int, index uint32, of int, what string, declared ...byte) bool {
	if r.err != nil {
		return false
	}
	if int(index) < of {
		return true
	}
	for _, id := range declared {
		if r.broken[id] {
			return false
		}
	}
	r.fail(at, "%s %d is used, but there are %d", what, index, of)
	return false
}
