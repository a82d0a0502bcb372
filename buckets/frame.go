package buckets

import (
	"encoding/binary"
	"fmt"
)

// FrameHeader is the number of bytes before a frame's key.
const FrameHeader = 12

// Flags of frames. The first two are used in the log, the others between host and guest.
const (
	FlagDelete uint32 = 1 // log: the key is deleted
	FlagAssign uint32 = 2 // log: the key is empty and is assigned by position

	FlagFirst uint32 = 1 // guest: first frame of its key (combine, reduce)
	FlagLast  uint32 = 2 // guest: last frame of its key
	FlagInt   uint32 = 4 // guest: the value is an i64, little endian
	FlagFloat uint32 = 8 // guest: the value is an f64, little endian
)

// Frame is a key and a value with flags. On the wire, little endian, without padding: u32 flags, u32
// klen, u32 vlen, key, value.
type Frame struct {
	Flags      uint32
	Key, Value []byte
}

// AppendFrame appends a frame to dst.
func AppendFrame(dst []byte, flags uint32, key, value []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, flags)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(key)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(value)))
	dst = append(dst, key...)
	return append(dst, value...)
}

// CutFrame takes the first frame off b, which must not be empty. Key and value are parts of b.
func CutFrame(b []byte) (f Frame, rest []byte, err error) {
	if len(b) < FrameHeader {
		return f, nil, fmt.Errorf("frame header needs %d bytes, %d are left", FrameHeader, len(b))
	}
	f.Flags = binary.LittleEndian.Uint32(b)
	klen := uint64(binary.LittleEndian.Uint32(b[4:]))
	vlen := uint64(binary.LittleEndian.Uint32(b[8:]))
	body := b[FrameHeader:]
	if klen+vlen > uint64(len(body)) {
		return f, nil, fmt.Errorf("frame of key %d and value %d bytes, but %d are left", klen, vlen, len(body))
	}
	f.Key = body[:klen:klen]
	f.Value = body[klen : klen+vlen : klen+vlen]
	return f, body[klen+vlen:], nil
}
