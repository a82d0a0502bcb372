package wasm

import "math"

// A region is a part of a function that is paid for at once: straight code, and what follows it without
// fail. It begins with the function, a loop, an arm of an if, behind a br_if, or where a block ends that
// can be left in other ways than by its end.
type region struct {
	at     int   // where it begins in the file
	parent int   // the region that leads here; none for a function's first and for a loop's
	own    int64 // steps of its instructions
	steps  int64 // what is charged where it begins; 0 if it is paid by another
	looped bool  // inside a loop
	root   int   // the region that pays
	extra  int64 // steps of others that it pays
}

const none = -1

// A charge costs time, and so regions of a few steps have none: the region that leads to them pays, as long
// as all that it pays for others is no more than its own steps, or than smallRegions. Since what it pays for
// may be skipped, it pays a part: one step for each skippedSteps. So what is done is never more than
// skippedSteps times the count, and a switch of a thousand cases is not paid as a whole each time. The
// figures are the best for Go, whose functions are loops around a switch of all their parts.
const (
	smallRegions = 96
	skippedSteps = 4
)

// joinedLocals is how many locals are counted as one step where paths meet, if they were set on one of
// them: compilers move each of them there.
const joinedLocals = 16

// survey is what has to be known of a function before it can be rewritten.
type survey struct {
	regions []region // by place
	params  []bool   // of loops, by place: whether they take parameters from the stack
	calls   bool
	bulk    bool // has operations on many bytes or elements, and it is not known on how many
	heads   bool // is sure to come to a loop before it calls anything; that looks, so its beginning need not
}

// openBlock is a block that is being surveyed.
type openBlock struct {
	region int    // in which it began
	head   int    // the first region of a loop; none if it is not a loop
	exit   int    // the outermost block that code inside leaves to
	sets   uint64 // of locals
}

// surveyor walks through a function.
type surveyor struct {
	survey
	locals uint64
	blocks []openBlock
	before instruction // the last one
	now    int         // the region of the next instruction
	loops  int         // that are open
}

// survey finds the regions and loops of a function that has so many locals.
func (m *Module) survey(body Body, locals uint64) survey {
	s := &surveyor{locals: locals, blocks: []openBlock{{head: none, exit: math.MaxInt}}}
	s.begin(body.Offset, none)
	d := m.instructions(body)
	for d.left() > 0 {
		in := d.next()
		s.regions[s.now].own += m.steps(in)
		s.note(m, in)
		s.flow(in, d.targets)
		s.before = in
	}
	s.share()
	return s.survey
}

// steps is what an instruction counts. Those that only name a value or hold blocks together leave nothing
// to do when the program runs; where locals have to be moved, that is counted there.
func (op opcode) steps() int64 {
	switch op {
	case opNop, opBlock, opLoop, opElse, opEnd, opDrop, opLocalGet, opLocalSet, opLocalTee, opI32Const, opI64Const, opF32Const, opF64Const:
		return 0
	default:
		return 1
	}
}

// passedValues is how many parameters and results of a call count as one step more.
const passedValues = 4

// steps is what an instruction of a module counts: a call is also charged for the values that it passes.
func (m *Module) steps(in instruction) int64 {
	var callee FuncType
	switch in.op {
	case opCall:
		callee = m.Types[m.Funcs[in.index]]
	case opIndirect:
		callee = m.Types[in.index]
	default:
		return in.op.steps()
	}
	return in.op.steps() + int64(len(callee.Params)+len(callee.Results))/passedValues
}

// note keeps what an instruction says about the function and the loops around it.
func (s *surveyor) note(m *Module, in instruction) {
	top := &s.blocks[len(s.blocks)-1]
	switch {
	case in.op == opLoop:
		s.params = append(s.params, in.typed && len(m.Types[in.index].Params) > 0)
		s.heads = s.heads || s.now == 0 && !s.calls
	case in.op == opCall || in.op == opIndirect:
		s.calls = true
	case in.op == opLocalSet || in.op == opLocalTee:
		top.sets++
	case in.op.bulk():
		if n, known := steps(s.before); known {
			s.regions[s.now].own += n
		} else {
			s.bulk = true
		}
	}
}

// steps is what an operation on many bytes or elements counts besides itself, if the instruction before it says
// how many they are, and they are so few that it need not wait for what is counted behind it.
func steps(before instruction) (n int64, known bool) {
	return int64(before.index >> bulkShift), before.op == opI32Const && before.index>>bulkShift <= freeSteps
}

// bulk reports whether the last operand says how much there is to do.
func (op opcode) bulk() bool {
	switch op {
	case opMemoryInit, opMemoryCopy, opMemoryFill, opTableInit, opTableCopy, opTableFill:
		return true
	default:
		return false
	}
}

// begin opens a region; parent is the one that leads to it.
func (s *surveyor) begin(at, parent int) {
	s.now = len(s.regions)
	s.regions = append(s.regions, region{at: at, parent: parent, looped: s.loops > 0})
}

// flow follows the control flow over an instruction.
func (s *surveyor) flow(in instruction, targets []uint32) {
	switch in.op {
	case opBlock:
		s.open()
	case opIf:
		s.open()
		s.begin(in.end, s.now)
	case opLoop:
		s.open()
		s.loops++
		s.begin(in.end, none)
		s.blocks[len(s.blocks)-1].head = s.now
	case opElse:
		s.begin(in.end, s.blocks[len(s.blocks)-1].region)
	case opEnd:
		s.close(in.end)
	case opBr:
		s.leave(in.index)
	case opBrIf:
		s.leave(in.index)
		s.begin(in.end, s.now)
	case opBrTable:
		for _, l := range targets {
			s.leave(l)
		}
	case opReturn:
		s.leave(uint32(len(s.blocks) - 1))
	}
}

func (s *surveyor) open() {
	s.blocks = append(s.blocks, openBlock{head: none, region: s.now, exit: math.MaxInt})
}

// leave notes a branch out of label blocks.
func (s *surveyor) leave(label uint32) {
	target := len(s.blocks) - 1 - int(label)
	// The blocks around are told when this one ends.
	if top := &s.blocks[len(s.blocks)-1]; target < len(s.blocks)-1 {
		top.exit = min(top.exit, target)
	}
}

// close ends a block: what follows belongs to the region that it began in, unless it can be skipped.
func (s *surveyor) close(at int) {
	top := len(s.blocks) - 1
	b := s.blocks[top]
	s.blocks = s.blocks[:top]
	if top == 0 {
		return
	}
	moved := int64(min(b.sets, s.locals) / joinedLocals)
	if b.head != none {
		s.loops--
		s.regions[b.head].own += moved
	}
	around := &s.blocks[top-1]
	around.sets += b.sets
	if b.exit < top-1 {
		around.exit = min(around.exit, b.exit)
	}
	if b.exit < top {
		s.begin(at, b.region)
	} else {
		s.now = b.region
	}
	s.regions[s.now].own += moved
}

// share decides which region pays for which. A region comes behind the one that leads to it.
func (s *survey) share() {
	for i := range s.regions {
		r := &s.regions[i]
		r.root, r.steps = i, r.own
		if r.parent == none {
			continue
		}
		root := &s.regions[s.regions[r.parent].root]
		if r.own == 0 || root.extra+r.own <= max(smallRegions, root.own) {
			root.extra += r.own
			root.steps = root.own + (root.extra+skippedSteps-1)/skippedSteps
			r.root, r.steps = s.regions[r.parent].root, 0
		}
	}
}

// straight is the number of steps outside of loops.
func (s *survey) straight() (n int64) {
	for _, r := range s.regions {
		if !r.looped {
			n += r.own
		}
	}
	return n
}
