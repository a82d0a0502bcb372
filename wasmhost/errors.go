package wasmhost

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

const maxMessage = 1024 // bytes of one-line text in a message

// errStopped is what host functions panic with to end a guest's call. wazero has no other way to leave a
// running guest at once; it recovers the panic and returns it as an error.
var errStopped = errors.New("stopped by the host")

// GuestError is a guest's failure. API turns it into the error that travels; errors.As does so, too.
type GuestError struct {
	Code     api.Code // GUEST_FAILED, TIMEOUT, CANCELED or LIMIT_EXCEEDED
	Hint     string   // what can be done about it; may be empty
	Message  string   // the guest's own words (fail, abort, panic) or what the host found; one line
	Trap     string   // what WebAssembly calls it, as "unreachable"; empty if it was none
	Stack    string   // of the guest, one function a line; empty if unknown
	Stderr   string   // the end of what the guest wrote there in the call
	Module   string   // name
	Digest   string
	Function string // the export that was running, or what a command was asked for
	Fuel     uint64 // steps used in the bucket

	Bucket  int    // -1 outside of a bucket
	Record  uint64 // index in the bucket of the first record of the batch that failed
	Records int    // in that batch; 0 outside of a batch
	Key     []byte // of the first record of the batch
}

// Error is one line with all places.
func (e *GuestError) Error() string {
	verb := "failed"
	switch {
	case e.Trap != "":
		verb = "trapped"
	case e.Code != api.CodeGuestFailed:
		verb = "was stopped"
	}
	return fmt.Sprintf("module %q (%s): %s %s%s: %s", e.Module, shortDigest(e.Digest), e.Function, verb, e.place(), e.Message)
}

func (e *GuestError) place() string {
	if e.Bucket < 0 {
		return ""
	}
	switch at := fmt.Sprintf(" on bucket %d", e.Bucket); e.Records {
	case 0:
		return at
	case 1:
		return fmt.Sprintf("%s, record %d of key %s", at, e.Record, oneLine(strconv.Quote(buckets.KeyText(e.Key)), 80))
	default:
		return fmt.Sprintf("%s, records %d to %d", at, e.Record, e.Record+uint64(e.Records)-1)
	}
}

// API returns the error as it travels.
func (e *GuestError) API() *api.Error {
	out := api.Errorf(e.Code, "%s", e.Error()).
		With("module", e.Module).With("digest", e.Digest).With("function", e.Function)
	switch {
	case e.Hint != "":
		out.Hint = e.Hint
	case e.Code == api.CodeTimeout:
		out.Hint = "raise the job's timeout if the function needs longer and is not in a loop"
	}
	if e.Fuel > 0 {
		out = out.With("fuel", strconv.FormatUint(e.Fuel, 10))
	}
	if e.Bucket >= 0 {
		out = out.With("bucket", strconv.Itoa(e.Bucket))
	}
	if e.Records > 0 {
		out = out.With("record", strconv.FormatUint(e.Record, 10)).With("records", strconv.Itoa(e.Records)).
			With("key", oneLine(buckets.KeyText(e.Key), 256))
	}
	for key, text := range map[string]string{"reason": e.Message, "trap": e.Trap, "stack": e.Stack, "stderr": e.Stderr} {
		if text != "" {
			out = out.With(key, text)
		}
	}
	return out
}

// As lets errors.As find an *api.Error.
func (e *GuestError) As(target any) bool {
	t, ok := target.(**api.Error)
	if ok {
		*t = e.API()
	}
	return ok
}

// oneLine makes text fit into a message: UTF-8, one line, at most limit bytes.
func oneLine(text string, limit int) string {
	fields := strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range fields {
		fields[i] = strings.TrimSpace(strings.Map(printable, fields[i]))
	}
	text = strings.TrimSpace(strings.Join(fields, " | "))
	if len(text) > limit {
		return strings.ToValidUTF8(text[:limit], "") + "..."
	}
	return text
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

func limitText(limit time.Duration) string {
	if limit >= time.Second {
		return limit.Round(100 * time.Millisecond).String()
	}
	return limit.Round(time.Millisecond).String()
}
