package main

import (
	"bytes"
	"fmt"
)

// jsonLines is the format ndjson: each line that is not blank holds one JSON value, which is the record as it
// stands. With a key field the value must be an object whose field of that name is a string, whose text is the
// key, or a number, which is the key as it is written.
type jsonLines struct {
	scanner jsonScanner
}

func newJSONLines(key string) *jsonLines {
	f := &jsonLines{}
	if key != "" {
		f.scanner.field = []byte(key)
	}
	return f
}

func (f *jsonLines) parse(line []byte) (record, error) {
	if len(bytes.TrimLeft(line, " \t\r")) == 0 {
		return record{blank: true}, nil
	}
	if err := f.scanner.scan(line); err != nil {
		return record{}, err
	}
	if f.scanner.field == nil {
		return record{value: line}, nil
	}
	key, err := f.key()
	return record{key: key, value: line, keyed: true}, err
}

func (f *jsonLines) key() ([]byte, error) {
	text := f.scanner.found
	switch {
	case text == nil && bytes.TrimLeft(f.scanner.line, " \t\r")[0] != '{':
		return nil, fmt.Errorf("the line is no object, so it has no field %q for the key", f.scanner.field)
	case text == nil:
		return nil, fmt.Errorf("the object has no field %q for the key", f.scanner.field)
	case text[0] == '-' || text[0] >= '0' && text[0] <= '9':
		return text, nil
	case text[0] != '"':
		return nil, fmt.Errorf("the key field %q is %.20s; it must be a string or a number", f.scanner.field, text)
	case bytes.IndexByte(text, '\\') < 0:
		return text[1 : len(text)-1], nil
	}
	key, ok := unescape(text)
	if !ok {
		return nil, fmt.Errorf("the key field %q holds half of a surrogate pair", f.scanner.field)
	}
	return key, nil
}
