package conformance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// echo answers with what it got.
func echo(_ context.Context, r api.PutRequest) (api.GetReply, error) {
	out := api.GetReply{Value: r.Value}
	if r.Key != nil {
		out.Key = *r.Key
	}
	return out, nil
}

func requests(t *testing.T, p Peer) {
	ctx := within(t)
	stop := must(bus.Handle(p, "record.put", "routers", echo))(t)
	other := p.Again(t)
	key := api.Bytes("k")
	var got api.GetReply
	check(t, other.Request(ctx, "record.put", api.PutRequest{Key: &key, Value: api.Bytes{0xff, 0}}, &got))
	if string(got.Key) != "k" || string(got.Value) != "\xff\x00" {
		t.Fatalf("reply %+v", got)
	}
	got = api.GetReply{}
	check(t, other.Request(ctx, "record.put", nil, &got))
	check(t, other.Request(ctx, "record.put", api.PutRequest{}, nil))
	stop()
	// The stop is known to the server soon, not at once.
	for err := error(nil); api.CodeOf(err) != api.CodeUnavailable; {
		if ctx.Err() != nil {
			t.Fatal("a stopped service still answers")
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		err = other.Request(short, "record.put", api.PutRequest{}, nil)
		cancel()
	}
}

func requestErrors(t *testing.T, p Peer) {
	ctx := within(t)
	err := p.Request(ctx, "nobody.here", nil, nil)
	wantCode(t, err, api.CodeUnavailable)
	if !strings.Contains(err.Error(), "nobody.here") {
		t.Fatalf("%v does not name the subject", err)
	}
	must(bus.Handle(p, "fail", "", func(_ context.Context, r api.PMRRequest) (api.PMRStatus, error) {
		switch r.PMR {
		case "coded":
			return api.PMRStatus{}, api.Errorf(api.CodeNoCut, "line one\nline two é").WithHint("do this").With("bucket", "17")
		case "plain":
			return api.PMRStatus{}, errors.New("broken")
		case "panic":
			panic("at the handler")
		}
		return api.PMRStatus{PMR: r.PMR}, nil
	}))(t)
	err = p.Request(ctx, "fail", api.PMRRequest{PMR: "coded"}, nil)
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeNoCut || e.Message != "line one\nline two é" || e.Hint != "do this" || e.Details["bucket"] != "17" {
		t.Fatalf("error %+v", err)
	}
	wantCode(t, p.Request(ctx, "fail", api.PMRRequest{PMR: "plain"}, nil), api.CodeInternal)
	wantCode(t, p.Request(ctx, "fail", api.PMRRequest{PMR: "panic"}, nil), api.CodeInternal)
	err = p.Request(ctx, "fail", api.PinRequest{Job: "j"}, nil) // fields that it does not know
	wantCode(t, err, api.CodeBadRequest)
	var ok api.PMRStatus
	check(t, p.Request(ctx, "fail", api.PMRRequest{PMR: "fine"}, &ok)) // it survived

	block := make(chan struct{})
	must(bus.Handle(p, "slow", "", func(context.Context, api.PMRRequest) (api.PMRStatus, error) {
		<-block
		return api.PMRStatus{}, nil
	}))(t)
	defer close(block)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	wantCode(t, p.Request(short, "slow", nil, nil), api.CodeTimeout)
	gone, cancelGone := context.WithCancel(ctx)
	cancelGone()
	wantCode(t, p.Request(gone, "slow", nil, nil), api.CodeCanceled)
	wantCode(t, p.Request(ctx, "slow", api.PutRequest{Value: make(api.Bytes, p.MaxPayload())}, nil), api.CodeLimitExceeded)
}

func requestFormats(t *testing.T, p Peer) {
	ctx := within(t)
	must(bus.Handle(p, "record.put", "", echo))(t)
	if got := string(must(p.Raw(ctx, "record.put", []byte(` {"key":"k","value":"v"}`)))(t)); got != `{"key":"k","value":"v"}` {
		t.Fatalf("reply %s", got)
	}
	msgpack := must(api.Encode(api.Msgpack, api.PutRequest{Value: api.Bytes("v")}))(t)
	reply := must(p.Raw(ctx, "record.put", msgpack))(t)
	var got api.GetReply
	check(t, api.Decode(reply, &got, api.Strict))
	if api.FormatOf(reply) != api.Msgpack || string(got.Value) != "v" {
		t.Fatalf("reply %q", reply)
	}
	for _, bad := range []string{`{"valu":"x"}`, `{"value"`, "\x91\xc0", "nonsense"} {
		_, err := p.Raw(ctx, "record.put", []byte(bad))
		wantCode(t, err, api.CodeBadRequest)
	}
}

func replyTooLarge(t *testing.T, p Peer) {
	ctx := within(t)
	must(bus.Handle(p, "storage.s1.fetch", "", func(_ context.Context, r api.FetchRequest) (api.FetchReply, error) {
		return api.FetchReply{Data: make(api.Bytes, r.MaxBytes)}, nil
	}))(t)
	other := p.Again(t)
	err := other.Request(ctx, "storage.s1.fetch", api.FetchRequest{MaxBytes: p.MaxPayload()}, nil)
	wantCode(t, err, api.CodeResultTooLarge)
	var got api.FetchReply
	check(t, other.Request(ctx, "storage.s1.fetch", api.FetchRequest{MaxBytes: p.MaxPayload() / 2}, &got))
	if len(got.Data) != p.MaxPayload()/2 {
		t.Fatalf("%d bytes", len(got.Data))
	}
}

// errorTooLarge has handlers fail with more than a message holds: the requester hears the beginning.
func errorTooLarge(t *testing.T, p Peer) {
	ctx := within(t)
	for subject, e := range map[string]*api.Error{
		"storage.s1.map": api.Errorf(api.CodeGuestFailed, "it trapped").With("stderr", strings.Repeat("x", p.MaxPayload())),
		"storage.s2.map": api.Errorf(api.CodeGuestFailed, "it trapped: %s", strings.Repeat("ä", p.MaxPayload())).WithHint("%s", strings.Repeat("ö", p.MaxPayload())),
	} {
		must(bus.Handle(p, subject, "", func(context.Context, api.Heartbeat) (api.Heartbeat, error) { return api.Heartbeat{}, e }))(t)
		err := p.Again(t).Request(ctx, subject, api.Heartbeat{}, nil)
		wantCode(t, err, api.CodeGuestFailed)
		if !strings.HasPrefix(err.Error(), "it trapped") {
			t.Errorf("%.100v", err)
		}
	}
}

func busy(t *testing.T, p Peer) {
	for subject, most := range map[string]int{"slow": bus.MaxConcurrent, "patient": bus.MaxConcurrent + 5} {
		ctx := within(t)
		block, running := make(chan struct{}), make(chan struct{}, most)
		fn := func(context.Context, api.PMRRequest) (api.PMRStatus, error) {
			running <- struct{}{}
			<-block
			return api.PMRStatus{}, nil
		}
		if most == bus.MaxConcurrent {
			must(bus.Handle(p, subject, "", fn))(t)
		} else {
			must(bus.HandleMany(p, most, subject, "", fn))(t)
		}
		var wg sync.WaitGroup
		for range most {
			wg.Go(func() {
				if err := p.Request(ctx, subject, nil, nil); err != nil {
					t.Error(err)
				}
			})
		}
		for range most {
			receive(ctx, t, running)
		}
		wantCode(t, p.Request(ctx, subject, nil, nil), api.CodeBusy)
		close(block)
		wg.Wait()
		check(t, p.Request(ctx, subject, nil, nil))
	}
}

func queueGroups(t *testing.T, p Peer) {
	ctx := within(t)
	calls := make(chan string, 100)
	handler := func(name string) func(context.Context, api.Heartbeat) (api.Heartbeat, error) {
		return func(context.Context, api.Heartbeat) (api.Heartbeat, error) {
			calls <- name
			return api.Heartbeat{}, nil
		}
	}
	must(bus.Handle(p, "job.run", "routers", handler("routers")))(t)
	must(bus.Handle(p.Again(t), "job.run", "routers", handler("routers")))(t)
	must(bus.Handle(p.Again(t), "job.run", "", handler("alone")))(t)
	const n = 20
	for range n {
		check(t, p.Request(ctx, "job.run", nil, nil))
	}
	count := map[string]int{}
	for range 2 * n {
		count[receive(ctx, t, calls)]++
	}
	if count["routers"] != n || count["alone"] != n || len(calls) != 0 {
		t.Fatalf("calls %v, and %d more", count, len(calls))
	}
}

func publishSubscribe(t *testing.T, p Peer) {
	ctx := within(t)
	got := make(chan string, 100)
	other := p.Again(t)
	stop := must(other.Subscribe("job.*.events", func(subject string, body []byte) {
		var e api.JobProgress
		if err := api.Decode(body, &e, api.Strict); err != nil {
			t.Error(err)
		}
		got <- subject + " " + e.Phase
	}))(t)
	check(t, p.Publish("job.1.status", api.JobProgress{Phase: "x"}))
	check(t, p.Publish("job.1.events", api.JobProgress{Phase: "a"}))
	check(t, p.Publish("job.2.events", api.JobProgress{Phase: "b"}))
	check(t, p.Publish("job.1.events", api.JobProgress{Phase: "c"}))
	for _, want := range []string{"job.1.events a", "job.2.events b", "job.1.events c"} {
		if s := receive(ctx, t, got); s != want {
			t.Fatalf("got %q, want %q", s, want)
		}
	}
	stop()
	stop()
	wantCode(t, p.Publish("x", api.PutRequest{Value: make(api.Bytes, p.MaxPayload()+1)}), api.CodeLimitExceeded)
}

func closeEndsHandlers(t *testing.T, p Peer) {
	ctx := within(t)
	server := p.Again(t)
	running, ended := make(chan struct{}), make(chan struct{})
	must(bus.Handle(server, "slow", "", func(ctx context.Context, _ api.PMRRequest) (api.PMRStatus, error) {
		close(running)
		<-ctx.Done()
		close(ended)
		return api.PMRStatus{}, api.Errorf(api.CodeLost, "closing")
	}))(t)
	answer := make(chan error, 1)
	go func() { answer <- p.Request(ctx, "slow", nil, nil) }()
	receive(ctx, t, running)
	server.Close()
	receive(ctx, t, ended)
	wantCode(t, receive(ctx, t, answer), api.CodeLost)
	server.Close()
	if err := server.Publish("x", api.Heartbeat{}); err != nil {
		wantCode(t, err, api.CodeUnavailable)
	}
}
