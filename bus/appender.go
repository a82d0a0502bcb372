package bus

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"
)

// Appender adds many entries to a log without waiting for each. Entries are sent in the order of the
// calls of Append; one that has to be sent again may come to lie behind later ones.
type Appender struct {
	start AppendStart
	slots chan struct{}

	mu       sync.Mutex // also keeps the order of sending
	err      error      // the first failure
	messages uint64
	bytes    uint64
}

// AppendStart sends an entry and returns at once; wait blocks until it is stored, or failed for good,
// for which it may have to send it again.
type AppendStart func(ctx context.Context, subject string, header map[string]string, data []byte) (wait func() error, err error)

// NewAppender makes an appender over any log.
func NewAppender(start AppendStart, maxInFlight int) *Appender {
	return &Appender{start: start, slots: make(chan struct{}, max(maxInFlight, 1))}
}

// Append sends an entry, after waiting while as many as allowed are under way. The data must not be
// changed until Wait. It fails if any entry before failed for good: see [Log.Append] for errors.
func (a *Appender) Append(ctx context.Context, subject string, header map[string]string, data []byte) error {
	return a.AppendThen(ctx, subject, header, data, nil)
}

// AppendThen is Append that calls ended, if it is not nil, once and from another goroutine when the fate of
// this entry is known: with nil if it is stored. From then on the data is the caller's again, unless it was
// an error. It is not called if AppendThen fails. Wait returns after all of these calls.
func (a *Appender) AppendThen(ctx context.Context, subject string, header map[string]string, data []byte, ended func(error)) error {
	select {
	case a.slots <- struct{}{}:
	case <-ctx.Done():
		return contextError(ctx, "append to "+subject)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		<-a.slots
		return a.err
	}
	wait, err := a.start(ctx, subject, header, data)
	if err != nil {
		a.err = err
		<-a.slots
		return err
	}
	go func() {
		err := wait()
		a.finish(err, len(data))
		if ended != nil {
			ended(err)
		}
		<-a.slots
	}()
	return nil
}

func (a *Appender) finish(err error, size int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.messages++
		a.bytes += uint64(size)
	} else if a.err == nil {
		a.err = err
	}
}

// Wait blocks until every entry is stored, and returns the first failure. It must not run at the same
// time as Append.
func (a *Appender) Wait(ctx context.Context) error {
	for held := 0; held < cap(a.slots); held++ {
		select {
		case a.slots <- struct{}{}:
		case <-ctx.Done():
			a.free(held)
			return contextError(ctx, "waiting for the log")
		}
	}
	a.free(cap(a.slots))
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

func (a *Appender) free(n int) {
	for range n {
		<-a.slots
	}
}

// Acked is what was stored up to now: entries, and bytes of their data.
func (a *Appender) Acked() (messages, bytes uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.messages, a.bytes
}

// NewAppender makes an appender with at most that many entries under way. Message ids are minted
// inside; an entry that was not acknowledged is sent again with its id.
func (l *Log) NewAppender(maxInFlight int) *Appender { return NewAppender(l.startAppend, maxInFlight) }

func (l *Log) startAppend(ctx context.Context, subject string, header map[string]string, data []byte) (func() error, error) {
	m, err := l.entry(subject, header, data, newMessageID())
	if err != nil {
		return nil, err
	}
	if m.Size() > l.bus.MaxPayload() {
		return nil, TooLarge(subject, m.Size(), l.bus.MaxPayload())
	}
	again := &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
	ack, err := l.bus.async.PublishMsgAsync(m)
	return func() error {
		if err == nil {
			select {
			case <-ack.Ok():
				return nil
			case err = <-ack.Err():
			case <-ctx.Done():
				return inDoubt(m.Subject, ctx.Err())
			}
		}
		l.bus.log.Debug("entry sent again", "subject", subject, "error", err)
		_, err = l.bus.store(ctx, again, l.patience())
		return err
	}, nil
}
