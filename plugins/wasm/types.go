package wasm

import "strings"

// ValType is the type of a parameter, a result or a local.
type ValType byte

// The types of WebAssembly 2.0.
const (
	I32       ValType = 0x7f
	I64       ValType = 0x7e
	F32       ValType = 0x7d
	F64       ValType = 0x7c
	V128      ValType = 0x7b
	FuncRef   ValType = 0x70
	ExternRef ValType = 0x6f
)

var valTypeNames = map[ValType]string{
	I32: "i32", I64: "i64", F32: "f32", F64: "f64", V128: "v128", FuncRef: "funcref", ExternRef: "externref",
}

// String is the name that the text format uses.
func (t ValType) String() string { return valTypeNames[t] }

// FuncType is the type of a function.
type FuncType struct {
	Params, Results []ValType
}

// String writes (i32, i32) -> i32; a function without results ends after the parenthesis.
func (f FuncType) String() string {
	s := "(" + joinTypes(f.Params) + ")"
	switch len(f.Results) {
	case 0:
		return s
	case 1:
		return s + " -> " + f.Results[0].String()
	default:
		return s + " -> (" + joinTypes(f.Results) + ")"
	}
}

// Is reports whether f has exactly these parameters and results.
func (f FuncType) Is(params, results []ValType) bool {
	return string(asBytes(f.Params)) == string(asBytes(params)) && string(asBytes(f.Results)) == string(asBytes(results))
}

func asBytes(ts []ValType) []byte {
	b := make([]byte, len(ts))
	for i, t := range ts {
		b[i] = byte(t)
	}
	return b
}

func joinTypes(ts []ValType) string {
	names := make([]string, len(ts))
	for i, t := range ts {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}

// Kind says what is imported or exported.
type Kind byte

// The kinds of imports and exports.
const (
	Func   Kind = 0
	Table  Kind = 1
	Memory Kind = 2
	Global Kind = 3
)

// String is the word of the text format.
func (k Kind) String() string {
	switch k {
	case Func:
		return "func"
	case Table:
		return "table"
	case Memory:
		return "memory"
	default:
		return "global"
	}
}

// Range is the size of a memory, in pages of 64 KiB, or of a table, in elements.
type Range struct {
	Min    uint32
	Max    uint32 // if HasMax
	HasMax bool
	Type   ValType // of a table's elements
}

// GlobalType is the type of a global variable.
type GlobalType struct {
	Type    ValType
	Mutable bool
}

// Import is something that the module wants from its host.
type Import struct {
	Module, Name string
	Kind         Kind
	Func         FuncType // of a function
	Range        Range    // of a memory or a table
}

// Export is something that the module gives to its host.
type Export struct {
	Name  string
	Kind  Kind
	Index uint32
	Func  FuncType // of a function
}

// Segment initialises a part of a table or of the memory.
type Segment struct {
	Index  uint32  // of the table or memory
	Offset uint32  // if Known
	Len    int     // elements or bytes
	Active bool    // written when the module is instantiated
	Known  bool    // whether Offset is a constant
	Type   ValType // of elements
}

// Section is the place of a section's contents in the file.
type Section struct {
	ID     byte
	Offset int
	Size   int
}

// Body is a function's code.
type Body struct {
	Offset int    // of its first instruction in the file
	Size   int    // bytes of instructions, the final end included
	Locals uint64 // without parameters
	Weight int    // what compiling it may cost, see [Bounds]

	locals int // where its locals are declared
}

// Module is what [Read] found. Functions, tables and memories are numbered as in the file: imported ones
// first.
type Module struct {
	Name     string // from the name section, may be empty
	Sections []Section
	Types    []FuncType
	Imports  []Import
	Funcs    []uint32 // type index of each function
	Tables   []Range
	Memories []Range
	Globals  []GlobalType
	Exports  []Export
	HasStart bool
	Start    uint32 // function
	Elements []Segment
	Data     []Segment
	Bodies   []Body   // of the functions that are not imported
	Customs  []string // names of custom sections, in order

	raw           []byte
	names         Section // contents of the name section behind its name; of size 0 if there is none
	importedFuncs int
}

// typeOf is the type of a number; the empty one if the type section could not be read so far.
func (m *Module) typeOf(t uint32) FuncType {
	if int(t) >= len(m.Types) {
		return FuncType{}
	}
	return m.Types[t]
}

// Export returns the export of a name.
func (m *Module) Export(name string) (Export, bool) {
	for _, e := range m.Exports {
		if e.Name == name {
			return e, true
		}
	}
	return Export{}, false
}

// Ids of sections.
const (
	customSection    = 0
	typeSection      = 1
	importSection    = 2
	functionSection  = 3
	tableSection     = 4
	memorySection    = 5
	globalSection    = 6
	exportSection    = 7
	startSection     = 8
	elementSection   = 9
	codeSection      = 10
	dataSection      = 11
	dataCountSection = 12
	tagSection       = 13
)

// Section names, by id, for messages.
var sectionNames = [...]string{
	"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code", "data",
	"data count", "tag",
}

func sectionName(id byte) string {
	if int(id) < len(sectionNames) {
		return sectionNames[id]
	}
	return "unknown"
}
