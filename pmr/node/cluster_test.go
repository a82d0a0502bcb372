package node_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/buckets/store"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/bus/busmem"
	"github.com/pinion-mr/pinion/pmr/node"
)

// cluster is a router and storages over the bus in memory, in a bubble of its own time.
type cluster struct {
	t        *testing.T
	mem      *busmem.Cluster
	settings api.Settings
	mapper   *fakeMapper
	client   *busmem.Bus
	log      *busmem.Log
	nodes    map[string]*running
	options  options
}

// options is what a test may want of its cluster.
type options struct {
	storages   int
	settings   api.Settings
	maxPayload int                              // default 1 MiB
	memory     int64                            // of routers
	total      int64                            // of storages, for the output of all jobs
	expect     int                              // storages that routers wait for; default all
	jobs       int                              // that a router runs at once
	queue      int                              // jobs that wait in a router
	durable    int                              // durable jobs that wait or run
	collect    int64                            // memory of a router to collect output with
	hears      time.Duration                    // after which nodes hear of a reconnect
	tweak      func(peer string, p *node.Ports) // may replace ports of a node before it is made
}

// running is a node that can be stopped, and its store, which outlives it.
type running struct {
	stop  context.CancelFunc
	ended chan error
	store buckets.Store
	dir   string // identity of its folder

	replace bool // another folder had its id
}

// bubble runs a test on a cluster with storages s1..sn in a synctest bubble.
func bubble(t *testing.T, storages int, settings api.Settings, test func(t *testing.T, c *cluster)) {
	t.Helper()
	bubbleWith(t, options{storages: storages, settings: settings}, test)
}

func bubbleWith(t *testing.T, o options, test func(t *testing.T, c *cluster)) {
	t.Helper()
	o.maxPayload = cmp.Or(o.maxPayload, 1<<20)
	synctest.Test(t, func(t *testing.T) {
		settings, err := node.NewSettings(o.settings, o.maxPayload)
		if err != nil {
			t.Fatal(err)
		}
		c := &cluster{
			t: t, mem: busmem.New(busmem.Config{MaxPayload: o.maxPayload}), settings: settings,
			mapper: &fakeMapper{}, nodes: map[string]*running{}, options: o,
		}
		c.client = c.mem.Connect("client")
		c.log, err = c.client.CreateLog(t.Context(), bus.LogConfig{Replicas: settings.Replicas})
		if err != nil {
			t.Fatal(err)
		}
		c.startRouter("r1", cmp.Or(o.expect, o.storages))
		for i := range o.storages {
			c.startStorage(fmt.Sprintf("s%d", i+1))
		}
		if o.expect <= o.storages {
			c.await("every bucket is served", func() bool { return c.status().Healthy })
		}
		test(t, c)
		c.mem.SetFaults(busmem.Faults{})
		for id := range c.nodes {
			c.stop(id)
		}
		c.client.Close()
		time.Sleep(time.Minute) // what was sent and not answered gives up; then nothing may be left
		for id, n := range c.nodes {
			if n.store == nil {
				continue
			}
			if err := n.store.Close(); err != nil { // it refuses while a snapshot is open
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}

func (c *cluster) ports(peer string) (*busmem.Bus, node.Ports) {
	c.t.Helper()
	ctx := c.t.Context()
	b := c.mem.Connect(peer)
	log, err := b.Log(ctx)
	c.must(err)
	state, err := b.KV(ctx, "STATE", true, 1)
	c.must(err)
	manifests, err := b.KV(ctx, "MANIFESTS", true, 1)
	c.must(err)
	checkpoints, err := b.Objects(ctx, "CHECKPOINTS", true, 1)
	c.must(err)
	orders, err := openOrders(ctx, b)
	c.must(err)
	jobs, err := b.KV(ctx, "JOBS", true, 1)
	c.must(err)
	claims, err := b.KV(ctx, "CLAIMS", true, 1)
	c.must(err)
	jobQueue, err := b.Queue(ctx, "jobs", true, bus.QueueConfig{MaxAckPending: 1000, AckWait: node.JobSilence})
	c.must(err)
	results, err := b.Objects(ctx, "RESULTS", true, 1)
	c.must(err)
	p := node.Ports{
		Jobs: jobs, Claims: claims, JobQueue: memJobs{jobQueue}, Results: results,
		Log: log, State: state, Manifests: manifests, Checkpoints: checkpoints, Peers: b,
		Orders: orders, Catalogue: fakeCatalogue{}, Mapper: c.mapper,
		Logger: slog.New(slog.NewTextHandler(c.t.Output(), nil)), TempDir: c.t.TempDir(),
	}
	if c.options.tweak != nil {
		c.options.tweak(peer, &p)
	}
	return b, p
}

func (c *cluster) startRouter(id string, expect int) {
	b, ports := c.ports(id)
	r := node.NewRouter(node.RouterConfig{Member: api.Member{ID: id}, Cluster: "dev", Settings: c.settings, Expect: expect, Memory: c.options.memory, Jobs: c.options.jobs, Queue: c.options.queue, Durable: c.options.durable, Collect: c.options.collect}, ports)
	serve(c, b, "router."+r.ID()+".mapped", r.Mapped)
	serve(c, b, "router."+r.ID()+".result", r.OwnResult)
	serve(c, b, "router."+r.ID()+".cancel", r.OwnCancel)
	serve(c, b, "router."+r.ID()+".job", r.OwnJob)
	serve(c, b, "router."+r.ID()+".certificate", r.OwnCertificate)
	serve(c, b, "router."+r.ID()+".jobs", r.OwnJobs)
	serve(c, b, "router."+r.ID()+".moves", r.OwnMoves)
	share(c, b, "job.run", r.RunJob)
	share(c, b, "job.result", r.Result)
	share(c, b, "admin.quotas", r.Quotas)
	share(c, b, "job.cancel", r.Cancel)
	share(c, b, "job.submit", r.Submit)
	share(c, b, "job.certificate", r.Certificate)
	share(c, b, "job.get", r.Job)
	share(c, b, "job.list", r.Jobs)
	share(c, b, "record.put", r.Put)
	share(c, b, "record.get", r.Get)
	share(c, b, "record.delete", r.Delete)
	share(c, b, "space.create", r.CreateSpace)
	share(c, b, "space.list", r.Spaces)
	share(c, b, "admin.status", r.Status)
	share(c, b, "admin.topology", r.Topology)
	share(c, b, "admin.buckets", r.Buckets)
	share(c, b, "admin.plan", r.Plan)
	share(c, b, "admin.move", r.Move)
	share(c, b, "admin.moves", r.ClusterMoves)
	_, err := b.Subscribe("router."+r.ID()+".progress", func(_ string, body []byte) {
		var p api.Progress
		if api.Decode(body, &p, api.Lenient) == nil {
			r.Progress(p)
		}
	})
	c.must(err)
	b.OnReconnect(func() { time.Sleep(c.options.hears); r.Reconnected() })
	c.run(id, &running{}, b, r.Run)
}

func (c *cluster) startStorage(id string) {
	n := c.nodes[id]
	if n == nil {
		n = &running{store: store.NewMem(), dir: id + "-folder"}
	}
	b, ports := c.ports(id)
	s := node.NewStorage(node.StorageConfig{
		Member: api.Member{ID: id, Weight: 1, Folder: n.dir}, Settings: c.settings, Workers: node.NewWorkers(2), Total: c.options.total,
		Replace: n.replace,
	}, ports, n.store)
	at := "storage." + id + "."
	serve(c, b, at+"pin", s.Pin)
	serve(c, b, at+"map", s.Map)
	serve(c, b, at+"release", s.Release)
	serve(c, b, at+"fetch", s.Fetch)
	serve(c, b, at+"map_status", s.MapStatus)
	serve(c, b, at+"gate", s.Gate)
	serve(c, b, at+"ungate", s.Ungate)
	serve(c, b, at+"receive", s.Receive)
	serve(c, b, at+"activate", s.Activate)
	serve(c, b, at+"get", s.Get)
	serve(c, b, at+"spaces", s.Spaces)
	serve(c, b, at+"buckets", s.Buckets)
	serve(c, b, at+"status", s.Status)
	_, err := b.Subscribe("router.*.beat", func(_ string, body []byte) {
		var beat api.Heartbeat
		if api.Decode(body, &beat, api.Lenient) == nil {
			s.Heard(beat.Router)
		}
	})
	c.must(err)
	b.OnReconnect(func() { time.Sleep(c.options.hears); s.Reconnected() })
	c.run(id, n, b, s.Run)
}

func serve[Req, Resp any](c *cluster, b *busmem.Bus, subject string, fn func(context.Context, Req) (Resp, error)) {
	_, err := bus.Handle(b, subject, "", fn)
	c.must(err)
}

// share is serve for what all routers answer together.
func share[Req, Resp any](c *cluster, b *busmem.Bus, subject string, fn func(context.Context, Req) (Resp, error)) {
	_, err := bus.HandleMany(b, 2048, subject, "router", fn)
	c.must(err)
}

func (c *cluster) run(id string, n *running, b *busmem.Bus, run func(context.Context) error) {
	ctx, stop := context.WithCancel(c.t.Context())
	n.stop, n.ended = stop, make(chan error, 1)
	c.nodes[id] = n
	go func() {
		err := run(ctx)
		b.Close()
		n.ended <- err
	}()
}

// stop ends a node and waits until it has.
func (c *cluster) stop(id string) {
	c.t.Helper()
	c.nodes[id].stop()
	if err := <-c.nodes[id].ended; err != nil {
		c.t.Errorf("%s ended with: %v", id, err)
	}
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// await waits until a condition holds; the bubble's time makes it quick.
func (c *cluster) await(what string, ok func() bool) {
	c.t.Helper()
	for range 1500 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Fatalf("waited in vain: %s; status %+v", what, c.status())
}

func (c *cluster) request(subject string, in, out any) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	return c.client.Request(ctx, subject, in, out)
}

func (c *cluster) status() api.ClusterStatus {
	var st api.ClusterStatus
	if err := c.request("admin.status", api.Empty{}, &st); err != nil {
		st.Problems = []string{err.Error()}
		st.Healthy = false
	}
	return st
}

// put stores records with the values, one batch a bucket in turn.
func (c *cluster) put(space string, values ...string) {
	c.t.Helper()
	for i, v := range values {
		var header map[string]string
		if space != "" {
			header = map[string]string{api.HeaderSpace: space}
		}
		frame := buckets.AppendFrame(nil, buckets.FlagAssign, nil, []byte(v))
		_, err := c.log.Append(c.t.Context(), buckets.RecSubject(buckets.ID(i%c.settings.Buckets)), header, frame, "")
		c.must(err)
	}
}

func (c *cluster) job(req api.JobRequest) (map[string]int64, api.JobReply, error) {
	var reply api.JobReply
	err := c.request("job.run", req, &reply)
	counts := map[string]int64{}
	for _, row := range reply.Rows {
		counts[string(row.Key)] += row.Value.Int
	}
	return counts, reply, err
}

var wordCount = api.JobRequest{Module: "words", Reduce: "sum", Proof: true}

// fakeCatalogue knows one module, words.
type fakeCatalogue struct{}

func (fakeCatalogue) Resolve(_ context.Context, ref string) (api.Module, error) {
	if ref != "words" && ref != "w" {
		return api.Module{}, api.Errorf(api.CodeUnknownModule, "there is no module %q", ref)
	}
	return api.Module{Name: "words", Digest: "w", Functions: []string{"map", "first", "long"}}, nil
}

func (fakeCatalogue) Check(context.Context, string) error { return nil }

func (fakeCatalogue) Load(context.Context, string) ([]byte, error) { return nil, nil }

// fakeMapper counts words in Go. A hook may stand in for the guest at each bucket.
type fakeMapper struct {
	mu   sync.Mutex
	hook func(ctx context.Context, task node.Task, b buckets.ID) error
	word func(ctx context.Context, word string, yield func(context.Context) error) error // called after a word was emitted
	end  func(b buckets.ID) error                                                        // called after a bucket's last batch
	load func(ctx context.Context, task node.Task) error                                 // called by Prepare
	read int                                                                             // batches
	open int                                                                             // guests and programs that are not closed
}

func (m *fakeMapper) setHook(hook func(ctx context.Context, task node.Task, b buckets.ID) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = hook
}

func (m *fakeMapper) count(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open += n
}

func (m *fakeMapper) Prepare(ctx context.Context, task node.Task) (node.Program, error) {
	m.mu.Lock()
	load := m.load
	m.mu.Unlock()
	if load != nil {
		if err := load(ctx, task); err != nil {
			return nil, err
		}
	}
	m.count(1)
	return fakeProgram{m: m, task: task}, nil
}

type fakeProgram struct {
	m     *fakeMapper
	task  node.Task
	yield func(context.Context) error
	dead  *bool // of a guest: it has failed
}

func (p fakeProgram) Open(_ context.Context, yield func(context.Context) error) (node.Guest, error) {
	p.m.count(1)
	p.yield, p.dead = yield, new(bool)
	return fakeGuest(p), nil
}

func (p fakeProgram) Close() { p.m.count(-1) }

type fakeGuest fakeProgram

func (g fakeGuest) Close() { g.m.count(-1) }

func (g fakeGuest) Map(ctx context.Context, b buckets.ID, in node.Source, out node.Sink) (f node.Figures, err error) {
	if *g.dead {
		return f, errors.New("the guest is broken")
	}
	defer func() { *g.dead = err != nil }()
	g.m.mu.Lock()
	hook, said, end := g.m.hook, g.m.word, g.m.end
	g.m.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, g.task, b); err != nil {
			return node.Figures{}, err
		}
	}
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	fuel := uint64(0)
	err = frames(counted{in, g.m}, func(f buckets.Frame) error {
		for _, word := range bytes.Fields(f.Value) {
			if g.task.Function == "long" {
				word = bytes.Repeat(word, 4)
			}
			if err := out.Emit(buckets.FlagInt, word, one); err != nil {
				return err
			}
			fuel += 10
			if said != nil {
				if err := said(ctx, string(word), g.yield); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil && end != nil {
		err = end(b)
	}
	return node.Figures{Counters: map[string]int64{"buckets": 1}, Fuel: fuel}, err
}

// Group keeps the first value of each key.
func (g fakeGuest) Group(_ context.Context, _ string, in node.Source, out node.Sink) (node.Figures, error) {
	return node.Figures{Fuel: 1000}, frames(in, func(f buckets.Frame) error {
		if f.Flags&buckets.FlagFirst == 0 {
			return nil
		}
		return out.Emit(f.Flags&buckets.FlagInt, f.Key, f.Value)
	})
}

// counted counts a source's batches.
type counted struct {
	node.Source
	m *fakeMapper
}

func (c counted) Fill(dst []byte, limit int) ([]byte, int, error) {
	c.m.mu.Lock()
	c.m.read++
	c.m.mu.Unlock()
	return c.Source.Fill(dst, limit)
}

func frames(in node.Source, fn func(buckets.Frame) error) error {
	for {
		batch, n, err := in.Fill(nil, 1<<16)
		if err != nil || n == 0 {
			return err
		}
		for len(batch) > 0 {
			f, rest, err := buckets.CutFrame(batch)
			if err != nil {
				return err
			}
			if err := fn(f); err != nil {
				return err
			}
			batch = rest
		}
	}
}

// memOrders are the queues of move orders.
type memOrders struct {
	bus              *busmem.Bus
	moves, takeovers *busmem.Queue
}

// orderWait is the silence after which an order is handed out again.
const orderWait = 15 * time.Second

func openOrders(ctx context.Context, b *busmem.Bus) (memOrders, error) {
	o := memOrders{bus: b}
	var err error
	if o.takeovers, err = b.Queue(ctx, "takeover", true, bus.QueueConfig{MaxAckPending: 4, AckWait: orderWait}); err != nil {
		return o, err
	}
	o.moves, err = b.Queue(ctx, "rebalance", true, bus.QueueConfig{MaxAckPending: 1, AckWait: orderWait})
	return o, err
}

func (o memOrders) SetParallel(ctx context.Context, n int) error {
	_, err := o.bus.Queue(ctx, "rebalance", true, bus.QueueConfig{MaxAckPending: n, AckWait: orderWait})
	return err
}

func (o memOrders) Publish(ctx context.Context, order api.MoveOrder) error {
	body, err := api.Encode(api.JSON, order)
	if err != nil {
		return err
	}
	if !order.NeedsGates() {
		return o.takeovers.Publish(ctx, body, order.ID)
	}
	return o.moves.Publish(ctx, body, order.ID)
}

func (o memOrders) Len(ctx context.Context) (int, error) {
	moves, err := o.moves.Len(ctx)
	if err != nil {
		return 0, err
	}
	takeovers, err := o.takeovers.Len(ctx)
	return moves + takeovers, err
}

func (o memOrders) Consume(ctx context.Context, fn func(context.Context, node.OrderDelivery)) error {
	work := func(ctx context.Context, m bus.QueueMessage) {
		d := node.OrderDelivery{Deliveries: m.Deliveries, Delivery: m.Delivery}
		if api.Decode(m.Body, &d.Order, api.Strict) == nil {
			fn(ctx, d)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	for _, q := range []*busmem.Queue{o.moves, o.takeovers} {
		go func() { ended <- q.Consume(ctx, work) }()
	}
	err := <-ended
	stop()
	return errors.Join(err, <-ended)
}

// memJobs is the queue of durable jobs.
type memJobs struct{ queue *busmem.Queue }

func (q memJobs) Publish(ctx context.Context, job api.QueuedJob, id string) error {
	body, err := api.Encode(api.JSON, job)
	if err != nil {
		return err
	}
	return q.queue.Publish(ctx, body, id)
}

func (q memJobs) Len(ctx context.Context) (int, error) { return q.queue.Len(ctx) }

func (q memJobs) Consume(ctx context.Context, most int, fn func(context.Context, node.JobDelivery)) error {
	return q.queue.ConsumeSome(ctx, most, func(ctx context.Context, m bus.QueueMessage) {
		var job api.QueuedJob
		if api.Decode(m.Body, &job, api.Strict) == nil {
			fn(ctx, node.JobDelivery{Job: job.Job, Message: m.Seq, Delivery: m.Delivery})
		}
	})
}
