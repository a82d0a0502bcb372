package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// client is a plain NATS client, as other programs use.
func client(t *testing.T, url string) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// forget purges a subject of a stream.
func forget(t *testing.T, url, stream, subject string) {
	t.Helper()
	nc, js := client(t, url)
	defer nc.Close()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSubject(subject)); err != nil {
		t.Fatal(err)
	}
}

// TestStreams pins how the streams are made: other settings lose data in ways that no other test shows.
func TestStreams(t *testing.T) {
	ctx := t.Context()
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	b := connect(t, bus.Config{Server: s.URL(), Cluster: "shop"})
	_, err1 := b.CreateLog(ctx, bus.LogConfig{DuplicateWindow: time.Hour})
	_, err2 := b.KV(ctx, "STATE", true, 1)
	_, err3 := b.Objects(ctx, "MODULES", true, 1)
	_, err4 := b.Queue(ctx, "rebalance", true, bus.QueueConfig{})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	_, js := client(t, s.URL())
	config := func(name string) jetstream.StreamConfig {
		st, err := js.Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		c := st.CachedInfo().Config
		if c.Storage != jetstream.FileStorage || c.Discard != jetstream.DiscardNew {
			t.Errorf("stream %s: %+v", name, c)
		}
		return c
	}
	log := config("PINION_shop_LOG")
	if log.AllowMsgTTL || log.AllowRollup || log.AllowMsgCounter || log.AllowMsgSchedules || log.AllowDirect ||
		log.MaxAge != 0 || !log.AllowAtomicPublish || log.Duplicates != time.Hour || log.Subjects[0] != "pinion.shop.log.>" {
		t.Errorf("log: %+v", log)
	}
	if kv := config("KV_PINION_shop_STATE"); kv.AllowDirect || !kv.AllowMsgTTL || kv.SubjectDeleteMarkerTTL == 0 || kv.MaxMsgsPerSubject != 1 {
		t.Errorf("KV: %+v", kv)
	}
	if obj := config("OBJ_PINION_shop_MODULES"); obj.AllowDirect {
		t.Errorf("objects: %+v", obj)
	}
	if q := config("PINION_shop_REBALANCE"); q.Retention != jetstream.WorkQueuePolicy || q.Subjects[0] != "pinion.shop.rebalance" {
		t.Errorf("queue: %+v", q)
	}
}

// TestOthersReadOurs reads key-value buckets and objects as `nats kv` and `nats object` do, and the reverse.
func TestOthersReadOurs(t *testing.T) {
	ctx := t.Context()
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	b := connect(t, bus.Config{Server: s.URL()})
	ours, err1 := b.KV(ctx, "STATE", true, 1)
	store, err2 := b.Objects(ctx, "MODULES", true, 1)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	_, js := client(t, s.URL())
	theirs, err1 := js.KeyValue(ctx, "PINION_test_STATE")
	theirStore, err2 := js.ObjectStore(ctx, "PINION_test_MODULES")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Put(ctx, "a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if e, err := theirs.Get(ctx, "a"); err != nil || string(e.Value()) != "1" {
		t.Fatalf("%v %v", e, err)
	}
	if err := ours.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Get(ctx, "a"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Fatalf("%v", err)
	}
	st, err := js.Stream(ctx, "KV_PINION_test_STATE")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := st.GetLastMsgForSubject(ctx, "$KV.PINION_test_STATE.a"); err != nil || m.Header.Get("Nats-TTL") == "" {
		t.Fatalf("the mark of a deleted key stays for ever: %+v %v", m, err)
	}
	if _, err := theirs.PutString(ctx, "b", "2"); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Delete(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if e, err := ours.Get(ctx, "b"); err != nil || e.Revision != 0 {
		t.Fatalf("%+v %v", e, err)
	}
	if _, err := theirStore.PutString(ctx, "m", "module"); err != nil {
		t.Fatal(err)
	}
	r, err := store.Get(ctx, "m")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	buf := make([]byte, 10)
	if n, err := r.Read(buf); err != nil || string(buf[:n]) != "module" {
		t.Fatalf("%q %v", buf[:n], err)
	}
}

// TestServiceIsListed asks as `nats micro info` does, and calls an endpoint.
func TestServiceIsListed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	b := connect(t, bus.Config{Server: s.URL()})
	service, err := b.NewService("pinion-router", "1.0.0", "runs jobs")
	if err != nil {
		t.Fatal(err)
	}
	echo := func(_ context.Context, r api.Heartbeat) (api.Heartbeat, error) { return r, nil }
	if _, err := bus.Handle(service, "job.run", "routers", echo); err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Handle(service, "job.run", "routers", echo); err == nil {
		t.Fatal("a subject was served twice")
	}
	nc, _ := client(t, s.URL())
	m, err := nc.RequestWithContext(ctx, "$SRV.INFO.pinion-router", nil)
	if err != nil {
		t.Fatal(err)
	}
	var info micro.Info
	if err := api.Decode(m.Data, &info, api.Lenient); err != nil {
		t.Fatal(err)
	}
	if len(info.Endpoints) != 1 || info.Endpoints[0].Subject != "pinion.test.job.run" || info.Endpoints[0].QueueGroup != "routers" {
		t.Fatalf("%+v", info)
	}
	var out api.Heartbeat
	if err := b.Request(ctx, "job.run", api.Heartbeat{Router: "r"}, &out); err != nil || out.Router != "r" {
		t.Fatalf("%+v %v", out, err)
	}
}

// TestServiceStats asks as `nats micro stats` does.
func TestServiceStats(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	b := connect(t, bus.Config{Server: s.URL()})
	service, err := b.NewService("pinion-router", "1.0.0", "runs jobs")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Handle(service, "job.run", "routers", func(_ context.Context, r api.Heartbeat) (api.Heartbeat, error) {
		if r.Router == "" {
			return r, api.Errorf(api.CodeBusy, "not now")
		}
		return r, nil
	}); err != nil {
		t.Fatal(err)
	}
	block, running := make(chan struct{}), make(chan struct{})
	if _, err := bus.HandleMany(service, 1, "job.result", "", func(_ context.Context, r api.Heartbeat) (api.Heartbeat, error) {
		close(running)
		<-block
		return r, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, router := range []string{"r1", "r2", ""} {
		if err := b.Request(ctx, "job.run", api.Heartbeat{Router: router}, nil); (err != nil) != (router == "") {
			t.Fatalf("%q: %v", router, err)
		}
	}
	first := make(chan error)
	go func() { first <- b.Request(ctx, "job.result", api.Heartbeat{}, nil) }()
	<-running
	if err := b.Request(ctx, "job.result", api.Heartbeat{}, nil); api.CodeOf(err) != api.CodeBusy {
		t.Fatalf("a second request at a time: %v", err)
	}
	close(block)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	nc, _ := client(t, s.URL())
	m, err := nc.RequestWithContext(ctx, "$SRV.STATS.pinion-router", nil)
	if err != nil {
		t.Fatal(err)
	}
	var stats struct {
		Endpoints []struct {
			Name        string
			NumRequests int `json:"num_requests"`
			Data        bus.EndpointStats
		}
	}
	if err := json.Unmarshal(m.Data, &stats); err != nil {
		t.Fatal(err)
	}
	if len(stats.Endpoints) != 2 {
		t.Fatalf("%s", m.Data)
	}
	for _, e := range stats.Endpoints {
		requests, errs, refused := 3, int64(1), int64(0)
		if e.Name == "job_result" {
			requests, errs, refused = 2, 0, 1
		}
		d := e.Data
		if e.NumRequests != requests || d.Answered != int64(requests)-refused || d.Errors != errs || d.Refused != refused || d.Running != 0 || d.MaxMS < d.MeanMS {
			t.Errorf("the figures of %s are %+v", e.Name, d)
		}
	}
}

// TestProtocolVersions: what a newer program says is refused by the version's number, on both sides.
func TestProtocolVersions(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	b := connect(t, bus.Config{Server: s.URL()})
	served := 0
	if _, err := bus.Handle(b, "echo", "", func(_ context.Context, r api.Heartbeat) (api.Heartbeat, error) {
		served++
		return r, nil
	}); err != nil {
		t.Fatal(err)
	}
	nc, _ := client(t, s.URL())
	for version, want := range map[string]api.Code{"": "", "1": "", "2": api.CodeVersion, "x": api.CodeBadRequest} {
		m := nats.NewMsg("pinion.test.echo")
		if version != "" {
			m.Header.Set("Pinion-Protocol", version)
		}
		reply, err := nc.RequestMsgWithContext(ctx, m)
		if err != nil {
			t.Fatal(err)
		}
		if code := reply.Header.Get("Nats-Service-Error-Code"); code != string(want) || reply.Header.Get("Pinion-Protocol") != "1" {
			t.Errorf("a request of protocol %q: %v", version, reply.Header)
		}
	}
	if served != 2 {
		t.Errorf("%d requests were worked on, want the two that can be read", served)
	}
	if _, err := nc.Subscribe("pinion.test.newer", func(m *nats.Msg) {
		reply := nats.NewMsg(m.Reply)
		reply.Header.Set("Pinion-Protocol", "7")
		_ = nc.PublishMsg(reply)
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	err := b.Request(ctx, "newer", api.Heartbeat{Router: "r"}, nil)
	if api.CodeOf(err) != api.CodeVersion || !strings.Contains(err.Error(), "protocol 7; this program reads 1") {
		t.Errorf("a reply of protocol 7: %v", err)
	}
}

// TestAppendInDoubt has no server that could tell. What was given up must not be stored later either, when
// its message id may be forgotten.
func TestAppendInDoubt(t *testing.T) {
	s := newRestarting(t)
	b := connect(t, bus.Config{Server: s.URL()})
	reconnected := make(chan struct{}, 1)
	b.OnReconnect(func() { reconnected <- struct{}{} })
	l, err := b.CreateLog(t.Context(), bus.LogConfig{DuplicateWindow: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	for range 2 { // the second one when the loss of the connection is known
		if _, err := l.Append(t.Context(), "cut", nil, nil, ""); api.CodeOf(err) != api.CodeInDoubt {
			t.Fatalf("%v", err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Append(ended, "cut", nil, nil, ""); api.CodeOf(err) != api.CodeCanceled {
		t.Fatalf("%v", err)
	}
	s.Server = startServer(t, s.cfg)
	<-reconnected
	if seq, err := l.Append(t.Context(), "cut", nil, nil, ""); err != nil || seq != 1 {
		t.Fatalf("position %d, %v", seq, err)
	}
}

// TestDamagedObject changes what is known of an object, and removes its bytes.
func TestDamagedObject(t *testing.T) {
	t.Parallel() // it waits for bytes that do not come
	ctx := t.Context()
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	store, err := connect(t, bus.Config{Server: s.URL()}).Objects(ctx, "MODULES", true, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(ctx, "m", strings.NewReader("module")); err != nil {
		t.Fatal(err)
	}
	_, js := client(t, s.URL())
	st, err := js.Stream(ctx, "OBJ_PINION_test_MODULES")
	if err != nil {
		t.Fatal(err)
	}
	m, err := st.GetLastMsgForSubject(ctx, "$O.PINION_test_MODULES.M.>")
	if err != nil {
		t.Fatal(err)
	}
	read := func() error {
		r, err := store.Get(ctx, "m")
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		_, err = io.ReadAll(r)
		return err
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(string(m.Data), "SHA-256=", "SHA-256=A", 1)
	if _, err := js.Publish(ctx, m.Subject, []byte(damaged)); err != nil {
		t.Fatal(err)
	}
	if err := read(); api.CodeOf(err) != api.CodeInternal || !strings.Contains(err.Error(), "damaged") {
		t.Fatalf("%v", err)
	}
	forget(t, s.URL(), "OBJ_PINION_test_MODULES", "$O.PINION_test_MODULES.C.>")
	if err := read(); api.CodeOf(err) != api.CodeUnavailable {
		t.Fatalf("%v", err)
	}
}

// TestStreamFull has a log without room.
func TestStreamFull(t *testing.T) {
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	b := connect(t, bus.Config{Server: s.URL()})
	l, err := b.CreateLog(t.Context(), bus.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_, js := client(t, s.URL())
	st, err := js.Stream(t.Context(), "PINION_test_LOG")
	if err != nil {
		t.Fatal(err)
	}
	cfg := st.CachedInfo().Config
	cfg.MaxBytes = 1000
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), "rec.1", nil, make([]byte, 2000), ""); api.CodeOf(err) != api.CodeLimitExceeded {
		t.Fatalf("%v", err)
	}
}

// TestAppenderSurvivesRestart restarts the server in the middle: each entry must be stored once.
func TestAppenderSurvivesRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	s := newRestarting(t)
	b := connect(t, bus.Config{Server: s.URL()})
	l, err := b.CreateLog(ctx, bus.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	a := l.NewAppender(32)
	const n = 2000
	for i := range n {
		if i == n/2 {
			s.restart(t)
		}
		if err := a.Append(ctx, "rec.1", nil, []byte{byte(i >> 8), byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	if err := l.ReadTo(ctx, 1, 2*n, nil, func(e api.LogEntry) error {
		if seen[string(e.Data)] {
			t.Errorf("entry %x is stored twice", e.Data)
		}
		seen[string(e.Data)] = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if messages, bytes := a.Acked(); len(seen) != n || messages != n || bytes != 2*n {
		t.Fatalf("%d entries, %d messages and %d bytes acknowledged", len(seen), messages, bytes)
	}
}
