package wasm

import (
	"fmt"
	"unicode/utf8"
)

// cursor reads a part of the file. After the first error it reads zeros, so that callers check err once
// per item.
type cursor struct {
	b       []byte // the whole file
	at, end int
	section string
	err     *Error
}

func (c *cursor) left() int { return c.end - c.at }

func (c *cursor) fail(at int, format string, args ...any) {
	if c.err == nil {
		c.err = &Error{Offset: at, Section: c.section, Reason: fmt.Sprintf(format, args...)}
	}
}

// short reports that the part ends too early: the file is cut off, or the section is smaller than what is
// in it.
func (c *cursor) short(what string) {
	if c.end == len(c.b) {
		c.fail(c.end, "the file is truncated here, in the middle of %s", what)
		return
	}
	c.fail(c.at, "%s does not fit into its section", what)
}

func (c *cursor) byte(what string) byte {
	if c.err != nil {
		return 0
	}
	if c.left() < 1 {
		c.short(what)
		return 0
	}
	c.at++
	return c.b[c.at-1]
}

func (c *cursor) bytes(n uint32, what string) []byte {
	if c.err != nil {
		return nil
	}
	if uint64(n) > uint64(c.left()) {
		c.short(what)
		return nil
	}
	c.at += int(n)
	return c.b[c.at-int(n) : c.at : c.at]
}

// u32 reads an unsigned LEB128 number of at most 32 bits.
func (c *cursor) u32(what string) uint32 {
	start := c.at
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		b := c.byte(what)
		if c.err != nil {
			return 0
		}
		v |= uint64(b&0x7f) << shift
		if b&0x80 == 0 {
			if v>>32 != 0 {
				c.fail(start, "%s does not fit 32 bits", what)
			}
			return uint32(v)
		}
	}
	c.fail(start, "%s is longer than 5 bytes", what)
	return 0
}

// signed reads a signed LEB128 number of at most bits bits, 32 or 64.
func (c *cursor) signed(bits int, what string) int64 {
	start := c.at
	var v int64
	for shift := 0; shift < bits; shift += 7 {
		b := c.byte(what)
		if c.err != nil {
			return 0
		}
		v |= int64(b&0x7f) << shift
		if b&0x80 != 0 {
			continue
		}
		if shift+7 >= 64 {
			// Bits beyond the 64th must repeat the sign.
			if rest := b & 0x7f; rest != 0 && rest != 0x7f {
				c.fail(start, "%s does not fit %d bits", what, bits)
			}
			return v
		}
		v = v << (64 - shift - 7) >> (64 - shift - 7)
		if bits < 64 && (v < -1<<(bits-1) || v >= 1<<(bits-1)) {
			c.fail(start, "%s does not fit %d bits", what, bits)
		}
		return v
	}
	c.fail(start, "%s is too long for %d bits", what, bits)
	return 0
}

// count reads how many items follow. Each takes at least one byte, so a count above the bytes left is a
// lie, whatever follows.
func (c *cursor) count(what string, limit int) int {
	start := c.at
	n := c.u32("the number of " + what)
	if c.err != nil {
		return 0
	}
	if uint64(n) > uint64(c.left()) {
		c.fail(start, "%d %s are declared, but only %d bytes are left", n, what, c.left())
		return 0
	}
	if int(n) > limit {
		c.fail(start, "%d %s; the limit is %d", n, what, limit)
		return 0
	}
	return int(n)
}

func (c *cursor) name(what string) string {
	n := c.u32("the length of " + what)
	start := c.at
	b := c.bytes(n, what)
	if c.err == nil && !utf8.Valid(b) {
		c.fail(start, "%s is not UTF-8", what)
	}
	return string(b)
}

// valType reads the type of a value.
func (c *cursor) valType() ValType {
	at := c.at
	t := ValType(c.byte("a value type"))
	if _, ok := valTypeNames[t]; ok || c.err != nil {
		return t
	}
	switch t {
	case 0x69, 0x74:
		c.fail(at, "value type 0x%02x belongs to the exception handling feature, which is off", byte(t))
	case 0x63, 0x64:
		c.fail(at, "value type 0x%02x belongs to the typed function references feature, which is off", byte(t))
	case 0x65, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x71, 0x72, 0x73:
		c.fail(at, "value type 0x%02x belongs to the GC feature, which is off", byte(t))
	default:
		c.fail(at, "there is no value type 0x%02x", byte(t))
	}
	return t
}

// refType reads the type of a reference; what holds it.
func (c *cursor) refType(what string) ValType {
	at := c.at
	t := c.valType()
	if c.err == nil && t != FuncRef && t != ExternRef {
		c.fail(at, "%s holds funcref or externref, not %s", what, t)
	}
	return t
}
