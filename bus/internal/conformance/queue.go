package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
	got, done := make(chan string, 100), make(chan error, 100)
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
		done <- err
	})
	for _, want := range []string{"silent 1", "silent 2", "nak 1", "nak 2", "term 1", "end 1"} {
		if s := receive(ctx, t, got); s != want {
			t.Fatalf("delivery %q, want %q", s, want)
		}
		check(t, receive(ctx, t, done))
	}
}

// queueLimit counts how many messages are being worked on, while there are always more and consumers who
// wait for them.
func queueLimit(t *testing.T, p Peer) {
	ctx := within(t)
	const limit, n = 2, 20
	cfg := bus.QueueConfig{MaxAckPending: limit}
	q := must(p.Queue(ctx, "rebalance", true, cfg))(t)
	must(p.Again(t).Queue(ctx, "rebalance", true, bus.QueueConfig{MaxAckPending: 1, KeepPending: true}))(t)
	publish := func(n int) {
		for i := range n {
			check(t, q.Publish(ctx, fmt.Append(nil, i), ""))
		}
	}
	publish(limit)
	var running atomic.Int32
	arrived, release := make(chan int32, n), make(chan struct{})
	work := func(ctx context.Context, m bus.QueueMessage) {
		arrived <- running.Add(1)
		select {
		case <-release:
		case <-ctx.Done():
			return
		}
		running.Add(-1)
		if err := m.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	consume(ctx, t, q, work)
	consume(ctx, t, must(p.Again(t).Queue(ctx, "rebalance", false, bus.QueueConfig{}))(t), work)
	most := int32(0)
	for i := range n {
		most = max(most, receive(ctx, t, arrived))
		if i+1 == limit { // as many as allowed are here; none of these may come
			publish(n - limit)
		}
		if i+1 >= limit { // let one go
			select {
			case release <- struct{}{}:
			case <-ctx.Done():
				t.Fatal("nobody works")
			}
		}
	}
	close(release)
	if most != limit {
		t.Fatalf("%d messages were worked on at a time, not %d", most, limit)
	}
}

// queueLimitChanged has more worked on at a time, and again less, while consumers run.
func queueLimitChanged(t *testing.T, p Peer) {
	ctx := within(t)
	limit := func(n int) Queue {
		return must(p.Queue(ctx, "rebalance", true, bus.QueueConfig{MaxAckPending: n}))(t)
	}
	q := limit(1)
	arrived, release := make(chan struct{}, 100), make(chan struct{})
	consume(ctx, t, q, func(ctx context.Context, m bus.QueueMessage) {
		arrived <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
			return
		}
		if err := m.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	for i := range 10 {
		check(t, q.Publish(ctx, fmt.Append(nil, i), ""))
	}
	wantHeld := func(n int, what string) {
		t.Helper()
		for range n {
			receive(ctx, t, arrived)
		}
		select {
		case <-arrived:
			t.Fatalf("more than %d messages are worked on %s", n, what)
		case <-time.After(500 * time.Millisecond):
		}
	}
	wantHeld(1, "at first")
	limit(3)
	wantHeld(2, "beside the first when three may be")
	limit(1)
	release <- struct{}{}
	release <- struct{}{}
	wantHeld(0, "beside the one that is left")
	release <- struct{}{}
	wantHeld(1, "when all before are done")
	close(release)
}

// queueSome has a consumer that takes one message at a time hold one, which it keeps alive for longer than the
// queue waits: all others go elsewhere, and the one it lets go is delivered again under the same position.
func queueSome(t *testing.T, p Peer) {
	ctx := within(t)
	q := must(p.Queue(ctx, "jobs", true, bus.QueueConfig{MaxAckPending: 1000, AckWait: time.Second}))(t)
	held := make(chan uint64, 10)
	slow, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- q.ConsumeSome(slow, 1, func(ctx context.Context, m bus.QueueMessage) {
			held <- m.Seq
			for {
				select {
				case <-time.After(200 * time.Millisecond):
					check(t, m.InProgress())
				case <-ctx.Done():
					return
				}
			}
		})
	}()
	check(t, q.Publish(ctx, []byte("held"), ""))
	first := receive(ctx, t, held)
	const n = 20
	for i := range n {
		check(t, q.Publish(ctx, fmt.Append(nil, i), ""))
	}
	got := make(chan bus.QueueMessage, 2*n)
	consume(ctx, t, must(p.Again(t).Queue(ctx, "jobs", false, bus.QueueConfig{}))(t), func(ctx context.Context, m bus.QueueMessage) {
		if err := m.Ack(ctx); err != nil {
			t.Error(err)
		}
		got <- m
	})
	for range n {
		if m := receive(ctx, t, got); m.Seq == first {
			t.Fatal("the message that is held was delivered elsewhere")
		}
	}
	select { // longer than AckWait
	case m := <-got:
		t.Fatalf("message %d was delivered though it is held or done", m.Seq)
	case <-time.After(1500 * time.Millisecond):
	}
	stop()
	check(t, func() error {
		if err := receive(ctx, t, ended); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}())
	if m := receive(ctx, t, got); m.Seq != first || m.Deliveries != 2 {
		t.Fatalf("delivered again is %d, for the time %d; want %d", m.Seq, m.Deliveries, first)
	}
}

// queueLength counts what waits and what is being worked on.
func queueLength(t *testing.T, p Peer) {
	ctx := within(t)
	q := must(p.Queue(ctx, "jobs", true, bus.QueueConfig{MaxAckPending: 1}))(t)
	length := func(want int) {
		t.Helper()
		if n := must(q.Len(ctx))(t); n != want {
			t.Fatalf("%d messages, want %d", n, want)
		}
	}
	length(0)
	check(t, q.Publish(ctx, []byte("a"), "a"))
	check(t, q.Publish(ctx, []byte("a"), "a"))
	check(t, q.Publish(ctx, []byte("b"), "b"))
	length(2)
	got, acked := make(chan bus.QueueMessage, 2), make(chan struct{})
	stop := consume(ctx, t, q, func(_ context.Context, m bus.QueueMessage) {
		got <- m
		<-acked
	})
	m := receive(ctx, t, got)
	length(2)
	check(t, m.Ack(ctx))
	length(1)
	close(acked)
	receive(ctx, t, got)
	stop()
}
