package bus_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// plainServer is a NATS server of other people's.
func plainServer(t *testing.T, change func(*server.Options)) string {
	t.Helper()
	opts := &server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, StoreDir: t.TempDir()}
	change(opts)
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("not ready")
	}
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s.ClientURL()
}

// mute accepts connections and says nothing.
func mute(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func TestConnectErrors(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	closed := mute(t)
	refused := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		return l.Addr().String()
	}()
	auth := plainServer(t, func(o *server.Options) { o.JetStream, o.Username, o.Password = true, "u", "p" })
	for _, c := range []struct {
		name, server string
		code         api.Code
		words        []string
	}{
		{"nobody", refused, api.CodeUnavailable, []string{"no NATS server answers at nats://" + refused, "engine dev"}},
		{"web server", strings.Replace(web.URL, "http:", "nats:", 1), api.CodeUnavailable, []string{"a web server answers at nats://", "not a NATS server"}},
		{"mute", closed, api.CodeUnavailable, []string{"something else answers at nats://" + closed}},
		{"no JetStream", plainServer(t, func(*server.Options) {}), api.CodeUnavailable, []string{"JetStream is not enabled on nats://", "-js"}},
		{"no password", auth, api.CodeUnavailable, []string{"refuses the credentials"}},
		{"wrong password", strings.Replace(auth, "nats://", "nats://u:secret@", 1), api.CodeUnavailable, []string{"refuses the credentials"}},
		{"no host", "nats://no-such-host.invalid:4222", api.CodeUnavailable, []string{"no such host"}},
		{"TLS to a plain server", "tls" + strings.TrimPrefix(plainServer(t, func(o *server.Options) { o.JetStream = true }), "nats"), api.CodeUnavailable, []string{"TLS"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
			defer cancel()
			_, err := bus.Connect(ctx, bus.Config{Server: c.server})
			if ctx.Err() != nil {
				t.Fatal("it took more than 6 s")
			}
			if api.CodeOf(err) != c.code {
				t.Fatalf("%v has code %s", err, api.CodeOf(err))
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%q holds the password", err)
			}
		})
	}
	for _, bad := range []string{"a.b", "a b", "a>", strings.Repeat("x", 65)} {
		if _, err := bus.Connect(t.Context(), bus.Config{Cluster: bad}); api.CodeOf(err) != api.CodeBadRequest {
			t.Errorf("cluster %q: %v", bad, err)
		}
	}
}

func TestUnknownClusterSaysWhatToStart(t *testing.T) {
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	_, err := connect(t, bus.Config{Server: s.URL(), Cluster: "shop"}).Log(t.Context())
	want := fmt.Sprintf("no cluster %q on %s", "shop", s.URL())
	if api.CodeOf(err) != api.CodeNoSuchCluster || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "engine router") {
		t.Fatalf("%v, want %s", err, want)
	}
}

func TestStartServerErrors(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, bus.ServerConfig{Dir: dir})
	taken := strings.TrimPrefix(s.URL(), "nats://")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		cfg   bus.ServerConfig
		code  api.Code
		words string
	}{
		{"port taken", bus.ServerConfig{Dir: t.TempDir(), Listen: taken}, api.CodeUnavailable, taken},
		{"folder in use", bus.ServerConfig{Dir: dir, Listen: "127.0.0.1:0"}, api.CodeUnavailable, dir + " is in use"},
		{"folder is a file", bus.ServerConfig{Dir: file, Listen: "127.0.0.1:0"}, api.CodeUnavailable, file},
		{"no folder", bus.ServerConfig{}, api.CodeBadRequest, "folder"},
		{"bad address", bus.ServerConfig{Dir: t.TempDir(), Listen: "4222"}, api.CodeBadRequest, "4222"},
		{"routes alone", bus.ServerConfig{Dir: t.TempDir(), Routes: []string{"nats://127.0.0.1:1"}}, api.CodeBadRequest, "cluster listen"},
		{"bad route", bus.ServerConfig{Dir: t.TempDir(), ClusterListen: "127.0.0.1:0", Routes: []string{"x"}}, api.CodeBadRequest, `"x"`},
		{"payload", bus.ServerConfig{Dir: t.TempDir(), MaxPayload: 1 << 30}, api.CodeBadRequest, "max_payload"},
	} {
		if _, err := bus.StartServer(c.cfg); api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	s.Close()
	startServer(t, bus.ServerConfig{Dir: dir}) // the folder is free again
}

func TestInProcess(t *testing.T) {
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	b := connect(t, bus.Config{InProcess: s})
	if b.MaxPayload() != bus.DefaultMaxPayload {
		t.Fatalf("max_payload %d", b.MaxPayload())
	}
	l, err := b.CreateLog(t.Context(), bus.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), "cut", nil, make([]byte, 6<<20), ""); err != nil {
		t.Fatal(err)
	}
}

// restarting is a server that a test can stop and start again at the same address.
type restarting struct {
	cfg bus.ServerConfig
	*bus.Server
}

func newRestarting(t *testing.T) *restarting {
	cfg := bus.ServerConfig{Dir: t.TempDir()}
	s := startServer(t, cfg)
	cfg.Listen = strings.TrimPrefix(s.URL(), "nats://")
	return &restarting{cfg, s}
}

func (r *restarting) restart(t *testing.T) {
	t.Helper()
	r.Close()
	r.Server = startServer(t, r.cfg)
}

func TestServerRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	s := newRestarting(t)
	b := connect(t, bus.Config{Server: s.URL()})
	l, err := b.CreateLog(ctx, bus.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	kv, err := b.KV(ctx, "STATE", true, 1)
	if err != nil {
		t.Fatal(err)
	}
	reconnected := make(chan struct{}, 10)
	b.OnReconnect(func() { reconnected <- struct{}{} })
	if _, err := bus.Handle(b, "echo", "", func(_ context.Context, r api.Heartbeat) (api.Heartbeat, error) { return r, nil }); err != nil {
		t.Fatal(err)
	}

	entries, events := make(chan uint64, 1000), make(chan api.KVEntry, 1000)
	background, stop := context.WithCancel(ctx)
	done := make(chan error, 2)
	go func() {
		done <- l.Read(background, 1, nil, func(batch []api.LogEntry) error {
			for _, e := range batch {
				entries <- e.Seq
			}
			return nil
		})
	}()
	go func() { done <- kv.Watch(background, "", func(e api.KVEntry) { events <- e }) }()
	defer func() {
		stop()
		for range 2 {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
		}
	}()

	next := uint64(1)
	for round := range 3 {
		for range 5 {
			if _, err := l.Append(ctx, "cut", nil, nil, ""); err != nil {
				t.Fatal(err)
			}
		}
		key := fmt.Sprintf("k%d", round)
		if _, err := kv.Put(ctx, key, []byte("v")); err != nil {
			t.Fatal(err)
		}
		for ; next <= uint64(5*round+5); next++ {
			if seq := take(ctx, t, entries); seq != next {
				t.Fatalf("entry %d, want %d", seq, next)
			}
		}
		if e := take(ctx, t, events); e.Key != key || e.Deleted {
			t.Fatalf("event %+v", e)
		}
		if round == 2 {
			break
		}
		s.restart(t)
		take(ctx, t, reconnected)
		if err := b.Request(ctx, "echo", api.Heartbeat{}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWatchTellsWhatWasMissed changes and deletes keys while the watcher has no server.
func TestWatchTellsWhatWasMissed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	s := newRestarting(t)
	b := connect(t, bus.Config{Server: s.URL()})
	kv, err := b.KV(ctx, "STATE", true, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"a", "b", "c"} {
		if _, err := kv.Put(ctx, k, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	events := make(chan api.KVEntry, 100)
	background, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- kv.Watch(background, "", func(e api.KVEntry) { events <- e }) }()
	defer func() {
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ended with %v", err)
		}
	}()
	for range 3 {
		take(ctx, t, events)
	}
	// The same files at another address: the watcher cannot see what happens.
	s.Close()
	hidden := startServer(t, bus.ServerConfig{Dir: s.cfg.Dir})
	other := connect(t, bus.Config{Server: hidden.URL()})
	otherKV, err := other.KV(ctx, "STATE", false, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := otherKV.Put(ctx, "b", []byte("2")); err != nil {
		t.Fatal(err)
	}
	if err := otherKV.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := otherKV.Delete(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	other.Close()
	forget(t, hidden.URL(), "KV_PINION_test_STATE", "$KV.PINION_test_STATE.c") // as if its mark had timed out
	hidden.Close()
	s.Server = startServer(t, s.cfg)
	var got []string
	for range 3 {
		e := take(ctx, t, events)
		got = append(got, fmt.Sprintf("%s=%s deleted=%v", e.Key, e.Value, e.Deleted))
	}
	want := "b=2 deleted=false a= deleted=true c= deleted=true"
	if strings.Join(got, " ") != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func take[T any](ctx context.Context, t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-ctx.Done():
		t.Fatal("nothing came")
		panic("unreachable")
	}
}
