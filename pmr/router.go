package pmr

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// RouterConfig is what a router needs to know of a job to drive it.
type RouterConfig struct {
	Job      string
	Space    string        // for messages
	Wanted   []buckets.ID  // ascending; nil is all
	Snapshot bool          // buckets may move during the map
	First    int           // number of the last attempt that another router may have made; this one counts on from it
	Deadline time.Duration // when the job must have ended
	Attempts int           // maps begun at the most, but always one; pins that fail use up none
	PinTTL   time.Duration // a pin ends by itself after this
	Seed     uint64        // of the jitter between attempts
}

// Events of a Router. Attempt says which attempt an answer belongs to; late ones are recognised by it.
type (
	// Started begins the job.
	Started struct{}
	// CutFixed says that the cut is in the log, what the table was there, and whether the job's space has
	// been created by name.
	CutFixed struct {
		Attempt    int
		Cut        uint64
		Owners     *buckets.View
		SpaceKnown bool
	}
	// CutFailed says that no cut could be appended or followed.
	CutFailed struct {
		Attempt int
		Err     *api.Error
	}
	// Pinned is a storage's answer to a pin.
	Pinned struct {
		Attempt int
		Storage string
		Pin     api.PinReply
	}
	// PinFailed is a refused or unanswered pin.
	PinFailed struct {
		Attempt int
		Storage string
		Err     *api.Error
	}
	// MapRefused says that a storage did not accept the map.
	MapRefused struct {
		Attempt int
		Storage string
		Err     *api.Error
	}
	// MapEnded is a storage's word that its map is over, well or not.
	MapEnded struct {
		Storage, PMR string
		Err          *api.Error
	}
	// StorageLost says that a storage that maps has fallen silent.
	StorageLost struct {
		Attempt int
		Storage string
		Err     *api.Error
	}
	// Collected says that the output of all maps was merged and reduced, or why not.
	Collected struct {
		Attempt int
		Err     *api.Error
	}
	// Canceled ends the job.
	Canceled struct{ Err *api.Error }
	// Tick says that time has passed.
	Tick struct{}
)

// Effects of a Router.
type (
	// AppendCut asks for a cut and the table there.
	AppendCut struct{ Attempt int }
	// SendPin asks a storage to pin: what it owns of the wanted buckets, all if Buckets is nil. Age is the
	// position of the job's first cut.
	SendPin struct {
		Attempt  int
		Storage  string
		Buckets  []buckets.ID
		Cut, Age uint64
		TTL      time.Duration
		Snapshot bool
	}
	// SendMap starts the map of a PMR, which has pinned these buckets.
	SendMap struct {
		Attempt      int
		Storage, PMR string
		Buckets      []api.BucketPin
	}
	// SendRelease ends a PMR: what it pinned, maps or keeps is given up.
	SendRelease struct{ Storage, PMR string }
	// Collect asks for the output of all maps of the attempt to be merged and reduced.
	Collect struct{ Attempt int }
	// Finish is the end of the job: Err, or the proof of what was covered.
	Finish struct {
		Err   *api.Error
		Proof *Proof
	}
)

type (
	// Event is any of the events of a machine.
	Event any
	// Effect is any of the effects of a machine.
	Effect any
)

// Phase is how far an attempt is. Phases are ordered by progress.
type Phase int

// The phases of a job.
const (
	Waiting Phase = iota // between attempts
	Cutting
	Pinning
	Mapping
	Collecting
	Finished
)

// String names the phase for messages.
func (p Phase) String() string {
	return [...]string{"waiting", "cut", "pin", "map", "reduce", "finished"}[p]
}

// Router drives one job through its attempts.
type Router struct {
	cfg     RouterConfig
	phase   Phase
	attempt int // number of the present attempt
	mapped  int // attempts that began to map
	tries   int // attempts in a row that failed before mapping
	before  int // what tries was before the present map began
	wake    time.Duration
	last    *api.Error // why the last attempt failed

	age        uint64 // position of the first cut
	cut        uint64
	owners     *buckets.View
	spaceKnown bool
	waitFor    map[string]bool         // storages whose answer or end is awaited
	pins       map[string]api.PinReply // by storage
}

// NewRouter returns the machine of a job that has not started.
func NewRouter(cfg RouterConfig) *Router {
	return &Router{cfg: cfg, attempt: cfg.First}
}

// Phase is how far the present attempt is.
func (r *Router) Phase() Phase { return r.phase }

// Attempt is the number of the present attempt, from First + 1.
func (r *Router) Attempt() int { return r.attempt }

// LastFailure is why the last attempt was given up; nil in the first.
func (r *Router) LastFailure() *api.Error { return r.last }

// Wake is when the next Tick is due.
func (r *Router) Wake() time.Duration {
	if r.phase == Waiting {
		return min(r.wake, r.cfg.Deadline)
	}
	return r.cfg.Deadline
}

// Step tells the machine what happened at a time and returns what is to be done. After Finish it only
// releases what late answers bring.
func (r *Router) Step(now time.Duration, ev Event) []Effect {
	switch ev := ev.(type) {
	case Pinned:
		switch {
		case r.pins[ev.Storage].PMR == ev.Pin.PMR:
			return nil // told twice
		case ev.Attempt != r.attempt || r.phase != Pinning || !r.waitFor[ev.Storage]:
			return []Effect{SendRelease{ev.Storage, ev.Pin.PMR}} // nobody waits for it
		}
		r.pins[ev.Storage] = ev.Pin
		delete(r.waitFor, ev.Storage)
	case Canceled:
		return r.finish(ev.Err)
	}
	if r.phase == Finished {
		return nil
	}
	if now >= r.cfg.Deadline {
		return r.finish(r.timedOut())
	}
	return r.step(now, ev)
}

func (r *Router) step(now time.Duration, ev Event) []Effect {
	switch ev := ev.(type) {
	case Started:
		return r.begin()
	case Tick:
		if r.phase == Waiting && r.attempt > r.cfg.First && now >= r.wake {
			return r.begin()
		}
	case CutFixed:
		if ev.Attempt == r.attempt && r.phase == Cutting {
			return r.pin(now, ev)
		}
	case CutFailed:
		if ev.Attempt == r.attempt && r.phase == Cutting {
			return r.fail(now, ev.Err)
		}
	case Pinned:
		return r.afterPin(now)
	case PinFailed:
		if ev.Attempt == r.attempt && r.phase == Pinning && r.waitFor[ev.Storage] {
			return r.fail(now, ev.Err.With("storage", ev.Storage))
		}
	case MapRefused:
		if ev.Attempt == r.attempt && r.phase == Mapping && r.waitFor[ev.Storage] {
			if ev.Err.Code == api.CodeBusy {
				r.mapped-- // it was not begun there: the storage has no room now
				r.tries = r.before
			}
			return r.fail(now, ev.Err.With("storage", ev.Storage))
		}
	case StorageLost:
		if ev.Attempt == r.attempt && r.phase == Mapping && r.waitFor[ev.Storage] {
			return r.fail(now, ev.Err.With("storage", ev.Storage))
		}
	case MapEnded:
		return r.mapEnded(now, ev)
	case Collected:
		if ev.Attempt == r.attempt && r.phase == Collecting {
			if ev.Err != nil && ev.Err.Code == api.CodeTimeout {
				return r.finish(ev.Err) // the reduce had the rest of the job's time
			}
			if ev.Err != nil {
				return r.fail(now, ev.Err)
			}
			return r.finish(nil)
		}
	}
	return nil
}

func (r *Router) begin() []Effect {
	r.attempt++
	r.phase = Cutting
	r.pins, r.waitFor, r.owners = nil, nil, nil
	return []Effect{AppendCut{r.attempt}}
}

// pin asks every owner at the cut, all at once.
func (r *Router) pin(now time.Duration, ev CutFixed) []Effect {
	r.cut, r.owners, r.spaceKnown = ev.Cut, ev.Owners, ev.SpaceKnown
	if r.age == 0 {
		r.age = ev.Cut
	}
	wanted := r.wanted()
	if free := wanted[""]; len(free) > 0 {
		return r.fail(now, api.Errorf(api.CodeNoOwner, "no storage owns %s", buckets.Ranges(free)).
			WithHint("`engine status` shows which storages are there; buckets are assigned once enough have joined"))
	}
	r.phase = Pinning
	r.pins, r.waitFor = map[string]api.PinReply{}, map[string]bool{}
	var effects []Effect
	for _, storage := range slices.Sorted(maps.Keys(wanted)) {
		r.waitFor[storage] = true
		pin := SendPin{Attempt: r.attempt, Storage: storage, Cut: ev.Cut, Age: r.age, TTL: r.cfg.PinTTL, Snapshot: r.cfg.Snapshot}
		if r.cfg.Wanted != nil {
			pin.Buckets = wanted[storage]
		}
		effects = append(effects, pin)
	}
	return effects
}

// wanted lists the wanted buckets by owner at the cut.
func (r *Router) wanted() map[string][]buckets.ID {
	by := map[string][]buckets.ID{}
	for _, b := range wantedOf(r.owners, r.cfg.Wanted) {
		owner := r.owners.Owner(b).Storage
		by[owner] = append(by[owner], b)
	}
	return by
}

// afterPin sends the maps once all have pinned and the coverage is proven.
func (r *Router) afterPin(now time.Duration) []Effect {
	if len(r.waitFor) > 0 {
		return nil
	}
	if err := prove(r.owners, r.cfg.Wanted, r.pinned()); err != nil {
		return r.fail(now, err)
	}
	if !r.spaceKnown && !slices.ContainsFunc(slices.Collect(maps.Values(r.pins)), func(p api.PinReply) bool { return p.HasSpace }) {
		return r.finish(UnknownSpace(r.cfg.Space))
	}
	r.phase = Mapping
	r.mapped++
	r.before, r.tries = r.tries, 0
	var effects []Effect
	for _, storage := range slices.Sorted(maps.Keys(r.pins)) {
		r.waitFor[storage] = true
		effects = append(effects, SendMap{Attempt: r.attempt, Storage: storage, PMR: r.pins[storage].PMR, Buckets: r.pins[storage].Buckets})
	}
	return effects
}

func (r *Router) mapEnded(now time.Duration, ev MapEnded) []Effect {
	if r.phase != Mapping || r.pins[ev.Storage].PMR != ev.PMR || !r.waitFor[ev.Storage] {
		return nil // of an attempt that was given up, or told twice
	}
	if ev.Err != nil {
		err := ev.Err.With("storage", ev.Storage)
		if err.Code == api.CodeTimeout {
			return r.finish(err) // the guest had the job's whole time
		}
		return r.fail(now, err)
	}
	delete(r.waitFor, ev.Storage)
	if len(r.waitFor) > 0 {
		return nil
	}
	r.phase = Collecting
	return []Effect{Collect{r.attempt}}
}

// fail gives the attempt up. Nothing of it is used. Another one begins after a pause if that can help.
func (r *Router) fail(now time.Duration, err *api.Error) []Effect {
	if !Retryable(err.Code) {
		return r.finish(err)
	}
	if r.phase >= Mapping && r.mapped >= r.cfg.Attempts {
		r.last = err
		return r.finish(r.givenUp())
	}
	effects := r.releaseAll()
	r.last = err
	r.phase = Waiting
	r.wake = now + r.pause(err.Code)
	r.tries++
	return effects
}

// pause grows from 10 ms to 640 ms, with jitter of half of it, so that rivals do not meet again. Where a
// storage was busy it grows to 80 ms: the storage may already keep others waiting for this job.
func (r *Router) pause(why api.Code) time.Duration {
	most := 6
	if why == api.CodeBusy {
		most = 3
	}
	full := 10 * time.Millisecond << min(r.tries, most)
	jitter := rand.New(rand.NewPCG(r.cfg.Seed, uint64(r.attempt)))
	return full/2 + time.Duration(jitter.Int64N(int64(full)))
}

func (r *Router) finish(err *api.Error) []Effect {
	if r.phase == Finished {
		return nil
	}
	end := Finish{Err: err}
	if err == nil {
		end.Proof = r.proof()
	}
	r.phase = Finished
	return append([]Effect{end}, r.releaseAll()...)
}

func (r *Router) releaseAll() []Effect {
	var effects []Effect
	for _, storage := range slices.Sorted(maps.Keys(r.pins)) {
		effects = append(effects, SendRelease{storage, r.pins[storage].PMR})
	}
	r.pins = nil
	return effects
}

// UnknownSpace is how a job over a space ends that nobody has created.
func UnknownSpace(space string) *api.Error {
	return api.Errorf(api.CodeUnknownSpace, "there is no space %q", space).
		WithHint("`submit spaces` lists them; `submit import --space %s FILE` makes one", space)
}

func (r *Router) timedOut() *api.Error {
	where := fmt.Sprintf("in phase %s of attempt %d", r.phase, r.attempt)
	if waiting := slices.Sorted(maps.Keys(r.waitFor)); r.phase > Cutting && len(waiting) > 0 {
		where += fmt.Sprintf(", waiting for %v", waiting)
	}
	return r.withLast(api.Errorf(api.CodeTimeout, "the job's time was over %s", where).
		WithHint("a longer time: --timeout"))
}

func (r *Router) givenUp() *api.Error {
	return r.withLast(api.Errorf(r.last.Code, "given up after %d maps", r.mapped))
}

func (r *Router) withLast(e *api.Error) *api.Error {
	if r.last == nil {
		return e
	}
	e.Message += fmt.Sprintf("; the last failure: %s", r.last.Message)
	if r.last.Hint != "" {
		e.Hint = r.last.Hint
	}
	for _, k := range slices.Sorted(maps.Keys(r.last.Details)) {
		e = e.With(k, r.last.Details[k])
	}
	return e
}

// Retryable reports whether another attempt may succeed: somebody was busy, late or gone. What a user or
// a guest did wrong stays wrong.
func Retryable(c api.Code) bool {
	switch c {
	case api.CodeBusy, api.CodeNoCut, api.CodePMRExpired, api.CodeNoOwner, api.CodeCoverage, api.CodeLost,
		api.CodeUnavailable, api.CodeTimeout, api.CodeInDoubt:
		return true
	}
	return false
}
