// Package conformance is the one suite that every implementation of the bus's ports has to pass: the
// real one over NATS and the one in memory.
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, func(t *testing.T) conformance.Peer { return connect(t) })
//	}
//
// The function is called for a fresh cluster each time; [Peer].Again gives further connections to it.
package conformance

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// Log is what the suite asks of a log.
type Log interface {
	Append(ctx context.Context, subject string, header map[string]string, data []byte, msgID string) (uint64, error)
	NewAppender(maxInFlight int) *bus.Appender
	Read(ctx context.Context, from uint64, filters []string, fn func([]api.LogEntry) error) error
	ReadTo(ctx context.Context, from, to uint64, filters []string, fn func(api.LogEntry) error) error
	State(ctx context.Context) (api.LogState, error)
	Entry(ctx context.Context, seq uint64) (api.LogEntry, error)
	Purge(ctx context.Context, upTo uint64) error
}

// KV is what the suite asks of a key-value bucket.
type KV interface {
	Get(ctx context.Context, key string) (api.KVEntry, error)
	Put(ctx context.Context, key string, value []byte) (uint64, error)
	Create(ctx context.Context, key string, value []byte) (uint64, error)
	CreateTTL(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error)
	Update(ctx context.Context, key string, value []byte, last uint64) (uint64, error)
	Renew(ctx context.Context, key string, value []byte, last uint64, ttl time.Duration) (uint64, error)
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]api.KVEntry, error)
	Keys(ctx context.Context, prefix string) ([]string, error)
	Each(ctx context.Context, prefix string, fn func(api.KVEntry)) error
	Watch(ctx context.Context, prefix string, fn func(api.KVEntry)) error
}

// Objects is what the suite asks of an object store.
type Objects interface {
	Put(ctx context.Context, name string, r io.Reader) error
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	Has(ctx context.Context, name string) (bool, error)
	Delete(ctx context.Context, name string) error
	List(ctx context.Context) ([]api.ObjectInfo, error)
}

// Queue is what the suite asks of a work queue.
type Queue interface {
	Publish(ctx context.Context, body []byte, msgID string) error
	Consume(ctx context.Context, fn func(ctx context.Context, m bus.QueueMessage)) error
	Len(ctx context.Context) (int, error)
	ConsumeSome(ctx context.Context, most int, fn func(ctx context.Context, m bus.QueueMessage)) error
}

// Peer is a connection to a cluster.
type Peer struct {
	bus.Transport
	CreateLog func(ctx context.Context, cfg bus.LogConfig) (Log, error)
	Log       func(ctx context.Context) (Log, error)
	KV        func(ctx context.Context, name string, create bool) (KV, error)
	Objects   func(ctx context.Context, name string, create bool) (Objects, error)
	Queue     func(ctx context.Context, name string, create bool, cfg bus.QueueConfig) (Queue, error)
	Raw       func(ctx context.Context, subject string, body []byte) ([]byte, error) // a request as it is
	Again     func(t *testing.T) Peer
}

// Run runs the suite.
func Run(t *testing.T, open func(t *testing.T) Peer) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Peer)
	}{
		{"log order and filters", logOrder},
		{"log headers", logHeaders},
		{"log duplicate ids", logDuplicates},
		{"log read while appending", logReadWhileAppending},
		{"log read to", logReadTo},
		{"log purge", logPurge},
		{"log missing", logMissing},
		{"appender", appender},
		{"kv compare and set", kvCompareAndSet},
		{"kv list", kvList},
		{"kv each", kvEach},
		{"kv time to live", kvTTL},
		{"kv key that ends", kvEnds},
		{"kv watch", kvWatch},
		{"objects", objects},
		{"queue once", queueOnce},
		{"queue redelivery", queueRedelivery},
		{"queue limit", queueLimit},
		{"queue limit changed", queueLimitChanged},
		{"queue some at a time", queueSome},
		{"queue length", queueLength},
		{"requests", requests},
		{"request errors", requestErrors},
		{"request formats", requestFormats},
		{"reply too large", replyTooLarge},
		{"error too large", errorTooLarge},
		{"busy", busy},
		{"queue groups", queueGroups},
		{"publish and subscribe", publishSubscribe},
		{"close ends handlers", closeEndsHandlers},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// within bounds a test.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code api.Code) {
	t.Helper()
	if api.CodeOf(err) != code {
		t.Fatalf("error %v has code %q, want %q", err, api.CodeOf(err), code)
	}
}

// receive waits for a value of a channel.
func receive[T any](ctx context.Context, t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-ctx.Done():
		t.Fatal("nothing came")
		panic("unreachable")
	}
}
