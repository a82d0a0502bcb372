//go:build unix

package e2e

import (
	"encoding/binary"
	"slices"
)

// guestBinary is a module in the binary format, put together from its parts, so that tests can break each.
// All lists are of encoded entries.
type guestBinary struct {
	types, imports, functions, tables, memories, tags, globals, exports, elements, codes, data [][]byte

	start []byte // nil: no start section
	extra []byte // appended as it is
}

// Encoded types, and the indexes that soundGuest gives them.
const (
	batchOf = iota // (i32, i32) -> i32
	allocOf        // (i32) -> i32
	nullary        // () -> ()
)

// Kinds of imports and exports.
const (
	kindFunction = iota
	kindTable
	kindMemory
	kindGlobal
)

// soundGuest is a module whose map does nothing.
func soundGuest() *guestBinary {
	return &guestBinary{
		types:     [][]byte{{0x60, 2, 0x7f, 0x7f, 1, 0x7f}, {0x60, 1, 0x7f, 1, 0x7f}, {0x60, 0, 0}},
		functions: [][]byte{{allocOf}, {batchOf}},
		memories:  [][]byte{{0, 8}},
		exports:   [][]byte{export("memory", kindMemory, 0), export("pmr_alloc", kindFunction, 0), export("map", kindFunction, 1)},
		codes:     [][]byte{body(0x41, 16, 0x0b), body(0x41, 0, 0x0b)}, // i32.const 16; i32.const 0
	}
}

// with returns the module after a change.
func (g *guestBinary) with(change func(*guestBinary)) *guestBinary {
	change(g)
	return g
}

// bytes is the file.
func (g *guestBinary) bytes() []byte {
	file := []byte("\x00asm\x01\x00\x00\x00")
	list := func(id byte, entries [][]byte) {
		if len(entries) > 0 {
			file = append(file, section(id, append(uleb(len(entries)), slices.Concat(entries...)...))...)
		}
	}
	list(1, g.types)
	list(2, g.imports)
	list(3, g.functions)
	list(4, g.tables)
	list(5, g.memories)
	list(13, g.tags)
	list(6, g.globals)
	list(7, g.exports)
	if g.start != nil {
		file = append(file, section(8, g.start)...)
	}
	list(9, g.elements)
	list(10, g.codes)
	list(11, g.data)
	return append(file, g.extra...)
}

func uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func name(s string) []byte { return append(uleb(len(s)), s...) }

func section(id byte, content []byte) []byte {
	return slices.Concat([]byte{id}, uleb(len(content)), content)
}

func export(as string, kind byte, index int) []byte {
	return slices.Concat(name(as), []byte{kind}, uleb(index))
}

// imported is an import; what says its kind and type.
func imported(module, as string, what ...byte) []byte {
	return slices.Concat(name(module), name(as), what)
}

// body is the code of a function without locals.
func body(instructions ...byte) []byte { return bodyOf([]byte{0}, instructions...) }

// bodyOf is the code of a function with encoded locals.
func bodyOf(locals []byte, instructions ...byte) []byte {
	return slices.Concat(uleb(len(locals)+len(instructions)), locals, instructions)
}
