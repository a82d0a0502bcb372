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
		key, err := find(r.Value(), path)
		if err != nil {
			return err
		}
		if key == nil {
			guest.Count("missing", 1)
			return nil
		}
		counts.Add(key, 1)
		return nil
	})
}

// find returns the value at a path, or nil.
func find(text []byte, path []string) ([]byte, error) {
	for _, name := range path {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(text, &object); err != nil {
			return nil, fmt.Errorf("%q of %q is looked for in what is no JSON object: %w", name, strings.Join(path, "."), err)
		}
		text = object[name]
		if text == nil {
			return nil, nil
		}
	}
	switch text[0] {
	case 'n':
		return nil, nil
	case '"':
		var s string
		err := json.Unmarshal(text, &s)
		return []byte(s), err
	}
	return text, nil
}

func main() {}
