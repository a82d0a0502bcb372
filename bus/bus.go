package bus

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pinion-mr/pinion/api"
)

// closePatience is how long Close waits for handlers.
const closePatience = 5 * time.Second

// Bus is a connection to a cluster. It reconnects for ever, with back-off; what was asked meanwhile fails
// or is retried as each method says. Its methods may be used concurrently.
type Bus struct {
	cfg      Config
	nc       *nats.Conn
	js       jetstream.JetStream
	async    jetstream.JetStream // for publishing without waiting
	log      *slog.Logger
	prefix   string // of subjects
	streams  string // prefix of stream and bucket names
	ctx      context.Context
	cancel   context.CancelFunc
	handlers sync.WaitGroup

	gone chan struct{} // closed when the connection has ended for good

	mu         sync.Mutex
	listeners  map[int]func() // of reconnections
	nextListen int
	services   []*Service
	closed     bool
}

var _ Transport = (*Bus)(nil)

// Cluster is the name of the cluster.
func (b *Bus) Cluster() string { return b.cfg.Cluster }

// Lost is closed if the connection has ended for good, which the client library does after protocol errors
// that it does not know, however often it would reconnect otherwise. The process should then begin anew.
func (b *Bus) Lost() <-chan struct{} { return b.gone }

// lost notes the end of the connection, unless Close brought it about.
func (b *Bus) lost(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.log.Error("the connection to NATS has ended for good", "reason", err)
	close(b.gone)
}

// Server is the address of the server that the bus is connected to, or was last.
func (b *Bus) Server() string {
	if u := b.nc.ConnectedUrlRedacted(); u != "" {
		return u
	}
	return b.cfg.where()
}

// MaxPayload implements [Transport].
func (b *Bus) MaxPayload() int { return int(b.nc.MaxPayload()) }

// OnReconnect implements [Transport].
func (b *Bus) OnReconnect(fn func()) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := b.nextListen
	b.nextListen++
	b.listeners[id] = fn
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners, id)
	}
}

// reconnected tells the listeners.
func (b *Bus) reconnected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fn := range b.listeners {
		go fn()
	}
}

// Close implements [Transport].
func (b *Bus) Close() {
	b.mu.Lock()
	services, again := b.services, b.closed
	b.closed = true
	b.mu.Unlock()
	if again {
		return
	}
	for _, s := range services {
		s.Stop()
	}
	b.cancel()
	done := make(chan struct{})
	go func() {
		b.handlers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closePatience):
		b.log.Warn("handlers still run at the end of the bus", "waited", closePatience)
	}
	b.nc.Close()
}

// stream is the name of one of the cluster's streams.
func (b *Bus) stream(name string) string { return b.streams + name }

// unknownCluster is the error of a missing stream.
func (b *Bus) unknownCluster() error {
	return api.Errorf(api.CodeNoSuchCluster, "no cluster %q on %s", b.cfg.Cluster, b.Server()).
		WithHint("start a router of it: `engine router --cluster %s`, or everything at once: `engine dev`", b.cfg.Cluster)
}
