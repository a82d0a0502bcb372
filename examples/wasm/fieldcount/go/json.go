package main

import (
	"bytes"
	"errors"
	"fmt"
)

// Package encoding/json reads whole values, and takes many times as long in WebAssembly. These functions read a record up
// to the field, and only go past the rest.

var errEnd = errors.New("the record ends within a JSON value")

// find returns the value at a path of names as it is written, or nil if there is none.
func find(b []byte, path []string) ([]byte, error) {
	i := blank(b, 0)
	for {
		if i == len(b) {
			return nil, errEnd
		}
		if b[i] != '{' {
			return nil, fmt.Errorf("there is no JSON object at byte %d", i)
		}
		at, end, err := member(b, i+1, path[0])
		if err != nil || at < 0 {
			return nil, err
		}
		if path = path[1:]; len(path) == 0 || b[at] == 'n' {
			return b[at:end], nil
		}
		i = at
	}
}

// member finds a name in an object whose first byte is at i-1: its value is b[at:end]. at is -1 if it has none.
func member(b []byte, i int, name string) (at, end int, err error) {
	for {
		if i = blank(b, i); i < len(b) && b[i] == '}' {
			return -1, 0, nil
		}
		begin := i
		if i, err = skipString(b, i); err != nil {
			return 0, 0, err
		}
		key, err := unquote(b[begin:i])
		if err != nil {
			return 0, 0, err
		}
		if i = blank(b, i); i == len(b) || b[i] != ':' {
			return 0, 0, fmt.Errorf("there is no colon at byte %d", i)
		}
		at = blank(b, i+1)
		if end, err = skip(b, at); err != nil || string(key) == name {
			return at, end, err
		}
		if i = blank(b, end); i < len(b) && b[i] == ',' {
			i++
		}
	}
}

// skip goes past the value at i.
func skip(b []byte, i int) (end int, err error) {
	if i == len(b) {
		return 0, errEnd
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	for end = i; end < len(b) && b[end] > ' ' && b[end] != ',' && b[end] != '}' && b[end] != ']'; {
		end++
	}
	if end == i {
		return 0, fmt.Errorf("there is no JSON value at byte %d", i)
	}
	return end, nil
}

// skipString goes past the string at i.
func skipString(b []byte, i int) (end int, err error) {
	if i == len(b) || b[i] != '"' {
		return 0, fmt.Errorf("there is no JSON string at byte %d", i)
	}
	for end = i + 1; ; {
		n := bytes.IndexByte(b[end:], '"')
		if n < 0 {
			return 0, errEnd
		}
		end += n + 1
		slashes := end - 2
		for b[slashes] == '\\' { // stops at the string's first byte at last
			slashes--
		}
		if (end-slashes)%2 == 0 {
			return end, nil
		}
	}
}

// skipNested goes past the object or array at i.
func skipNested(b []byte, i int) (end int, err error) {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			if i, err = skipString(b, i); err != nil {
				return 0, err
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		}
		i++
	}
	return 0, errEnd
}

// blank goes past white space.
func blank(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' {
		i++
	}
	return i
}

func escaped(b []byte) bool { return bytes.IndexByte(b, '\\') >= 0 }
