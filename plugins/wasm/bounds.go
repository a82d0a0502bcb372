package wasm

// Bounds are the largest counts and sizes that Read accepts. Each is checked before anything is allocated
// for what is counted. Most are those of browsers (https://webassembly.github.io/spec/js-api/#limits);
// segments are more, since Go's linker makes many.
type Bounds struct {
	Size      int // of the file, bytes
	Sections  int // custom ones included
	Types     int
	Imports   int
	Functions int // that are not imported
	Exports   int
	Segments  int // of elements and of data, each
	Elements  int // of all element segments
	Arity     int // parameters or results of one function
	Tables    int
	Globals   int // that are not imported
	Name      int // bytes of one name of an import, an export or a section
	Names     int // bytes of all those

	Locals     int // of one function
	AllLocals  int // of all functions
	Body       int // of one function, bytes
	Nesting    int // blocks in one another, a loop counting as four (see [Meter])
	Targets    int // of one br_table
	AllTargets int // of all br_table

	// Weight is an estimate of the time that compiling a function takes, in microseconds on a slow machine:
	// some per instruction, more per access to the memory, per local at each place where paths meet, and per
	// pair of such places. It refuses what a small file makes expensive, such as 20,000 nested ifs with
	// 1,000 locals. 14 MB of Go weigh 23 million, and their largest function 300,000.
	Weight    int
	AllWeight int // of all functions
}

// DefaultBounds are those of [Read].
func DefaultBounds() Bounds {
	return Bounds{
		Size: 32 << 20, Sections: 1_000, Types: 100_000, Imports: 10_000, Functions: 200_000, Exports: 100_000,
		Segments: 1_000_000, Elements: 1_000_000, Arity: 1_000, Tables: 16, Globals: 100_000, Name: 10_000, Names: 4 << 20,
		Locals: 50_000, AllLocals: 5_000_000, Body: 2 << 20, Nesting: 5_000, Targets: 65_536, AllTargets: 1_000_000,
		Weight: 5_000_000, AllWeight: 40_000_000,
	}
}
