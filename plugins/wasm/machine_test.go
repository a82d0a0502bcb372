package wasm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// machine runs a few instructions, naively: enough to compare a function with what Meter makes of it, and to
// count what it really does.
type machine struct {
	m       *Module
	globals []int64
	host    func(*machine) // the function that Meter imports
	steps   int64          // instructions that count
	seen    int64          // all instructions
	charges map[int]int64  // by the instruction in front of which they are due
	charged int64
	depth   int
}

var errTrap = errors.New("unreachable")

const stepsAtMost = 100_000

func newMachine(m *Module) *machine {
	v := &machine{m: m, globals: make([]int64, len(m.Globals)), charges: map[int]int64{}}
	for i, body := range m.Bodies {
		s := m.survey(body, body.Locals+uint64(len(m.Types[m.Funcs[m.importedFuncs+i]].Params)))
		for j, r := range s.regions {
			v.charges[r.at] = r.steps
			looks := j == 0 && !s.heads && (s.calls || s.straight() > freeSteps)
			if looks || j > 0 && r.parent == none {
				v.charges[r.at] = max(r.steps, 1) // so that nothing goes round for nothing
			}
		}
	}
	return v
}

// openLabel is an open block of a running function.
type openLabel struct {
	start, end int // instructions; start of a loop's contents
	height     int // of the stack below
	carries    int
	loop       bool
}

// activation is a running function.
type activation struct {
	*machine
	code   []instruction
	tables [][]uint32 // of the br_tables among them
	ends   []int      // of each block: its end
	elses  []int      // of each if: its else, or its end
	locals []int64
	stack  []int64
	labels []openLabel
}

// run calls a function and returns its results.
func (v *machine) run(function int, args []int64) ([]int64, error) {
	if function < v.m.importedFuncs {
		v.host(v)
		return nil, nil
	}
	if v.depth++; v.depth > 100 {
		return nil, errors.New("too deep")
	}
	defer func() { v.depth-- }()
	body := v.m.Bodies[function-v.m.importedFuncs]
	t := v.m.Types[v.m.Funcs[function]]
	a := &activation{machine: v, locals: append(append([]int64(nil), args...), make([]int64, body.Locals)...)}
	a.decode(body)
	a.labels = []openLabel{{end: len(a.code) - 1, carries: len(t.Results)}}
	for pc := 0; pc < len(a.code); {
		next, err := a.step(pc)
		if err != nil {
			return nil, err
		}
		pc = next
	}
	return a.stack[len(a.stack)-len(t.Results):], nil
}

func (a *activation) decode(body Body) {
	d := a.m.instructions(body)
	var open []int
	for d.left() > 0 {
		in := d.next()
		i := len(a.code)
		a.code = append(a.code, in)
		a.tables = append(a.tables, append([]uint32(nil), d.targets...))
		a.ends, a.elses = append(a.ends, 0), append(a.elses, 0)
		switch in.op {
		case opBlock, opLoop, opIf:
			open = append(open, i)
		case opElse:
			a.elses[open[len(open)-1]] = i
		case opEnd:
			if len(open) == 0 {
				return
			}
			start := open[len(open)-1]
			open = open[:len(open)-1]
			a.ends[start] = i
			if a.elses[start] == 0 {
				a.elses[start] = i
			} else {
				a.ends[a.elses[start]] = i
			}
		}
	}
}

// pop takes a value that the innermost block has pushed: others are not its.
func (a *activation) pop() int64 {
	a.own(1)
	v := a.stack[len(a.stack)-1]
	a.stack = a.stack[:len(a.stack)-1]
	return v
}

func (a *activation) own(values int) {
	if len(a.stack)-values < a.labels[len(a.labels)-1].height {
		panic(fmt.Sprintf("% x: a block takes values from outside", a.m.raw))
	}
}

func (a *activation) push(v int64) { a.stack = append(a.stack, v) }

// branch goes to a label and returns the next instruction.
func (a *activation) branch(l uint32) int {
	at := len(a.labels) - 1 - int(l)
	to := a.labels[at]
	a.own(to.carries)
	carried := a.stack[len(a.stack)-to.carries:]
	a.stack = append(a.stack[:to.height], carried...)
	if to.loop {
		a.labels = a.labels[:at+1]
		return to.start
	}
	a.labels = a.labels[:at]
	return to.end + 1
}

func (a *activation) enter(pc int, in instruction) {
	var t FuncType
	switch {
	case in.typed:
		t = a.m.Types[in.index]
	case a.m.raw[in.at+1] != blockEmpty:
		t.Results = []ValType{I32}
	}
	a.own(len(t.Params))
	l := openLabel{start: pc + 1, end: a.ends[pc], height: len(a.stack) - len(t.Params), carries: len(t.Results)}
	if in.op == opLoop {
		l.loop, l.carries = true, len(t.Params)
	}
	a.labels = append(a.labels, l)
}

// step runs an instruction and returns the next one.
func (a *activation) step(pc int) (int, error) {
	in := a.code[pc]
	a.machine.steps += a.machine.m.steps(in)
	a.machine.charged += a.machine.charges[in.at]
	if a.seen++; a.seen > stepsAtMost {
		return 0, errors.New("too long")
	}
	switch in.op {
	case 0:
		return 0, errTrap
	case opNop:
	case opBlock, opLoop:
		a.enter(pc, in)
	case opIf:
		condition := a.pop()
		a.enter(pc, in)
		if condition == 0 {
			if a.code[a.elses[pc]].op == opElse {
				return a.elses[pc] + 1, nil
			}
			return a.elses[pc], nil
		}
	case opElse:
		return a.ends[pc], nil
	case opEnd:
		a.labels = a.labels[:len(a.labels)-1]
	case opBr:
		return a.branch(in.index), nil
	case opBrIf:
		if a.pop() != 0 {
			return a.branch(in.index), nil
		}
	case opBrTable:
		targets := a.tables[pc]
		return a.branch(targets[min(uint64(a.pop()), uint64(len(targets)-1))]), nil
	case opReturn:
		return a.branch(uint32(len(a.labels) - 1)), nil
	case opCall:
		return pc + 1, a.call(int(in.index))
	default:
		return pc + 1, a.plain(in)
	}
	return pc + 1, nil
}

func (a *activation) call(function int) error {
	n := len(a.m.Types[a.m.Funcs[function]].Params)
	a.own(n)
	args := a.stack[len(a.stack)-n:]
	a.stack = a.stack[:len(a.stack)-n]
	results, err := a.run(function, args)
	a.stack = append(a.stack, results...)
	return err
}

func (a *activation) plain(in instruction) error {
	constant := cursor{b: a.m.raw, at: in.at + 1, end: in.end}
	switch in.op {
	case opDrop:
		a.pop()
	case opLocalGet:
		a.push(a.locals[in.index])
	case opLocalSet:
		a.locals[in.index] = a.pop()
	case opLocalTee:
		a.locals[in.index] = a.stack[len(a.stack)-1]
	case opGlobalGet:
		a.push(a.globals[in.index])
	case opGlobalSet:
		a.globals[in.index] = a.pop()
	case opI32Const:
		a.push(constant.signed(32, "a constant"))
	case opI64Const:
		a.push(constant.signed(64, "a constant"))
	case opI32Add:
		a.push(int64(int32(a.pop() + a.pop())))
	case opI32Eqz:
		if a.pop() == 0 {
			a.push(1)
		} else {
			a.push(0)
		}
	case opI64Sub:
		v := a.pop()
		a.push(a.pop() - v)
	case opI64LtS:
		v := a.pop()
		if a.pop() < v {
			a.push(1)
		} else {
			a.push(0)
		}
	default:
		return fmt.Errorf("this machine has no instruction 0x%02x", uint16(in.op))
	}
	return nil
}

const (
	opI32Eqz opcode = 0x45
	opI32Add opcode = 0x6a
)

// metered runs function 0 of a module after metering, with slices of a few steps, and returns what was
// counted.
func metered(m *Module, args []int64, slice int64) (results []int64, used int64, ticks int, err error) {
	out, err := Meter(m, 10)
	if err != nil {
		return nil, 0, 0, err
	}
	after, err := Read(out)
	if err != nil {
		return nil, 0, 0, err
	}
	v := newMachine(after)
	fuel := &v.globals[len(v.globals)-1]
	*fuel = slice
	v.host = func(*machine) {
		ticks++
		used += slice - *fuel
		*fuel = slice
	}
	results, err = v.run(1, args)
	return results, used + slice - *fuel, ticks, err
}

// u is a number as the format has it.
func u(n uint64) string { return string(binary.AppendUvarint(nil, n)) }
