package api

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxDepth bounds the nesting of a message.
const maxDepth = 64

var errMsgpackShort = errors.New("declared length exceeds data")

// CheckMsgpack reports whether b is exactly one well-formed msgpack map, at most 64 levels deep, whose
// declared lengths all fit in b. Decoders allocate by declared length; five bytes may declare four
// billion elements (vmihailenco/msgpack#401). The check itself allocates nothing.
func CheckMsgpack(b []byte) error {
	if len(b) == 0 {
		return errMsgpackShort
	}
	if c := b[0]; c&0xf0 != 0x80 && c != 0xde && c != 0xdf {
		return fmt.Errorf("a message is a msgpack map or a JSON object; this begins with byte 0x%02x", c)
	}
	n, err := skipMsgpack(b, 0)
	if err != nil {
		return err
	}
	if n != len(b) {
		return fmt.Errorf("%d bytes follow the message", len(b)-n)
	}
	return nil
}

// skipMsgpack returns the length of the first msgpack object in b.
func skipMsgpack(b []byte, depth int) (int, error) {
	if len(b) == 0 {
		return 0, errMsgpackShort
	}
	if depth > maxDepth {
		return 0, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	c := b[0]
	switch {
	case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3:
		return 1, nil
	case c <= 0x8f:
		return skipElements(b, 1, 2*int(c&0x0f), depth)
	case c <= 0x9f:
		return skipElements(b, 1, int(c&0x0f), depth)
	case c <= 0xbf:
		return skipBody(b, 1, uint64(c&0x1f))
	}
	if size := fixedSize[c]; size > 0 {
		return skipBody(b, 1, uint64(size))
	}
	width := int(lengthWidth[c])
	if width == 0 {
		return 0, fmt.Errorf("byte 0x%02x begins no msgpack object", c)
	}
	if len(b) < 1+width {
		return 0, errMsgpackShort
	}
	n := readLength(b[1 : 1+width])
	switch c {
	case 0xdc, 0xdd:
		return skipCounted(b, 1+width, n, depth)
	case 0xde, 0xdf:
		return skipCounted(b, 1+width, 2*n, depth)
	case 0xc7, 0xc8, 0xc9:
		n++ // the extension's type
	}
	return skipBody(b, 1+width, n)
}

// fixedSize is the number of bytes behind the first one, for objects of fixed size.
var fixedSize = [256]uint8{
	0xca: 4, 0xcb: 8, 0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8, 0xd0: 1, 0xd1: 2, 0xd2: 4, 0xd3: 8,
	0xd4: 2, 0xd5: 3, 0xd6: 5, 0xd7: 9, 0xd8: 17,
}

// lengthWidth is the number of length bytes behind the first one, for all others.
var lengthWidth = [256]uint8{
	0xc4: 1, 0xc5: 2, 0xc6: 4, 0xc7: 1, 0xc8: 2, 0xc9: 4, 0xd9: 1, 0xda: 2, 0xdb: 4,
	0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4,
}

func readLength(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	default:
		return uint64(binary.BigEndian.Uint32(b))
	}
}

func skipBody(b []byte, at int, n uint64) (int, error) {
	if n > uint64(len(b)-at) {
		return 0, errMsgpackShort
	}
	return at + int(n), nil
}

// skipCounted refuses a count that the data cannot hold before it loops.
func skipCounted(b []byte, at int, n uint64, depth int) (int, error) {
	if n > uint64(len(b)-at) {
		return 0, errMsgpackShort
	}
	return skipElements(b, at, int(n), depth)
}

func skipElements(b []byte, at, n, depth int) (int, error) {
	for range n {
		size, err := skipMsgpack(b[at:], depth+1)
		if err != nil {
			return 0, err
		}
		at += size
	}
	return at, nil
}
