package bus

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/pinion-mr/pinion/api"
)

// Error codes of JetStream that nats.go does not name.
const (
	jsDuplicateInFlight jetstream.ErrorCode = 10158 // the same message id is being stored
	jsStoreFailed       jetstream.ErrorCode = 10077 // the stream is full, or its disk is
	jsNoResources       jetstream.ErrorCode = 10023
	jsNoStorage         jetstream.ErrorCode = 10047
)

// backoff doubles from 50 ms up to 2 s.
type backoff struct{ next time.Duration }

// wait blocks for the next interval and reports false if ctx ended first.
func (p *backoff) wait(ctx context.Context) bool {
	if p.next == 0 {
		p.next = 50 * time.Millisecond
	}
	t := time.NewTimer(p.next)
	defer t.Stop()
	p.next = min(2*p.next, 2*time.Second)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// untilReconnect is a context that also ends after limit and when a lost connection is back: what was
// asked before gets no answer any more.
func (b *Bus) untilReconnect(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := b.OnReconnect(cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// ask calls fn, which asks JetStream something that may be asked twice, until there is an answer, for at
// most askPatience.
func (b *Bus) ask(ctx context.Context, fn func(ctx context.Context) error) error {
	patience, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	var pause backoff
	for {
		try, done := b.untilReconnect(patience, publishTimeout)
		err := fn(try)
		done()
		if err == nil || answered(err) || b.nc.IsClosed() || !pause.wait(patience) {
			return err
		}
	}
}

// answered reports whether an error is JetStream's answer, and not the lack of one.
func answered(err error) bool {
	var apiErr *jetstream.APIError
	if errors.As(err, &apiErr) {
		return apiErr.Code < 500
	}
	return errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
}

// newMessageID is a fresh Nats-Msg-Id.
func newMessageID() string { return nuid.Next() }

// store publishes m to a stream until it is acknowledged, for at most patience. It mints a message id
// if m has none, so that a repeat is stored once. Its error is a refusal if the server refused, and
// IN_DOUBT if it did not tell.
func (b *Bus) store(ctx context.Context, m *nats.Msg, patience time.Duration) (uint64, error) {
	if m.Header.Get(jetstream.MsgIDHeader) == "" {
		m.Header.Set(jetstream.MsgIDHeader, newMessageID())
	}
	if err := ctx.Err(); err != nil {
		return 0, contextError(ctx, "write to "+m.Subject)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var pause backoff
	doubt := false
	for {
		seq, err := b.storeOnce(ctx, m)
		if err == nil {
			return seq, nil
		}
		refusal, retry := b.refusal(m, err)
		if !retry && (!doubt || errors.Is(refusal, ErrConflict)) {
			return 0, refusal
		}
		if !retry {
			return 0, inDoubt(m.Subject, refusal)
		}
		doubt = true
		if !pause.wait(ctx) {
			return 0, inDoubt(m.Subject, err)
		}
	}
}

// storeOnce publishes m and waits for the acknowledgement.
func (b *Bus) storeOnce(ctx context.Context, m *nats.Msg) (uint64, error) {
	ctx, cancel := b.untilReconnect(ctx, publishTimeout)
	defer cancel()
	reply, err := b.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return 0, err
	}
	return parseAck(reply)
}

// parseAck reads a stream's acknowledgement.
func parseAck(reply *nats.Msg) (uint64, error) {
	var ack struct {
		jetstream.PubAck
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return 0, jetstream.ErrInvalidJSAck
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	if ack.Stream == "" {
		return 0, jetstream.ErrInvalidJSAck
	}
	return ack.Sequence, nil
}

// refusal codes the failure of one try and tells whether to try again.
func (b *Bus) refusal(m *nats.Msg, err error) (refused error, retry bool) {
	subject := m.Subject
	var apiErr *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return TooLarge(subject, m.Size(), b.MaxPayload()), false
	case errors.Is(err, nats.ErrBadSubject):
		return api.Errorf(api.CodeBadRequest, "%q is no subject", subject), false
	case errors.Is(err, nats.ErrConnectionClosed) && b.nc.IsClosed():
		return api.Errorf(api.CodeUnavailable, "write to %s: the connection was closed", subject), false
	case !errors.As(err, &apiErr):
		return nil, true
	}
	switch apiErr.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return ErrConflict, false
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return api.Errorf(api.CodeLimitExceeded, "a message of %d bytes to %s is over the stream's max_msg_size", m.Size(), subject), false
	case jsStoreFailed, jsNoResources, jsNoStorage:
		return api.Errorf(api.CodeLimitExceeded, "the server has no room for a message to %s: %s", subject, apiErr.Description).
			WithHint("free space on the server's disk, or raise the limits of the stream"), false
	case jsDuplicateInFlight:
		return nil, true
	}
	if apiErr.Code >= 500 {
		return nil, true
	}
	return api.Errorf(api.CodeInternal, "the server refused a message to %s: %s", subject, apiErr.Description), false
}

// inDoubt is the error of a write of which nothing is known.
func inDoubt(subject string, cause error) error {
	return api.Errorf(api.CodeInDoubt, "a write to %s may or may not have been stored: %v", subject, cause).
		WithHint("write it again with the same message id within the duplicate window, or read whether it is there")
}
