package wasm

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The types that functions and blocks of these tests may have.
const testTypes = "\x03\x60\x02\x7f\x7f\x01\x7f" + "\x60\x01\x7f\x01\x7f" + "\x60\x00\x00"

// single makes a module of (i32, i32) -> i32 with two more locals; function 1 returns its first operand.
func single(t testing.TB, code string) *Module {
	body := "\x01\x02\x7f" + code + "\x0b"
	other := "\x00\x20\x00\x0b"
	file := module(section(1, testTypes), section(3, "\x02\x00\x00"),
		section(10, "\x02"+u(uint64(len(body)))+body+u(uint64(len(other)))+other))
	m, err := Read(file)
	if err != nil {
		t.Fatalf("% x: %v", code, err)
	}
	return m
}

const (
	inc0 = "\x20\x00\x41\x01\x6a\x21\x00" // local 0 += 1, one step
	dec1 = "\x20\x01\x41\x7f\x6a\x22\x01" // local 1 -= 1 and leaves it, one step
)

// much is more than is paid with what leads to it.
var much = strings.Repeat(inc0, 130)

// What is counted is what the rule says, by hand: the steps of the code that runs, and of the small regions
// that are paid together with it.
func TestFuel(t *testing.T) {
	for name, c := range map[string]struct {
		code string
		n    int64 // local 1
		want int64
	}{
		"empty":                     {"\x20\x00", 5, 0},
		"straight":                  {inc0 + inc0 + "\x20\x00", 5, 2},
		"loop":                      {"\x03\x40" + inc0 + dec1 + "\x0d\x00\x0b\x20\x00", 5, 5 * 3},
		"loop and code around":      {inc0 + "\x03\x40" + dec1 + "\x0d\x00\x0b" + inc0 + "\x20\x00", 5, 2 + 5*2},
		"loop that runs once":       {"\x03\x40" + inc0 + "\x0b\x20\x00", 5, 1},
		"loop of nothing":           {"\x03\x40\x0b\x20\x00", 5, 1},
		"loop with a result":        {"\x03\x7f" + dec1 + "\x0d\x00\x20\x00\x0b", 5, 5 * 2},
		"loop with a parameter":     {"\x20\x00\x03\x01\x1a\x20\x00" + dec1 + "\x0d\x00\x0b", 5, 5 * 2},
		"loop in a loop":            {"\x03\x40\x41\x03\x21\x02\x03\x40\x20\x02\x41\x7f\x6a\x22\x02\x0d\x00\x0b" + dec1 + "\x0d\x00\x0b\x20\x00", 4, 4 * (2 + 3*2)},
		"left in the middle":        {"\x02\x40\x03\x40" + dec1 + "\x45\x0d\x01" + inc0 + "\x0c\x00\x0b\x0b\x20\x00", 5, 5 * (3 + 1)},
		"return out of a loop":      {"\x03\x40" + dec1 + "\x45\x04\x40\x20\x00\x0f\x0b\x0c\x00\x0b\x20\x00", 5, 5 * (3 + 1)},
		"loop in both arms":         {"\x20\x00\x04\x40\x03\x40" + dec1 + "\x0d\x00\x0b\x05\x03\x40" + inc0 + dec1 + "\x0d\x00\x0b\x0b\x20\x00", 4, 1 + 4*3},
		"loop behind unreachable":   {"\x20\x01\x0f\x03\x40" + inc0 + "\x0c\x00\x0b\x20\x00", 4, 1},
		"back edge of a br_table":   {"\x02\x40\x03\x40" + dec1 + "\x0e\x01\x01\x00\x0b\x0b\x20\x00", 4, 4 * 2},
		"call":                      {"\x20\x00\x20\x01\x10\x01", 4, 1},
		"call in a loop":            {"\x03\x40\x20\x00\x20\x01\x10\x01\x1a" + dec1 + "\x0d\x00\x0b\x20\x00", 4, 4 * 3},
		"call before a loop":        {"\x20\x00\x20\x01\x10\x01\x1a\x03\x40" + dec1 + "\x0d\x00\x0b\x20\x00", 4, 1 + 4*2},
		"small arm, paid as part":   {"\x20\x00\x04\x40" + inc0 + "\x0b\x20\x00", 4, 1 + 1},
		"large arm, not taken":      {"\x20\x00\x04\x40" + much + "\x0b\x20\x00", 4, 1},
		"large arm, taken":          {"\x20\x01\x04\x40" + much + "\x0b\x20\x00", 4, 1 + 130},
		"behind a block, not left":  {"\x02\x40" + inc0 + "\x0b" + much + "\x20\x00", 4, 131},
		"behind a block, left out":  {"\x02\x40\x20\x01\x20\x01\x0d\x01\x1a" + inc0 + "\x0b" + much + "\x20\x00", 4, 1 + 1},
		"behind a loop, jumped out": {"\x02\x40\x03\x40" + dec1 + "\x45\x0d\x01\x0c\x00\x0b" + much + "\x0b\x20\x00", 4, 4 * (3 + 1)},
		"out of three blocks":       {"\x02\x40\x02\x40\x02\x40\x20\x01\x0d\x02\x0b\x0b" + much + "\x0b\x20\x00", 4, 1},
		"return before much":        {"\x20\x01\x04\x40\x20\x00\x0f\x0b" + much + "\x20\x00", 4, 1 + 1},
		"much without a loop":       {strings.Repeat(inc0, 70) + "\x20\x00", 4, 70},
	} {
		t.Run(name, func(t *testing.T) {
			m := single(t, c.code)
			plain := newMachine(m)
			want, err := plain.run(0, []int64{0, c.n})
			if err != nil {
				t.Fatal(err)
			}
			for _, slice := range []int64{1, 7, Slice} {
				got, used, ticks, err := metered(m, []int64{0, c.n}, slice)
				if err != nil || !reflect.DeepEqual(got, want) || used != c.want {
					t.Errorf("slices of %d: %v, %v, %d steps; want %v, %d steps", slice, got, err, used, want, c.want)
				}
				if slice == Slice && ticks > 0 || slice == 1 && name == "much without a loop" && ticks == 0 {
					t.Errorf("slices of %d: %d ticks", slice, ticks)
				}
			}
		})
	}
}

// Where paths meet, locals that were set on one of them cost something, as they do when the code runs.
func TestFuelOfLocals(t *testing.T) {
	var sets strings.Builder
	for i := range 64 {
		sets.WriteString("\x41\x00\x21" + u(uint64(2+i)))
	}
	for name, c := range map[string]struct {
		code string
		want int64
	}{
		"an arm, not taken": {"\x20\x00\x04\x40" + sets.String() + "\x0b\x20\x00", 1 + 64/joinedLocals},
		"an arm, taken":     {"\x20\x01\x04\x40" + sets.String() + "\x0b\x20\x00", 1 + 64/joinedLocals},
		"a loop":            {"\x03\x40" + sets.String() + dec1 + "\x0d\x00\x0b\x20\x00", 3*(2+65/joinedLocals) + 65/joinedLocals},
	} {
		body := "\x01\x80\x01\x7f" + c.code + "\x0b"
		m, err := Read(module(section(1, typeOne), section(3, "\x01\x00"), section(10, "\x01"+u(uint64(len(body)))+body)))
		if err != nil {
			t.Fatal(err)
		}
		if _, used, _, err := metered(m, []int64{0, 3}, Slice); err != nil || used != c.want {
			t.Errorf("%s: %d steps, %v; want %d", name, used, err, c.want)
		}
	}
}

// programs draws functions of blocks, loops, branches and calls that end: all branches back take one from a
// number that begins with 30.
type programs struct {
	*rapid.T
	blocks []int // 1 for those that a branch takes a value to, -1 for loops
}

func (p *programs) draw(n int, what string) int { return rapid.IntRange(0, n-1).Draw(p.T, what) }

func (p *programs) code(depth int) string {
	var s strings.Builder
	for range p.draw(4, "statements") + 1 {
		s.WriteString(p.statement(depth))
	}
	return s.String()
}

// inside draws the contents of a block.
func (p *programs) inside(kind, depth int) string {
	p.blocks = append(p.blocks, kind)
	s := p.code(depth - 1)
	p.blocks = p.blocks[:len(p.blocks)-1]
	return s
}

func (p *programs) statement(depth int) string {
	kind := p.draw(12, "statement")
	if depth == 0 && kind < 5 {
		kind += 5
	}
	value := "\x20" + u(uint64(p.draw(3, "local")))
	switch kind {
	case 0:
		return "\x02\x40" + p.inside(0, depth) + "\x0b"
	case 1:
		return value + "\x04\x40" + p.inside(0, depth) + "\x05" + p.inside(0, depth) + "\x0b"
	case 2:
		return "\x03\x40" + p.inside(-1, depth) + "\x0b"
	case 3:
		return "\x02\x7f" + p.inside(1, depth) + value + "\x0b\x21\x00"
	case 4: // a loop with a parameter, which is not branched back to with one
		return value + "\x03\x01\x1a" + p.inside(-2, depth) + value + "\x0b\x21\x02"
	case 5, 6:
		return p.branch(value)
	case 7:
		return value + value + "\x10\x01\x21\x00"
	case 8:
		return strings.Repeat("\x20\x02\x41\x01\x6a\x21\x02", p.draw(20, "length"))
	default:
		return value + "\x41" + string(rune(p.draw(3, "constant"))) + "\x6a\x21" + string(rune(p.draw(3, "local")))
	}
}

// branch draws a way out or back.
func (p *programs) branch(value string) string {
	l := p.draw(len(p.blocks)+1, "label")
	to := 1 // of the function, which has a result
	if l < len(p.blocks) {
		to = p.blocks[len(p.blocks)-1-l]
	}
	label := u(uint64(l))
	switch {
	case to < 0: // while local 3 is not 0: --local 3, branch
		carried := ""
		if to == -2 {
			carried = value
		}
		return "\x20\x03\x04\x40\x20\x03\x41\x7f\x6a\x21\x03" + carried + "\x0c" + u(uint64(l)+1) + "\x0b"
	case to == 1:
		return "\x20\x00" + value + "\x0d" + label + "\x1a"
	case p.draw(2, "table") == 0:
		return value + "\x04\x40" + value + "\x0e\x01" + u(uint64(l)+1) + "\x00\x0b"
	default:
		return value + "\x0d" + label
	}
}

// A metered function does what it did, and counts what is due where it comes by, wherever the fuel is kept. That is
// at least a quarter of what it does, and not many times that.
func TestMeteredPrograms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &programs{T: t}
		code := "\x41\x1e\x21\x03" + p.code(5) + "\x20\x00"
		body := "\x01\x02\x7f" + code + "\x0b"
		other := "\x00\x20\x00\x04\x40\x20\x01\x0f\x0b\x20\x00\x0b"
		m, err := Read(module(section(1, testTypes), section(3, "\x02\x00\x00"),
			section(10, "\x02"+u(uint64(len(body)))+body+u(uint64(len(other)))+other)))
		if err != nil {
			t.Fatal(err)
		}
		args := []int64{int64(p.draw(2, "argument")), int64(p.draw(3, "argument"))}
		plain := newMachine(m)
		want, wantErr := plain.run(0, args)
		if wantErr != nil && !errors.Is(wantErr, errTrap) {
			t.Skip(wantErr)
		}
		slice := int64(rapid.SampledFrom([]int{1, 10, 100, Slice}).Draw(t, "slice"))
		got, used, _, err := metered(m, args, slice)
		if !errors.Is(err, wantErr) || !slices.Equal(got, want) {
			t.Fatalf("% x: %v, %v; metered %v, %v", code, want, wantErr, got, err)
		}
		if wantErr != nil {
			return
		}
		if used != plain.charged {
			t.Fatalf("% x: counted %d steps of %d", code, used, plain.charged)
		}
		if skippedSteps*used < plain.steps || used > 2*plain.steps+smallRegions/skippedSteps*(plain.seen+1) {
			t.Fatalf("% x: %d steps were done, %d were counted", code, plain.steps, used)
		}
	})
}

// The places in a module that hold the number of a function or of a table's size.
func TestMeterModule(t *testing.T) {
	names := "\x04name\x00\x04\x03abc" + "\x01\x0b\x03\x00\x01i\x01\x01f\x02\x01g" + "\x02\x05\x01\x01\x01\x00\x00"
	elements := "\x03\x00\x41\x00\x0b\x01\x02" + "\x05\x70\x02\xd2\x01\x0b\xd0\x70\x0b" + "\x03\x00\x01\x00"
	code := "\x02\x0b\x00\x41\x00\x41\x00\x10\x02\xd2\x02\x1a\x0b" + "\x02\x00\x0b"
	file := module(section(1, "\x02\x60\x02\x7f\x7f\x01\x7f\x60\x00\x00"), section(2, imports), section(3, "\x02\x00\x01"), section(4, tables),
		section(5, memory), section(6, "\x02\x70\x00\xd2\x02\x0b\x7f\x01\x41\x05\x0b"), section(7, "\x02\x03map\x00\x01\x01m\x02\x00"),
		section(8, "\x02"), section(9, elements), section(10, code), section(0, "\x03abcxyz"), section(0, names))
	m, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Meter(m, 100)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := Meter(m, 100)
	if !bytes.Equal(out, again) {
		t.Error("the same module is metered in two ways")
	}
	after, err := Read(out)
	if err != nil {
		t.Fatal(err)
	}
	batch := m.Types[0]
	checks := map[string][2]any{
		"types":   {after.Types, m.Types},
		"imports": {after.Imports, append(slices.Clone(m.Imports), Import{Module: TickModule, Name: TickName, Func: FuncType{}})},
		"funcs":   {after.Funcs, []uint32{0, 1, 0, 1}},
		"globals": {after.Globals, append(slices.Clone(m.Globals), GlobalType{I64, true})},
		"exports": {after.Exports, []Export{{"map", Func, 2, batch}, {"m", Memory, 0, FuncType{}}, {FuelExport, Global, 2, FuncType{}}}},
		"start":   {after.Start, uint32(3)},
		"tables":  {after.Tables, []Range{{1, 2, true, FuncRef}, {7, 100, true, FuncRef}, {1, 100, true, ExternRef}}},
		"names":   {maps.Collect(after.functionNames()), map[uint32]string{0: "i", 2: "f", 3: "g"}},
		"module":  {after.Name, "abc"},
		"customs": {after.Customs, []string{"name"}},
		"locals":  {after.Bodies[0].Locals, m.Bodies[0].Locals + 1},
	}
	for _, what := range slices.Sorted(maps.Keys(checks)) {
		if c := checks[what]; !reflect.DeepEqual(c[0], c[1]) {
			t.Errorf("%s: got %v, want %v", what, c[0], c[1])
		}
	}
	elems := "\x03\x00\x41\x00\x0b\x01\x03" + "\x05\x70\x02\xd2\x02\x0b\xd0\x70\x0b" + "\x03\x00\x01\x00"
	for what, bytes := range map[string]string{"elements": elems, "a global": "\x70\x00\xd2\x03\x0b", "code": "\x10\x03\xd2\x03\x1a\x0b"} {
		if !strings.Contains(string(out), bytes) {
			t.Errorf("%s: functions have their old numbers", what)
		}
	}
	if small, err := Meter(m, 2); err != nil {
		t.Error(err)
	} else if after, err := Read(small); err != nil || after.Tables[1].Max != 7 {
		t.Errorf("a table of at least 7 elements: %v, %v", after, err)
	}
	if large, err := Meter(m, 1<<20); err != nil {
		t.Error(err)
	} else if after, err := Read(large); err != nil || after.Tables[2].Max != 65_535 {
		t.Errorf("a table of at most 65535 elements: %v, %v", after, err)
	}
}

// A module that has nothing of what Meter adds to gets all of it.
func TestMeterEmpty(t *testing.T) {
	m, err := Read(module())
	if err != nil {
		t.Fatal(err)
	}
	out, err := Meter(m, 100)
	if err != nil {
		t.Fatal(err)
	}
	after, err := Read(out)
	if err != nil || len(after.Types) != 1 || len(after.Imports) != 1 || len(after.Globals) != 1 || len(after.Exports) != 1 {
		t.Errorf("%+v, %v", after, err)
	}
}

func TestMeterReserved(t *testing.T) {
	m, err := Read(module(section(1, typeOne), section(2, "\x01\x06pinion\x01x\x00\x00"), section(5, memory), section(7, "\x01\x0bpinion.fuel\x02\x00")))
	if err != nil {
		t.Fatal(err)
	}
	var faults Faults
	if _, err := Meter(m, 100); !errors.As(err, &faults) || len(faults) != 2 {
		t.Errorf("Meter = %v", err)
	}
}

// Operations on many bytes are counted by how many, behind them if that is not known before, and memory.grow as a
// whole slice.
func TestMeterBulk(t *testing.T) {
	const remembers = "\x22\x01" // the operand, in the second of the new locals
	slice := string(appendSigned([]byte{byte(opI64Const)}, growSteps)) + "\x7d"
	for name, c := range map[string]struct {
		code, want string
		looks      int
	}{
		"memory.fill":     {"\x41\x00\x41\x00\x41\x80\x10\xfc\x0b\x00", remembers, 1},
		"memory.copy":     {"\x41\x00\x41\x00\x41\x80\x10\xfc\x0a\x00\x00", remembers, 1},
		"table.fill":      {"\x41\x00\xd0\x70\x41\x80\x10\xfc\x11\x00", remembers, 1},
		"unknown":         {"\x41\x00\x41\x00\x3f\x00\xfc\x0b\x00", remembers, 1},
		"negative":        {"\x41\x00\x41\x00\x41\x7f\xfc\x0b\x00", remembers, 1},
		"few bytes":       {"\x41\x00\x41\x00\x41\x80\x08\xfc\x0b\x00", "\x42\xc1\x00\x7d", 1}, // 1 + 1024/16, more than is free
		"no bytes":        {"\x41\x00\x41\x00\x41\x00\xfc\x0b\x00", "\x42\x01\x7d", 0},
		"1040 bytes":      {"\x41\x00\x41\x00\x41\x90\x08\xfc\x0b\x00", remembers, 1},
		"memory.grow":     {"\x41\x05\x40\x00\x1a", slice, 1},
		"table.grow":      {"\xd0\x70\x41\x05\xfc\x0f\x00\x1a", slice, 1},
		"bytes in blocks": {"\x41\x00\x41\x00\x02\x7f\x41\x05\x0b\xfc\x0b\x00", remembers, 1},
	} {
		body := "\x00" + c.code + "\x0b"
		m, err := Read(module(section(1, "\x01\x60\x00\x00"), section(3, "\x01\x00"), section(4, "\x01\x70\x00\x07"), section(5, memory),
			section(10, "\x01"+u(uint64(len(body)))+body)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out, err := Meter(m, 100)
		if err != nil {
			t.Fatal(err)
		}
		after, err := Read(out)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b := after.Bodies[0]
		const tick = "\x20\x00\x24\x00\x10\x00\x23\x00\x21\x00\x0b" // with the fuel in the global
		if got := string(out[b.Offset : b.Offset+b.Size]); strings.Count(got, c.want) != 1 || strings.Count(got, tick) != c.looks {
			t.Errorf("%s: code is % x", name, got)
		}
	}
}

func BenchmarkMeter(b *testing.B) {
	code := strings.Repeat("\x03\x40"+inc0+dec1+"\x0d\x00\x0b", 1_000)
	m := single(b, code+"\x20\x00")
	b.SetBytes(int64(len(code)))
	for b.Loop() {
		if _, err := Meter(m, 100); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleMeter() {
	m, err := Read([]byte("\x00asm\x01\x00\x00\x00"))
	if err != nil {
		fmt.Println(err)
		return
	}
	file, err := Meter(m, 10_000)
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err = Read(file)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Imports[0].Module, m.Imports[0].Name, m.Exports[0].Name)
	// Output: pinion tick pinion.fuel
}

// Who calls itself looks each time, at its beginning or in a loop that it cannot miss.
func TestLooksOfRecursion(t *testing.T) {
	const turns, again = 50, "\x20\x00\x20\x01\x41\x7f\x6a\x10\x00\x1a"
	loop := "\x03\x40" + inc0 + "\x0b"
	for name, c := range map[string]struct{ always, arm string }{
		"no loop":                {"", again},
		"a loop before":          {loop, again},
		"a loop in blocks":       {"\x02\x40\x02\x40" + loop + "\x0b\x0b", again},
		"a loop with parameters": {"\x20\x00\x03\x01" + inc0 + "\x0b\x1a", again},
		"a loop behind":          {"", again + loop},
		"a loop in the arm":      {"", loop + again},
		"a loop in another arm":  {"\x41\x00\x04\x40" + loop + "\x0b", again},
		"a loop jumped over":     {"\x02\x40\x41\x01\x0d\x00" + loop + "\x0b", again},
		"a loop behind calls":    {"\x20\x01\x04\x40" + again + "\x0b" + loop, ""},
	} {
		m := single(t, c.always+"\x20\x01\x04\x40"+c.arm+"\x0b\x20\x00")
		_, _, ticks, err := metered(m, []int64{0, turns}, 1)
		if err != nil || ticks < turns {
			t.Errorf("%s: %d looks in %d calls, %v", name, ticks, turns, err)
		}
	}
}

// A function that does little looks at nothing, so its callers look now and then, whatever blocks are in the way.
func TestLooksBetweenCalls(t *testing.T) {
	const calls = 600
	call := "\x20\x00\x20\x01\x10\x01\x1a"
	never := "\x41\x00\x04\x40" + call + "\x0b"
	// arms has a dead arm of n calls, at whose end there is a look, beside one that is run.
	arms := func(n int) string {
		return "\x41\x00\x04\x40" + strings.Repeat(call, n) + "\x05" + strings.Repeat(call, freeCalls-1) + "\x0b"
	}
	leaf := "\x00" + strings.Repeat(inc0, freeSteps/4) + "\x20\x00\x0b"
	for name, code := range map[string]string{
		"straight":            strings.Repeat(call, calls),
		"in blocks":           strings.Repeat("\x02\x40"+call+"\x0b", calls),
		"beside what is dead": strings.Repeat(strings.Repeat(call, freeCalls-1)+never, calls/(freeCalls-1)+1),
		"beside dead arms":    arms(freeCalls) + strings.Repeat(arms(1), calls/(freeCalls-1)),
		"in arms":             strings.Repeat("\x20\x01\x04\x40"+call+call+"\x05"+never+"\x0b", calls/2),
	} {
		body := "\x00" + code + "\x20\x00\x0b"
		m, err := Read(module(section(1, typeOne), section(3, "\x02\x00\x00"),
			section(10, "\x02"+u(uint64(len(body)))+body+u(uint64(len(leaf)))+leaf)))
		if err != nil {
			t.Fatal(err)
		}
		// Each look finds a slice of one step used up.
		if _, _, ticks, err := metered(m, []int64{0, 1}, 1); err != nil || ticks < calls/freeCalls {
			t.Errorf("%s: %d looks in %d calls, %v", name, ticks, calls, err)
		}
	}
}

// What a call passes is charged: a function may have a thousand parameters.
func TestCallsPayForWhatTheyPass(t *testing.T) {
	wide := "\x60\x20" + strings.Repeat("\x7f", 32) + "\x00"
	body := "\x00" + strings.Repeat("\x41\x00", 32) + "\x10\x01" + "\x20\x00\x0b"
	m, err := Read(module(section(1, "\x02\x60\x02\x7f\x7f\x01\x7f"+wide), section(3, "\x02\x00\x01"),
		section(10, "\x02"+u(uint64(len(body)))+body+"\x02\x00\x0b")))
	if err != nil {
		t.Fatal(err)
	}
	if _, used, _, err := metered(m, []int64{0, 1}, Slice); err != nil || used != 1+32/passedValues {
		t.Errorf("%d steps, %v; want %d", used, err, 1+32/passedValues)
	}
}
