package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus/busmem"
	"github.com/pinion-mr/pinion/pmr/node"
)

// process finds a peer; nil for the oracle. Nodes call it.
func (w *world) process(peer string) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peers[peer]
}

// onSend gets the verdict on a message from the port, which has waited already.
func (w *world) onSend(c busmem.Call) (f busmem.Fault) {
	p := w.process(c.From)
	p.mu.Lock()
	defer p.mu.Unlock()
	f, p.message = p.message, busmem.Fault{Drop: true}
	return f
}

// onAnswer waits in the pool: nodes do not see their answers leave.
func (w *world) onAnswer(c busmem.Call) busmem.Fault {
	w.mu.Lock()
	label := w.requests[c.Tag]
	w.mu.Unlock()
	v, err := w.pool.wait(context.Background(), w.process(c.From), opAnswer, fmt.Sprintf("%s to %s %s", label, c.Tag, c.Code))
	if err != nil {
		return busmem.Fault{Drop: true}
	}
	return v.message
}

// onAppend is the same for an entry.
func (w *world) onAppend(peer, _ string) (f busmem.AppendFault) {
	if p := w.process(peer); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		f, p.append = p.append, busmem.AppendFault{}
	}
	return f
}

// String is what a trace says of a verdict.
func (v verdict) String() string {
	var b strings.Builder
	say := func(yes bool, format string, args ...any) {
		if yes {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	say(v.message.Tag != "", "%s", v.message.Tag)
	say(v.message.Drop, "lost")
	say(v.message.Duplicate, "doubled")
	say(v.message.Delay > 0, "after %v", v.message.Delay)
	say(v.append.Doubt, "in doubt")
	say(v.append.Lost, "lost")
	say(v.append.Delay > 0, "after %v", v.append.Delay)
	say(v.work > 0, "takes %v", v.work)
	say(v.hang, "hangs")
	say(v.rest, "and what follows")
	say(v.err != nil, "fails")
	return b.String()
}

// verdict decides what becomes of an op.
func (w *world) verdict(o *op) (v verdict) {
	now := w.pool.now()
	cut := o.who.cutTill > now
	switch o.kind {
	case opSend, opAnswer:
		v.message = w.onTheWay(o)
		if o.kind == opSend {
			v.message.Tag = fmt.Sprint("#", w.picks)
			w.mu.Lock()
			w.requests[v.message.Tag] = o.label
			w.mu.Unlock()
		}
	case opAppend:
		v.append = w.onAppending(cut)
		claims := o.who == w.driver || w.plan.kind != "" && strings.HasPrefix(o.label, "own.")
		if w.faulty && claims && w.rng.IntN(5) == 0 {
			v.append.Delay = w.between(time.Second, 14*time.Second)
			w.did("activation late", true)
			w.crashSource(o)
		}
	case opLog, opKV, opObject, opQueue:
		if cut {
			v.err = api.Errorf(api.CodeUnavailable, "no connection")
		} else if w.faulty && w.rng.Float64() < w.plan.loss/4 {
			v.err = api.Errorf(api.CodeUnavailable, "the server does not answer")
			w.did("server without an answer", true)
		}
		if w.faulty && w.plan.kind != "" && o.kind == opLog && strings.HasPrefix(o.label, "read ") && w.rng.IntN(3) == 0 {
			v.work = w.between(0, 5*time.Second)
			w.did("slow load", true)
		}
	case opEntry:
		v.rest = w.rng.IntN(3) == 0
		if w.faulty && w.rng.Float64() < w.plan.slowness/20 {
			o.who.laggingTill = now + w.between(0, 4*time.Second)
			w.did("lag", true)
		}
	case opGuest:
		v = w.guestFate()
	case opLook:
		v.view = w.oracle.view()
	}
	return v
}

// onTheWay is the fate of a message. What a stopped process sends leaves when it goes on, and what is sent to it
// arrives then.
func (w *world) onTheWay(o *op) (f busmem.Fault) {
	if !w.faulty {
		return f
	}
	r := w.rng.Float64()
	f.Drop = r < w.plan.loss
	f.Duplicate = !f.Drop && r < w.plan.loss+w.plan.doubling
	w.did("message lost", f.Drop)
	w.did("message doubled", f.Duplicate)
	if w.rng.Float64() < w.plan.slowness {
		f.Delay = w.delay()
		w.did("message late", true)
	}
	if f.Duplicate { // not at one time: which one is first would be chance
		f.Delay = max(f.Delay, w.between(1, time.Millisecond))
	}
	wait := o.who.pausedTill
	if m := w.receiver(o); m != nil && m.process != nil {
		wait = max(wait, m.process.pausedTill)
	}
	if wait -= w.pool.now(); wait > 0 {
		f.Delay = wait + w.between(1, time.Millisecond)
	}
	w.underWayTill = max(w.underWayTill, w.pool.now()+f.Delay)
	return f
}

// delay is mostly short, and often about as long as a pin lives.
func (w *world) delay() time.Duration {
	switch r := w.rng.IntN(20); {
	case r < 10:
		return w.between(1, 10*time.Millisecond)
	case r < 13:
		return w.between(1, 200*time.Millisecond)
	case r < 16:
		return w.between(1, time.Second)
	case r < 18:
		return w.between(node.DefaultPinTTL-150*time.Millisecond, node.DefaultPinTTL+50*time.Millisecond)
	default:
		return w.between(time.Second, 6*time.Second)
	}
}

// receiver is the machine that a message goes to, if it is named.
func (w *world) receiver(o *op) *machine {
	_, rest, _ := strings.Cut(o.label, ".")
	id, _, _ := strings.Cut(rest, ".")
	for _, m := range w.machines {
		if m.id == id {
			return m
		}
	}
	return nil
}

func (w *world) onAppending(cut bool) (f busmem.AppendFault) {
	if cut {
		return busmem.AppendFault{Lost: true}
	}
	if !w.faulty {
		return f
	}
	r := w.rng.Float64()
	f.Doubt = r < w.plan.loss/2
	f.Lost = !f.Doubt && r < w.plan.loss
	w.did("entry stored in doubt", f.Doubt)
	w.did("entry lost in doubt", f.Lost)
	if w.rng.Float64() < w.plan.slowness {
		f.Delay = w.between(1, 100*time.Millisecond)
		w.did("entry late", true)
	}
	return f
}

// guestFate is how a bucket's map goes.
func (w *world) guestFate() (v verdict) {
	if !w.faulty {
		return v
	}
	v.dying = w.between(1, 3*time.Second)
	r := w.rng.IntN(1000)
	if w.plan.kind != "" {
		r = min(r, 659) // a job that fails by its guest has no output to compare
	}
	switch {
	case r < 600:
		v.work = w.between(1, 20*time.Millisecond)
	case r < 660:
		v.work = w.between(time.Second, 6*time.Second)
		w.did("slow guest", true)
	case r < 668:
		v.hang = true
		w.did("guest hangs", true)
	case r < 673:
		v.err = api.Errorf(api.CodeGuestFailed, "unreachable")
		w.did("guest fails", true)
	}
	return v
}

// trouble does something to a node, at any step.
func (w *world) trouble() {
	m := w.machines[w.rng.IntN(len(w.machines))]
	if !m.up() {
		return
	}
	if w.plan.kind != "" {
		w.killMover(m)
		return
	}
	p, now := m.process, w.pool.now()
	switch r := w.rng.IntN(12); {
	case r < 3:
		lose := m.store != nil && w.rng.IntN(3) == 0
		w.kill(m, lose)
		w.did("crash", true)
		w.did("crash with the folder lost", lose)
		w.after(w.between(10*time.Millisecond, 12*time.Second), func() { w.start(m) })
	case r < 5:
		p.pausedTill = now + w.between(10*time.Millisecond, 14*time.Second)
		w.tracef("%s is stopped until %v", p.peer, p.pausedTill)
		w.did("pause", true)
	case r < 7:
		d := w.between(10*time.Millisecond, 16*time.Second)
		p.cutTill = now + d
		w.mem.Cut(p.peer)
		w.tracef("%s is cut off until %v", p.peer, p.cutTill)
		w.did("cut off", true)
		w.after(d, func() { w.reconnect(p) })
	case r < 8:
		p.laggingTill = now + w.between(10*time.Millisecond, 8*time.Second)
		w.tracef("%s lags until %v", p.peer, p.laggingTill)
		w.did("lag", true)
	case r < 9:
		w.shutDown(m)
	case m.store != nil:
		p.mu.Lock()
		p.lies = 1 + w.rng.IntN(4)
		w.tracef("%s will tell lie %d", p.peer, p.lies)
		p.mu.Unlock()
		w.did("lie", true)
	}
}

// reconnect ends a time of being cut off.
func (w *world) reconnect(p *process) {
	if p.killed || p.cutTill == 0 {
		return
	}
	p.cutTill = 0
	w.mem.Heal(p.peer)
	w.tracef("%s is connected again", p.peer)
}

// shutDown ends a process as an operator does, and starts another one when it has ended.
func (w *world) shutDown(m *machine) {
	p := m.process
	if p.killed {
		return
	}
	p.killed = true // no more trouble for it
	p.stop()
	w.tracef("%s is told to end", p.peer)
	w.did("shutdown", true)
	var again func()
	again = func() {
		if p.hasEnded() {
			w.start(m)
			return
		}
		w.after(w.between(10*time.Millisecond, 2*time.Second), again)
	}
	again()
}
