package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/internal/guests"
	"github.com/pinion-mr/pinion/plugins"
	"github.com/pinion-mr/pinion/pmr/node"
	"github.com/pinion-mr/pinion/wasmhost"
)

// The ports of package node, by those who supply them.
var (
	_ node.Log       = (*bus.Log)(nil)
	_ node.KV        = (*bus.KV)(nil)
	_ node.Objects   = (*bus.Objects)(nil)
	_ node.Peers     = (*bus.Bus)(nil)
	_ node.Catalogue = (*plugins.Catalogue)(nil)
	_ node.Orders    = orders{}
	_ node.JobQueue  = jobQueue{}
	_ node.Results   = (*bus.Objects)(nil)
)

// Names of what a cluster keeps in JetStream, behind its prefix.
const (
	kvState         = "STATE"
	kvManifests     = "MANIFESTS"
	objCheckpoints  = "CHECKPOINTS"
	objModules      = "MODULES"
	kvJobs          = "JOBS"
	kvClaims        = "CLAIMS"
	objResults      = "RESULTS"
	queueRebalance  = "rebalance"
	queueTakeover   = "takeover"
	queueJobs       = "jobs"
	queueRouters    = "router"         // queue group of the services
	orderAckWait    = 15 * time.Second // a leaderless queue is silent for up to 9 s
	takeoversAtOnce = 4
	jobsAtOnce      = 10_000 // of all routers
	clusterPatience = 15 * time.Second
)

// cluster is a cluster as this process sees it.
type cluster struct {
	bus       *bus.Bus
	settings  api.Settings
	ports     node.Ports
	catalogue *plugins.Catalogue
}

// openCluster opens the cluster's streams; with create, it makes those that are missing.
func (s *session) openCluster(ctx context.Context, b *bus.Bus, host *wasmhost.Host, log *slog.Logger, create bool) (*cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	state, err := b.KV(ctx, kvState, create, max(s.wanted.Replicas, 1))
	if err != nil {
		return nil, err
	}
	cl := &cluster{bus: b}
	if create {
		cl.settings, err = node.CreateSettings(ctx, state, s.options.Value("cluster"), s.wanted, b.MaxPayload())
	} else {
		cl.settings, err = node.LoadSettings(ctx, state)
	}
	if err != nil {
		return nil, err
	}
	if need := cl.settings.MaxRecord + 4<<10; need > b.MaxPayload() {
		return nil, api.Errorf(api.CodeClusterDiffer, "the server's max_payload is %d bytes; the cluster's max_record %d needs %d", b.MaxPayload(), cl.settings.MaxRecord, need).
			WithHint("raise max_payload on the NATS server")
	}
	cl.ports = node.Ports{State: state, Peers: b, Logger: log}
	if err := cl.open(ctx, create, s.limits.modules()); err != nil {
		return nil, err
	}
	if create { // for a router, who decides what may run
		cl.catalogue.Compile = guests.Compile(host)
	}
	cl.ports.Mapper = guests.Mapper{Host: host, Catalogue: cl.catalogue}
	return cl, nil
}

// open opens what lies beside the settings.
func (cl *cluster) open(ctx context.Context, create bool, limits plugins.Limits) error {
	b, replicas := cl.bus, cl.settings.Replicas
	log, err := openLog(ctx, b, cl.settings, create)
	if err != nil {
		return err
	}
	manifests, err := b.KV(ctx, kvManifests, create, replicas)
	if err != nil {
		return err
	}
	checkpoints, err := b.Objects(ctx, objCheckpoints, create, replicas)
	if err != nil {
		return err
	}
	modules, err := b.Objects(ctx, objModules, create, replicas)
	if err != nil {
		return err
	}
	queues, err := openOrders(ctx, b, create, replicas, cl.ports.Logger)
	if err != nil {
		return err
	}
	state, ok := cl.ports.State.(*bus.KV)
	if !ok {
		return fmt.Errorf("engine: state is %T", cl.ports.State)
	}
	cl.catalogue, err = plugins.NewCatalogue(state, modules, limits)
	cl.ports.Log, cl.ports.Manifests, cl.ports.Checkpoints = log, manifests, checkpoints
	cl.ports.Orders, cl.ports.Catalogue = queues, cl.catalogue
	if err != nil || !create {
		return err
	}
	return cl.openJobs(ctx)
}

// openJobs opens what routers need for durable jobs, and makes what is missing.
func (cl *cluster) openJobs(ctx context.Context) error {
	replicas := cl.settings.Replicas
	records, err := cl.bus.KV(ctx, kvJobs, true, replicas)
	if err != nil {
		return err
	}
	claims, err := cl.bus.KV(ctx, kvClaims, true, replicas)
	if err != nil {
		return err
	}
	queue, err := cl.bus.Queue(ctx, queueJobs, true, bus.QueueConfig{Replicas: replicas, MaxAckPending: jobsAtOnce, AckWait: node.JobSilence})
	if err != nil {
		return err
	}
	results, err := cl.bus.Objects(ctx, objResults, true, replicas)
	if err != nil {
		return err
	}
	cl.ports.Jobs, cl.ports.Claims, cl.ports.JobQueue, cl.ports.Results = records, claims, jobQueue{queue, cl.ports.Logger}, results
	return nil
}

func openLog(ctx context.Context, b *bus.Bus, s api.Settings, create bool) (*bus.Log, error) {
	if !create {
		return b.Log(ctx)
	}
	return b.CreateLog(ctx, bus.LogConfig{Replicas: s.Replicas, DuplicateWindow: time.Duration(s.DuplicateMS) * time.Millisecond})
}

// orders are the work queues of move orders.
type orders struct {
	bus              *bus.Bus
	log              *slog.Logger
	replicas         int
	moves, takeovers *bus.Queue
}

// openOrders opens them. How many moves are worked on at a time stays as it was set.
func openOrders(ctx context.Context, b *bus.Bus, create bool, replicas int, log *slog.Logger) (orders, error) {
	o := orders{bus: b, log: log, replicas: replicas}
	var err error
	if o.takeovers, err = b.Queue(ctx, queueTakeover, create, o.config(takeoversAtOnce)); err != nil {
		return o, err
	}
	cfg := o.config(node.DefaultParallelMoves)
	cfg.KeepPending = true
	o.moves, err = b.Queue(ctx, queueRebalance, create, cfg)
	return o, err
}

func (o orders) config(parallel int) bus.QueueConfig {
	return bus.QueueConfig{Replicas: o.replicas, MaxAckPending: parallel, AckWait: orderAckWait}
}

func (o orders) SetParallel(ctx context.Context, n int) error {
	_, err := o.bus.Queue(ctx, queueRebalance, true, o.config(n))
	return err
}

func (o orders) Publish(ctx context.Context, order api.MoveOrder) error {
	body, err := api.Encode(api.JSON, order)
	if err != nil {
		return err
	}
	if !order.NeedsGates() {
		return o.takeovers.Publish(ctx, body, order.ID)
	}
	return o.moves.Publish(ctx, body, order.ID)
}

func (o orders) Len(ctx context.Context) (int, error) {
	moves, err := o.moves.Len(ctx)
	if err != nil {
		return 0, err
	}
	takeovers, err := o.takeovers.Len(ctx)
	return moves + takeovers, err
}

func (o orders) Consume(ctx context.Context, fn func(context.Context, node.OrderDelivery)) error {
	work := func(ctx context.Context, m bus.QueueMessage) {
		d := node.OrderDelivery{Deliveries: m.Deliveries, Delivery: m.Delivery}
		if err := api.Decode(m.Body, &d.Order, api.Lenient); err != nil { // a newer router may say more
			refuse(o.log, m, "move order", err)
			return
		}
		fn(ctx, d)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	for _, q := range []*bus.Queue{o.moves, o.takeovers} {
		go func() { ended <- q.Consume(ctx, work) }()
	}
	err := <-ended
	stop()
	return errors.Join(err, <-ended)
}

// jobQueue is the work queue of durable jobs.
type jobQueue struct {
	queue *bus.Queue
	log   *slog.Logger
}

func (q jobQueue) Publish(ctx context.Context, job api.QueuedJob, id string) error {
	body, err := api.Encode(api.JSON, job)
	if err != nil {
		return err
	}
	return q.queue.Publish(ctx, body, id)
}

func (q jobQueue) Len(ctx context.Context) (int, error) { return q.queue.Len(ctx) }

func (q jobQueue) Consume(ctx context.Context, most int, fn func(context.Context, node.JobDelivery)) error {
	return q.queue.ConsumeSome(ctx, most, func(ctx context.Context, m bus.QueueMessage) {
		var job api.QueuedJob
		if err := api.Decode(m.Body, &job, api.Lenient); err != nil {
			refuse(q.log, m, "job", err)
			return
		}
		fn(ctx, node.JobDelivery{Job: job.Job, Message: m.Seq, Delivery: m.Delivery})
	})
}

// refuse takes a message off its queue that cannot be read. It would come again, and be refused again.
func refuse(log *slog.Logger, m bus.QueueMessage, what string, reason error) {
	log.Warn("a queued message cannot be read: it is thrown away", "wanted", what, "message", m.Seq, "text", fmt.Sprintf("%.200q", m.Body), "reason", reason)
	if err := m.Term(fmt.Sprintf("no %s: %v", what, reason)); err != nil {
		log.Warn("cannot throw a queued message away; it comes again", "message", m.Seq, "reason", err)
	}
}
