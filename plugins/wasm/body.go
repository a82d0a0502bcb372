package wasm

// frame is a block that is open at some place of a function.
type frame struct {
	op opcode
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
	last := &r.m.Bodies[len(r.m.Bodies)-1]
	r.instructions(last, locals)
	r.weigh(last, locals)
}

// weigh bounds what compiling costs: a compiler looks at each local where paths meet, and ours takes time
// that grows with the square of the number of such places.
func (r *reader) weigh(b *Body, locals uint64) {
	b.Weight = b.Instructions + b.Joins*int(locals) + b.Joins*b.Joins/joinsSquared
	if r.weight += b.Weight; r.err == nil && r.weight > r.bounds.Weight {
		r.fail(b.Offset, "it")
	}
}

const joinsSquared = 50

// instructions checks those of one function, up to its end.
func (r *reader) instructions(b *Body, locals uint64) {
	r.frames = append(r.frames[:0], frame{opBlock})
	for len(r.frames) > 0 && r.err == nil {
		if r.left() == 0 {
			r.fail(r.at, "it does not end with an end instruction")
			return
		}
		in := r.next()
		if r.err != nil {
			return
		}
		b.Instructions++
		r.nesting(in)
		b.Nesting = max(b.Nesting, len(r.frames)-1)
		switch in.op {
		case opBlock, opIf, opElse, opBrIf:
			b.Joins++
		case opLoop:
			b.Joins += 4
		case opBrTable:
			b.Joins += len(r.targets)
		}
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
		if len(r.frames) > r.bounds.Nesting {
			r.fail(in.at, "more than %d blocks in one another, the limit", r.bounds.Nesting)
			return
		}
		r.frames = append(r.frames, frame{in.op})
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
	case label:
		r.label(in.at, in.index)
	case labels:
		for _, l := range r.targets {
			r.label(in.at, l)
		}
		if r.branch += len(r.targets); r.branch > r.bounds.AllTargets {
			r.fail(in.at, "all br_table together have more than %d targets, the limit", r.bounds.AllTargets)
		}
	case function:
		r.inRange(in.at, in.index, len(r.m.Funcs), "function", importSection, functionSection)
	case indirect:
		r.inRange(in.at, in.index, len(r.m.Types), "type", typeSection)
		r.table2(in.at, in.second)
	case local:
		if uint64(in.index) >= locals {
			r.fail(in.at, "local %d is used, but there are %d", in.index, locals)
		}
	case global:
		if r.inRange(in.at, in.index, len(r.m.Globals), "global", importSection, globalSection) &&
			in.op == opGlobalSet && !r.m.Globals[in.index].Mutable {
			r.fail(in.at, "it sets global %d, which cannot change", in.index)
		}
	case table:
		r.table2(in.at, in.index)
	case tableTwo:
		r.table2(in.at, in.index)
		r.table2(in.at, in.second)
	case tableInit:
		r.inRange(in.at, in.index, len(r.m.Elements), "element segment", elementSection)
		r.table2(in.at, in.second)
	case elemIndex:
		r.inRange(in.at, in.index, len(r.m.Elements), "element segment", elementSection)
	case access, accessLane, memoryZero, memoryTwo:
		r.inRange(in.at, 0, len(r.m.Memories), "memory", importSection, memorySection)
	case memoryInit:
		r.inRange(in.at, 0, len(r.m.Memories), "memory", importSection, memorySection)
		r.dataIndex(in)
	case dataIndex:
		r.dataIndex(in)
	}
}

func (r *reader) label(at int, l uint32) {
	if int(l) >= len(r.frames) && r.err == nil {
		r.fail(at, "a branch out of %d blocks, but there are %d", l, len(r.frames)-1)
	}
}

func (r *reader) table2(at int, index uint32) {
	r.inRange(at, index, len(r.m.Tables), "table", importSection, tableSection)
}

func (r *reader) dataIndex(in instruction) {
	if r.data < 0 && !r.broken[dataCountSection] && r.err == nil {
		r.fail(in.at, "a data segment is used in code, but there is no data count section")
		return
	}
	r.inRange(in.at, in.index, r.data, "data segment", dataCountSection)
}
