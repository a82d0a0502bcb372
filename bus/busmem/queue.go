package busmem

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// queueData is a work queue.
type queueData struct {
	config   bus.QueueConfig
	last     uint64
	messages []*queued // in the order of their positions
	ids      map[string]time.Time
	waiting  []*consumer // for a message, first come first served
}

// consumer is one call of Consume.
type consumer struct {
	queue *Queue
	got   *queued // handed to it and not taken yet
}

// queued is a message that is not acknowledged.
type queued struct {
	seq        uint64
	body       []byte
	deliveries int       // 0: waiting for its first
	due        time.Time // of its next delivery, after the first
}

const duplicateWindow = 2 * time.Minute

// Queue is a peer's view of a work queue: see [bus.Queue], whose methods it has.
type Queue struct {
	bus  *Bus
	name string
}

// Queue opens a queue: see [bus.Bus.Queue].
func (b *Bus) Queue(ctx context.Context, name string, create bool, cfg bus.QueueConfig) (*Queue, error) {
	if err := b.reach(ctx, "open queue "+name, false); err != nil {
		return nil, err
	}
	defer b.cluster.mu.Unlock()
	d := b.cluster.queues[name]
	if d != nil && cfg.KeepPending {
		cfg.MaxAckPending = d.config.MaxAckPending
	}
	if d == nil {
		if !create {
			return nil, b.unknownCluster("queue " + name)
		}
		d = &queueData{ids: map[string]time.Time{}}
		b.cluster.queues[name] = d
	}
	if create {
		cfg.MaxAckPending = max(cfg.MaxAckPending, 1)
		cfg.AckWait = cmp.Or(cfg.AckWait, 30*time.Second)
		d.config = cfg
		b.cluster.touch()
	}
	return &Queue{b, name}, nil
}

// Publish adds a message: see [bus.Queue.Publish].
func (q *Queue) Publish(ctx context.Context, body []byte, msgID string) error {
	if err := q.bus.reach(ctx, "a message of queue "+q.name, true); err != nil {
		return err
	}
	defer q.bus.cluster.mu.Unlock()
	d := q.bus.cluster.queues[q.name]
	if msgID != "" {
		if at, ok := d.ids[msgID]; ok && time.Since(at) < duplicateWindow {
			return nil
		}
		d.ids[msgID] = time.Now()
	}
	d.last++
	d.messages = append(d.messages, &queued{seq: d.last, body: bytes.Clone(body)})
	q.bus.cluster.touch()
	return nil
}

// Len counts the messages: see [bus.Queue.Len].
func (q *Queue) Len(ctx context.Context) (int, error) {
	if err := q.bus.reach(ctx, "count the messages of queue "+q.name, false); err != nil {
		return 0, err
	}
	defer q.bus.cluster.mu.Unlock()
	return len(q.bus.cluster.queues[q.name].messages), nil
}

// Consume calls fn for each message: see [bus.Queue.Consume].
func (q *Queue) Consume(ctx context.Context, fn func(ctx context.Context, m bus.QueueMessage)) error {
	return q.ConsumeSome(ctx, 0, fn)
}

// ConsumeSome is Consume with a limit: see [bus.Queue.ConsumeSome].
func (q *Queue) ConsumeSome(ctx context.Context, most int, fn func(ctx context.Context, m bus.QueueMessage)) error {
	c := q.bus.cluster
	me := &consumer{queue: q}
	var running sync.WaitGroup
	defer running.Wait()
	defer me.giveUp()
	room := bus.NewRoom(most)
	for {
		if err := room.Take(ctx); err != nil {
			return err
		}
		err := c.waitUntil(ctx, func() (bool, time.Time) {
			again := me.wait()
			return me.got != nil || q.bus.closed, again
		})
		if err != nil {
			return err
		}
		if me.got == nil {
			c.mu.Unlock()
			return api.Errorf(api.CodeUnavailable, "queue %s: the connection was closed", q.name)
		}
		m := q.message(me.got)
		me.got = nil
		c.mu.Unlock()
		running.Go(func() {
			defer room.Leave()
			fn(ctx, m)
		})
	}
}

// wait lines the consumer up, and hands out what is due to those that wait. It tells when to look again. The
// lock is held.
func (me *consumer) wait() (again time.Time) {
	c := me.queue.bus.cluster
	d := c.queues[me.queue.name]
	if me.got == nil && !slices.Contains(d.waiting, me) {
		d.waiting = append(d.waiting, me)
	}
	for {
		first := slices.IndexFunc(d.waiting, func(w *consumer) bool { return !c.cut[w.queue.bus.peer] && !w.queue.bus.closed })
		if first < 0 {
			return time.Time{}
		}
		x, due := d.next()
		if x == nil {
			return due
		}
		w := d.waiting[first]
		d.waiting = slices.Delete(d.waiting, first, first+1)
		x.deliveries++
		x.due = time.Now().Add(d.config.AckWait)
		w.got = x
		if w != me {
			c.touch()
		}
	}
}

// giveUp leaves the line. What was handed over and not taken goes back.
func (me *consumer) giveUp() {
	c := me.queue.bus.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.queues[me.queue.name]
	d.waiting = slices.DeleteFunc(d.waiting, func(w *consumer) bool { return w == me })
	if me.got != nil {
		me.got.deliveries--
		me.got.due = time.Time{}
		me.got = nil
		c.touch()
	}
}

// next is a message that is due again, or else a new one if there is room. If there is none, it tells when the
// next one is due.
func (d *queueData) next() (x *queued, again time.Time) {
	now := time.Now()
	pending := 0
	var fresh *queued
	for _, x := range d.messages {
		switch {
		case x.deliveries == 0 && fresh == nil:
			fresh = x
		case x.deliveries == 0:
		case !x.due.After(now):
			return x, again
		default:
			pending++
			if again.IsZero() || x.due.Before(again) {
				again = x.due
			}
		}
	}
	if fresh != nil && pending < d.config.MaxAckPending {
		return fresh, again
	}
	return nil, again
}

// message is a message as it is handed to its consumer. The lock is held.
func (q *Queue) message(x *queued) bus.QueueMessage {
	return bus.QueueMessage{
		Body: bytes.Clone(x.body), Seq: x.seq, Deliveries: x.deliveries,
		Delivery: &delivery{queue: q, data: q.bus.cluster.queues[q.name], seq: x.seq},
	}
}

// delivery implements [bus.Delivery].
type delivery struct {
	queue *Queue
	data  *queueData
	seq   uint64
}

var _ bus.Delivery = (*delivery)(nil)

// change calls fn for the message, if it is still there, and drops it if fn says so.
func (d *delivery) change(fn func(*queued) (drop bool)) error {
	c := d.queue.bus.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut[d.queue.bus.peer] {
		return nil // sent, and lost
	}
	for i, x := range d.data.messages {
		if x.seq != d.seq {
			continue
		}
		if fn(x) {
			d.data.messages = append(d.data.messages[:i:i], d.data.messages[i+1:]...)
		}
		c.touch()
		break
	}
	return nil
}

func (d *delivery) InProgress() error {
	return d.change(func(x *queued) bool {
		x.due = time.Now().Add(d.data.config.AckWait)
		return false
	})
}

func (d *delivery) Ack(ctx context.Context) error {
	if err := d.queue.bus.reach(ctx, "acknowledge a message of queue "+d.queue.name, false); err != nil {
		return err
	}
	d.queue.bus.cluster.mu.Unlock()
	return d.change(func(*queued) bool { return true })
}

func (d *delivery) Nak(delay time.Duration) error {
	return d.change(func(x *queued) bool {
		x.due = time.Now().Add(delay)
		return false
	})
}

func (d *delivery) Term(string) error { return d.change(func(*queued) bool { return true }) }
