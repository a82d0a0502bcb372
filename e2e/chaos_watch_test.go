//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus"
)

const (
	watchEvery = time.Second
	// lapse is how long after its end or beginning somebody may be told to be there, or not to be: the member entry
	// lasts 12 s, and a process that has just begun has to load.
	lapse = 40 * time.Second
)

// claim is that a storage owns a bucket since a position of the log.
type claim struct {
	bucket     uint16
	generation uint64
}

// watch asks the cluster each second how it is, and compares with the log.
type watch struct {
	x         *chaos
	second    *process // router
	log       *bus.Log
	table     *buckets.Table
	owners    map[claim]string // by the log
	told      map[claim]string // by the cluster
	who       map[claim]string // told it first
	now       []buckets.Owner  // by the log, at the last look
	polls     int
	silent    int            // polls that nobody answered
	takeovers int            // buckets that got another owner while theirs was away
	states    map[string]int // of buckets, as told

	mu   sync.Mutex
	down map[string]time.Time // when a process was killed or came back last
	away map[string]bool
}

func newWatch(x *chaos, second *process) *watch {
	x.t.Helper()
	log, err := x.bus.Log(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	w := &watch{
		x: x, second: second, log: log, table: buckets.NewTable(chaosBuckets), owners: map[claim]string{}, told: map[claim]string{},
		who: map[claim]string{}, states: map[string]int{}, down: map[string]time.Time{}, away: map[string]bool{},
	}
	if err := w.read(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
	return w
}

// downed notes that a process is about to be killed, or is back.
func (w *watch) downed(name string, away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[name], w.away[name] = time.Now(), away
}

func (w *watch) isAway(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.away[name]
}

// disturbed reports whether a process, or the server, is away or was so a moment ago.
func (w *watch) disturbed(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range []string{name, w.x.nats.name} {
		if at, ok := w.down[n]; ok && (w.away[n] || time.Since(at) < lapse) {
			return true
		}
	}
	return false
}

// follow polls until the load is to end.
func (w *watch) follow() error {
	for w.x.pause(watchEvery) {
		w.polls++
		ctx, cancel := context.WithTimeout(w.x.t.Context(), 10*time.Second)
		err := w.poll(ctx, w.polls%5 == 0)
		cancel()
		if err != nil && !passing(err) {
			return fmt.Errorf("watch: %w", err)
		}
		if err != nil {
			w.silent++
		}
	}
	return nil
}

// poll asks routers and storages who owns what, and reads the log.
func (w *watch) poll(ctx context.Context, byProgram bool) error {
	if err := w.read(ctx); err != nil {
		return err
	}
	before := slices.Clone(w.now)
	list, st, err := w.ask(ctx, byProgram)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range list {
		errs = append(errs, w.look(b, before[b.Bucket]))
	}
	if len(list) != chaosBuckets {
		errs = append(errs, fmt.Errorf("%d buckets are told, there are %d", len(list), chaosBuckets))
	}
	if len(st.Unowned) > 0 {
		errs = append(errs, fmt.Errorf("status says that nobody owns %v", st.Unowned))
	}
	for _, g := range st.Gone {
		if !w.disturbed(g.Storage) {
			errs = append(errs, fmt.Errorf("status says that %s is gone, which runs", g.Storage))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return w.askStorages(ctx)
}

// ask asks as a program does, or by the programs themselves.
func (w *watch) ask(ctx context.Context, byProgram bool) ([]api.BucketInfo, api.ClusterStatus, error) {
	var reply api.BucketsReply
	var st api.ClusterStatus
	if byProgram {
		return w.askPrograms(ctx)
	}
	err := w.x.bus.Request(ctx, "admin.buckets", api.BucketsRequest{}, &reply)
	if err == nil {
		err = w.x.bus.Request(ctx, "admin.status", api.Empty{}, &st)
	}
	return reply.Buckets, st, err
}

// askPrograms runs engine buckets and engine status, which prints what it knows also if it fails because of that.
func (w *watch) askPrograms(ctx context.Context) (list []api.BucketInfo, st api.ClusterStatus, err error) {
	var reply api.BucketsReply
	for verb, into := range map[string]any{"buckets": &reply, "status": &st} {
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, filepath.Join(programs, "engine"), verb, "--output", "json", "--server", w.x.server)
		cmd.Env, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = environment(), endWithTest(), &stdout, &stderr
		if err := cmd.Run(); stdout.Len() == 0 {
			return nil, st, api.Errorf(api.CodeUnavailable, "engine %s: %v: %s", verb, err, stderr.String())
		}
		if err := json.Unmarshal(stdout.Bytes(), into); err != nil {
			return nil, st, fmt.Errorf("engine %s --output json: %w", verb, err)
		}
	}
	return reply.Buckets, st, nil
}

// look looks at what is told of a bucket, of which the log knew the owner a moment before the question.
func (w *watch) look(b api.BucketInfo, before buckets.Owner) error {
	w.states[b.State]++
	switch b.State {
	case api.BucketOwned, api.BucketLoading, api.BucketReceiving, api.BucketMoving, api.BucketSilent:
	case api.BucketGone:
		if !w.disturbed(b.Owner) {
			return fmt.Errorf("bucket %d is %s, and its owner %s runs", b.Bucket, b.State, b.Owner)
		}
	default:
		return fmt.Errorf("bucket %d is in state %q", b.Bucket, b.State)
	}
	if b.Generation < before.Generation {
		return fmt.Errorf("bucket %d is told to be %s's since %d, and was %s's since %d before", b.Bucket, b.Owner, b.Generation, before.Storage, before.Generation)
	}
	return w.hear("a router", claim{b.Bucket, b.Generation}, b.Owner)
}

// hear notes who is told to be an owner. No two can be so since the same position.
func (w *watch) hear(from string, c claim, owner string) error {
	if other, ok := w.told[c]; ok && other != owner {
		return fmt.Errorf("bucket %d has two owners since %d: %s says %s, %s said %s", c.bucket, c.generation, from, owner, w.who[c], other)
	} else if !ok {
		w.told[c], w.who[c] = owner, from
	}
	return nil
}

// askStorages asks those that answer for their tables.
func (w *watch) askStorages(ctx context.Context) error {
	var all []uint16
	for b := range chaosBuckets {
		all = append(all, uint16(b))
	}
	for _, p := range w.x.storages {
		if w.disturbed(p.name) {
			continue
		}
		var reply api.FiguresReply
		if err := w.x.bus.Request(ctx, "storage."+p.name+".buckets", api.FiguresRequest{Buckets: all}, &reply); err != nil {
			return err
		}
		for _, f := range reply.Buckets {
			if f.Generation == 0 { // it loads its table
				continue
			}
			if err := w.hear(p.name, claim{f.Bucket, f.Generation}, f.Owner); err != nil {
				return err
			}
		}
	}
	return nil
}

// read takes what has come to the log.
func (w *watch) read(ctx context.Context) error {
	state, err := w.log.State(ctx)
	if err != nil {
		return err
	}
	if state.First > w.table.Seq()+1 {
		return fmt.Errorf("the log begins at %d; it was read to %d", state.First, w.table.Seq())
	}
	err = w.log.ReadTo(ctx, w.table.Seq()+1, state.Last, buckets.TableSubjects(), func(e api.LogEntry) error {
		entry, err := buckets.Decode(e, chaosBuckets)
		if err != nil {
			return err
		}
		own, isOwn := entry.(buckets.Own)
		before := w.table.View().Owner(own.Bucket).Storage
		changed, _ := w.table.Apply(e.Seq, entry) // an entry that is void changes nothing
		if isOwn && changed {
			w.owners[claim{uint16(own.Bucket), e.Seq}] = own.Owner
			if w.isAway(before) {
				w.takeovers++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.table.Seen(state.Last)
	w.now = w.now[:0]
	for b := range chaosBuckets {
		w.now = append(w.now, w.table.View().Owner(buckets.ID(b)))
	}
	return nil
}

// report demands that all that was told is what the log says, and logs what was seen.
func (w *watch) report(t *testing.T) {
	t.Helper()
	if err := w.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	for c, owner := range w.told {
		if w.owners[c] != owner {
			t.Errorf("%s said that %s owns bucket %d since %d; the log says %q", w.who[c], owner, c.bucket, c.generation, w.owners[c])
		}
	}
	seen := ""
	for _, state := range slices.Sorted(maps.Keys(w.states)) {
		seen += fmt.Sprintf(" %s %d", state, w.states[state])
	}
	t.Logf("%d polls, %d of them without an answer; %d changes of owners, %d of them takeovers; states seen:%s", w.polls, w.silent, len(w.owners), w.takeovers, seen)
	if w.polls == w.silent {
		t.Error("nobody has said how the cluster is")
	}
}
