package sim

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/buckets/store"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/bus/busmem"
	"github.com/pinion-mr/pinion/pmr/node"
)

// machine is where the processes of one node run, one after another.
type machine struct {
	id      string
	process *process // the present one
	starts  int
	store   *storage // nil for routers
}

// storage is a machine's folder, which outlives its processes.
type storage struct {
	folder  string
	mem     buckets.Store
	writing sync.Mutex
}

// joined lists the buckets that it holds whole.
func (s *storage) joined() []buckets.ID {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.mem.Joined()
}

// process is one life of a node.
type process struct {
	id   string // of the machine
	peer string // id and which life: its name on the bus
	bus  *busmem.Bus
	mem  buckets.Store // of a storage
	stop context.CancelFunc
	dead chan struct{} // closed when it is killed

	storage *node.Storage // or
	router  *node.Router
	ended   chan struct{} // closed when it has ended

	// Owned by the simulator.
	pausedTill, laggingTill time.Duration
	cutTill                 time.Duration
	killed                  bool

	mu      sync.Mutex
	open    int                // guests and programs
	mapping map[string]int     // buckets that guests work on, by job
	lies    int                // kind of the lie that it tells at the next pin, from 1
	message busmem.Fault       // of the message that was picked
	append  busmem.AppendFault // of the append that was picked
	fault   error              // why it has ended by itself
}

func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

func (m *machine) up() bool { return m.process != nil && !m.process.killed }

// connect makes a process of a machine, and its ports.
func (w *world) connect(m *machine) (*process, node.Ports) {
	m.starts++
	p := &process{id: m.id, peer: fmt.Sprintf("%s.%d", m.id, m.starts), dead: make(chan struct{}), ended: make(chan struct{}), mapping: map[string]int{}}
	p.bus = w.mem.Connect(p.peer)
	if m.store != nil {
		p.mem = m.store.mem
	}
	w.mu.Lock()
	w.peers[p.peer] = p
	w.mu.Unlock()
	m.process = p
	ctx := context.Background()
	g := gated{w, p}
	entries, err := p.bus.Log(ctx)
	w.must(err)
	state, err := p.bus.KV(ctx, "STATE", true, 1)
	w.must(err)
	manifests, err := p.bus.KV(ctx, "MANIFESTS", true, 1)
	w.must(err)
	checkpoints, err := p.bus.Objects(ctx, "CHECKPOINTS", true, 1)
	w.must(err)
	moves, err := p.bus.Queue(ctx, "rebalance", true, w.movesConfig())
	w.must(err)
	takeovers, err := p.bus.Queue(ctx, "takeover", true, takeoversConfig)
	w.must(err)
	records, err := p.bus.KV(ctx, "JOBS", true, 1)
	w.must(err)
	claims, err := p.bus.KV(ctx, "CLAIMS", true, 1)
	w.must(err)
	jobs, err := p.bus.Queue(ctx, "jobs", true, bus.QueueConfig{MaxAckPending: 1000, AckWait: node.JobSilence})
	w.must(err)
	results, err := p.bus.Objects(ctx, "RESULTS", true, 1)
	w.must(err)
	return p, node.Ports{
		Log: log{entries, g}, State: kv{state, g}, Manifests: kv{manifests, g}, Checkpoints: objects{checkpoints, g},
		Peers: peers{p.bus, g}, Orders: orders{moves, takeovers, g}, Jobs: jobRecords{kv{records, g}}, Claims: kv{claims, g}, JobQueue: jobQueue{jobs, g}, Results: objects{results, g}, Catalogue: catalogue{}, Mapper: mapper{g},
		Logger: w.logger.With("peer", p.peer), TempDir: w.dir,
	}
}

func (w *world) startRouter(m *machine) {
	p, ports := w.connect(m)
	r := node.NewRouter(node.RouterConfig{
		Member: api.Member{ID: m.id, Folder: m.id}, Cluster: "sim", Settings: w.settings, Expect: w.plan.storages - w.plan.late, Workers: node.NewWorkers(1),
	}, ports)
	p.router = r
	w.mu.Lock()
	w.aliases[r.ID()] = p.peer
	w.mu.Unlock()
	own := "router." + r.ID() + "."
	serve(w, p, own+"mapped", "", r.Mapped)
	serve(w, p, own+"result", "", r.OwnResult)
	serve(w, p, own+"cancel", "", r.OwnCancel)
	serve(w, p, own+"job", "", r.OwnJob)
	serve(w, p, own+"jobs", "", r.OwnJobs)
	serve(w, p, own+"moves", "", r.OwnMoves)
	serve(w, p, "job.run", "router", r.RunJob)
	serve(w, p, "job.result", "router", r.Result)
	serve(w, p, "job.cancel", "router", r.Cancel)
	serve(w, p, "job.submit", "router", r.Submit)
	serve(w, p, "record.put", "router", r.Put)
	subscribe(w, p, own+"progress", r.Progress)
	p.bus.OnReconnect(r.Reconnected)
	w.run(p, r.Run)
}

func (w *world) startStorage(m *machine) {
	p, ports := w.connect(m)
	s := node.NewStorage(node.StorageConfig{
		Member: api.Member{ID: m.id, Weight: 1, Folder: m.store.folder}, Settings: w.settings, Workers: node.NewWorkers(1),
		Replace: m.store.folder != m.id+"-0", // the first one was lost
	}, ports, guarded{m.store.mem, gated{w, p}, &m.store.writing})
	p.storage = s
	own := "storage." + m.id + "."
	serve(w, p, own+"pin", "", func(ctx context.Context, req api.PinRequest) (api.PinReply, error) {
		reply, err := s.Pin(ctx, req)
		if err == nil {
			w.oracle.pinned(p, req, reply)
			reply.Buckets = p.lie(reply.Buckets)
		}
		return reply, err
	})
	serve(w, p, own+"map", "", func(ctx context.Context, req api.MapRequest) (api.MapReply, error) {
		asked := w.pool.now()
		reply, err := s.Map(ctx, req)
		if err == nil {
			w.oracle.mapping(req, asked)
		}
		return reply, err
	})
	serve(w, p, own+"release", "", s.Release)
	serve(w, p, own+"fetch", "", s.Fetch)
	serve(w, p, own+"map_status", "", s.MapStatus)
	serve(w, p, own+"spaces", "", s.Spaces)
	serve(w, p, own+"receive", "", s.Receive)
	serve(w, p, own+"activate", "", s.Activate)
	serve(w, p, own+"gate", "", func(ctx context.Context, req api.GateRequest) (api.GateReply, error) {
		reply, err := s.Gate(ctx, req)
		if reply.State == "held" {
			w.checkGuests(p, "the gate "+req.Gate+" was opened")
		}
		return reply, err
	})
	serve(w, p, own+"ungate", "", s.Ungate)
	subscribe(w, p, "router.*.beat", func(beat api.Heartbeat) { s.Heard(beat.Router) })
	p.bus.OnReconnect(s.Reconnected)
	w.run(p, s.Run)
}

func serve[Req, Resp any](w *world, p *process, subject, queue string, fn func(context.Context, Req) (Resp, error)) {
	_, err := bus.Handle(p.bus, subject, queue, fn)
	w.must(err)
}

func subscribe[M any](w *world, p *process, subject string, fn func(M)) {
	_, err := p.bus.Subscribe(subject, func(_ string, body []byte) {
		var m M
		if api.Decode(body, &m, api.Lenient) == nil {
			fn(m)
		}
	})
	w.must(err)
}

func (w *world) run(p *process, run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() {
		err := run(ctx)
		p.bus.Close()
		p.mu.Lock()
		p.fault = err
		p.mu.Unlock()
		close(p.ended)
		w.pool.wake()
	}()
}

// start begins a new process of a machine.
func (w *world) start(m *machine) {
	if m.store != nil {
		w.startStorage(m)
	} else {
		w.startRouter(m)
	}
	w.tracef("%s starts", m.process.peer)
}

// kill ends a process between two steps: nothing that it still does has an effect. Its folder may be lost too.
func (w *world) kill(m *machine, lose bool) {
	p := m.process
	p.killed = true
	close(p.dead)
	w.mem.Cut(p.peer)
	p.stop()
	if lose {
		m.store = newFolder(m)
	}
	w.tracef("%s is killed, folder lost %v", p.peer, lose)
}

// revive starts a node again that has ended by itself, as whatever watches over processes does. That is all that
// may be done by one that could not enter the cluster.
func (w *world) revive() {
	for _, m := range w.machines {
		p := m.process
		if p == nil || p.killed || !p.hasEnded() {
			continue
		}
		p.killed = true
		code := api.CodeOf(p.fault)
		w.tracef("%s has ended: %s", p.peer, code)
		if code != api.CodeUnavailable && code != api.CodeInDoubt && code != api.CodeTimeout {
			w.oracle.failf("%s ended with: %v", p.peer, p.fault)
		}
		w.did("node that gave up", true)
		w.after(w.between(10*time.Millisecond, 2*time.Second), func() { w.start(m) })
	}
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func newFolder(m *machine) *storage {
	return &storage{folder: fmt.Sprintf("%s-%d", m.id, m.starts), mem: store.NewMem()}
}

// guests counts what is open in a process.
func (w *world) guests(p *process, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open += n
}

// mapping counts the buckets that guests of a job work on.
func (w *world) mapping(p *process, job string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mapping[job] += n; p.mapping[job] == 0 {
		delete(p.mapping, job)
	}
}

// lie falsifies one pin: a bucket doubled, lost, lost with another one doubled, or of another generation.
func (p *process) lie(pins []api.BucketPin) []api.BucketPin {
	p.mu.Lock()
	kind := p.lies
	p.lies = 0
	p.mu.Unlock()
	if kind == 0 || len(pins) < 2 {
		return pins
	}
	pins = append([]api.BucketPin{}, pins...)
	switch kind {
	case 1:
		return append(pins, pins[0])
	case 2:
		return pins[1:]
	case 3:
		pins[1] = pins[0]
	default:
		pins[0].Generation++
	}
	return pins
}

// quiet is the logger of nodes, unless a trace is wanted.
var quiet = slog.New(slog.DiscardHandler)
