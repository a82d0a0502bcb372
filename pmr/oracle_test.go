package pmr_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// oracle knows the truth about every PMR and holds what the machines want against it. It shares no code
// with them.
type oracle struct {
	c        *cluster
	fail     func(string)
	pmrs     map[string]*truth
	finished bool
	result   pmr.Finish
}

// truth is what really became of a PMR.
type truth struct {
	storage, incarnation string
	attempt              int
	cut                  uint64
	expires              time.Duration // of the pin
	buckets              []api.BucketPin
	started, over, ended bool
	failed, released     bool
}

func (o *oracle) failf(format string, args ...any) {
	o.fail(fmt.Sprintf("at %v: "+format, append([]any{o.c.now}, args...)...))
}

func (o *oracle) created(e pmr.SendPin, reply api.PinReply) {
	o.pmrs[reply.PMR] = &truth{
		storage: e.Storage, incarnation: reply.Incarnation, attempt: e.Attempt, cut: e.Cut,
		expires: o.c.now + e.TTL, buckets: reply.Buckets,
	}
}

// refused: a pin that was not granted is none.
func (o *oracle) refused(id string) { delete(o.pmrs, id) }

// started: a map begins once at most, and only on a PMR that exists.
func (o *oracle) started(id string) {
	p := o.pmrs[id]
	switch {
	case p == nil:
		o.failf("StartMap of %s, which nobody minted", id)
	case p.started:
		o.failf("StartMap of %s twice", id)
	case p.ended:
		o.failf("StartMap of %s, which is gone", id)
	case o.c.now >= p.expires:
		o.failf("StartMap of %s, whose pin ended at %v", id, p.expires)
	default:
		p.started = true
	}
}

func (o *oracle) over(id string, err *api.Error) {
	o.pmrs[id].over = true
	o.pmrs[id].failed = err != nil
}

// dropped: a PMR whose guests run keeps its snapshot.
func (o *oracle) dropped(id string) {
	p := o.pmrs[id]
	switch {
	case p == nil || p.ended:
		o.failf("Drop of %s, which is not there", id)
	case p.started && !p.over:
		o.failf("Drop of %s while its guests run", id)
	default:
		p.ended = true
	}
}

func (o *oracle) killed(id string) *truth {
	o.pmrs[id].ended = true
	return o.pmrs[id]
}

// routerWants checks what the router is about to do.
func (o *oracle) routerWants(effects []pmr.Effect) {
	var mapped, released []string
	for _, e := range effects {
		if o.finished {
			if _, ok := e.(pmr.SendRelease); !ok {
				o.failf("%s after Finish", showEffect(e))
			}
		}
		switch e := e.(type) {
		case pmr.SendRelease:
			released = append(released, e.PMR)
		case pmr.SendMap:
			mapped = append(mapped, e.PMR)
		case pmr.Finish:
			o.finish(e)
		}
	}
	if mapped != nil {
		o.covers(mapped)
	}
	for _, id := range released {
		o.pmrs[id].released = true
	}
}

// covers is the first half of invariant A: what is mapped is every bucket exactly once, at one cut, in one
// attempt, each under the generation that the log gives there.
func (o *oracle) covers(ids []string) {
	first := o.pmrs[ids[0]]
	owners := o.c.cuts[first.cut]
	used := make([]int, owners.Len())
	for _, id := range ids {
		p := o.pmrs[id]
		if p.released {
			o.failf("%s is used, though the router had given it up", id)
		}
		if p.attempt != first.attempt || p.cut != first.cut {
			o.failf("%s is of attempt %d at cut %d, %s of attempt %d at cut %d", ids[0], first.attempt, first.cut, id, p.attempt, p.cut)
		}
		for _, pin := range p.buckets {
			if int(pin.Bucket) >= len(used) {
				o.failf("%s maps bucket %d, which does not exist", id, pin.Bucket)
				continue
			}
			used[pin.Bucket]++
			if owner := owners.Owner(buckets.ID(pin.Bucket)); owner.Storage != p.storage || owner.Generation != pin.Generation {
				o.failf("%s maps bucket %d of generation %d; at cut %d it is %s's since %d",
					id, pin.Bucket, pin.Generation, p.cut, owner.Storage, owner.Generation)
			}
		}
	}
	for b, n := range used {
		want := 1
		if o.c.cfg.Wanted != nil && !slices.Contains(o.c.cfg.Wanted, buckets.ID(b)) {
			want = 0
		}
		if n != want {
			o.failf("maps of attempt %d use bucket %d %d times, and not %d", first.attempt, b, n, want)
		}
	}
}

// finish is the second half: a job that is done names exactly such PMRs, and the maps of all of them ran to
// their end. And a job ends once, within its time.
func (o *oracle) finish(f pmr.Finish) {
	o.finished, o.result = true, f
	if o.c.now > o.c.cfg.Deadline {
		o.failf("Finish after the deadline, %v", o.c.cfg.Deadline)
	}
	if (f.Err == nil) == (f.Proof == nil) {
		o.failf("Finish with error %v and proof %v", f.Err, f.Proof)
		return
	}
	if f.Proof == nil {
		return
	}
	var ids []string
	for _, pinned := range f.Proof.Pinned {
		ids = append(ids, pinned.PMR)
		p := o.pmrs[pinned.PMR]
		if p == nil || p.storage != pinned.Storage || p.incarnation != pinned.Incarnation || fmt.Sprint(p.buckets) != fmt.Sprint(pinned.Buckets) {
			o.failf("the proof says %+v, the truth is %+v", pinned, p)
			return
		}
		if !p.started || !p.over || p.failed {
			o.failf("the result uses %s, whose map did not run to its end: %+v", pinned.PMR, p)
		}
		if p.cut != f.Proof.Cut || p.attempt != f.Proof.Attempts {
			o.failf("the proof is of attempt %d at cut %d, %s of %d at %d", f.Proof.Attempts, f.Proof.Cut, pinned.PMR, p.attempt, p.cut)
		}
	}
	if ids == nil {
		o.failf("a proof without PMRs")
		return
	}
	o.covers(ids)
}
