package busmem

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/bus/internal/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Peer {
		return peer(t, New(Config{MaxPayload: 1 << 20}))
	})
}

func peer(t *testing.T, c *Cluster) conformance.Peer {
	b := c.Connect("p")
	t.Cleanup(b.Close)
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
		Raw:   b.request,
		Again: func(t *testing.T) conformance.Peer { return peer(t, c) },
	}
}
