package wasm

// Instructions of constant expressions.
const (
	opEnd       = 0x0b
	opGlobalGet = 0x23
	opI32Const  = 0x41
	opI64Const  = 0x42
	opF32Const  = 0x43
	opF64Const  = 0x44
	opRefNull   = 0xd0
	opRefFunc   = 0xd2
	opVector    = 0xfd
)

// constant reads a constant expression; ok tells whether it is an i32.const, whose value is v.
func (r *reader) constant() (v uint32, ok bool) {
	at := r.at
	switch op := r.byte("a constant expression"); op {
	case opI32Const:
		v, ok = uint32(r.signed(32, "a constant")), true
	case opI64Const:
		r.signed(64, "a constant")
	case opF32Const:
		r.bytes(4, "a constant")
	case opF64Const:
		r.bytes(8, "a constant")
	case opGlobalGet, opRefFunc:
		r.u32("an index")
	case opRefNull:
		r.refType()
	case opVector:
		if r.u32("a constant") != 12 && r.err == nil {
			r.fail(at, "a constant expression holds an instruction that is none")
		}
		r.bytes(16, "a constant")
	default:
		r.fail(at, "a constant expression cannot hold instruction 0x%02x", op)
	}
	at = r.at
	if op := r.byte("a constant expression"); r.err == nil && op != opEnd {
		r.fail(at, "a constant expression of several instructions belongs to the extended constants feature, which is off")
	}
	return v, ok && r.err == nil
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
		s := Segment{Active: flags&1 == 0}
		if s.Active {
			if flags&2 != 0 {
				s.Index = r.u32("a table index")
			}
			s.Offset, s.Known = r.constant()
			if r.err == nil && int(s.Index) >= len(r.m.Tables) {
				r.fail(at, "an element segment for table %d, but there are %d", s.Index, len(r.m.Tables))
			}
		}
		expressions := flags&4 != 0
		switch {
		case flags&3 == 0:
		case expressions:
			r.refType()
		default:
			if kind := r.byte("an element kind"); r.err == nil && kind != 0 {
				r.fail(at, "there is no element kind %d", kind)
			}
		}
		s.Len = r.count("elements", r.end)
		for i := s.Len; i > 0 && r.err == nil; i-- {
			if expressions {
				r.constant()
			} else {
				r.u32("a function index")
			}
		}
		r.m.Elements = append(r.m.Elements, s)
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
			s.Offset, s.Known = r.constant()
			if r.err == nil && int(s.Index) >= len(r.m.Memories) {
				r.fail(at, "a data segment for memory %d, but there are %d", s.Index, len(r.m.Memories))
			}
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
	r := reader{cursor: cursor{b: m.raw, at: body.Offset, end: body.Offset + body.Size}}
	u, ok := r.constant()
	return int32(u), ok && r.left() == 0
}
