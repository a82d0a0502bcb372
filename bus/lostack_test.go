package bus_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// proxy stands between a client and a server. When it is set to, it loses the next acknowledgement of a
// stream, and the connection with it. It always loses the first message that holds loseMe, and only that.
type proxy struct {
	target string
	lose   atomic.Bool
	once   atomic.Bool
	lost   chan struct{}

	mu    sync.Mutex
	conns []net.Conn
}

const loseMe = "lose me"

func newProxy(t *testing.T, s *bus.Server) (*proxy, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: strings.TrimPrefix(s.URL(), "nats://"), lost: make(chan struct{}, 10)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", p.target)
			if err != nil {
				_ = client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, server)
			p.mu.Unlock()
			running.Go(func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			})
			running.Go(func() { p.replies(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		running.Wait()
	})
	return p, "nats://" + l.Addr().String()
}

// replies passes on what the server says.
func (p *proxy) replies(client, server net.Conn) {
	defer func() { _ = client.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if bytes.Contains(buf[:n], []byte(`"seq":`)) && p.lose.CompareAndSwap(true, false) {
			p.lost <- struct{}{}
			return
		}
		if bytes.Contains(buf[:n], []byte(loseMe)) && p.once.CompareAndSwap(false, true) {
			p.lost <- struct{}{}
			continue
		}
		if _, writeErr := client.Write(buf[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// TestLostAcknowledgement has entries stored whose acknowledgement is lost: the repeat must be known as
// one, and get the same position.
func TestLostAcknowledgement(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	p, url := newProxy(t, s)
	b := connect(t, bus.Config{Server: url})
	l, err := b.CreateLog(ctx, bus.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	kv, err := b.KV(ctx, "STATE", true, 1)
	if err != nil {
		t.Fatal(err)
	}
	last := func() uint64 {
		t.Helper()
		st, err := l.State(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return st.Last
	}

	p.lose.Store(true)
	if seq, err := l.Append(ctx, "cut", nil, nil, ""); err != nil || seq != 1 || last() != 1 {
		t.Fatalf("Append: position %d, last %d, %v", seq, last(), err)
	}
	take(ctx, t, p.lost)

	p.lose.Store(true)
	a := l.NewAppender(4)
	if err := a.Append(ctx, "cut", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.Wait(ctx); err != nil || last() != 2 {
		t.Fatalf("Appender: last %d, %v", last(), err)
	}
	take(ctx, t, p.lost)

	p.lose.Store(true)
	rev, err := kv.Create(ctx, "k", []byte("1"))
	if err != nil {
		t.Fatalf("Create: %v", err) // not "exists already": it was ours
	}
	take(ctx, t, p.lost)
	p.lose.Store(true)
	if rev, err = kv.Update(ctx, "k", []byte("2"), rev); err != nil {
		t.Fatalf("Update: %v", err)
	}
	take(ctx, t, p.lost)
	if e, err := kv.Get(ctx, "k"); err != nil || e.Revision != rev || string(e.Value) != "2" {
		t.Fatalf("%+v %v", e, err)
	}
}

// TestLostDelivery has one entry lost on its way to a reader, whose connection stays.
func TestLostDelivery(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	p, url := newProxy(t, s)
	writer := connect(t, bus.Config{Server: s.URL()})
	l, err := writer.CreateLog(ctx, bus.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := connect(t, bus.Config{Server: url}).Log(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 10)
	reading, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- theirs.Read(reading, 1, nil, func(batch []api.LogEntry) error {
			for _, e := range batch {
				got <- string(e.Data)
			}
			return nil
		})
	}()
	defer func() {
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Read ended with %v", err)
		}
	}()
	add := func(data string) {
		t.Helper()
		if _, err := l.Append(ctx, "rec.1", nil, []byte(data), ""); err != nil {
			t.Fatal(err)
		}
	}
	want := func(data string) {
		t.Helper()
		if s := take(ctx, t, got); s != data {
			t.Fatalf("read %q, want %q", s, data)
		}
	}
	add("a")
	want("a")
	add(loseMe)
	take(ctx, t, p.lost)
	add("c")
	want(loseMe)
	want("c")
}
