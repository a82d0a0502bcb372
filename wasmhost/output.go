package wasmhost

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// maxOutputLine is how long a line or frame of a command may be.
const maxOutputLine = 16 << 20

// writeOutput takes what a program writes on its standard output: pairs as lines or frames, cut anywhere.
func (in *Instance) writeOutput(b []byte) error {
	if in.command.frames {
		return in.writeFrames(b)
	}
	c := in.command
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if len(c.out) > 0 || !ended {
			if len(c.out)+len(line) > maxOutputLine {
				return in.longOutput("a line")
			}
			c.out = append(c.out, line...)
			line = c.out
		}
		if !ended {
			return nil
		}
		if err := in.emitLine(line); err != nil {
			return err
		}
		c.out, b = c.out[:0], rest
	}
	return nil
}

func (in *Instance) longOutput(what string) error {
	out := in.guestError(api.CodeLimitExceeded, fmt.Sprintf("wrote %s of more than %s", what, sizeText(maxOutputLine)))
	out.Hint = "end each pair; a pair is a line of key, tab and value"
	return out
}

// writeFrames takes whole frames off what was written, and keeps the rest.
func (in *Instance) writeFrames(b []byte) error {
	c := in.command
	c.out = append(c.out, b...)
	at := 0
	for len(c.out)-at >= buckets.FrameHeader {
		head := c.out[at:]
		klen, vlen := binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[8:])
		size := buckets.FrameHeader + uint64(klen) + uint64(vlen)
		if size > maxOutputLine {
			return in.longOutput(fmt.Sprintf("a frame (key of %d and value of %d bytes)", klen, vlen))
		}
		if size > uint64(len(head)) {
			break
		}
		flags := binary.LittleEndian.Uint32(head)
		if c.keys != nil {
			flags &^= buckets.FlagFirst | buckets.FlagLast
		}
		key := head[buckets.FrameHeader : buckets.FrameHeader+klen]
		if err := in.emitOutput(flags, key, head[buckets.FrameHeader+uint64(klen):size]); err != nil {
			return err
		}
		at += int(size)
	}
	if at > 0 {
		c.out = append(c.out[:0], c.out[at:]...)
	}
	return nil
}

// finishOutput takes a last line that lacks its newline.
func (in *Instance) finishOutput() error {
	out := in.command.out
	switch {
	case len(out) == 0:
		return nil
	case in.command.frames:
		return in.fault(in.place.function, fmt.Sprintf("ended in the middle of a frame: %d bytes of it were written", len(out)))
	}
	return in.emitLine(out)
}

// emitLine emits the pair of a line. A line without a tab is a key with an empty value.
func (in *Instance) emitLine(line []byte) error {
	key, value, _ := bytes.Cut(line, []byte("\t"))
	if !in.job.Numeric || !isDecimal(value) {
		return in.emitOutput(0, key, value)
	}
	flags, bits, ok := parseDecimal(value)
	if !ok {
		return in.placed(api.Errorf(api.CodeGuestFailed, "the value %.40s of key %s does not fit a number of 64 bits", value, keyText(key)).
			WithHint("write smaller numbers"))
	}
	binary.LittleEndian.PutUint64(in.number[:], bits)
	return in.emitOutput(flags, key, in.number[:])
}

func (in *Instance) emitOutput(flags uint32, key, value []byte) error {
	if err := in.work(1, 0); err != nil {
		return err
	}
	if keys := in.command.keys; keys != nil && !keys.has(key) {
		return in.fault(in.place.function, fmt.Sprintf("wrote key %s, which it has not been given; combine and reduce may write only those", keyText(key)))
	}
	return in.emitPair(flags, key, value)
}

// isDecimal reports whether a text is a decimal number as a whole: -12, 0.5, .5, 1e6. Not so +1, 0x1 and " 1".
func isDecimal(text []byte) bool {
	if len(text) > 0 && text[0] == '-' {
		text = text[1:]
	}
	whole, text := cutDigits(text)
	fraction := 0
	if len(text) > 0 && text[0] == '.' {
		fraction, text = cutDigits(text[1:])
	}
	if whole+fraction == 0 {
		return false
	}
	if len(text) == 0 {
		return true
	}
	if text[0] != 'e' && text[0] != 'E' {
		return false
	}
	if text = text[1:]; len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		text = text[1:]
	}
	exponent, text := cutDigits(text)
	return exponent > 0 && len(text) == 0
}

func cutDigits(text []byte) (n int, rest []byte) {
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n, text[n:]
}

// parseDecimal reads a decimal number, with a fraction or exponent as an f64. It is not ok out of range.
func parseDecimal(text []byte) (flags uint32, bits uint64, ok bool) {
	if bytes.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(string(text), 64)
		return buckets.FlagFloat, math.Float64bits(f), err == nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return buckets.FlagInt, uint64(n), err == nil
}
