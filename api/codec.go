package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/vmihailenco/msgpack/v5"
)

// Protocol is the version of subjects and messages. It changes when an older reader would misunderstand a newer
// writer: new fields alone do not change it.
const Protocol = 1

// Format is how a message is written.
type Format string

// The two formats, by their content type.
const (
	Msgpack Format = "application/msgpack"
	JSON    Format = "application/json"
)

// Strictness says what Decode does with fields it does not know.
type Strictness bool

// Requests are read Strict: a field that the engine does not know may change what the job means, so it is
// refused by name. Replies are read Lenient, so that an older client understands a newer engine.
const (
	Strict  Strictness = true
	Lenient Strictness = false
)

// FormatOf tells the format of a message from its first byte: '{' begins JSON.
func FormatOf(body []byte) Format {
	if b := bytes.TrimLeft(body, " \t\r\n"); len(b) > 0 && b[0] == '{' {
		return JSON
	}
	return Msgpack
}

// Encode writes a message.
func Encode(f Format, v any) ([]byte, error) {
	var buf bytes.Buffer
	if f == JSON {
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return nil, fmt.Errorf("api: encode %T: %w", v, err)
		}
		return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
	}
	enc := msgpack.NewEncoder(&buf)
	enc.SetCustomStructTag("json")
	enc.UseCompactInts(true)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("api: encode %T: %w", v, err)
	}
	return buf.Bytes(), nil
}

// Decode reads a message in either format into v, a pointer to a message struct. An empty body is an
// empty message. It fails with a BAD_REQUEST [Error] that says what is wrong.
func Decode(body []byte, v any, s Strictness) error {
	var err error
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return nil
	case FormatOf(body) == JSON:
		err = decodeJSON(body, v, s)
	default:
		err = decodeMsgpack(body, v, s)
	}
	if err != nil {
		return Errorf(CodeBadRequest, "cannot read the message: %v", err)
	}
	return nil
}

func decodeJSON(body []byte, v any, s Strictness) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	if s == Strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

func decodeMsgpack(body []byte, v any, s Strictness) error {
	if err := CheckMsgpack(body); err != nil {
		return err
	}
	if err := checkShape(body, v); err != nil {
		return err
	}
	dec := msgpack.NewDecoder(bytes.NewReader(body))
	dec.SetCustomStructTag("json")
	dec.DisallowUnknownFields(s == Strict)
	return dec.Decode(v)
}
