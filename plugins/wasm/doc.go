// Package wasm reads the WebAssembly binary format, far enough to say what a file is before a compiler
// sees it: types, imports, exports, memories, tables, segments and the sizes that decide what compiling
// it would cost. It is pure: bytes in, a [Module] or an [Error] out.
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
//
// Every count and size that the file declares is compared with the bytes that are left, and with
// [Bounds], before anything is allocated for it. Instructions are not read: only the compiler knows
// whether a function's body is valid.
//
// The format: https://webassembly.github.io/spec/core/binary/index.html
package wasm
