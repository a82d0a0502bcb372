package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/bus"
)

// consume runs Consume until the test's end or until stop.
func consume(ctx context.Context, t *testing.T, q Queue, fn func(context.Context, bus.QueueMessage)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := q.Consume(ctx, fn); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Consume ended with %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func queueOnce(t *testing.T, p Peer) {
	ctx := within(t)
	q := must(p.Queue(ctx, "jobs", true, bus.QueueConfig{MaxAckPending: 3}))(t)
	const n = 30
	for i := range n {
		check(t, q.Publish(ctx, fmt.Appendf(nil, "%d", i), fmt.Sprint("id", i)))
		check(t, q.Publish(ctx, fmt.Appendf(nil, "%d", i), fmt.Sprint("id", i))) // once more
	}
	got := make(chan string, 2*n)
	work := func(ctx context.Context, m bus.QueueMessage) {
		if err := m.Ack(ctx); err != nil {
			t.Error(err)
		}
		got <- string(m.Body)
	}
	consume(ctx, t, q, work)
	consume(ctx, t, must(p.Again(t).Queue(ctx, "jobs", false, bus.QueueConfig{}))(t), work)
	seen := map[string]bool{}
	for range n {
		body := receive(ctx, t, got)
		if seen[body] {
			t.Fatalf("message %s came twice", body)
		}
		seen[body] = true
	}
	check(t, q.Publish(ctx, []byte("last"), ""))
	if body := receive(ctx, t, got); body != "last" {
		t.Fatalf("message %s came twice", body)
	}
}

func queueRedelivery(t *testing.T, p Peer) {
	ctx := within(t)
	q := must(p.Queue(ctx, "rebalance", true, bus.QueueConfig{MaxAckPending: 1, AckWait: time.Second}))(t)
	for _, body := range []string{"silent", "nak", "term", "end"} {
		check(t, q.Publish(ctx, []byte(body), ""))
	}
	got := make(chan string, 100)
	consume(ctx, t, q, func(ctx context.Context, m bus.QueueMessage) {
		got <- fmt.Sprintf("%s %d", m.Body, m.Deliveries)
		var err error
		switch body := string(m.Body); {
		case body == "silent" && m.Deliveries == 1:
			err = m.InProgress()
		case body == "nak" && m.Deliveries == 1:
			err = m.Nak(10 * time.Millisecond)
		case body == "term":
			err = m.Term("it cannot be done")
		default:
			err = m.Ack(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	})
	for _, want := range []string{"silent 1", "silent 2", "nak 1", "nak 2", "term 1", "end 1"} {
		if s := receive(ctx, t, got); s != want {
			t.Fatalf("delivery %q, want %q", s, want)
		}
	}
}

// queueLimit has a message published after the limit is reached: it must be the last one to come, though
// there are consumers who wait.
func queueLimit(t *testing.T, p Peer) {
	ctx := within(t)
	q := must(p.Queue(ctx, "rebalance", true, bus.QueueConfig{MaxAckPending: 2}))(t)
	type job struct {
		body string
		done chan struct{}
	}
	jobs := make(chan job, 10)
	work := func(ctx context.Context, m bus.QueueMessage) {
		j := job{string(m.Body), make(chan struct{})}
		jobs <- j
		select {
		case <-j.done:
			_ = m.Ack(ctx)
		case <-ctx.Done():
		}
	}
	consume(ctx, t, q, work)
	consume(ctx, t, must(p.Again(t).Queue(ctx, "rebalance", false, bus.QueueConfig{}))(t), work)
	for _, body := range []string{"1", "2", "3"} {
		check(t, q.Publish(ctx, []byte(body), ""))
	}
	first, second := receive(ctx, t, jobs), receive(ctx, t, jobs)
	if first.body == "3" || second.body == "3" {
		t.Fatalf("deliveries %s, %s", first.body, second.body)
	}
	select {
	case j := <-jobs:
		t.Fatalf("delivery %s beyond the limit", j.body)
	case <-time.After(200 * time.Millisecond):
	}
	close(second.done)
	if third := receive(ctx, t, jobs); third.body != "3" {
		t.Fatalf("delivery %s", third.body)
	}
}
