package bus

import (
	"context"
	"errors"

	"github.com/pinion-mr/pinion/api"
)

// Transport is request, reply and one-way messages between the processes of one cluster. [Bus]
// implements it over NATS, busmem.Bus in memory. Subjects are relative to the cluster.
type Transport interface {
	Answerer

	// Request sends in, a message struct of package api, and decodes the reply into out, a pointer to
	// one; a nil in is an empty message, a nil out drops the reply. The wait is bounded by ctx alone.
	// Errors: the service's own [api.Error]; UNAVAILABLE if nobody serves the subject; TIMEOUT or
	// CANCELED when ctx ended; LIMIT_EXCEEDED if the request is larger than MaxPayload.
	Request(ctx context.Context, subject string, in, out any) error

	// Publish sends v one way. Nobody need be listening; nothing tells whether it arrived.
	Publish(subject string, v any) error

	// Subscribe calls fn for each message published on the subject, which may hold the wildcards * and
	// >, one at a time and in order. The subject given to fn is relative. The body is fn's to keep.
	// When Subscribe has returned, messages published by anybody are delivered.
	Subscribe(subject string, fn func(subject string, body []byte)) (stop func(), err error)

	// MaxPayload is the largest message in bytes, headers included.
	MaxPayload() int

	// OnReconnect has fn called, in a goroutine of its own, each time that a lost connection is back.
	OnReconnect(fn func()) (stop func())

	// Close ends every subscription and service, cancels the contexts of the handlers that still run,
	// waits a few seconds for them, and leaves.
	Close()
}

// Answerer registers handlers of requests: [Bus] itself or a [Service] of it.
type Answerer interface {
	// Serve has h answer the requests on a subject. Processes that serve it in the same queue group
	// share the requests; with queue "" each of them gets all. Each request runs in a goroutine of its
	// own, at most [MaxConcurrent] at a time; beyond that the answer is BUSY. An error of h becomes an
	// error reply (INTERNAL if it is no [api.Error]), and so does a panic. When Serve has returned,
	// requests of anybody are answered. stop takes no new requests and lets those that run end.
	Serve(subject, queue string, h Handler) (stop func(), err error)

	// ServeMany is Serve for up to most requests at a time: for handlers that mostly wait.
	ServeMany(most int, subject, queue string, h Handler) (stop func(), err error)
}

// MaxConcurrent is how many requests of one subject a process answers at the same time, unless it asked for
// more: each may hold a message of the largest size, and an answer as large.
const MaxConcurrent = 256

// Message is a request as a [Handler] gets it.
type Message struct {
	Subject string // relative
	Format  api.Format
	Body    []byte
}

// Handler answers a request: with the reply's body, in the request's format, or with an error. Its
// context ends when the bus closes.
type Handler func(ctx context.Context, m Message) ([]byte, error)

// Handle has fn answer the requests on a subject: see [Answerer] for queue and stop. The request is
// decoded strictly (an unknown field is refused by name); the reply is written in the request's format.
func Handle[Req, Resp any](a Answerer, subject, queue string, fn func(ctx context.Context, req Req) (Resp, error)) (stop func(), err error) {
	return HandleMany(a, MaxConcurrent, subject, queue, fn)
}

// HandleMany is [Handle] for up to most requests at a time: see [Answerer].
func HandleMany[Req, Resp any](a Answerer, most int, subject, queue string, fn func(ctx context.Context, req Req) (Resp, error)) (stop func(), err error) {
	return a.ServeMany(most, subject, queue, func(ctx context.Context, m Message) ([]byte, error) {
		var req Req
		if err := api.Decode(m.Body, &req, api.Strict); err != nil {
			return nil, err
		}
		resp, err := fn(ctx, req)
		if err != nil {
			return nil, err
		}
		return api.Encode(m.Format, resp)
	})
}

// contextError is the coded form of a context's end; what names the operation.
func contextError(ctx context.Context, what string) *api.Error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return api.Errorf(api.CodeCanceled, "%s was cancelled", what)
	}
	return api.Errorf(api.CodeTimeout, "%s: no answer within the time allowed", what)
}
