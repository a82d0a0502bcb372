package bus

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pinion-mr/pinion/api"
)

const (
	queueConsumer  = "workers" // the one durable consumer of a queue, shared by all
	defaultAckWait = 30 * time.Second
)

// Queue is a work queue of a cluster: each message is handed to one of all the processes that consume
// it, again if that one dies, and is gone when it was acknowledged.
type Queue struct {
	bus     *Bus
	name    string // of its stream
	subject string
}

// Queue opens a queue, and makes it first if create is true. Of a queue that exists, create sets
// AckWait anew, and MaxAckPending unless that is to be kept. It fails with UNKNOWN_CLUSTER if it does not exist.
func (b *Bus) Queue(ctx context.Context, name string, create bool, cfg QueueConfig) (*Queue, error) {
	q := &Queue{bus: b, name: b.stream(strings.ToUpper(name)), subject: b.prefix + name}
	if !create {
		_, err := b.openStream(ctx, q.name)
		return q, err
	}
	_, err := b.makeStream(ctx, jetstream.StreamConfig{
		Name:        q.name,
		Description: "Pinion's queue " + name + " of cluster " + b.cfg.Cluster,
		Subjects:    []string{q.subject},
		Storage:     jetstream.FileStorage,
		Retention:   jetstream.WorkQueuePolicy,
		Discard:     jetstream.DiscardNew,
		Replicas:    max(cfg.Replicas, 1),
		Duplicates:  defaultDuplicateWindow,
	})
	if err != nil {
		return nil, err
	}
	wait := cfg.AckWait
	if wait <= 0 {
		wait = defaultAckWait
	}
	consumer := jetstream.ConsumerConfig{
		Durable:       queueConsumer,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       wait,
		MaxAckPending: max(cfg.MaxAckPending, 1),
		MaxDeliver:    -1,
	}
	if cfg.KeepPending {
		there, err := q.consumer(ctx)
		switch {
		case err == nil:
			consumer.MaxAckPending = there.CachedInfo().Config.MaxAckPending
		case !errors.Is(err, jetstream.ErrConsumerNotFound):
			return nil, b.streamError(ctx, "read the consumer of queue "+name, err)
		}
	}
	if _, err = b.js.CreateOrUpdateConsumer(ctx, q.name, consumer); err != nil {
		return nil, b.streamError(ctx, "create the consumer of queue "+name, err)
	}
	return q, nil
}

// Publish adds a message. Two with the same id within two minutes are one; an empty id is replaced by a
// fresh one. Errors are those of [Log.Append].
func (q *Queue) Publish(ctx context.Context, body []byte, msgID string) error {
	m := nats.NewMsg(q.subject)
	if msgID != "" {
		m.Header.Set(jetstream.MsgIDHeader, msgID)
	}
	m.Data = body
	_, err := q.bus.store(ctx, m, publishPatience)
	return err
}

// Len is how many messages the queue has: those that wait, and those that are being worked on.
func (q *Queue) Len(ctx context.Context) (int, error) {
	var info *jetstream.StreamInfo
	err := q.bus.ask(ctx, func(ctx context.Context) error {
		stream, err := q.bus.js.Stream(ctx, q.name) // asks for its state
		if err == nil {
			info = stream.CachedInfo()
		}
		return err
	})
	if err != nil {
		return 0, q.bus.streamError(ctx, "count the messages of queue "+q.name, err)
	}
	return int(info.State.Msgs), nil
}

// Consume calls fn for each message that this process is handed, each in a goroutine of its own, as many
// at a time as the queue's MaxAckPending allows. It returns ctx's error when ctx has ended and the
// calls of fn have returned; their context is ctx.
func (q *Queue) Consume(ctx context.Context, fn func(ctx context.Context, m QueueMessage)) error {
	return q.ConsumeSome(ctx, 0, fn)
}

// ConsumeSome is Consume with at most so many calls of fn at a time, 0 for any number. While all of them run, no
// message is asked for, so that others get it.
func (q *Queue) ConsumeSome(ctx context.Context, most int, fn func(ctx context.Context, m QueueMessage)) error {
	var running sync.WaitGroup
	defer running.Wait()
	room := NewRoom(most)
	var pause backoff
	for room.Take(ctx) == nil {
		if q.bus.nc.IsClosed() {
			return api.Errorf(api.CodeUnavailable, "queue %s: the connection was closed", q.subject)
		}
		m, err := q.next(ctx)
		if err != nil {
			q.bus.log.Debug("queue not read", "queue", q.name, "error", err)
			room.Leave()
			pause.wait(ctx)
			continue
		}
		pause = backoff{}
		if m == nil {
			room.Leave()
			continue
		}
		running.Go(func() {
			defer room.Leave()
			defer q.bus.recovered("consumer", q.subject, nil)
			fn(ctx, *m)
		})
	}
	return ctx.Err()
}

// Room is places for what runs at the same time.
type Room struct{ places chan struct{} }

// NewRoom makes so many places, 0 for any number.
func NewRoom(places int) Room {
	if places <= 0 {
		return Room{}
	}
	return Room{make(chan struct{}, places)}
}

// Take waits for a place, or fails with ctx's error.
func (r Room) Take(ctx context.Context) error {
	if r.places == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case r.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave gives a place back.
func (r Room) Leave() {
	if r.places != nil {
		<-r.places
	}
}

// next asks for one message, so that none lies here unworked while it could be elsewhere. It returns
// nil if there was none for a while.
func (q *Queue) next(ctx context.Context) (*QueueMessage, error) {
	lookup, cancel := q.bus.untilReconnect(ctx, consumerTimeout)
	defer cancel()
	cons, err := q.consumer(lookup)
	if err != nil {
		return nil, err
	}
	patience, done := context.WithTimeout(ctx, pullExpiry)
	defer done()
	fetched, err := cons.Fetch(1, jetstream.FetchContext(patience), jetstream.FetchHeartbeat(pullHeartbeat))
	if err != nil {
		return nil, err
	}
	m, ok := <-fetched.Messages()
	switch {
	case !ok && patience.Err() != nil:
		return nil, nil
	case !ok:
		return nil, fetched.Error()
	case ctx.Err() != nil:
		return nil, m.Nak() // for somebody who still works
	}
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	return &QueueMessage{
		Body: m.Data(), Seq: meta.Sequence.Stream, Deliveries: int(meta.NumDelivered),
		Delivery: &queueDelivery{bus: q.bus, msg: m},
	}, nil
}

func (q *Queue) consumer(ctx context.Context) (jetstream.Consumer, error) {
	return q.bus.js.Consumer(ctx, q.name, queueConsumer)
}

// queueDelivery implements [Delivery].
type queueDelivery struct {
	bus *Bus
	msg jetstream.Msg
}

var _ Delivery = (*queueDelivery)(nil)

func (d *queueDelivery) InProgress() error { return d.coded("prolong", d.msg.InProgress()) }

func (d *queueDelivery) Ack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, consumerTimeout)
	defer cancel()
	return d.coded("acknowledge", d.msg.DoubleAck(ctx))
}

func (d *queueDelivery) Nak(delay time.Duration) error {
	return d.coded("give back", d.msg.NakWithDelay(delay))
}

func (d *queueDelivery) Term(reason string) error {
	return d.coded("end", d.msg.TermWithReason(headerText(reason)))
}

func (d *queueDelivery) coded(what string, err error) error {
	if err == nil {
		return nil
	}
	return api.Errorf(api.CodeUnavailable, "cannot %s a message of queue %s: %v", what, d.msg.Subject(), err)
}
