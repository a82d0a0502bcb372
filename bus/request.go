package bus

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pinion-mr/pinion/api"
)

// Headers of messages; the error ones are the convention of NATS micro services.
const (
	headerContentType = "Content-Type"
	headerError       = "Nats-Service-Error"
	headerErrorCode   = "Nats-Service-Error-Code"
	headerProtocol    = "Pinion-Protocol"
)

var protocolText = strconv.Itoa(api.Protocol)

// checkProtocol refuses a message of a newer protocol by its number. Messages of clients that do not say one
// are read as they are.
func checkProtocol(what, version string) error {
	n, err := strconv.Atoi(version)
	switch {
	case version == "":
		return nil
	case err != nil:
		return api.Errorf(api.CodeBadRequest, "%s has the header %s: %.20q, which is no number", what, headerProtocol, version)
	case n > api.Protocol:
		return api.Errorf(api.CodeVersion, "%s is of protocol %d; this program reads %d", what, n, api.Protocol).
			WithHint("use a newer program here, or an older one there")
	}
	return nil
}

// Request implements [Transport].
func (b *Bus) Request(ctx context.Context, subject string, in, out any) error {
	if err := checkSubject(subject); err != nil {
		return err
	}
	body, err := encodeMessage(in)
	if err != nil {
		return err
	}
	reply, err := b.nc.RequestMsgWithContext(ctx, b.message(subject, body))
	if err != nil {
		return b.requestError(ctx, subject, len(body), err)
	}
	return decodeReply(reply, subject, out)
}

// encodeMessage writes v as msgpack; nil is an empty message.
func encodeMessage(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	return api.Encode(api.Msgpack, v)
}

// maxSubject is the longest subject that is sent. A server that is sent a longer protocol line than it takes
// (4 KiB) ends the connection, and the client then gives up for good.
const maxSubject = 1024

func checkSubject(subject string) error {
	if len(subject) > maxSubject {
		return api.Errorf(api.CodeBadRequest, "the subject %.40q... has %d bytes; the limit is %d", subject, len(subject), maxSubject)
	}
	return nil
}

func (b *Bus) message(subject string, body []byte) *nats.Msg {
	m := nats.NewMsg(b.prefix + subject)
	m.Header.Set(headerContentType, string(api.Msgpack))
	m.Header.Set(headerProtocol, protocolText)
	m.Data = body
	return m
}

// decodeReply reads a reply or the error that it carries.
func decodeReply(reply *nats.Msg, subject string, out any) error {
	if err := checkProtocol("the reply of "+subject, reply.Header.Get(headerProtocol)); err != nil {
		return err
	}
	if text := reply.Header.Get(headerError); text != "" || reply.Header.Get(headerErrorCode) != "" {
		e := &api.Error{}
		if err := api.Decode(reply.Data, e, api.Lenient); err != nil || e.Code == "" {
			return api.Errorf(api.CodeInternal, "%s answered with an error: %s", subject, text)
		}
		return e
	}
	if out == nil {
		return nil
	}
	if err := api.Decode(reply.Data, out, api.Lenient); err != nil {
		return api.Errorf(api.CodeInternal, "cannot read the reply of %s: %v", subject, err)
	}
	return nil
}

// requestError codes a failure to send or to get an answer.
func (b *Bus) requestError(ctx context.Context, subject string, size int, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return NoResponders(b.cfg.Cluster, subject)
	case ctx.Err() != nil, errors.Is(err, nats.ErrTimeout):
		return contextError(ctx, "request "+subject)
	default:
		return b.sendError(subject, size, err)
	}
}

// NoResponders is the error of a request to a subject that nobody serves.
func NoResponders(cluster, subject string) *api.Error {
	return api.Errorf(api.CodeUnavailable, "nobody in cluster %q answers %s", cluster, subject).
		WithHint("look with `engine status` whether the cluster's routers and storages run").With("subject", subject)
}

// sendError codes a failure to hand a message to the server.
func (b *Bus) sendError(subject string, size int, err error) error {
	if errors.Is(err, nats.ErrMaxPayload) {
		return TooLarge(subject, size, b.MaxPayload())
	}
	if errors.Is(err, nats.ErrBadSubject) {
		return api.Errorf(api.CodeBadRequest, "%q is no subject", subject)
	}
	return api.Errorf(api.CodeUnavailable, "no connection to %s for %s: %v", b.cfg.where(), subject, err).With("subject", subject)
}

// TooLarge is the error of a message over the server's limit.
func TooLarge(subject string, size, limit int) *api.Error {
	return api.Errorf(api.CodeLimitExceeded, "a message of %d bytes to %s does not fit the NATS server's max_payload of %d", size, subject, limit).
		WithHint("send less at once, or raise max_payload on the server")
}

// Publish implements [Transport].
func (b *Bus) Publish(subject string, v any) error {
	if err := checkSubject(subject); err != nil {
		return err
	}
	body, err := encodeMessage(v)
	if err != nil {
		return err
	}
	if err := b.nc.PublishMsg(b.message(subject, body)); err != nil {
		return b.sendError(subject, len(body), err)
	}
	return nil
}

// Subscribe implements [Transport].
func (b *Bus) Subscribe(subject string, fn func(subject string, body []byte)) (stop func(), err error) {
	sub, err := b.nc.Subscribe(b.prefix+subject, func(m *nats.Msg) {
		defer b.recovered("subscriber", subject, nil)
		fn(strings.TrimPrefix(m.Subject, b.prefix), m.Data)
	})
	if err != nil {
		return nil, b.sendError(subject, 0, err)
	}
	b.settle()
	return func() { _ = sub.Unsubscribe() }, nil
}

// settle waits until the server knows of a new subscription. Should the connection be lost meanwhile,
// the subscription is renewed with it.
func (b *Bus) settle() { _ = b.nc.FlushTimeout(publishTimeout) }
