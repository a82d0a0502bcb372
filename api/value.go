package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
)

// Bytes is a key or a raw value. In msgpack it is bin (str is read too); in JSON it is a string if it is
// UTF-8, else {"base64": ".."}.
type Bytes []byte

// MarshalJSON writes a string, or {"base64": ".."} for bytes that are not UTF-8.
func (b Bytes) MarshalJSON() ([]byte, error) {
	if !utf8.Valid(b) {
		return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(b)})
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(string(b)); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON reads what MarshalJSON writes. A JSON number is read as its text.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0 || bytes.Equal(data, []byte("null")):
		*b = nil
		return nil
	case data[0] == '"':
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		*b = Bytes(s)
		return nil
	case data[0] == '{':
		return b.unmarshalBase64(data)
	case data[0] == '-' || data[0] >= '0' && data[0] <= '9':
		*b = append(Bytes(nil), data...)
		return nil
	}
	return fmt.Errorf("api: bytes must be a string, a number or {\"base64\": ..}, not %.20s", data)
}

func (b *Bytes) unmarshalBase64(data []byte) error {
	var o struct {
		Base64 *string `json:"base64"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return fmt.Errorf("api: bytes as an object must be {\"base64\": \"..\"}: %w", err)
	}
	if o.Base64 == nil {
		return errors.New(`api: bytes as an object must be {"base64": ".."}`)
	}
	raw, err := base64.StdEncoding.DecodeString(*o.Base64)
	if err != nil {
		return fmt.Errorf("api: base64: %w", err)
	}
	*b = raw
	return nil
}

// Kind is the type of a [Value].
type Kind uint8

// The kinds of values. There are no composite values: a document is bytes.
const (
	KindBytes Kind = iota
	KindInt        // i64
	KindFloat      // f64
)

// String names the kind as the documentation does.
func (k Kind) String() string {
	switch k {
	case KindInt:
		return "i64"
	case KindFloat:
		return "f64"
	default:
		return "bytes"
	}
}

// Value is bytes, an i64 or an f64. The zero Value is empty bytes.
type Value struct {
	Kind  Kind
	Bytes Bytes
	Int   int64
	Float float64
}

// BytesValue makes a value of bytes, which it shares.
func BytesValue(b []byte) Value { return Value{Kind: KindBytes, Bytes: b} }

// IntValue makes an i64.
func IntValue(i int64) Value { return Value{Kind: KindInt, Int: i} }

// FloatValue makes an f64.
func FloatValue(f float64) Value { return Value{Kind: KindFloat, Float: f} }

// Text is the value as people read it: bytes as they are, numbers in decimal. An f64 always has a point
// or an exponent, so that its type can be read back.
func (v Value) Text() string {
	switch v.Kind {
	case KindInt:
		return strconv.FormatInt(v.Int, 10)
	case KindFloat:
		return formatFloat(v.Float)
	default:
		return string(v.Bytes)
	}
}

func formatFloat(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".eIN") {
		s += ".0"
	}
	return s
}

// MarshalJSON writes a number or what [Bytes] writes. Infinities, which JSON lacks, become the strings
// "+Inf" and "-Inf".
func (v Value) MarshalJSON() ([]byte, error) {
	switch {
	case v.Kind == KindBytes:
		return v.Bytes.MarshalJSON()
	case v.Kind == KindFloat && (math.IsInf(v.Float, 0) || math.IsNaN(v.Float)):
		return json.Marshal(v.Text())
	}
	return []byte(v.Text()), nil
}

// UnmarshalJSON reads an integer as i64, a number with a point or exponent as f64, all else as [Bytes].
func (v *Value) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && (data[0] == '-' || data[0] >= '0' && data[0] <= '9') {
		if !bytes.ContainsAny(data, ".eE") {
			i, err := strconv.ParseInt(string(data), 10, 64)
			if err != nil {
				return fmt.Errorf("api: integer %.40s does not fit an i64", data)
			}
			*v = IntValue(i)
			return nil
		}
		f, err := strconv.ParseFloat(string(data), 64)
		if err != nil {
			return fmt.Errorf("api: number %.40s: %w", data, err)
		}
		*v = FloatValue(f)
		return nil
	}
	*v = Value{}
	return v.Bytes.UnmarshalJSON(data)
}

var (
	_ msgpack.CustomEncoder = Value{}
	_ msgpack.CustomDecoder = (*Value)(nil)
)

// EncodeMsgpack writes bin, int or float.
func (v Value) EncodeMsgpack(enc *msgpack.Encoder) error {
	switch v.Kind {
	case KindInt:
		return enc.EncodeInt(v.Int)
	case KindFloat:
		return enc.EncodeFloat64(v.Float)
	default:
		if v.Bytes == nil {
			return enc.EncodeBytes([]byte{})
		}
		return enc.EncodeBytes(v.Bytes)
	}
}

// DecodeMsgpack reads bin, str, any integer that fits an i64, or a float.
func (v *Value) DecodeMsgpack(dec *msgpack.Decoder) error {
	x, err := dec.DecodeInterfaceLoose()
	if err != nil {
		return err
	}
	switch x := x.(type) {
	case []byte:
		*v = BytesValue(x)
	case string:
		*v = BytesValue([]byte(x))
	case int64:
		*v = IntValue(x)
	case uint64:
		if x > math.MaxInt64 {
			return fmt.Errorf("api: integer %d does not fit an i64", x)
		}
		*v = IntValue(int64(x))
	case float64:
		*v = FloatValue(x)
	default:
		return fmt.Errorf("api: a value is bytes or a number, not %T", x)
	}
	return nil
}
