// Command go uses each part of package guest; sdk_test.go knows what has to come out. The same functions are in
// ../c/sdk.c.
package main

import (
	"errors"
	"fmt"

	"github.com/pinion-mr/pinion/guest"
)

var (
	records, total int64
	sum            guest.Counter
)

func init() {
	guest.OnBegin(func() error {
		records = 0
		if guest.Param("begin") == "fail" {
			return errors.New("begin was told to fail")
		}
		return nil
	})
	guest.OnEnd(func() error {
		if records > 0 {
			guest.EmitInt([]byte("records"), records)
		}
		return nil
	})
}

// all emits its record in all forms.
//
//go:wasmexport map
func all(ptr, size uint32) uint32 {
	for r := range guest.Records(ptr, size) {
		records++
		guest.Emit(r.Key(), r.Value())
		guest.EmitInt(r.Value(), -int64(len(r.Value())))
		guest.EmitFloat(r.Value(), 0.5)
		guest.Log(string(r.Value()))
		guest.Count("map", 2)
	}
	return guest.Flush()
}

// params emits the parameter a, and whether b was given.
//
//go:wasmexport params
func params(ptr, size uint32) uint32 {
	return guest.Batch(ptr, size, func(r guest.Record) error {
		guest.Emit(r.Key(), []byte(guest.Param("a")))
		given := "missing"
		if _, ok := guest.LookupParam("b"); ok {
			given = "given"
		}
		guest.Emit(r.Key(), []byte(given))
		return nil
	})
}

// sums adds up the words.
//
//go:wasmexport sums
func sums(ptr, size uint32) uint32 {
	for r := range guest.Records(ptr, size) {
		for w := range guest.Words(r.Value()) {
			sum.Add(w, 1<<62)
		}
	}
	return guest.Flush()
}

// words emits the words.
//
//go:wasmexport words
func words(ptr, size uint32) uint32 {
	for r := range guest.Records(ptr, size) {
		for w := range guest.Words(r.Value()) {
			guest.Emit(r.Key(), w)
		}
	}
	return guest.Flush()
}

//go:wasmexport failing
func failing(ptr, size uint32) uint32 {
	return guest.Batch(ptr, size, func(r guest.Record) error {
		return fmt.Errorf("cannot take it: %s", r.Value())
	})
}

//go:wasmexport panicking
func panicking(ptr, size uint32) uint32 {
	for r := range guest.Records(ptr, size) {
		guest.EmitInt(r.Value()[len(r.Value()):][:1:1], 1)
	}
	return guest.Flush()
}

// reduce adds up the i64s of a key.
//
//go:wasmexport reduce
func reduce(ptr, size uint32) uint32 {
	return guest.Batch(ptr, size, func(r guest.Record) error {
		if r.First() {
			total = 0
		}
		n, ok := r.Int()
		if !ok {
			return fmt.Errorf("the value is no i64; the key is %s", r.Key())
		}
		total += n
		if r.Last() {
			guest.EmitInt(r.Key(), total)
		}
		return nil
	})
}

//go:wasmexport floats
func floats(ptr, size uint32) uint32 {
	for r := range guest.Records(ptr, size) {
		if f, ok := r.Float(); ok && r.First() {
			guest.EmitFloat(r.Key(), 2*f)
		}
	}
	return guest.Flush()
}

func main() {}
