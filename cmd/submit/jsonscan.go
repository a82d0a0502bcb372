package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// How deep JSON may be nested, and how many keys of an object are compared one by one.
const (
	maxNesting  = 512
	fewKeys     = 24
	longNumeral = 300 // digits that a 64-bit float may not be able to hold
)

// jsonScanner checks lines that hold one JSON value each, in one pass. It is as strict as RFC 8259 and
// stricter: a key that an object has twice is refused, as is a number beyond the range of a 64-bit float.
type jsonScanner struct {
	field []byte // of the outermost object, to find; nil for none

	line  []byte
	at    int
	keys  [][]byte // of the objects that are open
	found []byte   // the field's value, as it is written
}

// jsonFault says what is wrong with a line, and at which byte.
type jsonFault struct {
	column int // from 1
	what   string
}

func (e *jsonFault) Error() string { return fmt.Sprintf("%s (column %d)", e.what, e.column) }

func (s *jsonScanner) fault(at int, format string, args ...any) error {
	return &jsonFault{at + 1, fmt.Sprintf(format, args...)}
}

// scan checks a line. Then found is the text of the field's value, nil if the line is no object with it.
func (s *jsonScanner) scan(line []byte) error {
	s.line, s.at, s.keys, s.found = line, 0, s.keys[:0], nil
	if !utf8.Valid(line) {
		return s.notUTF8()
	}
	s.space()
	if err := s.value(0); err != nil {
		return err
	}
	s.space()
	if s.at < len(line) {
		switch line[s.at] {
		case '{', '[', '"':
			return s.fault(s.at, "a second JSON value begins on the line; each needs a line of its own")
		}
		return s.fault(s.at, "%s follows the JSON value", s.glance())
	}
	return nil
}

func (s *jsonScanner) notUTF8() error {
	for i := 0; i < len(s.line); {
		r, n := utf8.DecodeRune(s.line[i:])
		if r == utf8.RuneError && n <= 1 {
			return s.fault(i, "byte 0x%02x is not UTF-8", s.line[i])
		}
		i += n
	}
	return nil
}

func (s *jsonScanner) space() {
	for s.at < len(s.line) {
		switch s.line[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// peek is the next byte, 0 at the end.
func (s *jsonScanner) peek() byte {
	if s.at < len(s.line) {
		return s.line[s.at]
	}
	return 0
}

func (s *jsonScanner) value(depth int) error {
	if depth > maxNesting {
		return s.fault(s.at, "nested more than %d deep", maxNesting)
	}
	switch c := s.peek(); {
	case c == '{':
		return s.object(depth)
	case c == '[':
		return s.array(depth)
	case c == '"':
		_, err := s.text()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if bytes.HasPrefix(s.line[s.at:], []byte(word)) {
			s.at += len(word)
			return nil
		}
	}
	return s.unexpected("a value")
}

func (s *jsonScanner) unexpected(wanted string) error {
	if s.at >= len(s.line) {
		return s.fault(s.at, "the line ends where %s should be: it is cut off, or the value spans lines", wanted)
	}
	return s.fault(s.at, "%s is not JSON; %s should be here", s.glance(), wanted)
}

// glance quotes the word at the present place.
func (s *jsonScanner) glance() string {
	rest := s.line[s.at:min(len(s.line), s.at+40)]
	if n := bytes.IndexAny(rest, " \t,:{}[]\""); n > 0 {
		rest = rest[:n]
	} else if n == 0 {
		rest = rest[:1]
	}
	if len(rest) > 0 && rest[0] >= 0x21 && rest[0] < 0x7f && len(rest) <= 20 {
		return string(bytes.ToValidUTF8(rest, []byte("?")))
	}
	return strconv.QuoteToASCII(string(rest))
}

func (s *jsonScanner) object(depth int) error {
	mark := len(s.keys)
	defer func() { s.keys = s.keys[:mark] }()
	var many map[string]bool
	s.at++
	s.space()
	if s.peek() == '}' {
		s.at++
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.unexpected("a key in quotes")
		}
		begin := s.at
		key, err := s.text()
		if err != nil {
			return err
		}
		if many, err = s.newKey(begin, mark, key, many); err != nil {
			return err
		}
		if s.space(); s.peek() != ':' {
			return s.unexpected("a colon")
		}
		s.at++
		s.space()
		begin = s.at
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if depth == 0 && s.field != nil && bytes.Equal(key, s.field) {
			s.found = s.line[begin:s.at]
		}
		more, err := s.more('}')
		if err != nil || !more {
			return err
		}
	}
}

// newKey remembers a key of the object whose keys begin at mark, and refuses one that is there.
func (s *jsonScanner) newKey(at, mark int, key []byte, many map[string]bool) (map[string]bool, error) {
	twice := false
	if many != nil {
		twice = many[string(key)]
	} else {
		for _, k := range s.keys[mark:] {
			twice = twice || bytes.Equal(k, key)
		}
	}
	if twice {
		return many, s.fault(at, "the object has the key %q twice", key)
	}
	s.keys = append(s.keys, key)
	switch {
	case many != nil:
		many[string(key)] = true
	case len(s.keys)-mark == fewKeys:
		many = make(map[string]bool, 2*fewKeys)
		for _, k := range s.keys[mark:] {
			many[string(k)] = true
		}
	}
	return many, nil
}

func (s *jsonScanner) array(depth int) error {
	s.at++
	s.space()
	if s.peek() == ']' {
		s.at++
		return nil
	}
	for {
		if err := s.value(depth + 1); err != nil {
			return err
		}
		more, err := s.more(']')
		if err != nil || !more {
			return err
		}
	}
}

// more passes a comma, or the end of an object or array.
func (s *jsonScanner) more(end byte) (bool, error) {
	s.space()
	switch s.peek() {
	case end:
		s.at++
		return false, nil
	case ',':
		s.at++
		s.space()
		return true, nil
	}
	return false, s.unexpected("a comma or " + string(end))
}

// text passes a string and returns what it holds: without its escapes, unless they make no text.
func (s *jsonScanner) text() ([]byte, error) {
	begin, escaped := s.at, false
	for s.at++; s.at < len(s.line); s.at++ {
		switch c := s.line[s.at]; {
		case c == '"':
			s.at++
			inner := s.line[begin+1 : s.at-1]
			if escaped {
				if plain, ok := unescape(s.line[begin:s.at]); ok {
					return plain, nil
				}
			}
			return inner, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < 0x20:
			return nil, s.fault(s.at, "the control character 0x%02x in a string must be escaped", c)
		}
	}
	return nil, s.fault(begin, "a string does not end on this line")
}

// escape checks an escape and leaves at on its last byte.
func (s *jsonScanner) escape() error {
	begin := s.at
	s.at++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		if s.at+4 < len(s.line) {
			if _, err := strconv.ParseUint(string(s.line[s.at+1:s.at+5]), 16, 16); err == nil {
				s.at += 4
				return nil
			}
		}
	}
	return s.fault(begin, "%q is no escape", s.line[begin:min(len(s.line), s.at+1)])
}

// unescape reads a quoted string. It reports false if that holds half of a surrogate pair, which is no text.
func unescape(quoted []byte) ([]byte, bool) {
	if loneSurrogate(quoted) {
		return nil, false
	}
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		return nil, false
	}
	return []byte(text), true
}

func loneSurrogate(quoted []byte) bool {
	for i := 0; i < len(quoted); i++ {
		if quoted[i] != '\\' {
			continue
		}
		i++
		high, ok := unicodeEscape(quoted, i)
		if !ok || !utf16.IsSurrogate(high) {
			continue
		}
		low, ok := unicodeEscape(quoted, i+6)
		if !ok || quoted[i+5] != '\\' || utf16.DecodeRune(high, low) == utf8.RuneError {
			return true
		}
		i += 10
	}
	return false
}

// unicodeEscape reads uXXXX at a place.
func unicodeEscape(b []byte, at int) (rune, bool) {
	if at+5 > len(b) || b[at] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[at+1:at+5]), 16, 16)
	return rune(n), err == nil
}

func (s *jsonScanner) number() error {
	begin := s.at
	if s.peek() == '-' {
		s.at++
	}
	switch c := s.peek(); {
	case c == '0':
		s.at++
		if c := s.peek(); c >= '0' && c <= '9' {
			return s.fault(begin, "a number begins with a needless 0")
		}
	case c >= '1' && c <= '9':
		s.digits()
	default:
		s.at = begin
		return s.unexpected("a value")
	}
	wide := s.at-begin > longNumeral
	if s.peek() == '.' {
		s.at++
		if !s.digits() {
			return s.unexpected("a digit")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		wide = true
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		if !s.digits() {
			return s.unexpected("a digit")
		}
	}
	if wide {
		if _, err := strconv.ParseFloat(string(s.line[begin:s.at]), 64); err != nil {
			return s.fault(begin, "the number %.40s is beyond the range of a 64-bit float", s.line[begin:s.at])
		}
	}
	return nil
}

// digits passes digits and reports whether there were any.
func (s *jsonScanner) digits() bool {
	begin := s.at
	for s.at < len(s.line) && s.line[s.at] >= '0' && s.line[s.at] <= '9' {
		s.at++
	}
	return s.at > begin
}
