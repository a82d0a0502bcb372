package bus_test

import (
	"cmp"
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/bus/internal/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Peer {
		return peer(t, startServer(t, bus.ServerConfig{Dir: t.TempDir(), MaxPayload: 1 << 20}))
	})
}

// startServer starts an embedded server on a free port unless the test names one.
func startServer(t *testing.T, cfg bus.ServerConfig) *bus.Server {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	s, err := bus.StartServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// connect connects to cluster test unless the test names one.
func connect(t *testing.T, cfg bus.Config) *bus.Bus {
	t.Helper()
	cfg.Cluster = cmp.Or(cfg.Cluster, "test")
	b, err := bus.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func peer(t *testing.T, s *bus.Server) conformance.Peer {
	b := connect(t, bus.Config{Server: s.URL()})
	return conformance.Peer{
		Transport: b,
		CreateLog: func(ctx context.Context, cfg bus.LogConfig) (conformance.Log, error) { return b.CreateLog(ctx, cfg) },
		Log:       func(ctx context.Context) (conformance.Log, error) { return b.Log(ctx) },
		KV: func(ctx context.Context, name string, create bool) (conformance.KV, error) {
			return b.KV(ctx, name, create, 1)
		},
		Objects: func(ctx context.Context, name string, create bool) (conformance.Objects, error) {
			return b.Objects(ctx, name, create, 1)
		},
		Queue: func(ctx context.Context, name string, create bool, cfg bus.QueueConfig) (conformance.Queue, error) {
			return b.Queue(ctx, name, create, cfg)
		},
		Raw: func(ctx context.Context, subject string, body []byte) ([]byte, error) {
			return raw(ctx, t, s, subject, body)
		},
		Again: func(t *testing.T) conformance.Peer { return peer(t, s) },
	}
}

// raw is a request as any NATS client would make it.
func raw(ctx context.Context, t *testing.T, s *bus.Server, subject string, body []byte) ([]byte, error) {
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	m, err := nc.RequestWithContext(ctx, "pinion.test."+subject, body)
	if err != nil {
		return nil, err
	}
	if code := m.Header.Get("Nats-Service-Error-Code"); code != "" {
		e := &api.Error{}
		if err := api.Decode(m.Data, e, api.Strict); err != nil {
			return nil, err
		}
		if string(e.Code) != code || m.Header.Get("Nats-Service-Error") == "" || api.FormatOf(m.Data) != api.FormatOf(body) {
			t.Errorf("error reply has headers %v and body %q", m.Header, m.Data)
		}
		return nil, e
	}
	return m.Data, nil
}
