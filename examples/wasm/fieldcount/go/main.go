// Command go counts the values of a field of JSON records, such as the events of GitHub's archive. Parameter field: its
// name, with dots where it lies within other objects, as actor.login. Reduce it with sum.
//
// Texts count as they are, other values as they are written. Records that lack the field, or have null there, are told by
// the job's counter missing.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pinion-mr/pinion/guest"
)

var (
	path   []string
	counts guest.Counter
)

func init() {
	guest.OnBegin(func() error {
		path = strings.Split(guest.Param("field"), ".")
		if path[0] == "" {
			return errors.New("the parameter field is missing or empty: give -p field=NAME")
		}
		return nil
	})
}

//go:wasmexport map
func count(ptr, size uint32) uint32 {
	return guest.Batch(ptr, size, func(r guest.Record) error {
		value, err := find(r.Value(), path)
		switch {
		case err != nil:
			return fmt.Errorf("field %s: %w", strings.Join(path, "."), err)
		case value == nil || value[0] == 'n':
			guest.Count("missing", 1)
			return nil
		case value[0] == '"':
			if value, err = unquote(value); err != nil {
				return err
			}
		}
		counts.Add(value, 1)
		return nil
	})
}

// unquote is the text of a JSON string.
func unquote(s []byte) ([]byte, error) {
	if inside := s[1 : len(s)-1]; !escaped(inside) {
		return inside, nil
	}
	var text string
	err := json.Unmarshal(s, &text)
	return []byte(text), err
}

func main() {}
