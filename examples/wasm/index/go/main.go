//go:build wasip1

// Command go makes an inverted index: for each word the documents that contain it. A record is a document's name, a tab
// and a piece of its text:
//
//	moby.txt	Call me Ishmael.
//
// Words are runs of letters and digits, in lower case. Use it with reduce module: the row of a word has the names of its
// documents in order, with commas between them.
package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"unicode"

	"github.com/pinion-mr/pinion/guest"
)

//go:wasmexport map
func words(ptr, size uint32) uint32 {
	return guest.Batch(ptr, size, func(r guest.Record) error {
		document, text, ok := bytes.Cut(r.Value(), []byte("\t"))
		if !ok || len(document) == 0 {
			return errors.New("a record must be a document's name, a tab and text")
		}
		for word := range bytes.FieldsFuncSeq(text, isSeparator) {
			guest.Emit(bytes.ToLower(word), document)
		}
		return nil
	})
}

func isSeparator(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// documents of the present word: its pairs may come in several batches.
var documents = map[string]bool{}

//go:wasmexport combine
func combine(ptr, size uint32) uint32 {
	for r := range guest.Records(ptr, size) {
		if r.First() {
			clear(documents)
		}
		if !documents[string(r.Value())] {
			documents[string(r.Value())] = true
			guest.Emit(r.Key(), r.Value())
		}
	}
	return guest.Flush()
}

//go:wasmexport reduce
func reduce(ptr, size uint32) uint32 {
	for r := range guest.Records(ptr, size) {
		if r.First() {
			clear(documents)
		}
		documents[string(r.Value())] = true
		if r.Last() {
			names := make([]string, 0, len(documents))
			for name := range documents {
				names = append(names, name)
			}
			slices.Sort(names)
			guest.Emit(r.Key(), []byte(strings.Join(names, ",")))
		}
	}
	return guest.Flush()
}

func main() {}
