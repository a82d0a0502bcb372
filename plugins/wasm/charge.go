package wasm

import "encoding/binary"

const (
	// growSteps is what memory.grow and table.grow count: a whole slice, since they copy what there is.
	growSteps = Slice
	// bulkShift makes steps of the bytes or elements of an operation on many: 16 are one.
	bulkShift = 4
	// freeSteps is how much a function that calls nothing may do outside of its loops without looking
	// whether the slice is used up: its callers look.
	freeSteps = 64
	// freeCalls is how many calls, perhaps of such functions, are made in a row before the caller looks again.
	freeCalls = 256
)

// code returns the code section with charges.
func (w *meter) code() []byte {
	if len(w.m.Bodies) == 0 {
		return nil
	}
	out := binary.AppendUvarint(nil, uint64(len(w.m.Bodies)))
	c := &charger{w: w}
	for i := range w.m.Bodies {
		c.function(i)
		out = binary.AppendUvarint(out, uint64(len(c.out)))
		out = append(out, c.out...)
	}
	return out
}

// charger rewrites functions one after another. It keeps the fuel in a local, which compilers keep in a register,
// and moves it as late as it can. A call finds it in the global and leaves it there; so does a return. The next
// charge takes it from there.
type charger struct {
	w      *meter
	survey survey
	d      decoder
	before instruction // the last one that was read
	out    []byte
	fuel   uint64 // the local; the one behind it remembers how much a bulk operation had to do
	now    places // where the fuel is up to date

	blocks  []chargedBlock
	regions int // that have begun
	loops   int // that have begun
	calls   int // that were written
}

// places are those where the fuel is up to date: always one at the least. Where code ends that is never left at
// its end, anything may be said.
type places uint8

const (
	inLocal places = 1 << iota
	inGlobal
	anywhere = inLocal | inGlobal
)

// chargedBlock is a block that is being rewritten.
type chargedBlock struct {
	added   int   // blocks that were put around it
	all     int   // that were put around it and those around it
	carries int   // values that a branch to it takes along
	steps   int64 // of a loop that is left for the host
	looked  int   // calls that were written when all ways to where it is now last looked
	loop    bool
	before  places // where the fuel was up to date when it began
	label   places // where it is on all ways to its label so far
}

func (c *charger) function(i int) {
	m := c.w.m
	body := m.Bodies[i]
	typ := m.Types[m.Funcs[m.importedFuncs+i]]
	c.fuel = uint64(len(typ.Params)) + body.Locals
	c.survey = m.survey(body, c.fuel)
	c.d = m.instructions(body)
	c.blocks = append(c.blocks[:0], chargedBlock{carries: len(typ.Results), label: inGlobal})
	c.regions, c.loops, c.calls, c.now = 0, 0, 0, inGlobal

	c.locals(body)
	if !c.survey.heads && (c.survey.calls || c.survey.straight() > freeSteps) {
		c.take(max(c.survey.regions[0].steps, 1))
		c.look()
	} else {
		c.take(c.survey.regions[0].steps)
	}
	for c.regions = 1; c.d.left() > 0; {
		in := c.d.next()
		c.instruction(in)
		c.before = in
		if r := c.survey.regions; c.regions < len(r) && r[c.regions].at == c.d.at {
			c.take(r[c.regions].steps)
			c.regions++
		}
	}
}

// locals writes the function's groups of locals, and behind them those for charges.
func (c *charger) locals(body Body) {
	groups := cursor{b: c.w.m.raw, at: body.locals, end: body.Offset}
	n := groups.u32("groups of locals")
	more := []byte{1, byte(I64)}
	if c.survey.bulk {
		more = append(more, 1, byte(I32))
	}
	c.out = binary.AppendUvarint(c.out[:0], uint64(n)+uint64(len(more)/2))
	c.out = append(append(c.out, groups.rest()...), more...)
}

func (c *charger) instruction(in instruction) {
	switch {
	case in.op == opBlock:
		c.copy(in)
		c.open(chargedBlock{carries: c.arity(in, false), label: anywhere})
	case in.op == opIf:
		c.copy(in)
		c.open(chargedBlock{carries: c.arity(in, false), label: c.now}) // it may have no else
	case in.op == opLoop:
		c.loop(in)
	case in.op == opEnd:
		c.end(in)
	case in.op == opBr || in.op == opBrIf:
		c.branch(in)
	case in.op == opBrTable:
		c.branchTable()
	case in.op == opReturn:
		c.meet(&c.blocks[0])
		c.copy(in)
	case in.op == opElse:
		top := len(c.blocks) - 1
		c.meet(&c.blocks[top])
		c.blocks[top].looked = c.blocks[top-1].looked
		c.copy(in)
		c.now = c.blocks[top].before
	case in.op == opCall:
		c.need(inGlobal)
		c.put(in.op, uint64(c.w.shift(in.index)))
		c.lookAfterCall()
	case in.op == opIndirect:
		c.need(inGlobal)
		c.copy(in)
		c.lookAfterCall()
	case in.op == opRefFunc:
		c.put(in.op, uint64(c.w.shift(in.index)))
	case in.op == opMemoryGrow || in.op == opTableGrow:
		c.take(growSteps)
		c.look()
		c.copy(in)
	case in.op.bulk():
		if _, known := steps(c.before); known {
			c.copy(in)
		} else {
			c.bulk(in)
		}
	default:
		c.copy(in)
	}
	switch in.op {
	case opBr, opBrTable, opReturn, opUnreachable:
		c.now = anywhere // nothing follows
	}
}

// lookAfterCall looks if there were many calls since all ways to here last looked. What is inside a block that
// has ended may have been left out, so looks in there do not count.
func (c *charger) lookAfterCall() {
	c.now = inGlobal
	c.calls++
	top := &c.blocks[len(c.blocks)-1]
	if c.calls-top.looked < freeCalls {
		return
	}
	top.looked = c.calls
	c.need(inLocal)
	c.look()
}

func (c *charger) open(b chargedBlock) {
	around := c.blocks[len(c.blocks)-1]
	b.all, b.looked, b.before = around.all+b.added, around.looked, c.now
	c.blocks = append(c.blocks, b)
}

func (c *charger) copy(in instruction) { c.out = append(c.out, c.d.b[in.at:in.end]...) }

// put writes an instruction of one byte and its index.
func (c *charger) put(op opcode, index uint64) {
	c.out = binary.AppendUvarint(append(c.out, byte(op)), index)
}

func (c *charger) plain(ops ...opcode) {
	for _, op := range ops {
		c.out = append(c.out, byte(op))
	}
}

// need has the fuel up to date in one of these places.
func (c *charger) need(p places) {
	if c.now&p != 0 {
		return
	}
	if p == inLocal {
		c.put(opGlobalGet, uint64(c.w.fuel))
		c.put(opLocalSet, c.fuel)
	} else {
		c.put(opLocalGet, c.fuel)
		c.put(opGlobalSet, uint64(c.w.fuel))
	}
	c.now = anywhere
}

// meet prepares the way from here to a block's label: at least one place is up to date on all ways there.
func (c *charger) meet(b *chargedBlock) {
	c.need(b.label)
	b.label &= c.now
}

// take takes steps off the fuel. After it the fuel is in the local.
func (c *charger) take(steps int64) {
	if steps == 0 {
		return
	}
	c.takeOff(func() { c.out = appendSigned(append(c.out, byte(opI64Const)), steps) })
}

// takeOff takes off what the code that steps writes leaves on the stack.
func (c *charger) takeOff(steps func()) {
	if c.now&inLocal != 0 {
		c.put(opLocalGet, c.fuel)
	} else {
		c.put(opGlobalGet, uint64(c.w.fuel))
	}
	steps()
	c.plain(opI64Sub)
	c.put(opLocalSet, c.fuel)
	c.now = inLocal
}

// used writes whether the slice is used up, going by the local.
func (c *charger) used() {
	c.put(opLocalGet, c.fuel)
	c.plain(opI64Const, 0, opI64LtS)
}

// look calls the host if the slice is used up. The fuel is in the local, before and after.
func (c *charger) look() {
	before := c.now
	c.used()
	c.plain(opIf, blockEmpty)
	c.tick()
	c.need(inLocal)
	c.plain(opEnd)
	c.now = before
}

func (c *charger) tick() {
	c.need(inGlobal)
	c.put(opCall, uint64(c.w.tick))
	c.now = inGlobal
}

// addedBlocks is how many blocks are put around a loop.
const addedBlocks = 3

// loop begins a loop. Calling the host inside would cost the compiler registers in each turn, so the loop
// is left to call it, and entered again:
//
//	block            where the loop goes on
//	  loop
//	    block
//	      loop       the function's own
//	        charge; br_if 1 if the slice is used up
//	        ...
//	      end
//	      br 2
//	    end
//	    tick
//	    br 0
//	  end
//	end
//
// What a loop takes from the stack would be gone by then, so one with parameters calls from inside.
func (c *charger) loop(in instruction) {
	params := c.survey.params[c.loops]
	c.loops++
	// A loop begins with a charge. So a way back that has the fuel in the global takes it from there just before.
	c.need(inLocal)
	b := chargedBlock{carries: c.arity(in, true), loop: true, label: inLocal}
	if !params {
		b.added, b.steps = addedBlocks, max(c.survey.regions[c.regions].steps, 1)
		blockType := c.d.b[in.at+1 : in.end]
		c.out = append(append(c.out, byte(opBlock)), blockType...)
		c.out = append(append(c.out, byte(opLoop)), blockType...)
		c.plain(opBlock, blockEmpty)
	}
	c.open(b)
	c.copy(in)
	c.take(max(c.survey.regions[c.regions].steps, 1))
	c.regions++
	c.blocks[len(c.blocks)-1].looked = c.calls
	if params {
		c.look()
		return
	}
	c.used()
	c.put(opBrIf, 1)
}

func (c *charger) end(in instruction) {
	top := len(c.blocks) - 1
	b := &c.blocks[top]
	c.blocks = c.blocks[:top]
	if !b.loop {
		c.meet(b)
		c.now = b.label
	}
	c.copy(in)
	if b.added == 0 {
		return
	}
	after := c.now
	c.put(opBr, 2)
	c.plain(opEnd)
	c.now = inLocal
	c.tick()
	c.take(-b.steps) // the loop takes them again
	c.put(opBr, 0)
	c.plain(opEnd, opEnd)
	c.now = after
}

// depth is a label's number with the blocks that were added on the way.
func (c *charger) depth(label uint32) uint64 {
	top := len(c.blocks) - 1
	return uint64(label) + uint64(c.blocks[top].all-c.blocks[top-int(label)].all)
}

func (c *charger) branch(in instruction) {
	to, depth := &c.blocks[len(c.blocks)-1-int(in.index)], c.depth(in.index)
	if in.op == opBrIf && c.now&to.label == 0 && to.carries == 0 {
		// Only the way out pays for it.
		before := c.now
		c.plain(opIf, blockEmpty)
		c.meet(to)
		c.put(opBr, depth+1)
		c.plain(opEnd)
		c.now = before
		return
	}
	c.meet(to)
	c.put(in.op, depth)
}

func (c *charger) branchTable() {
	top := len(c.blocks) - 1
	for _, l := range c.d.targets {
		c.meet(&c.blocks[top-int(l)])
	}
	c.put(opBrTable, uint64(len(c.d.targets)-1))
	for _, l := range c.d.targets {
		c.out = binary.AppendUvarint(c.out, c.depth(l))
	}
}

// bulk charges an operation on many bytes or elements after it, so that one that traps does so as before.
func (c *charger) bulk(in instruction) {
	c.put(opLocalTee, c.fuel+1)
	c.copy(in)
	c.takeOff(func() {
		c.put(opLocalGet, c.fuel+1)
		c.plain(opI32Const, bulkShift, opI32ShrU, opI64ExtendU)
	})
	c.look()
}

// arity is how many values a block gives, or takes if params.
func (c *charger) arity(in instruction, params bool) int {
	switch {
	case in.typed && params:
		return len(c.w.m.Types[in.index].Params)
	case in.typed:
		return len(c.w.m.Types[in.index].Results)
	case params || c.d.b[in.at+1] == blockEmpty:
		return 0
	default:
		return 1
	}
}
