package wasm

// shape says which immediates follow an instruction's code.
type shape byte

const (
	shapeAbsent     shape = iota // there is no such instruction
	shapePlain                   // no immediates
	shapeBlockType               // block, loop, if
	shapeLabel                   // br, br_if
	shapeLabels                  // br_table
	shapeFunction                // call, ref.func
	shapeIndirect                // call_indirect: a type and a table
	shapeSelectType              // select with types
	shapeLocal                   // local.get, local.set, local.tee
	shapeGlobal                  // global.get, global.set
	shapeTable                   // table.get and the like
	shapeAccess                  // a load or a store: alignment and offset
	shapeAccessLane              // the same and a lane
	shapeMemoryZero              // memory.size, memory.grow, memory.fill: a memory, which is 0
	shapeMemoryTwo               // memory.copy
	shapeMemoryInit              // a data segment and a memory
	shapeDataIndex               // data.drop
	shapeTableTwo                // table.copy
	shapeTableInit               // an element segment and a table
	shapeElemIndex               // elem.drop
	shapeConstI32                // i32.const
	shapeConstI64                // i64.const
	shapeBytes4                  // f32.const
	shapeBytes8                  // f64.const
	shapeBytes16                 // v128.const
	shapeShuffle                 // 16 lanes of two vectors
	shapeLane                    // a lane
	shapeNullType                // ref.null
)

// Instructions that the reader or the rewriter treats in a way of its own. Those with a prefix have it in
// the high byte.
const (
	opUnreachable opcode = 0x00
	opNop         opcode = 0x01
	opBlock       opcode = 0x02
	opLoop        opcode = 0x03
	opIf          opcode = 0x04
	opElse        opcode = 0x05
	opEnd         opcode = 0x0b
	opBr          opcode = 0x0c
	opBrIf        opcode = 0x0d
	opBrTable     opcode = 0x0e
	opReturn      opcode = 0x0f
	opCall        opcode = 0x10
	opIndirect    opcode = 0x11
	opDrop        opcode = 0x1a
	opLocalGet    opcode = 0x20
	opLocalSet    opcode = 0x21
	opLocalTee    opcode = 0x22
	opGlobalGet   opcode = 0x23
	opGlobalSet   opcode = 0x24
	opMemoryGrow  opcode = 0x40
	opI32Const    opcode = 0x41
	opI64Const    opcode = 0x42
	opF32Const    opcode = 0x43
	opF64Const    opcode = 0x44
	opI64LtS      opcode = 0x53
	opI32ShrU     opcode = 0x76
	opI64Sub      opcode = 0x7d
	opI64ExtendU  opcode = 0xad
	opRefNull     opcode = 0xd0
	opRefFunc     opcode = 0xd2

	opMemoryInit opcode = 0xfc08
	opMemoryCopy opcode = 0xfc0a
	opMemoryFill opcode = 0xfc0b
	opTableInit  opcode = 0xfc0c
	opTableCopy  opcode = 0xfc0e
	opTableGrow  opcode = 0xfc0f
	opTableFill  opcode = 0xfc11
	opV128Const  opcode = 0xfd0c
)

// blockEmpty is the type of a block without parameters and results.
const blockEmpty = 0x40

// opcode is an instruction's code: one byte, or a prefix and a byte.
type opcode uint16

const (
	prefixGC      = 0xfb
	prefixMisc    = 0xfc
	prefixVector  = 0xfd
	prefixThreads = 0xfe
)

// form is what the tables below know of an instruction. limit is the largest alignment (as a power of two)
// of an access, or the number of lanes.
type form struct {
	shape shape
	limit byte
}

func spread(forms *[256]form, from, to int, s shape, limit byte) {
	for op := from; op <= to; op++ {
		forms[op] = form{s, limit}
	}
}

// oneByte has the instructions without a prefix.
var oneByte = func() (f [256]form) {
	spread(&f, 0x00, 0x01, shapePlain, 0) // unreachable, nop
	spread(&f, 0x02, 0x04, shapeBlockType, 0)
	f[opElse], f[opEnd], f[opReturn] = form{shapePlain, 0}, form{shapePlain, 0}, form{shapePlain, 0}
	spread(&f, 0x0c, 0x0d, shapeLabel, 0)
	f[opBrTable] = form{shapeLabels, 0}
	f[opCall], f[opRefFunc] = form{shapeFunction, 0}, form{shapeFunction, 0}
	f[opIndirect] = form{shapeIndirect, 0}
	spread(&f, 0x1a, 0x1b, shapePlain, 0) // drop, select
	f[0x1c] = form{shapeSelectType, 0}
	spread(&f, 0x20, 0x22, shapeLocal, 0)
	spread(&f, 0x23, 0x24, shapeGlobal, 0)
	spread(&f, 0x25, 0x26, shapeTable, 0)
	// Alignments of the loads and stores 0x28 to 0x3e, in their order.
	for i, log := range []byte{2, 3, 2, 3, 0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 2, 3, 2, 3, 0, 1, 0, 1, 2} {
		f[0x28+i] = form{shapeAccess, log}
	}
	spread(&f, 0x3f, 0x40, shapeMemoryZero, 0)
	f[opI32Const], f[opI64Const] = form{shapeConstI32, 0}, form{shapeConstI64, 0}
	f[opF32Const], f[opF64Const] = form{shapeBytes4, 0}, form{shapeBytes8, 0}
	spread(&f, 0x45, 0xc4, shapePlain, 0) // all arithmetic, and sign extension
	f[opRefNull] = form{shapeNullType, 0}
	f[0xd1] = form{shapePlain, 0} // ref.is_null
	return f
}()

// misc has the instructions with prefix 0xfc: saturating conversions, bulk memory, tables.
var misc = func() (f [256]form) {
	spread(&f, 0, 7, shapePlain, 0)
	for i, s := range []shape{
		shapeMemoryInit, shapeDataIndex, shapeMemoryTwo, shapeMemoryZero,
		shapeTableInit, shapeElemIndex, shapeTableTwo, shapeTable, shapeTable, shapeTable,
	} {
		f[8+i] = form{s, 0}
	}
	return f
}()

// vector has the instructions with prefix 0xfd (SIMD).
var vector = func() (f [256]form) {
	for i, log := range []byte{4, 3, 3, 3, 3, 3, 3, 0, 1, 2, 3, 4} { // loads, splatting loads, v128.store
		f[i] = form{shapeAccess, log}
	}
	f[0x0c] = form{shapeBytes16, 0}
	f[0x0d] = form{shapeShuffle, 32}
	spread(&f, 0x0e, 0x14, shapePlain, 0) // swizzle, splats
	for i, lanes := range []byte{16, 16, 16, 8, 8, 8, 4, 4, 2, 2, 4, 4, 2, 2} {
		f[0x15+i] = form{shapeLane, lanes}
	}
	spread(&f, 0x23, 0x53, shapePlain, 0)
	for i := range 8 { // loads and stores of one lane of 8, 16, 32 and 64 bits
		f[0x54+i] = form{shapeAccessLane, byte(i % 4)}
	}
	spread(&f, 0x5c, 0x5d, shapeAccess, 2)
	f[0x5d].limit = 3 // v128.load64_zero
	spread(&f, 0x5e, 0xff, shapePlain, 0)
	for _, op := range []int{0x9a, 0xa2, 0xa5, 0xa6, 0xaf, 0xb0, 0xb2, 0xb3, 0xb4, 0xbb, 0xc2, 0xc5, 0xc6, 0xcf, 0xd0, 0xd2, 0xd3, 0xd4, 0xe2, 0xee} {
		f[op] = form{}
	}
	return f
}()

// off names the feature that an instruction which is not supported belongs to; empty if there is no such
// instruction.
func (op opcode) off() string {
	switch op {
	case 0x06, 0x07, 0x08, 0x09, 0x0a, 0x18, 0x19, 0x1f:
		return "exception handling"
	case 0x12, 0x13, 0x15:
		return "tail calls"
	case 0x14, 0xd4, 0xd5, 0xd6:
		return "typed function references"
	case 0xd3:
		return "GC"
	case 0xe0, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6:
		return "stack switching"
	case 0xfc12:
		return "memory control"
	case 0xfc13, 0xfc14, 0xfc15, 0xfc16:
		return "wide arithmetic"
	}
	return ""
}
