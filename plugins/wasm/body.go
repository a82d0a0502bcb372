package wasm

// frame is a block that is open at some place of a function.
type frame struct {
	op    opcode
	depth int // how deep blocks in it are
}

func (r *reader) code() {
	at := r.at
	n := r.count("function bodies", r.bounds.Functions)
	if r.err == nil && n != r.funcs && !r.broken[functionSection] {
		r.fault(at, "%d functions are declared, but %d have code", r.funcs, n)
		r.broken[codeSection] = true // it is said
	}
	for i := 0; i < n && r.err == nil; i++ {
		start := r.at
		size := r.u32("the size of a function")
		if r.err == nil && uint64(size) > uint64(r.left()) {
			r.short("a function")
		}
		if r.err != nil {
			return
		}
		section, end := r.end, r.at+int(size)
		r.end = end
		if int(size) > r.bounds.Body {
			r.fail(start, "it has %d bytes; the limit is %d", size, r.bounds.Body)
		}
		r.body()
		if r.err != nil {
			r.err.in, r.err.index = true, r.m.importedFuncs+i
			r.resume()
		}
		r.at, r.end = end, section
	}
}

// body reads one function: its locals, since a few bytes can declare four billion of them, which compilers
// allocate, and then its instructions.
func (r *reader) body() {
	at := r.at
	b := Body{locals: at}
	for n := r.count("groups of locals", r.bounds.Locals); n > 0 && r.err == nil; n-- {
		b.Locals += uint64(r.u32("the number of locals"))
		r.valType()
		if r.err == nil && b.Locals > uint64(r.bounds.Locals) {
			r.fail(at, "it declares %d locals or more; the limit is %d", b.Locals, r.bounds.Locals)
		}
	}
	if r.locals += b.Locals; r.err == nil && r.locals > uint64(r.bounds.AllLocals) {
		r.fail(at, "all functions together declare more than %d locals, the limit", r.bounds.AllLocals)
	}
	b.Offset, b.Size = r.at, r.left()
	index := r.m.importedFuncs + len(r.m.Bodies)
	r.m.Bodies = append(r.m.Bodies, b)
	if r.err != nil {
		return
	}
	locals := b.Locals
	if index < len(r.m.Funcs) {
		locals += uint64(len(r.m.typeOf(r.m.Funcs[index]).Params))
	}
	r.load = load{}
	r.instructions(locals)
	r.weigh(b.Offset, locals)
}

// weigh bounds what compiling the function may cost, and all functions together.
func (r *reader) weigh(at int, locals uint64) {
	weight := r.load.weight(locals)
	r.m.Bodies[len(r.m.Bodies)-1].Weight = weight
	r.weight += weight
	switch {
	case weight > r.bounds.Weight:
		r.fail(at, "it would take too long to compile, by its blocks (%d of weight; the limit is %d)", weight, r.bounds.Weight)
	case r.weight > r.bounds.AllWeight && r.weight-weight <= r.bounds.AllWeight:
		r.fail(at, "the module would take too long to compile: up to here it weighs %d; the limit is %d", r.weight, r.bounds.AllWeight)
	}
}

// instructions checks those of one function, up to its end.
func (r *reader) instructions(locals uint64) {
	r.frames = append(r.frames[:0], frame{op: opBlock})
	for len(r.frames) > 0 && r.err == nil {
		if r.left() == 0 {
			r.fail(r.at, "it does not end with an end instruction")
			return
		}
		in := r.next()
		if r.err != nil {
			return
		}
		r.load.add(in)
		r.nesting(in)
		r.indexes(in, locals)
	}
	if r.err == nil && r.left() > 0 {
		r.fail(r.at, "%d bytes follow the end of it", r.left())
	}
}

// nesting keeps the stack of open blocks.
func (r *reader) nesting(in instruction) {
	switch in.op {
	case opBlock, opLoop, opIf:
		f := frame{op: in.op, depth: 1}
		if in.op == opLoop {
			f.depth = 1 + addedBlocks
		}
		if f.depth += r.frames[len(r.frames)-1].depth; f.depth > r.bounds.Nesting {
			r.fail(in.at, "blocks in one another to a depth of more than %d, the limit", r.bounds.Nesting)
			return
		}
		r.frames = append(r.frames, f)
		if in.typed {
			r.inRange(in.at, in.index, len(r.m.Types), "type", typeSection)
		}
	case opElse:
		top := &r.frames[len(r.frames)-1]
		if top.op != opIf {
			r.fail(in.at, "an else without an if")
		}
		top.op = opElse
	case opEnd:
		r.frames = r.frames[:len(r.frames)-1]
	}
}

// indexes checks what an instruction refers to.
func (r *reader) indexes(in instruction, locals uint64) {
	switch in.form.shape {
	case shapeLabel:
		r.label(in.at, in.index)
	case shapeLabels:
		for _, l := range r.targets {
			r.label(in.at, l)
		}
		if r.branch += len(r.targets); r.branch > r.bounds.AllTargets {
			r.fail(in.at, "all br_table together have more than %d targets, the limit", r.bounds.AllTargets)
		}
	case shapeFunction:
		r.inRange(in.at, in.index, len(r.m.Funcs), "function", importSection, functionSection)
	case shapeIndirect:
		r.inRange(in.at, in.index, len(r.m.Types), "type", typeSection)
		r.tableIndex(in.at, in.second)
	case shapeLocal:
		if uint64(in.index) >= locals {
			r.fail(in.at, "local %d is used, but there are %d", in.index, locals)
		}
	case shapeGlobal:
		if r.inRange(in.at, in.index, len(r.m.Globals), "global", importSection, globalSection) &&
			in.op == opGlobalSet && !r.m.Globals[in.index].Mutable {
			r.fail(in.at, "it sets global %d, which cannot change", in.index)
		}
	case shapeTable:
		r.tableIndex(in.at, in.index)
	case shapeTableTwo:
		r.tableIndex(in.at, in.index)
		r.tableIndex(in.at, in.second)
	case shapeTableInit:
		r.inRange(in.at, in.index, len(r.m.Elements), "element segment", elementSection)
		r.tableIndex(in.at, in.second)
	case shapeElemIndex:
		r.inRange(in.at, in.index, len(r.m.Elements), "element segment", elementSection)
	case shapeAccess, shapeAccessLane, shapeMemoryZero, shapeMemoryTwo:
		r.inRange(in.at, 0, len(r.m.Memories), "memory", importSection, memorySection)
	case shapeMemoryInit:
		r.inRange(in.at, 0, len(r.m.Memories), "memory", importSection, memorySection)
		r.dataIndex(in)
	case shapeDataIndex:
		r.dataIndex(in)
	}
}

func (r *reader) label(at int, l uint32) {
	if int(l) >= len(r.frames) && r.err == nil {
		r.fail(at, "a branch out of %d blocks, but there are %d", l, len(r.frames)-1)
	}
}

func (r *reader) tableIndex(at int, index uint32) {
	r.inRange(at, index, len(r.m.Tables), "table", importSection, tableSection)
}

func (r *reader) dataIndex(in instruction) {
	if r.data < 0 && !r.broken[dataCountSection] && r.err == nil {
		r.fail(in.at, "a data segment is used in code, but there is no data count section")
		return
	}
	r.inRange(in.at, in.index, r.data, "data segment", dataCountSection)
}
