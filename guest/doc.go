// Package guest is what a module written in Go needs: records in, pairs out. A guest that counts words:
//
//	//go:build wasip1
//
//	package main
//
//	import (
//		"bytes"
//
//		"github.com/pinion-mr/pinion/guest"
//	)
//
//	//go:wasmexport map
//	func words(ptr, size uint32) uint32 {
//		return guest.Batch(ptr, size, func(r guest.Record) error {
//			for _, w := range bytes.Fields(r.Value) {
//				guest.EmitInt(w, 1)
//			}
//			return nil
//		})
//	}
//
//	func main() {} // is not called
//
// Build it with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o words.wasm .
//
// A function named in //go:wasmexport becomes a function that jobs may name: map, combine, reduce or any
// other. The package exports pmr_alloc and pmr_init itself. An export pmr_end, of the shape () -> i32, is
// called after the last batch of each bucket and may emit what a map has gathered; it ends with
//
//	return guest.Flush()
//
// A guest carries nothing from one bucket to the next. A panic fails the job with its message.
//
// [Batch] and the functions that emit exist only where GOOS is wasip1.
package guest
