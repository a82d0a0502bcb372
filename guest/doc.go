// Package guest is what a module written in Go needs: records in, pairs out. A guest that counts words:
//
//	package main
//
//	import "github.com/pinion-mr/pinion/guest"
//
//	var counts guest.Counter
//
//	//go:wasmexport map
//	func words(ptr, size uint32) uint32 {
//		for r := range guest.Records(ptr, size) {
//			for word := range guest.Words(r.Value()) {
//				counts.Add(word, 1)
//			}
//		}
//		return guest.Flush()
//	}
//
//	func main() {} // is not called
//
// Build it with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o words.wasm .
//
// A function named in //go:wasmexport becomes a function that jobs may name: map, combine, reduce or any
// other of this shape. The package itself exports pmr_alloc, pmr_init and pmr_end. What must be done before
// the first or after the last record of each bucket goes to [OnBegin] and [OnEnd]:
//
//	func init() {
//		guest.OnBegin(func() error {
//			field = guest.Param("field") // submit run ... -p field=type
//			return nil
//		})
//	}
//
// A guest carries nothing from one bucket to the next: reset in OnBegin what it gathers.
//
// [Fail], an error returned to [Batch] and a panic end the job with their message; what was written to
// os.Stderr is shown with it.
//
// On other platforms the same code builds and runs, so that a guest is tested like any package: see [Try].
//
// # Speed
//
// Go's compiler makes slow WebAssembly of three things: jumps, calls, and copies of more than 16 bytes that are
// not strings or slices. So a loop that looks at single bytes costs more than one that calls bytes.IndexByte or
// ranges over [Words]; a struct is better passed by a pointer; and a guest should not allocate for each record.
package guest
