package reduce

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// pair is an emitted value and its place.
type pair struct {
	kind   api.Kind
	bucket buckets.ID
	seq    uint64 // number of the pair in its bucket, from 0
	num    uint64 // bits of an i64 or f64
	raw    []byte // bytes
}

// read takes a value as the guest ABI has it.
func (p *pair) read(flags uint32, value []byte) error {
	switch flags & (buckets.FlagInt | buckets.FlagFloat) {
	case 0:
		p.kind, p.raw = api.KindBytes, value
		return nil
	case buckets.FlagInt:
		p.kind = api.KindInt
	case buckets.FlagFloat:
		p.kind = api.KindFloat
	default:
		return api.Errorf(api.CodeTypeMismatch, "the value is flagged as i64 and as f64")
	}
	if len(value) != 8 {
		return api.Errorf(api.CodeTypeMismatch, "the value is flagged as %s but has %d bytes, not 8", p.kind, len(value))
	}
	p.num = binary.LittleEndian.Uint64(value)
	return nil
}

func (p *pair) isNaN() bool {
	return p.kind == api.KindFloat && math.IsNaN(math.Float64frombits(p.num))
}

// numberValue makes an i64 or f64 of its bits.
func numberValue(kind api.Kind, num uint64) api.Value {
	if kind == api.KindInt {
		return api.IntValue(int64(num))
	}
	return api.FloatValue(math.Float64frombits(num))
}

// describe names a pair's value for a message.
func (p *pair) describe() string {
	if p.kind == api.KindBytes {
		return fmt.Sprintf("bytes %.32q", p.raw)
	}
	return fmt.Sprintf("%s %s", p.kind, numberValue(p.kind, p.num).Text())
}

// keyName is a key as messages show it.
func keyName(key []byte) string {
	text := buckets.KeyText(key)
	if len(text) > 64 {
		return fmt.Sprintf("%.64q... (%d bytes)", text, len(key))
	}
	return fmt.Sprintf("%q", text)
}
