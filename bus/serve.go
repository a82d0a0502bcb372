package bus

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pinion-mr/pinion/api"
)

// Serve implements [Answerer]. The subject is not listed among the NATS micro services: see [Service].
func (b *Bus) Serve(subject, queue string, h Handler) (stop func(), err error) {
	return b.ServeMany(MaxConcurrent, subject, queue, h)
}

// ServeMany implements [Answerer].
func (b *Bus) ServeMany(most int, subject, queue string, h Handler) (stop func(), err error) {
	e := b.endpoint(most, subject, h)
	handle := func(m *nats.Msg) {
		e.accept(incoming{reply: m.Reply, subject: m.Subject, contentType: m.Header.Get(headerContentType), protocol: m.Header.Get(headerProtocol), body: m.Data})
	}
	var sub *nats.Subscription
	if queue == "" {
		sub, err = b.nc.Subscribe(b.prefix+subject, handle)
	} else {
		sub, err = b.nc.QueueSubscribe(b.prefix+subject, queue, handle)
	}
	if err != nil {
		return nil, b.sendError(subject, 0, err)
	}
	b.settle()
	return func() { _ = sub.Drain() }, nil
}

// endpoint answers the requests of one subject.
type endpoint struct {
	bus     *Bus
	subject string
	handler Handler
	slots   chan struct{}

	mu    sync.Mutex
	stats EndpointStats
}

// EndpointStats are what NATS tools show of an endpoint as its data. NATS counts requests itself, but its times
// are only those of taking a request on, since each is worked on in a goroutine of its own.
type EndpointStats struct {
	Answered int64   `json:"answered"` // well or with an error
	Errors   int64   `json:"errors"`   // of these
	Refused  int64   `json:"refused"`  // since too many were running; in none of the other figures
	Running  int     `json:"running"`
	MeanMS   float64 `json:"mean_ms"` // from a request to its answer
	MaxMS    float64 `json:"max_ms"`
}

func (e *endpoint) began() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Running++
}

func (e *endpoint) ended(took time.Duration, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	st, ms := &e.stats, float64(took.Microseconds())/1000
	st.Running--
	st.Answered++
	if err != nil {
		st.Errors++
	}
	st.MeanMS += (ms - st.MeanMS) / float64(st.Answered)
	st.MaxMS = max(st.MaxMS, ms)
}

// refused counts a request that was not worked on.
func (e *endpoint) refused() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Refused++
}

func (e *endpoint) figures() EndpointStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

func (b *Bus) endpoint(most int, subject string, h Handler) *endpoint {
	return &endpoint{bus: b, subject: subject, handler: h, slots: make(chan struct{}, most)}
}

// incoming is a request as it came.
type incoming struct {
	reply, subject, contentType string
	protocol                    string // version
	body                        []byte
}

func (in incoming) format() api.Format {
	if strings.HasPrefix(in.contentType, string(api.JSON)) {
		return api.JSON
	}
	return api.FormatOf(in.body)
}

// accept runs the handler in a goroutine, if one is free.
func (e *endpoint) accept(in incoming) {
	select {
	case e.slots <- struct{}{}:
	default:
		e.refused()
		e.bus.answer(in, nil, api.Errorf(api.CodeBusy, "%d requests of %s are being answered already", cap(e.slots), e.subject).
			WithHint("try again a little later"))
		return
	}
	if !e.bus.enter() {
		<-e.slots
		return
	}
	go func() {
		defer e.bus.handlers.Done()
		defer func() { <-e.slots }()
		e.began()
		start := time.Now()
		body, err := e.run(in)
		e.ended(time.Since(start), err)
		e.bus.answer(in, body, err)
	}()
}

// enter counts a handler in, unless the bus is closed.
func (b *Bus) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.handlers.Add(1)
	return true
}

// run calls the handler; its panic becomes an error.
func (e *endpoint) run(in incoming) (body []byte, err error) {
	defer e.bus.recovered("handler", e.subject, &err)
	if err := checkProtocol("the request of "+e.subject, in.protocol); err != nil {
		return nil, err
	}
	m := Message{Subject: strings.TrimPrefix(in.subject, e.bus.prefix), Format: in.format(), Body: in.body}
	body, err = e.handler(e.bus.ctx, m)
	return body, HandlerError(e.bus.ctx, e.subject, err)
}

// recovered ends a panic. It is called by defer.
func (b *Bus) recovered(what, subject string, err *error) {
	r := recover()
	if r == nil {
		return
	}
	b.log.Error("panic", "in", what, "subject", subject, "panic", r, "stack", string(debug.Stack()))
	if err != nil {
		*err = api.Errorf(api.CodeInternal, "the %s of %s panicked: %v", what, subject, r).
			WithHint("this is a bug; the engine's log holds the stack")
	}
}

// answer sends a reply. One that the server would refuse becomes an error, as otherwise the requester
// would only see a timeout.
func (b *Bus) answer(in incoming, body []byte, failure error) {
	if in.reply == "" {
		return
	}
	m := nats.NewMsg(in.reply)
	m.Header.Set(headerContentType, string(in.format()))
	m.Header.Set(headerProtocol, protocolText)
	m.Data = body
	if failure == nil && m.Size() > b.MaxPayload() {
		failure = ReplyTooLarge(strings.TrimPrefix(in.subject, b.prefix), m.Size(), b.MaxPayload())
	}
	if failure != nil {
		if err := b.putError(m, in.format(), api.AsError(failure)); err != nil {
			b.log.Error("cannot encode an error reply", "subject", in.subject, "error", err)
			return
		}
	}
	if err := b.nc.PublishMsg(m); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		b.log.Warn("reply not sent", "subject", in.subject, "error", err)
	}
}

// putError makes an error the body of a reply. One that does not fit into a message comes without its details, and with
// the beginning of its text.
func (b *Bus) putError(m *nats.Msg, format api.Format, e *api.Error) (err error) {
	m.Header.Set(headerError, headerText(e.Message))
	m.Header.Set(headerErrorCode, string(e.Code))
	if m.Data, err = api.Encode(format, e); err != nil || m.Size() <= b.MaxPayload() {
		return err
	}
	short := &api.Error{Code: e.Code, Message: firstBytes(e.Message, shortError), Hint: firstBytes(e.Hint, shortError)}
	m.Data, err = api.Encode(format, short)
	return err
}

// shortError is how much is left of an error's texts that did not fit: little beside the least max_payload that
// the engine works with.
const shortError = 1024

// firstBytes is the beginning of a text, in whole characters.
func firstBytes(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}

// headerText is a message as one short line.
func headerText(s string) string {
	return strings.Join(strings.Fields(firstBytes(s, shortError)), " ")
}

// ReplyTooLarge is the error reply in place of one over the server's limit.
func ReplyTooLarge(subject string, size, limit int) *api.Error {
	return api.Errorf(api.CodeResultTooLarge, "the reply of %s has %d bytes; the NATS server's max_payload is %d", subject, size, limit).
		WithHint("ask for less at once, or raise max_payload on the server")
}

// HandlerError is the error reply for what a handler returned. If the bus was closed, a handler that failed since its
// context ended was not cancelled by anybody: another process may answer.
func HandlerError(ctx context.Context, subject string, err error) error {
	if err != nil && ctx.Err() != nil && (errors.Is(err, context.Canceled) || api.CodeOf(err) == api.CodeCanceled) {
		return api.Errorf(api.CodeUnavailable, "the process that was to answer %s is stopping", subject).WithHint("try again")
	}
	return err
}

// Service is a group of subjects that NATS tools list (`nats micro ls`).
type Service struct {
	bus   *Bus
	micro micro.Service

	mu        sync.Mutex
	endpoints map[string]*endpoint // by name, which is unique

	stopped atomic.Bool
}

var _ Answerer = (*Service)(nil)

// NewService announces a service: a name of letters, digits, _ and -, a version of the form 1.2.3, and a
// sentence for people. Its stats are what [EndpointStats] says.
func (b *Bus) NewService(name, version, description string) (*Service, error) {
	s := &Service{bus: b, endpoints: map[string]*endpoint{}}
	m, err := micro.AddService(b.nc, micro.Config{
		Name: name, Version: version, Description: description,
		Metadata:     map[string]string{"cluster": b.cfg.Cluster, "process": b.cfg.Name},
		StatsHandler: func(e *micro.Endpoint) any { return s.figures(e.Name) },
	})
	if err != nil {
		return nil, api.Errorf(api.CodeInternal, "cannot announce service %s %s: %v", name, version, err)
	}
	s.micro = m
	b.mu.Lock()
	b.services = append(b.services, s)
	b.mu.Unlock()
	return s, nil
}

// Serve implements [Answerer]. Its stop ends the whole service.
func (s *Service) Serve(subject, queue string, h Handler) (stop func(), err error) {
	return s.ServeMany(MaxConcurrent, subject, queue, h)
}

// ServeMany implements [Answerer]. Its stop ends the whole service.
func (s *Service) ServeMany(most int, subject, queue string, h Handler) (stop func(), err error) {
	name := strings.NewReplacer(".", "_", "*", "any").Replace(subject)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endpoints[name] != nil {
		return nil, api.Errorf(api.CodeInternal, "subject %s is served twice by one service", subject)
	}
	group := micro.WithEndpointQueueGroup(queue)
	if queue == "" {
		group = micro.WithEndpointQueueGroupDisabled()
	}
	e := s.bus.endpoint(most, subject, h)
	err = s.micro.AddEndpoint(name, micro.HandlerFunc(func(r micro.Request) {
		e.accept(incoming{reply: r.Reply(), subject: r.Subject(), contentType: r.Headers().Get(headerContentType), protocol: r.Headers().Get(headerProtocol), body: r.Data()})
	}), micro.WithEndpointSubject(s.bus.prefix+subject), group)
	if err != nil {
		return nil, s.bus.sendError(subject, 0, err)
	}
	s.endpoints[name] = e
	s.bus.settle()
	return s.Stop, nil
}

func (s *Service) figures(name string) EndpointStats {
	s.mu.Lock()
	e := s.endpoints[name]
	s.mu.Unlock()
	if e == nil {
		return EndpointStats{}
	}
	return e.figures()
}

// Stop ends the service: no new requests are taken, those that run end.
func (s *Service) Stop() {
	if s.stopped.CompareAndSwap(false, true) {
		_ = s.micro.Stop()
	}
}
