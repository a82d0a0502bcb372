//go:build wasip1

// Command wordcount-go is the word counter in Go: it splits values at ASCII white space and emits each word
// with 1. Build it with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o wordcount-go.wasm ./examples/wasm/wordcount-go
package main

import (
	"bytes"

	"github.com/pinion-mr/pinion/guest"
)

//go:wasmexport map
func words(ptr, size uint32) uint32 {
	return guest.Batch(ptr, size, func(r guest.Record) error {
		for word := range bytes.FieldsFuncSeq(r.Value, space) {
			guest.EmitInt(word, 1)
		}
		return nil
	})
}

func space(c rune) bool { return c == ' ' || c >= '\t' && c <= '\r' }

//go:wasmexport reduce
func sum(ptr, size uint32) uint32 {
	return guest.Batch(ptr, size, func(r guest.Record) error {
		if r.First() {
			total = 0
		}
		n, _ := r.Int()
		total += n
		if r.Last() {
			guest.EmitInt(r.Key, total)
		}
		return nil
	})
}

// total of the key whose pairs are being read: they may come in several batches.
var total int64

func main() {}
