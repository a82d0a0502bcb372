//go:build wasip1

// Command go counts words: it splits values at ASCII white space and emits each word with 1, or several
// occurrences at once. Build it with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o wordcount.wasm ./examples/wasm/wordcount/go
package main

import "github.com/pinion-mr/pinion/guest"

var counts guest.Counter

//go:wasmexport map
func words(ptr, size uint32) uint32 {
	for r := range guest.Records(ptr, size) {
		for word := range guest.Words(r.Value()) {
			counts.Add(word, 1)
		}
	}
	return guest.Flush()
}

// total of the key whose pairs are being read: they may come in several batches.
var total int64

//go:wasmexport reduce
func sum(ptr, size uint32) uint32 {
	for r := range guest.Records(ptr, size) {
		if r.First() {
			total = 0
		}
		n, _ := r.Int()
		total += n
		if r.Last() {
			guest.EmitInt(r.Key(), total)
		}
	}
	return guest.Flush()
}

func main() {}
