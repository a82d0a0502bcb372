package bus_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// freePorts finds addresses that nobody listens on.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		out = append(out, l.Addr().String())
	}
	return out
}

// TestThreeServers restarts each server of a NATS cluster once, among them whoever leads, while entries
// are appended and read: all of them arrive, in order, once.
func TestThreeServers(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take some seconds")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ports := freePorts(t, 6)
	var servers [3]*restarting
	urls := ""
	for i := range servers {
		cfg := bus.ServerConfig{Dir: t.TempDir(), Name: fmt.Sprint("n", i), Listen: ports[i], ClusterListen: ports[3+i]}
		for j := range servers {
			if j != i {
				cfg.Routes = append(cfg.Routes, "nats://"+ports[3+j])
			}
		}
		servers[i] = &restarting{cfg, startServer(t, cfg)}
		urls += ",nats://" + ports[i]
	}
	b := connectLater(ctx, t, bus.Config{Server: urls[1:], Cluster: "r3"})
	l, kv := openLater(ctx, t, b)
	if s, err := l.State(ctx); err != nil || s.Replicas != 3 {
		t.Fatalf("%+v %v", s, err)
	}

	seqs := make(chan uint64, 10_000)
	reading, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- l.Read(reading, 1, nil, func(batch []api.LogEntry) error {
			for _, e := range batch {
				seqs <- e.Seq
			}
			return nil
		})
	}()
	appended, revision := uint64(0), uint64(0)
	write := func(n int) {
		for range n {
			seq := appendLater(ctx, t, l, fmt.Sprint("entry ", appended+1))
			if seq != appended+1 {
				t.Fatalf("position %d after %d", seq, appended)
			}
			appended = seq
		}
		revision = updateLater(ctx, t, kv, revision)
	}
	write(20)
	for _, s := range servers {
		s.Close()
		write(20)
		s.restart(t)
		write(20)
	}
	for want := uint64(1); want <= appended; want++ {
		if seq := take(ctx, t, seqs); seq != want {
			t.Fatalf("read position %d, want %d", seq, want)
		}
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// appendLater repeats a write that is in doubt under its id until the servers have elected a leader, which
// takes longer than one write's patience on a busy machine.
func appendLater(ctx context.Context, t *testing.T, l *bus.Log, id string) uint64 {
	t.Helper()
	for {
		seq, err := l.Append(ctx, "cut", nil, nil, id)
		if err == nil {
			return seq
		}
		t.Log(err)
		if api.CodeOf(err) != api.CodeInDoubt || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// updateLater is the same for a key: a write in doubt that was stored after all is the key's revision.
func updateLater(ctx context.Context, t *testing.T, kv *bus.KV, last uint64) uint64 {
	t.Helper()
	for {
		revision, err := kv.Update(ctx, "k", nil, last)
		if err == nil {
			return revision
		}
		t.Log(err)
		if there, readErr := kv.Get(ctx, "k"); readErr == nil && there.Revision > last {
			return there.Revision
		}
		if code := api.CodeOf(err); code != api.CodeInDoubt && code != api.CodeBusy || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// connectLater connects as soon as the servers have elected a leader.
func connectLater(ctx context.Context, t *testing.T, cfg bus.Config) *bus.Bus {
	t.Helper()
	for {
		b, err := bus.Connect(ctx, cfg)
		if err == nil {
			t.Cleanup(b.Close)
			return b
		}
		if api.CodeOf(err) != api.CodeUnavailable || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// openLater makes a log and a bucket as soon as there are peers enough to hold them.
func openLater(ctx context.Context, t *testing.T, b *bus.Bus) (*bus.Log, *bus.KV) {
	t.Helper()
	for {
		l, err := b.CreateLog(ctx, bus.LogConfig{Replicas: 3})
		kv, kvErr := b.KV(ctx, "STATE", true, 3)
		if err == nil && kvErr == nil {
			return l, kv
		}
		t.Log(err, kvErr)
		if ctx.Err() != nil {
			t.Fatal("no leader")
		}
	}
}
