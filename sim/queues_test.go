package sim

import (
	"context"
	"errors"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/bus/busmem"
	"github.com/pinion-mr/pinion/pmr/node"
)

// orders are the queues of move orders as a process sees them.
type orders struct {
	moves, takeovers *busmem.Queue
	gated
}

var _ node.Orders = orders{}

// orderWait is the silence after which an order is handed out again.
const orderWait = 15 * time.Second

func (o orders) Publish(ctx context.Context, order api.MoveOrder) error {
	if err := o.wait(ctx, opQueue, "publish order for %s %v", order.Dst, order.Buckets); err != nil {
		return err
	}
	return o.put(ctx, order, order.ID)
}

// put adds an order under a message id, which lets one order come twice.
func (o orders) put(ctx context.Context, order api.MoveOrder, id string) error {
	body, err := api.Encode(api.JSON, order)
	if err != nil {
		return err
	}
	o.w.ordered(order)
	if !order.NeedsGates() {
		return o.takeovers.Publish(ctx, body, id)
	}
	return o.moves.Publish(ctx, body, id)
}

func (o orders) Consume(ctx context.Context, fn func(context.Context, node.OrderDelivery)) error {
	ended := make(chan error, 2)
	for name, q := range map[string]*busmem.Queue{"move": o.moves, "takeover": o.takeovers} {
		go func() {
			ended <- q.Consume(ctx, func(ctx context.Context, m bus.QueueMessage) {
				d := node.OrderDelivery{Deliveries: m.Deliveries, Delivery: delivery{m.Delivery, o.gated, name, m.Seq}}
				if api.Decode(m.Body, &d.Order, api.Strict) == nil && o.wait(ctx, opQueue, "take %s %d", name, m.Seq) == nil {
					fn(ctx, d)
				}
			})
		}()
	}
	return errors.Join(<-ended, <-ended)
}

func (o orders) Len(ctx context.Context) (int, error) {
	moves, err := o.moves.Len(ctx)
	if err != nil {
		return 0, err
	}
	takeovers, err := o.takeovers.Len(ctx)
	return moves + takeovers, err
}

func (orders) SetParallel(context.Context, int) error { return nil }

// jobQueue is the queue of durable jobs as a process sees it.
type jobQueue struct {
	queue *busmem.Queue
	gated
}

var _ node.JobQueue = jobQueue{}

func (q jobQueue) Publish(ctx context.Context, job api.QueuedJob, id string) error {
	if err := q.wait(ctx, opQueue, "publish job %s", job.Job); err != nil {
		return err
	}
	body, err := api.Encode(api.JSON, job)
	if err != nil {
		return err
	}
	return q.queue.Publish(ctx, body, id)
}

func (q jobQueue) Len(ctx context.Context) (int, error) {
	if err := q.wait(ctx, opQueue, "count jobs"); err != nil {
		return 0, err
	}
	return q.queue.Len(ctx)
}

func (q jobQueue) Consume(ctx context.Context, most int, fn func(context.Context, node.JobDelivery)) error {
	return q.queue.ConsumeSome(ctx, most, func(ctx context.Context, m bus.QueueMessage) {
		var job api.QueuedJob
		if api.Decode(m.Body, &job, api.Strict) == nil && q.wait(ctx, opQueue, "take job %s", job.Job) == nil {
			fn(ctx, node.JobDelivery{Job: job.Job, Message: m.Seq, Delivery: delivery{m.Delivery, q.gated, "job", m.Seq}})
		}
	})
}

// delivery is one delivery of a message as a process sees it.
type delivery struct {
	bus.Delivery
	gated
	queue string
	seq   uint64
}

func (d delivery) Ack(ctx context.Context) error {
	if err := d.wait(ctx, opQueue, "ack %s %d", d.queue, d.seq); err != nil {
		return err
	}
	return d.Delivery.Ack(ctx)
}

func (d delivery) Nak(after time.Duration) error {
	if err := d.wait(context.Background(), opQueue, "nak %s %d", d.queue, d.seq); err != nil {
		return err
	}
	return d.Delivery.Nak(after)
}

func (d delivery) Term(reason string) error {
	if err := d.wait(context.Background(), opQueue, "term %s %d", d.queue, d.seq); err != nil {
		return err
	}
	return d.Delivery.Term(reason)
}
