package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus/busmem"
)

var errDead = api.Errorf(api.CodeUnavailable, "the process is dead")

// op is something that a goroutine of a process wants to do, and waits for.
type op struct {
	who   *process
	kind  kind
	label string // what it is, without anything random: two runs of a seed give the same

	at    time.Duration // when it came
	step  int           // after which pick
	stack []uintptr     // who asks: tells apart what a node does twice at the same time
	ok    chan verdict
}

type kind string

// The kinds of ops.
const (
	opSend   kind = "send"   // a request or a one-way message, before it leaves
	opAnswer kind = "answer" // a reply, before it leaves
	opAppend kind = "append" // an entry, before it is stored
	opEntry  kind = "entry"  // an entry of the log, before a node sees it
	opLog    kind = "log"    // another question to the log
	opKV     kind = "kv"
	opObject kind = "object"
	opQueue  kind = "queue"
	opGuest  kind = "guest" // a bucket, before it is mapped
	opReturn kind = "return"
	opLook   kind = "look" // at the table of owners as it is
)

// verdict is what becomes of an op.
type verdict struct {
	message busmem.Fault       // of opSend and opAnswer
	append  busmem.AppendFault // of opAppend
	work    time.Duration      // of opGuest: how long the bucket takes; of opLog: how long the reading
	hang    bool               // of opGuest: until its context ends
	dying   time.Duration      // of opGuest: how long it goes on after that
	rest    bool               // of opEntry: what is there follows at once, up to a cut
	view    *buckets.View      // of opLook
	err     error              // instead of the real thing
}

// pool holds the ops that wait.
type pool struct {
	began time.Time
	news  chan struct{} // holds one after something was added

	mu   sync.Mutex
	step int
	ops  []*op
}

func newPool() *pool { return &pool{began: time.Now(), news: make(chan struct{}, 1)} }

func (p *pool) now() time.Duration { return time.Since(p.began) }

// wake has the simulator look again.
func (p *pool) wake() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// wait adds an op and waits until it is picked, ctx ends, or its process dies.
func (p *pool) wait(ctx context.Context, who *process, k kind, label string) (verdict, error) {
	if who.isDead() {
		return verdict{}, errDead
	}
	o := &op{who: who, kind: k, label: label, at: p.now(), stack: callers(), ok: make(chan verdict, 1)}
	if tag := busmem.TagOf(ctx); tag != "" {
		o.label += " for " + tag
	}
	p.mu.Lock()
	o.step = p.step
	p.ops = append(p.ops, o)
	p.mu.Unlock()
	p.wake()
	select {
	case v := <-o.ok:
		return v, v.err
	case <-who.dead:
		p.remove(o)
		return verdict{}, errDead
	case <-ctx.Done():
		p.remove(o)
		code := api.CodeTimeout
		if errors.Is(ctx.Err(), context.Canceled) {
			code = api.CodeCanceled
		}
		return verdict{}, api.Errorf(code, "%s %s: %v", k, label, ctx.Err())
	}
}

func (p *pool) remove(o *op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ops = slices.DeleteFunc(p.ops, func(other *op) bool { return other == o })
}

// waiting lists the ops that pass, in an order that does not depend on how goroutines were scheduled. ties
// counts those that cannot be told apart.
func (p *pool) waiting(pass func(*op) bool) (ops []*op, ties int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.ops {
		if pass(o) {
			ops = append(ops, o)
		}
	}
	slices.SortFunc(ops, compareOps)
	for i := range ops[min(1, len(ops)):] {
		if compareOps(ops[i], ops[i+1]) == 0 {
			ties++
		}
	}
	return ops, ties
}

func callers() []uintptr {
	stack := make([]uintptr, 20)
	return stack[:runtime.Callers(3, stack)]
}

func functions(stack []uintptr) string {
	var b strings.Builder
	for frames := runtime.CallersFrames(stack); ; {
		f, more := frames.Next()
		fmt.Fprintf(&b, "%s:%d ", f.Function, f.Line)
		if !more {
			return b.String()
		}
	}
}

func compareOps(a, b *op) int {
	c := cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.step, b.step), cmp.Compare(a.who.peer, b.who.peer),
		cmp.Compare(a.kind, b.kind), cmp.Compare(a.label, b.label))
	if c != 0 || slices.Equal(a.stack, b.stack) {
		return c
	}
	return cmp.Compare(functions(a.stack), functions(b.stack))
}

// release lets an op go on.
func (p *pool) release(o *op, v verdict) {
	p.mu.Lock()
	p.step++
	p.ops = slices.DeleteFunc(p.ops, func(other *op) bool { return other == o })
	p.mu.Unlock()
	o.ok <- v
}
