package busmem

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// Bus is a peer's connection to a [Cluster].
type Bus struct {
	cluster  *Cluster
	peer     string
	ctx      context.Context
	cancel   context.CancelFunc
	handlers sync.WaitGroup

	// Under the cluster's lock:
	closed     bool
	listeners  map[int]func()
	nextListen int
}

var _ bus.Transport = (*Bus)(nil)

// subscription is a subscriber or a handler of requests.
type subscription struct {
	bus     *Bus
	pattern string
	queue   string

	handler bus.Handler // or
	slots   chan struct{}

	fn    func(string, []byte)
	inbox []inboxMessage // under the cluster's lock
	more  chan struct{}  // holds one while the inbox is not empty
	done  chan struct{}
}

type inboxMessage struct {
	subject string
	body    []byte
}

// Connect makes a connection. The peer's name is what Faults and Cut know it by.
func (c *Cluster) Connect(peer string) *Bus {
	b := &Bus{cluster: c, peer: peer, listeners: map[int]func(){}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers = append(c.peers, b)
	return b
}

// Cluster is the name of the cluster.
func (b *Bus) Cluster() string { return b.cluster.name }

// MaxPayload implements [bus.Transport].
func (b *Bus) MaxPayload() int { return b.cluster.maxPayload }

// OnReconnect implements [bus.Transport].
func (b *Bus) OnReconnect(fn func()) (stop func()) {
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	id := b.nextListen
	b.nextListen++
	b.listeners[id] = fn
	return func() {
		b.cluster.mu.Lock()
		defer b.cluster.mu.Unlock()
		delete(b.listeners, id)
	}
}

// Close implements [bus.Transport].
func (b *Bus) Close() {
	c := b.cluster
	c.mu.Lock()
	if b.closed {
		c.mu.Unlock()
		return
	}
	b.closed = true
	b.listeners = map[int]func(){}
	var mine []*subscription
	for _, s := range c.subs {
		if s.bus == b {
			mine = append(mine, s)
		}
	}
	c.touch()
	c.mu.Unlock()
	for _, s := range mine {
		s.stop()
	}
	b.cancel()
	b.handlers.Wait()
}

// Subscribe implements [bus.Transport].
func (b *Bus) Subscribe(subject string, fn func(subject string, body []byte)) (stop func(), err error) {
	s := &subscription{bus: b, pattern: subject, fn: fn, more: make(chan struct{}, 1), done: make(chan struct{})}
	if err := b.cluster.add(s); err != nil {
		return nil, err
	}
	go s.deliver()
	return s.stop, nil
}

// Serve implements [bus.Answerer].
func (b *Bus) Serve(subject, queue string, h bus.Handler) (stop func(), err error) {
	return b.ServeMany(bus.MaxConcurrent, subject, queue, h)
}

// ServeMany implements [bus.Answerer].
func (b *Bus) ServeMany(most int, subject, queue string, h bus.Handler) (stop func(), err error) {
	s := &subscription{bus: b, pattern: subject, queue: queue, handler: h, slots: make(chan struct{}, most), done: make(chan struct{})}
	if err := b.cluster.add(s); err != nil {
		return nil, err
	}
	return s.stop, nil
}

// NewService returns the bus itself: nobody lists the services of a cluster in memory.
func (b *Bus) NewService(string, string, string) (bus.Answerer, error) { return b, nil }

func (c *Cluster) add(s *subscription) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.bus.closed {
		return api.Errorf(api.CodeUnavailable, "no connection for %s: it was closed", s.pattern)
	}
	c.subs = append(c.subs, s)
	return nil
}

// stop takes the subscription off.
func (s *subscription) stop() {
	c := s.bus.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.subs {
		if other == s {
			c.subs = append(c.subs[:i:i], c.subs[i+1:]...)
			close(s.done)
			return
		}
	}
}

// deliver calls a subscriber, one message after the other.
func (s *subscription) deliver() {
	for {
		select {
		case <-s.more:
		case <-s.done:
			return
		}
		s.bus.cluster.mu.Lock()
		batch := s.inbox
		s.inbox = nil
		s.bus.cluster.mu.Unlock()
		for _, m := range batch {
			s.fn(m.subject, m.body)
		}
	}
}

// put adds to a subscriber's inbox. The lock is held.
func (s *subscription) put(subject string, body []byte) {
	s.inbox = append(s.inbox, inboxMessage{subject, bytes.Clone(body)})
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// targets are the subscriptions that a message reaches: all without a queue, one of each queue group.
// The lock is held.
func (c *Cluster) targets(subject string) []*subscription {
	var out []*subscription
	groups := map[string][]*subscription{}
	var names []string
	for _, s := range c.subs {
		if !matches(s.pattern, subject) || c.cut[s.bus.peer] {
			continue
		}
		if s.queue == "" {
			out = append(out, s)
			continue
		}
		if groups[s.queue] == nil {
			names = append(names, s.queue)
		}
		groups[s.queue] = append(groups[s.queue], s)
	}
	for _, name := range names {
		turn := c.turn[subject+" "+name]
		c.turn[subject+" "+name]++
		out = append(out, groups[name][turn%len(groups[name])])
	}
	return out
}

// someone reports whether anybody listens to the subject, cut off or not. The lock is held.
func (c *Cluster) someone(subject string) bool {
	for _, s := range c.subs {
		if matches(s.pattern, subject) {
			return true
		}
	}
	return false
}

// Publish implements [bus.Transport].
func (b *Bus) Publish(subject string, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	if len(body) > b.cluster.maxPayload {
		return bus.TooLarge(subject, len(body), b.cluster.maxPayload)
	}
	b.send(subject, body, nil)
	return nil
}

func encode(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	return api.Encode(api.Msgpack, v)
}

// reply is what a handler answered.
type reply struct {
	body []byte
	err  *api.Error
}

// code is empty for an answer that is no error.
func (r reply) code() api.Code {
	if r.err == nil {
		return ""
	}
	return r.err.Code
}

// Request implements [bus.Transport].
func (b *Bus) Request(ctx context.Context, subject string, in, out any) error {
	body, err := encode(in)
	if err != nil {
		return err
	}
	answer, err := b.request(ctx, subject, body)
	if err != nil || out == nil {
		return err
	}
	if err := api.Decode(answer, out, api.Lenient); err != nil {
		return api.Errorf(api.CodeInternal, "cannot read the reply of %s: %v", subject, err)
	}
	return nil
}

// request is Request with encoded messages.
func (b *Bus) request(ctx context.Context, subject string, body []byte) ([]byte, error) {
	if len(body) > b.cluster.maxPayload {
		return nil, bus.TooLarge(subject, len(body), b.cluster.maxPayload)
	}
	if ctx.Err() != nil {
		return nil, coded(ctx, "request "+subject)
	}
	b.cluster.mu.Lock()
	someone, closed := b.cluster.someone(subject), b.closed
	b.cluster.mu.Unlock()
	switch {
	case closed:
		return nil, api.Errorf(api.CodeUnavailable, "no connection for %s: it was closed", subject)
	case !someone:
		return nil, bus.NoResponders(b.cluster.name, subject)
	}
	replies := make(chan reply, 1)
	b.send(subject, body, func(r reply) {
		select {
		case replies <- r:
		default: // a second one, of a doubled request: nobody waits for it
		}
	})
	select {
	case r := <-replies:
		if r.err != nil {
			return nil, r.err
		}
		return r.body, nil
	case <-ctx.Done():
		return nil, coded(ctx, "request "+subject)
	}
}

// send delivers a message, or does what a fault says. answer is nil for one-way messages.
func (b *Bus) send(subject string, body []byte, answer func(reply)) {
	fault := Fault{}
	if hook := b.cluster.currentFaults().Request; hook != nil {
		fault = hook(Call{From: b.peer, Subject: subject, Body: body})
	}
	b.cluster.interfere(fault, func() { b.dispatch(subject, body, fault.Tag, answer) })
}

// interfere calls fn as often and as late as a fault says.
func (c *Cluster) interfere(f Fault, fn func()) {
	if f.Drop {
		return
	}
	times := 1
	if f.Duplicate {
		times = 2
	}
	for i := range times {
		if f.Delay > 0 {
			time.AfterFunc(f.Delay+time.Duration(i)*time.Microsecond, fn)
		} else {
			fn()
		}
	}
}

// dispatch hands a message to all that it reaches.
func (b *Bus) dispatch(subject string, body []byte, tag string, answer func(reply)) {
	c := b.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut[b.peer] || b.closed {
		return
	}
	for _, s := range c.targets(subject) {
		if s.handler == nil {
			s.put(subject, body)
			continue
		}
		s.bus.handlers.Add(1)
		go s.run(bus.Message{Subject: subject, Format: api.FormatOf(body), Body: bytes.Clone(body)}, tag, b, answer)
	}
}

// run answers a request.
func (s *subscription) run(m bus.Message, tag string, from *Bus, answer func(reply)) {
	defer s.bus.handlers.Done()
	var r reply
	select {
	case s.slots <- struct{}{}:
		body, err := s.call(context.WithValue(s.bus.ctx, tagKey{}, tag), m)
		<-s.slots
		r = s.reply(m, body, err)
	default:
		r.err = api.Errorf(api.CodeBusy, "%d requests of %s are being answered already", cap(s.slots), s.pattern)
	}
	if answer == nil {
		return
	}
	c := s.bus.cluster
	fault := Fault{}
	if hook := c.currentFaults().Reply; hook != nil {
		fault = hook(Call{From: s.bus.peer, Subject: m.Subject, Body: r.body, Asked: m.Body, Code: r.code(), Tag: tag})
	}
	c.interfere(fault, func() {
		c.mu.Lock()
		lost := c.cut[s.bus.peer] || c.cut[from.peer]
		c.mu.Unlock()
		if !lost {
			answer(r)
		}
	})
}

func (s *subscription) call(ctx context.Context, m bus.Message) (body []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = api.Errorf(api.CodeInternal, "the handler of %s panicked: %v", s.pattern, r)
		}
	}()
	body, err = s.handler(ctx, m)
	return body, bus.HandlerError(ctx, s.pattern, err)
}

// reply sends errors through their encoding, as the wire does.
func (s *subscription) reply(m bus.Message, body []byte, err error) reply {
	if err == nil && len(body) > s.bus.cluster.maxPayload {
		err = bus.ReplyTooLarge(m.Subject, len(body), s.bus.cluster.maxPayload)
	}
	if err == nil {
		return reply{body: body}
	}
	data, encodeErr := api.Encode(m.Format, api.AsError(err))
	out := &api.Error{}
	if encodeErr == nil {
		encodeErr = api.Decode(data, out, api.Lenient)
	}
	if encodeErr != nil {
		out = api.Errorf(api.CodeInternal, "%s answered with an error that cannot be written: %v", m.Subject, encodeErr)
	}
	return reply{body: data, err: out}
}

// unknownCluster is the error of a missing stream.
func (b *Bus) unknownCluster(what string) error {
	return api.Errorf(api.CodeNoSuchCluster, "no cluster %q in memory: it has no %s", b.cluster.name, strings.ToLower(what)).
		WithHint("start a router of it")
}

// String names the connection.
func (b *Bus) String() string { return fmt.Sprintf("%s@%s", b.peer, b.cluster.name) }
