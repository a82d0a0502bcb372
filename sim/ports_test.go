package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus/busmem"
	"github.com/pinion-mr/pinion/pmr/node"
)

// gated is what the ports of a process have in common: they ask the pool first.
type gated struct {
	w   *world
	who *process
}

func (g gated) wait(ctx context.Context, k kind, format string, args ...any) error {
	_, err := g.w.pool.wait(ctx, g.who, k, fmt.Sprintf(format, args...))
	return err
}

// log is the log as a process sees it.
type log struct {
	*busmem.Log
	gated
}

var _ node.Log = log{}

func (l log) Append(ctx context.Context, subject string, header map[string]string, data []byte, msgID string) (uint64, error) {
	if entry, err := buckets.Decode(api.LogEntry{Subject: subject, Header: header, Data: data}, l.w.settings.Buckets); err == nil {
		if own, ok := entry.(buckets.Own); ok {
			l.w.oracle.claiming(l.who, own)
		}
	}
	v, err := l.w.pool.wait(ctx, l.who, opAppend, l.w.labelEntry(subject, header, data))
	if err != nil {
		return 0, err
	}
	l.who.mu.Lock()
	l.who.append = v.append
	l.who.mu.Unlock()
	return l.Log.Append(ctx, subject, header, data, msgID)
}

func (l log) Read(ctx context.Context, from uint64, filters []string, fn func([]api.LogEntry) error) error {
	return l.Log.Read(ctx, from, filters, func(batch []api.LogEntry) error {
		for len(batch) > 0 {
			v, err := l.w.pool.wait(ctx, l.who, opEntry, fmt.Sprintf("%d %s", batch[0].Seq, batch[0].Subject))
			if err != nil {
				return err
			}
			n := 1
			// Never two cuts: which of the jobs that wait for them goes on first would be chance.
			for v.rest && n < len(batch) && batch[n-1].Subject != buckets.SubjectCut {
				n++
			}
			if err := fn(batch[:n]); err != nil {
				return err
			}
			batch = batch[n:]
		}
		return nil
	})
}

func (l log) ReadTo(ctx context.Context, from, to uint64, filters []string, fn func(api.LogEntry) error) error {
	v, err := l.w.pool.wait(ctx, l.who, opLog, fmt.Sprintf("read %d to %d %s", from, to, strings.Join(filters, " ")))
	if err != nil {
		return err
	}
	if v.work > 0 {
		slow := time.NewTimer(v.work)
		defer slow.Stop()
		select {
		case <-slow.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return l.Log.ReadTo(ctx, from, to, filters, fn)
}

func (l log) State(ctx context.Context) (api.LogState, error) {
	if err := l.wait(ctx, opLog, "state"); err != nil {
		return api.LogState{}, err
	}
	return l.Log.State(ctx)
}

func (l log) Entry(ctx context.Context, seq uint64) (api.LogEntry, error) {
	if err := l.wait(ctx, opLog, "entry %d", seq); err != nil {
		return api.LogEntry{}, err
	}
	return l.Log.Entry(ctx, seq)
}

func (l log) Purge(ctx context.Context, upTo uint64) error {
	if err := l.wait(ctx, opLog, "purge %d", upTo); err != nil {
		return err
	}
	return l.Log.Purge(ctx, upTo)
}

// kv is a key-value bucket as a process sees it.
type kv struct {
	*busmem.KV
	gated
}

var _ node.Records = kv{}

func (k kv) Get(ctx context.Context, key string) (api.KVEntry, error) {
	if err := k.wait(ctx, opKV, "get %s", key); err != nil {
		return api.KVEntry{}, err
	}
	return k.KV.Get(ctx, key)
}

func (k kv) List(ctx context.Context, prefix string) ([]api.KVEntry, error) {
	if err := k.wait(ctx, opKV, "list %s", prefix); err != nil {
		return nil, err
	}
	return k.KV.List(ctx, prefix)
}

func (k kv) Each(ctx context.Context, prefix string, fn func(api.KVEntry)) error {
	if err := k.wait(ctx, opKV, "list %s", prefix); err != nil {
		return err
	}
	return k.KV.Each(ctx, prefix, fn)
}

func (k kv) Keys(ctx context.Context, prefix string) ([]string, error) {
	if err := k.wait(ctx, opKV, "list %s", prefix); err != nil {
		return nil, err
	}
	return k.KV.Keys(ctx, prefix)
}

func (k kv) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	if err := k.wait(ctx, opKV, "create %s", key); err != nil {
		return 0, err
	}
	return k.KV.Create(ctx, key, value)
}

func (k kv) CreateTTL(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	if err := k.wait(ctx, opKV, "create %s", key); err != nil {
		return 0, err
	}
	return k.KV.CreateTTL(ctx, key, value, ttl)
}

func (k kv) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := k.wait(ctx, opKV, "update %s", key); err != nil {
		return 0, err
	}
	return k.KV.Update(ctx, key, value, revision)
}

func (k kv) Renew(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (uint64, error) {
	if err := k.wait(ctx, opKV, "renew %s", key); err != nil {
		return 0, err
	}
	return k.KV.Renew(ctx, key, value, revision, ttl)
}

func (k kv) Delete(ctx context.Context, key string) error {
	if err := k.wait(ctx, opKV, "delete %s", key); err != nil {
		return err
	}
	return k.KV.Delete(ctx, key)
}

// objects is an object store as a process sees it. Names are random and stay out of labels.
type objects struct {
	*busmem.Objects
	gated
}

var _ node.Results = objects{}

func (o objects) Put(ctx context.Context, name string, r io.Reader) error {
	if err := o.wait(ctx, opObject, "put"); err != nil {
		return err
	}
	return o.Objects.Put(ctx, name, r)
}

func (o objects) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := o.wait(ctx, opObject, "get"); err != nil {
		return nil, err
	}
	return o.Objects.Get(ctx, name)
}

func (o objects) List(ctx context.Context) ([]api.ObjectInfo, error) {
	if err := o.wait(ctx, opObject, "list"); err != nil {
		return nil, err
	}
	return o.Objects.List(ctx)
}

func (o objects) Delete(ctx context.Context, name string) error {
	if err := o.wait(ctx, opObject, "delete"); err != nil {
		return err
	}
	return o.Objects.Delete(ctx, name)
}

// peers are messages as a process sends them. What took time waits once more before the sender hears of it, so that
// two answers, or two ends of patience, never come at once.
type peers struct {
	*busmem.Bus
	gated
}

var _ node.Peers = peers{}

func (p peers) Request(ctx context.Context, subject string, in, out any) error {
	label := p.w.aliased(subject) + " " + p.w.describe(in)
	if err := p.send(ctx, label, in); err != nil {
		return err
	}
	sent := time.Now()
	err := p.Bus.Request(ctx, subject, in, out)
	if time.Since(sent) == 0 {
		return err
	}
	if waitErr := p.wait(context.WithoutCancel(ctx), opReturn, "%s %s", label, api.CodeOf(err)); waitErr != nil {
		return waitErr
	}
	return err
}

func (p peers) Publish(subject string, v any) error {
	if err := p.send(context.Background(), p.w.aliased(subject)+" "+p.w.describe(v), v); err != nil {
		return err
	}
	return p.Bus.Publish(subject, v)
}

// send waits for the verdict on a message, and leaves it to the faults of the bus.
func (p peers) send(ctx context.Context, label string, message any) error {
	v, err := p.w.pool.wait(ctx, p.who, opSend, label)
	if err != nil {
		return err
	}
	if m, ok := message.(api.PMRRequest); ok && strings.Contains(label, ".release ") {
		p.w.oracle.releasing(m.PMR)
	}
	p.who.mu.Lock()
	defer p.who.mu.Unlock()
	p.who.message = v.message
	return nil
}

// jobRecords is the history of jobs as a process sees it. The oracle looks at each change.
type jobRecords struct{ kv }

func (k jobRecords) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	rev, err := k.kv.Create(ctx, key, value)
	k.told(key, value, err)
	return rev, err
}

func (k jobRecords) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	rev, err := k.kv.Update(ctx, key, value, revision)
	k.told(key, value, err)
	return rev, err
}

func (k jobRecords) Renew(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (uint64, error) {
	rev, err := k.kv.Renew(ctx, key, value, revision, ttl)
	k.told(key, value, err)
	return rev, err
}

// told has the oracle look at a record of a durable job; claims of ids are none.
func (k jobRecords) told(key string, value []byte, err error) {
	if err == nil && strings.HasPrefix(key, "job.") {
		k.w.oracle.recorded(value)
	}
}

// guarded is the folder of a storage as one of its processes sees it: a process that was killed writes no more.
type guarded struct {
	buckets.Store
	gated
	at *sync.Mutex // held while the store is written
}

func (s guarded) guard(write func() error) error {
	if s.who.isDead() {
		return errDead
	}
	s.at.Lock()
	defer s.at.Unlock()
	return write()
}

func (s guarded) Apply(w *buckets.Writes) error {
	return s.guard(func() error { return s.Store.Apply(w) })
}

func (s guarded) Load(b buckets.ID) error { return s.guard(func() error { return s.Store.Load(b) }) }

func (s guarded) Join(bs []buckets.ID) error {
	return s.guard(func() error { return s.Store.Join(bs) })
}

func (s guarded) Leave(bs []buckets.ID) error {
	return s.guard(func() error {
		s.w.oracle.leaving(s.who, bs)
		return s.Store.Leave(bs)
	})
}
func (s guarded) Reset() error { return s.guard(s.Store.Reset) }
func (s guarded) Ingest(b buckets.ID, paths []string) error {
	return s.guard(func() error { return s.Store.Ingest(b, paths) })
}

// catalogue knows one module, words, which needs no bytes.
type catalogue struct{}

var _ node.Catalogue = catalogue{}

func (catalogue) Resolve(context.Context, string) (api.Module, error) {
	return api.Module{Name: "words", Digest: "w", Functions: []string{"map"}}, nil
}

func (catalogue) Check(context.Context, string) error          { return nil }
func (catalogue) Load(context.Context, string) ([]byte, error) { return nil, nil }

// mapper counts words. Each bucket waits in the pool, and then for as long as the seed says.
type mapper struct{ gated }

var _ node.Mapper = mapper{}

func (m mapper) Prepare(_ context.Context, task node.Task) (node.Program, error) {
	m.w.guests(m.who, 1)
	return program{m, task}, nil
}

type program struct {
	mapper
	task node.Task
}

func (p program) Open(_ context.Context, yield func(context.Context) error) (node.Guest, error) {
	p.w.guests(p.who, 1)
	return guest{p, yield}, nil
}

func (p program) Close() { p.w.guests(p.who, -1) }

type guest struct {
	program
	yield func(context.Context) error
}

func (g guest) Map(ctx context.Context, b buckets.ID, in node.Source, out node.Sink) (node.Figures, error) {
	g.w.mapping(g.who, g.task.Job, 1)
	defer g.w.mapping(g.who, g.task.Job, -1)
	v, err := g.w.pool.wait(ctx, g.who, opGuest, fmt.Sprintf("%s bucket %d", g.task.Job, b))
	if err == nil {
		err = g.work(ctx, v)
	}
	switch {
	case ctx.Err() != nil:
		return node.Figures{}, ctx.Err()
	case err != nil:
		return node.Figures{}, err
	}
	return node.Figures{}, countWords(ctx, in, out, g.yield)
}

// work takes its time. A guest that is stopped is not dead at once.
func (g guest) work(ctx context.Context, v verdict) error {
	if v.work == 0 && !v.hang {
		return nil
	}
	var done <-chan time.Time
	if !v.hang {
		timer := time.NewTimer(v.work)
		defer timer.Stop()
		done = timer.C
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		time.Sleep(v.dying)
		return ctx.Err()
	}
}

func (g guest) Group(context.Context, string, node.Source, node.Sink) (node.Figures, error) {
	return node.Figures{}, nil
}

// countWords emits a one for each word of each value.
func countWords(ctx context.Context, in node.Source, out node.Sink, yield func(context.Context) error) error {
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
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
			for _, word := range bytes.Fields(f.Value) {
				if err := out.Emit(buckets.FlagInt, word, one); err != nil {
					return err
				}
			}
			batch = rest
		}
		if err := yield(ctx); err != nil {
			return err
		}
	}
}
