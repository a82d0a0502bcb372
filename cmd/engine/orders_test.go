package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/pmr/node"
)

// connected is a connection to a server of its own, which has no cluster.
func connected(ctx context.Context, t *testing.T) *bus.Bus {
	srv, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	b, err := bus.Connect(ctx, bus.Config{Server: srv.URL(), Cluster: "dev"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// A router that opens the queues leaves alone how many moves there may be at a time. What is no order is thrown away
// with a word in the log, and an order of a newer router is not.
func TestTheQueuesOfOrders(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b := connected(ctx, t)
	var text bytes.Buffer
	open := func() orders {
		o, err := openOrders(ctx, b, true, 1, slog.New(slog.NewTextHandler(&text, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if err := open().SetParallel(ctx, 2); err != nil {
		t.Fatal(err)
	}
	o := open()
	for _, body := range []string{`{"id": 3}`, `{"id":"a","src":"s1","dst":"s2","buckets":[1],"later":1}`, `{"id":"b","src":"s1","dst":"s2","buckets":[2]}`} {
		if err := o.moves.Publish(ctx, []byte(body), ""); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := o.Len(ctx); n != 3 || err != nil {
		t.Errorf("the queues have %d orders, error %v", n, err)
	}
	arrived, ended := make(chan string, 3), make(chan error, 1)
	working, stop := context.WithCancel(ctx)
	go func() {
		ended <- o.Consume(working, func(ctx context.Context, d node.OrderDelivery) {
			arrived <- d.Order.ID
			<-ctx.Done()
		})
	}()
	for range 2 { // at the same time
		select {
		case <-arrived:
		case <-ctx.Done():
			t.Fatal("an order did not arrive")
		}
	}
	stop()
	if err := <-ended; working.Err() == nil {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(text.String(), `wanted="move order"`) || !strings.Contains(text.String(), `id\\\": 3`) {
		t.Errorf("the log says %s", text.String())
	}
}

// A storage may be deleted only when no order is left that may concern it: of those that wait nobody knows.
func TestOrdersThatMayConcernAStorage(t *testing.T) {
	order := func(id, src, dst string) api.MoveOrder { return api.MoveOrder{ID: id, Src: src, Dst: dst} }
	runs := func(o api.MoveOrder) api.MoveProgress { return api.MoveProgress{Order: o} }
	other, to := order("1", "s1", "s2"), order("2", "s1", "s3")
	for _, tc := range []struct {
		moves api.MovesReply
		want  int
	}{
		{api.MovesReply{}, 0},
		{api.MovesReply{InQueue: 1}, 1},
		{api.MovesReply{InQueue: 1, Running: []api.MoveProgress{runs(other)}}, 0},
		{api.MovesReply{InQueue: 2, Running: []api.MoveProgress{runs(other), runs(other)}}, 1},
		{api.MovesReply{InQueue: 1, Running: []api.MoveProgress{runs(to)}}, 1},
		{api.MovesReply{Queued: []api.MoveOrder{other, to}}, 1},
	} {
		if got := mayConcern(tc.moves, "s3"); got != tc.want {
			t.Errorf("%d orders may concern s3, want %d: %+v", got, tc.want, tc.moves)
		}
	}
}

// The wait for a move ends if the routers that worked on it remember nothing, once the queues are empty.
func TestAMoveWhoseOutcomeIsNotKnown(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b := connected(ctx, t)
	order := api.MoveOrder{ID: "a", Src: "s1", Dst: "s2", Buckets: []uint16{3}}
	left := []int{2, 1, 0} // in the queues, at each question
	s, err := announce(b, "router", "A test's.")
	if err != nil {
		t.Fatal(err)
	}
	serve(s, "admin.move", queueRouters, short, func(context.Context, api.MoveRequest) (api.MoveReply, error) {
		return api.MoveReply{Orders: []api.MoveOrder{order}}, nil
	})
	serve(s, "admin.moves", queueRouters, short, func(context.Context, api.Empty) (reply api.MovesReply, err error) {
		if reply.InQueue = left[0]; len(left) > 1 {
			left = left[1:]
		}
		return reply, nil
	})
	serve(s, "admin.buckets", queueRouters, short, func(context.Context, api.BucketsRequest) (api.BucketsReply, error) {
		return api.BucketsReply{Buckets: []api.BucketInfo{{Bucket: 3, Owner: "s1"}}}, nil
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	var out, text bytes.Buffer
	a := &admin{s: &session{stdout: &out, stderr: &text}, bus: b}
	err = a.move(ctx, order.Buckets, "s2")
	if err == nil || !strings.Contains(err.Error(), "1 of 1 buckets did not move") || !strings.Contains(out.String(), "it is on s1: its outcome is not known") || len(left) > 1 {
		t.Errorf("the error is %v, after %s%s", err, out.String(), text.String())
	}
}
