package wasm

import "fmt"

// Error says why a file cannot be read, and where.
type Error struct {
	Offset  int    // byte in the file, from 0
	Section string // empty before the first section
	Reason  string
}

// Error gives the reason with its place.
func (e *Error) Error() string {
	switch {
	case e.Section != "":
		return fmt.Sprintf("%s section, byte %d: %s", e.Section, e.Offset, e.Reason)
	case e.Offset > 0:
		return fmt.Sprintf("byte %d: %s", e.Offset, e.Reason)
	default:
		return e.Reason
	}
}
