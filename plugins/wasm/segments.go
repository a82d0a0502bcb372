package wasm

// constant reads a constant expression of a type; known tells whether it is an i32.const, whose value is v.
func (r *reader) constant(want ValType) (v uint32, known bool) {
	at := r.at
	in := r.next()
	var got ValType
	switch in.op {
	case opI32Const:
		d := cursor{b: r.b, at: at + 1, end: r.at}
		got, v, known = I32, uint32(d.signed(32, "a constant")), true
	case opI64Const:
		got = I64
	case opF32Const:
		got = F32
	case opF64Const:
		got = F64
	case opV128Const:
		got = V128
	case opRefFunc:
		got = FuncRef
		r.inRange(at, in.index, len(r.m.Funcs), "function", importSection, functionSection)
	case opRefNull:
		got = ValType(in.index)
	case opGlobalGet:
		got = r.constantGlobal(at, in.index, want)
	default:
		r.fail(at, "a constant expression cannot hold instruction 0x%02x", uint16(in.op))
	}
	if r.err == nil && got != want {
		r.fault(at, "a constant of type %s where %s is needed", got, want)
	}
	at = r.at
	if op := opcode(r.byte("a constant expression")); r.err == nil && op != opEnd {
		r.fail(at, "a constant expression of several instructions belongs to the extended constants feature, which is off")
	}
	return v, known && r.err == nil
}

// constantGlobal returns the type of a global that a constant expression reads: an imported one that does
// not change.
func (r *reader) constantGlobal(at int, index uint32, want ValType) ValType {
	if !r.inRange(at, index, len(r.m.Globals), "global", importSection, globalSection) {
		return want
	}
	g := r.m.Globals[index]
	switch {
	case g.Mutable:
		r.fault(at, "a constant expression reads global %d, which can change", index)
	case int(index) >= r.importedGlobals:
		r.fault(at, "a constant expression that reads global %d, which is not imported, belongs to the GC feature, which is off", index)
	}
	return g.Type
}

// elements reads element segments. Their first number is made of bits: 1 not active, 2 a table (or, if
// not active, declarative), 4 expressions instead of function numbers.
func (r *reader) elements() {
	for n := r.count("element segments", r.bounds.Segments); n > 0 && r.err == nil; n-- {
		at := r.at
		flags := r.u32("an element segment")
		if r.err == nil && flags > 7 {
			r.fail(at, "there is no element segment of form %d", flags)
		}
		s := Segment{Active: flags&1 == 0, Type: FuncRef}
		if s.Active {
			if flags&2 != 0 {
				s.Index = r.u32("a table index")
			}
			s.Offset, s.Known = r.constant(I32)
		}
		expressions := flags&4 != 0
		switch {
		case flags&3 == 0:
		case expressions:
			s.Type = r.refType("an element segment")
		default:
			if kind := r.byte("an element kind"); r.err == nil && kind != 0 {
				r.fail(at, "there is no element kind %d", kind)
			}
		}
		if s.Active && r.inRange(at, s.Index, len(r.m.Tables), "table", importSection, tableSection) {
			if t := r.m.Tables[s.Index].Type; t != s.Type {
				r.fault(at, "elements of type %s for table %d of %s", s.Type, s.Index, t)
			}
		}
		r.elementItems(&s, expressions)
		r.m.Elements = append(r.m.Elements, s)
	}
}

func (r *reader) elementItems(s *Segment, expressions bool) {
	start := r.at
	s.Len = r.count("elements", r.bounds.Elements)
	if r.items += s.Len; r.items > r.bounds.Elements {
		r.fail(start, "all element segments together have more than %d elements, the limit", r.bounds.Elements)
	}
	for i := s.Len; i > 0 && r.err == nil; i-- {
		if expressions {
			r.constant(s.Type)
			continue
		}
		at := r.at
		r.inRange(at, r.u32("a function index"), len(r.m.Funcs), "function", importSection, functionSection)
	}
}

func (r *reader) dataSegments() {
	for n := r.count("data segments", r.bounds.Segments); n > 0 && r.err == nil; n-- {
		at := r.at
		flags := r.u32("a data segment")
		if r.err == nil && flags > 2 {
			r.fail(at, "there is no data segment of form %d", flags)
		}
		s := Segment{Active: flags != 1}
		if flags == 2 {
			s.Index = r.u32("a memory index")
		}
		if s.Active {
			s.Offset, s.Known = r.constant(I32)
			r.inRange(at, s.Index, len(r.m.Memories), "memory", importSection, memorySection)
		}
		s.Len = len(r.bytes(r.u32("the size of a data segment"), "a data segment"))
		r.m.Data = append(r.m.Data, s)
	}
}

// ConstResult returns the value of an exported function without parameters whose whole body is one
// i32.const: what a module says about itself that can be read without running it.
func (m *Module) ConstResult(name string) (v int32, ok bool) {
	e, found := m.Export(name)
	if !found || e.Kind != Func || !e.Func.Is(nil, []ValType{I32}) || int(e.Index) < m.importedFuncs {
		return 0, false
	}
	body := m.Bodies[int(e.Index)-m.importedFuncs]
	d := decoder{cursor: cursor{b: m.raw, at: body.Offset, end: body.Offset + body.Size}}
	if first := d.byte("an instruction"); opcode(first) != opI32Const {
		return 0, false
	}
	v = int32(d.signed(32, "a constant"))
	return v, opcode(d.byte("an instruction")) == opEnd && d.left() == 0 && d.err == nil
}
