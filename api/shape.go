package api

import (
	"encoding"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

// ownForms are the interfaces of types that read a form of their own, as [Value] and time.Time do.
var ownForms = []reflect.Type{
	reflect.TypeFor[msgpack.CustomDecoder](),
	reflect.TypeFor[msgpack.Unmarshaler](),
	reflect.TypeFor[encoding.BinaryUnmarshaler](),
	reflect.TypeFor[encoding.TextUnmarshaler](),
}

func hasOwnForm(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return slices.ContainsFunc(ownForms, p.Implements)
}

// typeInfo is what checking needs to know of a type.
type typeInfo struct {
	ownForm bool                    // see ownForms
	fields  map[string]reflect.Type // of a struct, by their names in messages
}

// shape checks msgpack objects against Go types. It keeps what it has found out about the types.
type shape map[reflect.Type]*typeInfo

func (s shape) info(t reflect.Type) *typeInfo {
	if known := s[t]; known != nil {
		return known
	}
	info := &typeInfo{ownForm: hasOwnForm(t)}
	if t.Kind() == reflect.Struct {
		info.fields = make(map[string]reflect.Type, t.NumField())
		for i := range t.NumField() {
			f := t.Field(i)
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			info.fields[tag] = f.Type
		}
	}
	s[t] = info
	return info
}

// shapeError is a fault and the path of the field it is in, written from the inside out.
type shapeError struct{ path, fault string }

func (e *shapeError) Error() string {
	if e.path == "" {
		return "the message " + e.fault
	}
	return "field " + strings.TrimPrefix(e.path, ".") + " " + e.fault
}

func faultf(format string, args ...any) *shapeError {
	return &shapeError{fault: fmt.Sprintf(format, args...)}
}

// checkShape reports the first value of a message that its type cannot hold. The decoder itself names no
// field, and it wraps integers: 65,541 would become bucket 5 and a time of 2^64-1 would become -1. b has
// passed CheckMsgpack.
func checkShape(b []byte, v any) error {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer {
		return fmt.Errorf("a message is read into a pointer, not %T", v)
	}
	if _, err := (shape{}).checkValue(b, t.Elem()); err != nil {
		return err
	}
	return nil
}

// checkValue takes the first object off b.
func (s shape) checkValue(b []byte, t reflect.Type) (rest []byte, err *shapeError) {
	object, rest := cutObject(b)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if object[0] == 0xc0 || s.info(t).ownForm { // nil is the zero value
		return rest, nil
	}
	ok := true
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		var n int
		if n, object, ok = countOf(object, 0x80, 0xde); ok {
			return rest, s.checkMap(object, n, t)
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			ok = isText(object[0])
			break
		}
		var n int
		if n, object, ok = countOf(object, 0x90, 0xdc); ok {
			return rest, s.checkArray(object, n, t.Elem())
		}
	case reflect.String:
		ok = isText(object[0])
	case reflect.Bool:
		ok = object[0] == 0xc2 || object[0] == 0xc3
	case reflect.Float32, reflect.Float64:
		_, _, integer := integerOf(object)
		ok = integer || object[0] == 0xca || object[0] == 0xcb
	case reflect.Interface:
	default:
		return rest, checkInteger(object, t)
	}
	if !ok {
		return nil, faultf("must be %s, not %s", kindName(t), objectName(object))
	}
	return rest, nil
}

// cutObject takes the first object off b, which has passed CheckMsgpack.
func cutObject(b []byte) (object, rest []byte) {
	n, err := skipMsgpack(b, 0)
	if err != nil {
		n = len(b) // not after CheckMsgpack
	}
	return b[:n], b[n:]
}

// countOf takes the header off a map or an array of 0..15 elements from byte small, or of 16 or 32 bit counts
// from byte large.
func countOf(b []byte, small, large byte) (n int, body []byte, ok bool) {
	switch {
	case b[0]&0xf0 == small:
		return int(b[0] & 0x0f), b[1:], true
	case b[0] == large:
		return int(binary.BigEndian.Uint16(b[1:])), b[3:], true
	case b[0] == large+1:
		return int(binary.BigEndian.Uint32(b[1:])), b[5:], true
	}
	return 0, b, false
}

func (s shape) checkMap(b []byte, n int, t reflect.Type) *shapeError {
	for range n {
		var object []byte
		if object, b = cutObject(b); !isText(object[0]) {
			return faultf("has a key that is no string")
		}
		name := textOf(object)
		value := s.valueType(t, name)
		if value == nil { // the decoder knows whether that is allowed
			_, b = cutObject(b)
			continue
		}
		var err *shapeError
		if b, err = s.checkValue(b, value); err != nil {
			err.path = "." + string(name) + err.path
			return err
		}
	}
	return nil
}

func (s shape) checkArray(b []byte, n int, t reflect.Type) (err *shapeError) {
	for i := range n {
		if b, err = s.checkValue(b, t); err != nil {
			err.path = fmt.Sprintf("[%d]%s", i, err.path)
			return err
		}
	}
	return nil
}

// valueType is the type of a map's values or of a struct's field; nil if there is no such field.
func (s shape) valueType(t reflect.Type, name []byte) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	return s.info(t).fields[string(name)]
}

// checkInteger wants a value within the range of an integer type.
func checkInteger(object []byte, t reflect.Type) *shapeError {
	magnitude, negative, ok := integerOf(object)
	if !ok {
		return faultf("must be %s, not %s", kindName(t), objectName(object))
	}
	switch kind := t.Kind(); {
	case kind >= reflect.Uint && kind <= reflect.Uintptr:
		ok = !negative && !t.OverflowUint(magnitude)
	case negative:
		ok = !t.OverflowInt(int64(-magnitude))
	default:
		ok = magnitude <= math.MaxInt64 && !t.OverflowInt(int64(magnitude))
	}
	if ok {
		return nil
	}
	sign := ""
	if negative {
		sign = "-"
	}
	return faultf("is %s%d, out of the range of %s", sign, magnitude, t.Kind())
}

// integerOf reads an object that is an integer: sign and magnitude.
func integerOf(b []byte) (magnitude uint64, negative, ok bool) {
	var signed int64
	switch c := b[0]; {
	case c <= 0x7f:
		return uint64(c), false, true
	case c >= 0xe0:
		signed = int64(int8(c))
	case c == 0xcc:
		return uint64(b[1]), false, true
	case c == 0xcd:
		return uint64(binary.BigEndian.Uint16(b[1:])), false, true
	case c == 0xce:
		return uint64(binary.BigEndian.Uint32(b[1:])), false, true
	case c == 0xcf:
		return binary.BigEndian.Uint64(b[1:]), false, true
	case c == 0xd0:
		signed = int64(int8(b[1]))
	case c == 0xd1:
		signed = int64(int16(binary.BigEndian.Uint16(b[1:])))
	case c == 0xd2:
		signed = int64(int32(binary.BigEndian.Uint32(b[1:])))
	case c == 0xd3:
		signed = int64(binary.BigEndian.Uint64(b[1:]))
	default:
		return 0, false, false
	}
	if signed < 0 {
		return -uint64(signed), true, true
	}
	return uint64(signed), false, true
}

// isText reports whether an object that begins with c is a str or a bin.
func isText(c byte) bool {
	return c&0xe0 == 0xa0 || c >= 0xd9 && c <= 0xdb || c >= 0xc4 && c <= 0xc6
}

// textOf returns the bytes of a whole str or bin.
func textOf(object []byte) []byte { return object[1+lengthWidth[object[0]]:] }

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "a map"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "an array"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "an integer"
}

func objectName(object []byte) string {
	c := object[0]
	switch {
	case c == 0xca || c == 0xcb:
		return "a float"
	case c == 0xc2 || c == 0xc3:
		return "a boolean"
	case c&0xe0 == 0xa0 || c >= 0xd9 && c <= 0xdb:
		return "a string"
	case isText(c):
		return "bytes"
	case c&0xf0 == 0x90 || c == 0xdc || c == 0xdd:
		return "an array"
	case c&0xf0 == 0x80 || c == 0xde || c == 0xdf:
		return "a map"
	}
	if _, _, ok := integerOf(object); ok {
		return "an integer"
	}
	return "an extension"
}
