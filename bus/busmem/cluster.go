package busmem

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// Config describes a cluster in memory.
type Config struct {
	Name       string // default bus.DefaultCluster
	MaxPayload int    // default bus.DefaultMaxPayload
}

// Cluster is a NATS server in memory.
type Cluster struct {
	name       string
	maxPayload int

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change of anything below
	faults  Faults
	cut     map[string]bool
	peers   []*Bus
	subs    []*subscription
	turn    map[string]int // of queue groups, round robin
	log     *logData
	kvs     map[string]*kvData
	objects map[string]map[string][]byte
	queues  map[string]*queueData
}

// Faults are hooks that tests set; a nil hook does no harm. They are called without locks, from many
// goroutines.
type Faults struct {
	Request func(Call) Fault // a request or a one-way message, before it is delivered
	Reply   func(Call) Fault // a reply on its way back; From is the peer that answers
	Append  func(peer, subject string) AppendFault

	// State may answer with an older extent of the log than the true one, as a server does that is cut off
	// from its cluster. Entries behind the answered end are not found then, and ReadTo ends there.
	State func(peer string, now api.LogState) api.LogState
}

// Call is a message that may be interfered with.
type Call struct {
	From    string // peer
	Subject string // of the request
	Body    []byte
	Asked   []byte   // of a reply: the request's body
	Code    api.Code // of a reply that is an error
	Tag     string   // of a reply: what the fault of its request said
}

// Fault is what happens to a message.
type Fault struct {
	Drop      bool
	Delay     time.Duration
	Duplicate bool   // the second one comes a microsecond later if there is a delay
	Tag       string // names a request to its handler, see TagOf, and to the hook of its reply
}

type tagKey struct{}

// TagOf is the Tag of the request that a handler's context belongs to.
func TagOf(ctx context.Context) string {
	tag, _ := ctx.Value(tagKey{}).(string)
	return tag
}

// AppendFault is what happens to an append to the log.
type AppendFault struct {
	Err   error         // refused with this error; nothing is stored
	Doubt bool          // stored, but the answer is IN_DOUBT
	Lost  bool          // not stored, and the answer is IN_DOUBT
	Delay time.Duration // before anything else
}

// New makes an empty cluster: without a log.
func New(cfg Config) *Cluster {
	return &Cluster{
		name:       cmp.Or(cfg.Name, bus.DefaultCluster),
		maxPayload: cmp.Or(cfg.MaxPayload, bus.DefaultMaxPayload),
		changed:    make(chan struct{}),
		cut:        map[string]bool{},
		turn:       map[string]int{},
		kvs:        map[string]*kvData{},
		objects:    map[string]map[string][]byte{},
		queues:     map[string]*queueData{},
	}
}

// SetFaults replaces the hooks.
func (c *Cluster) SetFaults(f Faults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = f
}

func (c *Cluster) currentFaults() Faults {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faults
}

// Cut takes a peer off the network: what it sends and what is sent to it is lost, its writes end in
// doubt, its reads wait.
func (c *Cluster) Cut(peer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[peer] = true
	c.touch()
}

// Heal ends Cut and tells the peer that it is connected again.
func (c *Cluster) Heal(peer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cut, peer)
	c.touch()
	for _, b := range c.peers {
		if b.peer == peer {
			for _, fn := range b.listeners {
				go fn()
			}
		}
	}
}

// LoseTail drops the last n entries of the log, as a server does that is restored from an older disk. New
// entries get the same positions again. Heal tells the peers that they are connected again.
func (c *Cluster) LoseTail(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log.loseTail(n)
	c.touch()
}

// touch wakes all who wait for a change. The lock is held.
func (c *Cluster) touch() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// waitUntil blocks until ready, called with the lock held, returns true, and returns with the lock held;
// or it returns ctx's error without the lock. ready may name a time at which to look again.
func (c *Cluster) waitUntil(ctx context.Context, ready func() (ok bool, again time.Time)) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.mu.Lock()
		ok, again := ready()
		if ok {
			return nil
		}
		changed := c.changed
		c.mu.Unlock()
		if err := sleep(ctx, changed, again); err != nil {
			return err
		}
	}
}

// sleep waits for a change, for a time if it is not zero, or for ctx.
func sleep(ctx context.Context, changed <-chan struct{}, until time.Time) error {
	var due <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-changed:
	case <-due:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// patience is how long a peer that is cut off tries to reach the server.
const (
	writePatience = 15 * time.Second
	readPatience  = 5 * time.Second
)

// reach takes the lock once the peer is connected. write says which error the end of patience is.
func (b *Bus) reach(ctx context.Context, what string, write bool) error {
	patience := readPatience
	if write {
		patience = writePatience
	}
	if ctx.Err() != nil {
		return coded(ctx, what)
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := b.cluster.waitUntil(limited, func() (bool, time.Time) { return b.closed || !b.cluster.cut[b.peer], time.Time{} })
	switch {
	case err == nil && b.closed:
		b.cluster.mu.Unlock()
		return api.Errorf(api.CodeUnavailable, "%s: the connection was closed", what)
	case err == nil:
		return nil
	case write:
		return inDoubt(what)
	case ctx.Err() != nil:
		return coded(ctx, what)
	default:
		return api.Errorf(api.CodeUnavailable, "%s: no connection", what)
	}
}

func inDoubt(what string) error {
	return api.Errorf(api.CodeInDoubt, "%s may or may not have been stored", what)
}

// coded is a context's end as an error with a code.
func coded(ctx context.Context, what string) error {
	if ctx.Err() == context.Canceled {
		return api.Errorf(api.CodeCanceled, "%s was cancelled", what)
	}
	return api.Errorf(api.CodeTimeout, "%s: no answer within the time allowed", what)
}

// matches reports whether a subject falls under a pattern with the wildcards * and >.
func matches(pattern, subject string) bool {
	for {
		p, restOfPattern, moreOfPattern := strings.Cut(pattern, ".")
		s, restOfSubject, moreOfSubject := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return true
		case p != "*" && p != s || moreOfPattern != moreOfSubject:
			return false
		case !moreOfPattern:
			return true
		}
		pattern, subject = restOfPattern, restOfSubject
	}
}

// matchesAny is matches for filters, of which none is all.
func matchesAny(patterns []string, subject string) bool {
	for _, p := range patterns {
		if matches(p, subject) {
			return true
		}
	}
	return len(patterns) == 0
}
