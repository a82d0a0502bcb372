package wasm

import (
	"iter"
	"strconv"
)

// Subsections of the name section.
const (
	moduleNames   = 0
	functionNames = 1
)

// subsection returns the contents of a part of the name section; of nothing if there is none.
func (m *Module) subsection(id byte) cursor {
	c := cursor{b: m.raw, at: m.names.Offset, end: m.names.Offset + m.names.Size}
	for c.left() > 0 && c.err == nil {
		found := c.byte("a kind of name")
		size := c.u32("the size of names")
		if c.err != nil || uint64(size) > uint64(c.left()) {
			break
		}
		if found == id {
			c.end = c.at + int(size)
			return c
		}
		c.at += int(size)
	}
	return cursor{}
}

func (m *Module) moduleName() string {
	c := m.subsection(moduleNames)
	if name := c.name("the module's name"); c.err == nil {
		return name
	}
	return ""
}

// functionNames yields the functions that the name section names, in its order, as far as it can be read.
func (m *Module) functionNames() iter.Seq2[uint32, string] {
	return func(yield func(uint32, string) bool) {
		c := m.subsection(functionNames)
		for n := c.u32("the number of names"); n > 0; n-- {
			index := c.u32("a function index")
			name := c.name("a function's name")
			if c.err != nil || !yield(index, name) {
				return
			}
		}
	}
}

// nameFunctions says in faults which function they are in, by name if it has one.
func (r *reader) nameFunctions() {
	inside := map[int][]*Error{}
	for _, e := range r.faults {
		if e.in {
			e.Function = strconv.Itoa(e.index)
			inside[e.index] = append(inside[e.index], e)
		}
	}
	if len(inside) == 0 {
		return
	}
	for index, name := range r.m.functionNames() {
		for _, e := range inside[int(index)] {
			e.Function = strconv.Itoa(e.index) + " " + quote(name)
		}
	}
}
