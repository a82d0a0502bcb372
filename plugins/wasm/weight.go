package wasm

// load adds up what makes a function expensive to compile. The figures are microseconds on a slow machine,
// measured with wazero 1.12 on functions made to be expensive and on those of Go's own commands, which
// take less than half of what is estimated.
type load struct {
	instructions int
	joins        int // places where paths part or meet
	moves        int // the same, where each local costs something
}

const (
	accessLoad    = 4  // of a load or a store, for the check of its bounds
	targetLoad    = 20 // of a target of a br_table
	loopMoves     = 16 // a loop is two, and its locals are looked at in both
	loopJoins     = 4
	bulkLoad      = 40 // of an operation on many bytes or elements
	bulkJoins     = 3  // what metering puts behind it
	joinsOfMicros = 50 // the square of the joins, divided by this, is microseconds
)

func (l *load) add(in instruction) {
	l.instructions++
	switch in.op {
	case opBlock, opIf, opElse, opBrIf:
		l.joins++
		l.moves++
	case opLoop:
		l.joins += loopJoins
		l.moves += loopMoves
	case opBrTable:
		l.instructions += targetLoad * int(in.index)
		l.moves += 2 * int(in.index)
	case opMemoryGrow, opTableGrow:
		l.bulk()
	}
	if in.op.bulk() {
		l.bulk()
	}
	if in.form.shape == shapeAccess || in.form.shape == shapeAccessLane {
		l.instructions += accessLoad
	}
}

func (l *load) bulk() {
	l.instructions += bulkLoad
	l.joins += bulkJoins
	l.moves += bulkJoins
}

// weight is the sum, for a function with so many locals. Metering adds up to two.
func (l *load) weight(locals uint64) int {
	return l.instructions + l.moves*int(locals+2) + l.joins*l.joins/joinsOfMicros
}
