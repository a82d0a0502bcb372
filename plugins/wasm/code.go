package wasm

import "slices"

// instruction is one instruction of a function's body.
type instruction struct {
	at, end int // its bytes in the file
	op      opcode
	form    form
	index   uint32 // the first immediate: label, local, function, type, table, segment, alignment; an i32
	second  uint32 // call_indirect: the table; table.init and table.copy: the other table
	typed   bool   // a block whose type is the type number index
}

// decoder reads the instructions of a function one after another.
type decoder struct {
	cursor
	maxTargets int
	targets    []uint32 // of the br_table read last
}

// instructions returns a decoder of a function's code, which was checked before.
func (m *Module) instructions(body Body) decoder {
	return decoder{cursor: cursor{b: m.raw, at: body.Offset, end: body.Offset + body.Size}, maxTargets: body.Size}
}

// next reads an instruction. It checks what can be said without knowing the rest of the module: that there
// is such an instruction, that it is not of a feature that is off, and that its immediates are well formed.
func (d *decoder) next() instruction {
	in := instruction{at: d.at}
	in.op = opcode(d.byte("an instruction"))
	if d.err != nil {
		return in
	}
	switch in.op {
	case prefixMisc, prefixVector:
		d.prefixed(&in)
	case prefixThreads:
		d.fail(in.at, "an instruction of the threads feature, which is off (prefix 0xfe)")
	case prefixGC:
		d.fail(in.at, "an instruction of the GC feature, which is off (prefix 0xfb)")
	default:
		in.form = oneByte[in.op]
	}
	if d.err == nil && in.form.shape == shapeAbsent {
		if feature := in.op.off(); feature != "" {
			d.fail(in.at, "instruction 0x%02x belongs to the %s feature, which is off", uint16(in.op), feature)
		} else {
			d.fail(in.at, "there is no instruction 0x%02x", uint16(in.op))
		}
	}
	d.immediates(&in)
	in.end = d.at
	return in
}

func (d *decoder) prefixed(in *instruction) {
	sub := d.u32("an instruction")
	switch {
	case d.err != nil:
	case in.op == prefixVector && sub >= 0x100 && sub < 0x130:
		d.fail(in.at, "an instruction of the relaxed SIMD feature, which is off (0xfd 0x%x)", sub)
	case sub > 0xff:
		d.fail(in.at, "there is no instruction 0x%02x 0x%x", uint16(in.op), sub)
	case in.op == prefixVector:
		in.form = vector[sub]
	default:
		in.form = misc[sub]
	}
	in.op = in.op<<8 | opcode(sub&0xff)
}

func (d *decoder) immediates(in *instruction) {
	switch in.form.shape {
	case shapeAbsent, shapePlain:
	case shapeBlockType:
		in.index, in.typed = d.blockType()
	case shapeLabels:
		d.branchTable(in)
	case shapeIndirect, shapeTableInit, shapeTableTwo:
		in.index, in.second = d.u32("an index"), d.u32("a table index")
	case shapeSelectType:
		if n := d.u32("the number of types of a select"); d.err == nil && n != 1 {
			d.fail(in.at, "a select of %d types", n)
		}
		d.valType()
	case shapeLabel, shapeFunction, shapeLocal, shapeGlobal, shapeTable, shapeElemIndex, shapeDataIndex:
		in.index = d.u32("an index")
	case shapeAccess, shapeAccessLane:
		d.access(in)
	case shapeMemoryZero:
		d.memoryZero(in)
	case shapeMemoryTwo:
		d.memoryZero(in)
		d.memoryZero(in)
	case shapeMemoryInit:
		in.index = d.u32("a data segment's index")
		d.memoryZero(in)
	case shapeConstI32:
		in.index = uint32(d.signed(32, "a constant"))
	case shapeConstI64:
		d.signed(64, "a constant")
	case shapeBytes4:
		d.bytes(4, "a constant")
	case shapeBytes8:
		d.bytes(8, "a constant")
	case shapeBytes16:
		d.bytes(16, "a constant")
	case shapeShuffle:
		if i := slices.IndexFunc(d.bytes(16, "the lanes of a shuffle"), func(l byte) bool { return l >= 32 }); i >= 0 {
			d.fail(in.at, "a shuffle of a lane above 31")
		}
	case shapeLane:
		d.lane(in, in.form.limit)
	case shapeNullType:
		in.index = uint32(d.refType("ref.null"))
	}
}

// blockType reads the type of a block: nothing, one value type, or a type's number as 33 bits with a sign.
func (d *decoder) blockType() (index uint32, typed bool) {
	if d.err != nil || d.left() == 0 || d.b[d.at]&0xc0 != 0x40 {
		at := d.at
		n := d.signed(33, "a block's type")
		if d.err == nil && n < 0 {
			d.fail(at, "a block of type %d", n)
		}
		return uint32(n), true
	}
	if d.b[d.at] == blockEmpty {
		d.at++
		return 0, false
	}
	d.valType()
	return 0, false
}

func (d *decoder) branchTable(in *instruction) {
	n := d.count("targets of a br_table", d.maxTargets)
	d.targets = d.targets[:0]
	for i := 0; i <= n && d.err == nil; i++ { // and the default
		d.targets = append(d.targets, d.u32("a label"))
	}
	in.index = uint32(n)
}

func (d *decoder) access(in *instruction) {
	in.index = d.u32("an alignment")
	d.u32("an offset")
	switch {
	case d.err != nil:
	case in.index >= 64 && in.index < 128:
		d.fail(in.at, "an access to a memory by number belongs to the multi-memory feature, which is off")
	case in.index > uint32(in.form.limit):
		d.fail(in.at, "an alignment of 2^%d for an access to %d bytes", in.index, 1<<in.form.limit)
	}
	if in.form.shape == shapeAccessLane {
		d.lane(in, 16>>in.form.limit)
	}
}

func (d *decoder) lane(in *instruction, lanes byte) {
	if l := d.byte("a lane"); d.err == nil && l >= lanes {
		d.fail(in.at, "lane %d of %d", l, lanes)
	}
}

// memoryZero reads the number of a memory, which is one byte of 0.
func (d *decoder) memoryZero(in *instruction) {
	if d.byte("a memory index") != 0 && d.err == nil {
		d.fail(in.at, "a memory other than number 0 belongs to the multi-memory feature, which is off")
	}
}
