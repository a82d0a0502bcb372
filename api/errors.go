package api

import (
	"errors"
	"fmt"
	"maps"
)

// Code is a stable upper-case word that programs may match.
type Code string

// The codes. docs/protocol.md says for each who answers it and what to do.
const (
	CodeBadRequest    Code = "BAD_REQUEST"     // the message cannot be read or a field is out of range
	CodeInternal      Code = "INTERNAL"        // our fault
	CodeUnavailable   Code = "UNAVAILABLE"     // no server, no router, no storage answers
	CodeTimeout       Code = "TIMEOUT"         // the job's or the request's time was over
	CodeCanceled      Code = "CANCELED"        // somebody cancelled it
	CodeInDoubt       Code = "IN_DOUBT"        // a write may or may not have been stored
	CodeNoSuchCluster Code = "UNKNOWN_CLUSTER" // no cluster of that name on the server
	CodeClusterDiffer Code = "CLUSTER_DIFFERS" // the cluster was created with other settings
	CodeVersion       Code = "UNKNOWN_VERSION" // a message or something stored is of a newer version than this program reads
	CodeNameTaken     Code = "NAME_TAKEN"      // a storage of that id runs already; a version exists

	CodeUnknownModule   Code = "UNKNOWN_MODULE"
	CodeUnknownFunction Code = "UNKNOWN_FUNCTION"
	CodeUnknownSpace    Code = "UNKNOWN_SPACE"
	CodeUnknownJob      Code = "UNKNOWN_JOB"
	CodeBadModule       Code = "BAD_MODULE"     // the module's bytes or its ABI are at fault; Details lists all faults
	CodeRecordTooBig    Code = "RECORD_TOO_BIG" // key or value over the limit
	CodeNotFound        Code = "NOT_FOUND"      // no record of that key, no member of that name
	CodeTypeMismatch    Code = "TYPE_MISMATCH"  // a reducer was given a value it does not take
	CodeOverflow        Code = "OVERFLOW"       // an i64 sum left its range
	CodeGuestFailed     Code = "GUEST_FAILED"   // a guest trapped, failed or passed its limits
	CodeLimitExceeded   Code = "LIMIT_EXCEEDED" // a setting's limit; the message names the setting
	CodeResultTooLarge  Code = "RESULT_TOO_LARGE"

	CodeBusy       Code = "BUSY"        // not now: try again
	CodeNoCut      Code = "NO_CUT"      // the storage holds no snapshot of that cut
	CodePMRExpired Code = "PMR_EXPIRED" // the pin is gone: the attempt is void
	CodeNoOwner    Code = "NO_OWNER"    // buckets that no storage owns
	CodeCoverage   Code = "COVERAGE"    // the pinned buckets were not the wanted set
	CodeLost       Code = "LOST"        // a storage went away in the middle of an attempt
)

// Error is how every service answers a failure. It travels as {code, message, hint, details}.
type Error struct {
	Code    Code              `json:"code"`
	Message string            `json:"message"`
	Hint    string            `json:"hint,omitempty"`    // what the reader can do about it
	Details map[string]string `json:"details,omitempty"` // places: bucket, record, storage, module, ...
}

// Error gives message, hint and nothing else; the code is for programs.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + " (" + e.Hint + ")"
}

// Is matches any Error of the same code, so that errors.Is(err, &api.Error{Code: api.CodeBusy}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == ""
}

// Errorf makes an Error without a hint.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// WithHint returns a copy of e with its hint set.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// With returns a copy of e with one more detail. An error may be shared, so e stays as it is.
func (e *Error) With(key, value string) *Error {
	c := *e
	c.Details = make(map[string]string, len(e.Details)+1)
	maps.Copy(c.Details, e.Details)
	c.Details[key] = value
	return &c
}

// CodeOf returns the code of the first Error in err's chain, INTERNAL for any other error, "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// AsError returns the first Error in err's chain, or err's text as an INTERNAL one.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Errorf(CodeInternal, "%v", err)
}
