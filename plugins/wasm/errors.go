package wasm

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is one fault of a file, and its place.
type Error struct {
	Offset   int    // byte in the file, from 0
	Section  string // empty before the first section
	Function string // number and, if there is one, name, as in `7 "main.run"`; empty outside of functions
	Reason   string

	index int // of the function, if inside
	in    bool
}

// Error gives the reason with its place.
func (e *Error) Error() string {
	switch {
	case e.Function != "":
		return fmt.Sprintf("function %s, byte %d: %s", e.Function, e.Offset, e.Reason)
	case e.Section != "":
		return fmt.Sprintf("%s section, byte %d: %s", e.Section, e.Offset, e.Reason)
	case e.Offset > 0:
		return fmt.Sprintf("byte %d: %s", e.Offset, e.Reason)
	default:
		return e.Reason
	}
}

// Faults are all the faults that were found in a file, in its order; at least one. Use [errors.As] to get
// them from an error of [Read].
type Faults []*Error

// How many faults are kept, how many a message repeats, and how many bytes of a name.
const (
	maxFaults  = 1_000
	maxPrinted = 10
	maxQuoted  = 64
)

// Error gives the first ten and says how many there are besides.
func (f Faults) Error() string {
	var texts []string
	for _, e := range f[:min(len(f), maxPrinted)] {
		texts = append(texts, e.Error())
	}
	if n := len(f) - maxPrinted; n > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(texts, "; ")
}

// quote is a name out of a file, safe to print and not too long.
func quote(name string) string {
	if len(name) <= maxQuoted {
		return strconv.Quote(name)
	}
	end := maxQuoted
	for end > 0 && !utf8.RuneStart(name[end]) {
		end--
	}
	return strconv.Quote(name[:end] + "...")
}
