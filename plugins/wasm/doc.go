// Package wasm reads, checks and rewrites modules in the WebAssembly binary format, core 2.0. It is pure:
// bytes in, a [Module], rewritten bytes or [Faults] out.
//
//	m, err := wasm.Read(file)
//	if err != nil {
//		return err // "this is a gzip file, not a WebAssembly module: unpack it first"
//	}
//	for _, e := range m.Exports {
//		if e.Kind == wasm.Func {
//			fmt.Println(e.Name, e.Func) // map (i32, i32) -> i32
//		}
//	}
//	metered, err := wasm.Meter(m, 10_000) // counts its work, and calls the host now and then
//
// [Read] goes through the whole file, every instruction included: sections and their order, all indexes,
// immediates, how blocks nest, constant expressions. Every count and size that the file declares is compared
// with the bytes that are left, and with [Bounds], before anything is allocated for it. What it does not
// check is the types of operands on the stack; the compiler does that anyway, and it is run where it can be
// stopped. Features that are off (threads, 64-bit and several memories, exceptions, GC, tail calls, typed
// function references, relaxed SIMD and more) are refused by name. A fault does not hide those behind it:
// only a section that does not fit the file ends the reading.
//
// [Meter] adds a count of steps to every function. A step is an instruction, but those that only name a
// value (local.get, constants, drop) or hold blocks together; a call is one more for each four values
// that it passes, an operation on many bytes one for each 16, memory.grow and table.grow are [Slice] steps.
// The count is the same whenever the module does the same, on any machine and with any compiler; it is what was
// done or, since steps behind a branch may be paid together with those before it, somewhat more or less.
//
// The format: https://webassembly.github.io/spec/core/binary/index.html
package wasm
