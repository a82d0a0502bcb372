package wasm

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// What [Meter] adds to a module.
const (
	MeterVersion = 1             // changes whenever the bytes that Meter returns change
	TickModule   = "pinion"      // the module of the function that it imports
	TickName     = "tick"        // the function's name; it is () -> ()
	FuelExport   = "pinion.fuel" // the mutable i64 global that it exports: steps left of the slice
	Slice        = 100_000       // steps, what the global begins with
)

// Meter returns the module with a count of its steps, and with a maximum of so many elements on each table
// of its own, or of the table's minimum if that is more. Else the module keeps its meaning.
//
// The module gets a function to import, TickModule.TickName, and a global that it exports as [FuelExport],
// from which steps are taken. Once it is below 0 the module calls the function, at the latest at the next
// turn of a loop, entry of a function that calls others, or some hundred calls later. The host then adds Slice
// less the global to what was used, looks at the clock, and sets the global to Slice; or it ends the call. What
// is left after a call says how much of the last slice was used. After a trap up to a slice is missing from the
// count: functions keep what they use to themselves until they call or return.
//
// Indexes of functions that are not imported grow by one. Custom sections are dropped, but the names of the
// module and its functions. Meter fails with [Faults] if the module uses names that are the host's.
func Meter(m *Module, tableElements uint32) ([]byte, error) {
	if err := m.reserved(); err != nil {
		return nil, err
	}
	w := &meter{m: m, tick: uint32(m.importedFuncs), fuel: uint32(len(m.Globals))}
	w.tickType = uint32(slices.IndexFunc(m.Types, func(t FuncType) bool { return t.Is(nil, nil) }))
	w.newType = int32(w.tickType) < 0
	if w.newType {
		w.tickType = uint32(len(m.Types))
	}
	out := slices.Clone(m.raw[:headerLen])
	for _, s := range []struct {
		id       byte
		contents []byte
	}{
		{typeSection, w.types()},
		{importSection, w.imports()},
		{functionSection, m.contents(functionSection)},
		{tableSection, w.tables(tableElements)},
		{memorySection, m.contents(memorySection)},
		{globalSection, w.globals()},
		{exportSection, w.exports()},
		{startSection, w.start()},
		{elementSection, w.elements()},
		{dataCountSection, m.contents(dataCountSection)},
		{codeSection, w.code()},
		{dataSection, m.contents(dataSection)},
		{customSection, w.names()},
	} {
		if len(s.contents) > 0 {
			out = append(out, s.id)
			out = binary.AppendUvarint(out, uint64(len(s.contents)))
			out = append(out, s.contents...)
		}
	}
	return out, nil
}

// reserved reports that a module uses the names that Meter adds. It fails with [Faults].
func (m *Module) reserved() error {
	var faults Faults
	for _, i := range m.Imports {
		if i.Module == TickModule {
			faults = append(faults, &Error{Section: "import", Reason: fmt.Sprintf("module %q is the host's own", TickModule)})
			break
		}
	}
	if _, ok := m.Export(FuelExport); ok {
		faults = append(faults, &Error{Section: "export", Reason: fmt.Sprintf("the name %q is the host's own", FuelExport)})
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// meter rewrites one module.
type meter struct {
	m        *Module
	tick     uint32 // index of the new import
	tickType uint32
	newType  bool
	fuel     uint32 // index of the new global
}

// shift is the index of a function after the new import.
func (w *meter) shift(function uint32) uint32 {
	if function >= w.tick {
		return function + 1
	}
	return function
}

// contents returns those of a section; nil if there is none.
func (m *Module) contents(id byte) []byte {
	for _, s := range m.Sections {
		if s.ID == id {
			return m.raw[s.Offset : s.Offset+s.Size]
		}
	}
	return nil
}

// items returns a cursor on a section behind its number of items; of nothing if there is no such section.
func (m *Module) items(id byte) cursor {
	for _, s := range m.Sections {
		if s.ID == id {
			c := cursor{b: m.raw, at: s.Offset, end: s.Offset + s.Size}
			c.u32("a number of items")
			return c
		}
	}
	return cursor{}
}

func (c *cursor) rest() []byte { return c.b[c.at:c.end] }

// extend returns a section with one more item than the n that it has.
func (w *meter) extend(id byte, n int, item ...byte) []byte {
	c := w.m.items(id)
	out := binary.AppendUvarint(nil, uint64(n+1))
	out = append(out, c.rest()...)
	return append(out, item...)
}

func (w *meter) types() []byte {
	if !w.newType {
		return w.m.contents(typeSection)
	}
	return w.extend(typeSection, len(w.m.Types), 0x60, 0, 0)
}

func (w *meter) imports() []byte {
	item := appendName(nil, TickModule)
	item = appendName(item, TickName)
	item = append(item, byte(Func))
	return w.extend(importSection, len(w.m.Imports), binary.AppendUvarint(item, uint64(w.tickType))...)
}

func appendName(b []byte, name string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(name))), name...)
}

// tables gives a maximum to each table of the module's own: without one a table may grow until the host has
// no memory left.
func (w *meter) tables(elements uint32) []byte {
	own := w.m.Tables
	for _, i := range w.m.Imports {
		if i.Kind == Table {
			own = own[1:]
		}
	}
	if len(own) == 0 {
		return nil
	}
	out := binary.AppendUvarint(nil, uint64(len(own)))
	for _, t := range own {
		limit := max(elements, t.Min)
		if t.HasMax {
			limit = min(limit, t.Max)
		}
		out = append(out, byte(t.Type), 1)
		out = binary.AppendUvarint(out, uint64(t.Min))
		out = binary.AppendUvarint(out, uint64(limit))
	}
	return out
}

func (w *meter) globals() []byte {
	p := w.patch(globalSection)
	own := 0
	for ; p.d.left() > 0; own++ {
		p.d.at += 2
		p.constant()
	}
	out := binary.AppendUvarint(nil, uint64(own+1))
	out = append(out, p.done()...)
	out = append(out, byte(I64), 1, byte(opI64Const))
	out = appendSigned(out, Slice)
	return append(out, byte(opEnd))
}

func (w *meter) exports() []byte {
	out := binary.AppendUvarint(nil, uint64(len(w.m.Exports)+1))
	for _, e := range w.m.Exports {
		if e.Kind == Func {
			e.Index = w.shift(e.Index)
		}
		out = append(appendName(out, e.Name), byte(e.Kind))
		out = binary.AppendUvarint(out, uint64(e.Index))
	}
	out = append(appendName(out, FuelExport), byte(Global))
	return binary.AppendUvarint(out, uint64(w.fuel))
}

func (w *meter) start() []byte {
	if !w.m.HasStart {
		return nil
	}
	return binary.AppendUvarint(nil, uint64(w.shift(w.m.Start)))
}

func (w *meter) elements() []byte {
	if len(w.m.Elements) == 0 {
		return nil
	}
	p := w.patch(elementSection)
	for p.d.left() > 0 {
		flags := p.d.u32("an element segment")
		if flags&1 == 0 {
			if flags&2 != 0 {
				p.d.u32("a table index")
			}
			p.constant()
		}
		if flags&3 != 0 {
			p.d.byte("a type or kind")
		}
		for n := p.d.u32("the number of elements"); n > 0; n-- {
			if flags&4 != 0 {
				p.constant()
				continue
			}
			at := p.d.at
			p.put(at, w.shift(p.d.u32("a function index")))
		}
	}
	return append(binary.AppendUvarint(nil, uint64(len(w.m.Elements))), p.done()...)
}

func (w *meter) names() []byte {
	if w.m.names.Size == 0 {
		return nil
	}
	var functions []byte
	n := 0
	for index, name := range w.m.functionNames() {
		if int(index) < len(w.m.Funcs) {
			functions = binary.AppendUvarint(functions, uint64(w.shift(index)))
			functions = appendName(functions, name)
			n++
		}
	}
	out := appendName(nil, "name")
	if w.m.Name != "" {
		out = append(out, moduleNames)
		module := appendName(nil, w.m.Name)
		out = append(binary.AppendUvarint(out, uint64(len(module))), module...)
	}
	count := binary.AppendUvarint(nil, uint64(n))
	out = append(out, functionNames)
	out = binary.AppendUvarint(out, uint64(len(count)+len(functions)))
	return append(append(out, count...), functions...)
}

// patch copies a part of the file but for what is put in other places.
type patch struct {
	d    decoder
	w    *meter
	from int // not copied so far
	out  []byte
}

func (w *meter) patch(id byte) *patch {
	c := w.m.items(id)
	return &patch{d: decoder{cursor: c}, w: w, from: c.at}
}

// put replaces what is between at and the place that was read up to by a number.
func (p *patch) put(at int, v uint32) {
	p.out = append(p.out, p.d.b[p.from:at]...)
	p.out = binary.AppendUvarint(p.out, uint64(v))
	p.from = p.d.at
}

func (p *patch) done() []byte { return append(p.out, p.d.b[p.from:p.d.at]...) }

// constant goes past a constant expression and shifts a function in it.
func (p *patch) constant() {
	if in := p.d.next(); in.op == opRefFunc {
		p.put(in.at+1, p.w.shift(in.index))
	}
	p.d.byte("the end of a constant expression")
}

func appendSigned(b []byte, v int64) []byte {
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}
