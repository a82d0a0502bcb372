package pinion

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/bus/busmem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memBus is a transport in memory.
type memBus struct{ *busmem.Bus }

var _ transport = memBus{}

func (b memBus) openLog(ctx context.Context) (clusterLog, error) { return b.Log(ctx) }

func (b memBus) openState(ctx context.Context) (keys, error) { return b.KV(ctx, stateStore, false, 0) }

func (b memBus) openModules(ctx context.Context) (objects, error) {
	return b.Objects(ctx, moduleStore, false, 0)
}

// cluster is a cluster without engine: the test answers requests itself.
type cluster struct {
	t      *testing.T
	mem    *busmem.Cluster
	router *busmem.Bus
	client *Client
}

// newCluster makes a cluster that has a log, a module store, and a router which knows settings and spaces.
func newCluster(t *testing.T, settings api.Settings) *cluster {
	t.Helper()
	c := &cluster{t: t, mem: busmem.New(busmem.Config{MaxPayload: 1 << 20})}
	c.router = c.mem.Connect("router")
	client := c.mem.Connect("client")
	c.client = &Client{conn: memBus{client}}
	t.Cleanup(func() { c.client.Close(); c.router.Close() })
	if _, err := c.router.CreateLog(t.Context(), bus.LogConfig{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.router.Objects(t.Context(), moduleStore, true, 1); err != nil {
		t.Fatal(err)
	}
	answer(c, "admin.settings", func(api.Empty) (api.Settings, error) { return settings, nil })
	answer(c, "space.create", func(api.SpaceRequest) (api.Empty, error) { return api.Empty{}, nil })
	return c
}

// answer serves a subject as a router does.
func answer[Req, Resp any](c *cluster, subject string, fn func(Req) (Resp, error)) {
	c.t.Helper()
	_, err := bus.Handle(c.router, subject, "router", func(_ context.Context, req Req) (Resp, error) { return fn(req) })
	if err != nil {
		c.t.Fatal(err)
	}
}

// entries reads the whole log. The data of each is a copy.
func (c *cluster) entries() []api.LogEntry {
	c.t.Helper()
	log, err := c.router.Log(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	state, err := log.State(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	var all []api.LogEntry
	err = log.ReadTo(c.t.Context(), 1, state.Last, nil, func(e api.LogEntry) error {
		e.Data = append([]byte(nil), e.Data...)
		all = append(all, e)
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return all
}

func wantCode(t *testing.T, err error, code api.Code) {
	t.Helper()
	if api.CodeOf(err) != code {
		t.Fatalf("got error %v (code %q), want code %s", err, api.CodeOf(err), code)
	}
}
