package store

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"

	"github.com/pinion-mr/pinion/buckets"
)

// state is all that a store says after a crash: what is joined, at which position.
type state struct {
	seq     uint64
	table   string
	records map[string]string // by bucket, space and key, for joined buckets
	joined  map[buckets.ID]bool
}

func emptyState() state {
	return state{records: map[string]string{}, joined: map[buckets.ID]bool{}}
}

func (s state) clone() state {
	s.records, s.joined = maps.Clone(s.records), maps.Clone(s.joined)
	return s
}

func (s state) without(b buckets.ID) state {
	s = s.clone()
	delete(s.joined, b)
	maps.DeleteFunc(s.records, func(key, _ string) bool { return strings.HasPrefix(key, fmt.Sprintf("%d/", b)) })
	return s
}

func (s state) String() string {
	return fmt.Sprintf("seq %d table %q joined %v records %v", s.seq, s.table, s.joined, s.records)
}

func same(a, b state) bool {
	return a.seq == b.seq && a.table == b.table && maps.Equal(a.joined, b.joined) && maps.Equal(a.records, b.records)
}

// observe reads the state of a store. Values are cut: their first 8 bytes are all that tells them apart.
func observe(t tb, st buckets.Store) state {
	s := state{
		seq: st.Position().Seq, table: string(st.Table()),
		records: map[string]string{}, joined: map[buckets.ID]bool{},
	}
	snap := snapshot(t, st)
	for b := range buckets.ID(crashBuckets) {
		for _, r := range read(t, snap, b) {
			key, value, _ := strings.Cut(r, "=")
			s.records[fmt.Sprintf("%d/%s", b, key)] = value[:8]
		}
	}
	ok(t, snap.Close())
	for _, b := range st.Joined() {
		s.joined[b] = true
	}
	return s
}

const crashBuckets = 4

// crashes copies a file system, as a crash might leave it, in the middle of some of its operations.
type crashes struct {
	mem *vfs.MemFS

	mu     sync.Mutex
	rng    *rand.Rand
	armed  bool
	synced int // states before this one cannot come back
	last   int // states after this one cannot be there yet
	copies []crashCopy
}

type crashCopy struct {
	fs           *vfs.MemFS
	synced, last int
}

// MaybeError implements errorfs.Injector; it injects none.
func (c *crashes) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.armed && c.rng.IntN(25) == 0 {
			c.crash()
		}
	}
	return nil
}

func (c *crashes) String() string { return "crashes" }

// arm is called when the store has been made. Before, Pebble relies on what this file system does not do
// and real ones do: names of files appear on disk in the order in which the files were made.
func (c *crashes) arm() {
	c.mu.Lock()
	c.armed = true
	c.mu.Unlock()
}

// crash keeps a copy. c.mu is held.
func (c *crashes) crash() {
	cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[c.rng.IntN(3)], RNG: c.rng}
	c.copies = append(c.copies, crashCopy{c.mem.CrashClone(cfg), c.synced, c.last})
}

// begin is called before the operation that leads to state number n, end after it.
func (c *crashes) begin(n int) {
	c.mu.Lock()
	c.last = n
	c.mu.Unlock()
}

func (c *crashes) end(n int, synced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if synced {
		c.synced = n
	}
	c.crash()
}

// crashRun drives a store on a file system that crashes, and the model: the states that it went through.
type crashRun struct {
	t       *rapid.T
	st      *Pebble
	fs      *crashes
	history []state
	loading map[buckets.ID]map[string]string
	seq     uint64
	value   int
	snaps   []buckets.Snapshot
	exports int
}

func (r *crashRun) now() state { return r.history[len(r.history)-1] }

// step runs an operation that leads to state next.
func (r *crashRun) step(next state, synced bool, op func() error) {
	r.history = append(r.history, next)
	n := len(r.history) - 1
	r.fs.begin(n)
	if err := op(); err != nil {
		r.t.Fatal(err)
	}
	r.fs.end(n, synced)
}

func (r *crashRun) bucket() buckets.ID {
	return buckets.ID(rapid.IntRange(0, crashBuckets-1).Draw(r.t, "bucket"))
}

// draw returns a record for a bucket. Some values are long, to make the store flush by itself now and then;
// with the longest, Pebble flushes a batch alone.
func (r *crashRun) draw() (key, value string) {
	r.value++
	size := rapid.SampledFrom([]int{0, 100, 9000, 40_000}).Draw(r.t, "size")
	return fmt.Sprintf("k%d", rapid.IntRange(0, 9).Draw(r.t, "key")), fmt.Sprintf("%08d%s", r.value, bytes.Repeat([]byte("x"), size))
}

func (r *crashRun) apply() {
	r.seq++
	next := r.now().clone()
	next.seq = r.seq
	w := buckets.Writes{Position: buckets.Position{Seq: r.seq}}
	for range rapid.IntRange(0, 5).Draw(r.t, "records") {
		b := r.bucket()
		if !next.joined[b] {
			continue
		}
		key, value := r.draw()
		id := fmt.Sprintf("%d/default/%s", b, key)
		if rapid.IntRange(0, 4).Draw(r.t, "delete") == 0 {
			w.Delete(b, "default", []byte(key))
			delete(next.records, id)
		} else {
			w.Put(b, "default", []byte(key), []byte(value))
			next.records[id] = value[:8]
		}
	}
	if rapid.IntRange(0, 3).Draw(r.t, "table") == 0 {
		next.table = fmt.Sprint("table ", r.seq)
		w.Table = []byte(next.table)
	}
	r.step(next, false, func() error { return r.st.Apply(&w) })
}

func (r *crashRun) load() {
	b := r.bucket()
	known := r.now().joined[b]
	r.step(r.now().without(b), known, func() error { return r.st.Load(b) })
	r.loading[b] = map[string]string{}
}

func (r *crashRun) applyLoading() {
	var w buckets.Writes
	for _, b := range slices.Sorted(maps.Keys(r.loading)) {
		key, value := r.draw()
		w.Put(b, "default", []byte(key), []byte(value))
		r.loading[b][fmt.Sprintf("%d/default/%s", b, key)] = value[:8]
	}
	r.step(r.now(), false, func() error { return r.st.Apply(&w) })
}

// ingest loads a bucket with tables of its own records, exported before.
func (r *crashRun) ingest() {
	b := r.bucket()
	snap := snapshot(r.t, r.st)
	r.exports++
	paths, err := snap.Export(b, fmt.Sprintf("export-%d", r.exports), 20_000)
	ok(r.t, err)
	ok(r.t, snap.Close())
	records := map[string]string{}
	for _, known := range []map[string]string{r.now().records, r.loading[b]} {
		for id, value := range known {
			if strings.HasPrefix(id, fmt.Sprintf("%d/", b)) {
				records[id] = value
			}
		}
	}
	r.step(r.now().without(b), r.now().joined[b], func() error { return r.st.Load(b) })
	r.loading[b] = records
	r.step(r.now(), false, func() error { return r.st.Ingest(b, paths) })
}

func (r *crashRun) join() {
	bs := slices.Sorted(maps.Keys(r.loading))
	next := r.now().clone()
	for _, b := range bs {
		next.joined[b] = true
		maps.Copy(next.records, r.loading[b])
	}
	r.step(next, len(bs) > 0, func() error { return r.st.Join(bs) })
	clear(r.loading)
}

func (r *crashRun) leave() {
	a, b := r.bucket(), r.bucket()
	known := r.now().joined[a] || r.now().joined[b]
	r.step(r.now().without(a).without(b), known, func() error { return r.st.Leave([]buckets.ID{a, b}) })
	delete(r.loading, a)
	delete(r.loading, b)
}

func (r *crashRun) reset() {
	r.step(emptyState(), true, r.st.Reset)
	clear(r.loading)
}

func (r *crashRun) flush() { r.step(r.now(), true, r.st.Flush) }

func (r *crashRun) toggleSnapshot() {
	if len(r.snaps) < 2 {
		r.snaps = append(r.snaps, snapshot(r.t, r.st))
		return
	}
	r.closeSnapshots()
}

func (r *crashRun) closeSnapshots() {
	for _, s := range r.snaps {
		ok(r.t, s.Close())
	}
	r.snaps = nil
}

// check opens what each crash left: it must be a state between the last synced one and the present one.
func (r *crashRun) check() {
	for i, c := range r.fs.copies {
		st := openPebble(r.t, "db", Options{Memtable: 64 << 10, fs: c.fs})
		got := observe(r.t, st)
		if err := st.Close(); err != nil {
			r.t.Fatal(err)
		}
		if !slices.ContainsFunc(r.history[c.synced:c.last+1], func(s state) bool { return same(s, got) }) {
			var states strings.Builder
			for n := c.synced; n <= c.last; n++ {
				fmt.Fprintf(&states, "\n%d: %v", n, r.history[n])
			}
			r.t.Fatalf("crash %d left\n%v\nwhich is none of the states %d to %d:%s", i, got, c.synced, c.last, &states)
		}
	}
	r.fs.copies = nil
}

// TestCrash lets a store crash at random places of random operations.
func TestCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		mem := vfs.NewCrashableMem()
		fsys := &crashes{mem: mem, rng: rand.New(rand.NewPCG(seed, 0))}
		r := &crashRun{
			t: t, fs: fsys, loading: map[buckets.ID]map[string]string{},
			st:      openPebble(t, "db", Options{Memtable: 64 << 10, fs: errorfs.Wrap(mem, fsys)}),
			history: []state{emptyState()},
		}
		fsys.arm()
		ops := []func(){
			r.apply, r.apply, r.apply, r.apply, r.apply, r.apply, r.load, r.applyLoading, r.applyLoading, r.ingest,
			r.join, r.join, r.join, r.leave, r.reset, r.flush, r.toggleSnapshot,
		}
		for range rapid.IntRange(1, 30).Draw(t, "operations") {
			ops[rapid.IntRange(0, len(ops)-1).Draw(t, "operation")]()
		}
		r.closeSnapshots()
		if got, want := observe(t, r.st), r.now(); len(r.loading) == 0 && !same(got, want) {
			t.Fatalf("without a crash it is\n%v\nnot\n%v", got, want)
		}
		ok(t, r.st.Close())
		r.check()
	})
}

// TestCrashOfCopiedFolder copies the folder of an open store, as it is on a real disk.
func TestCrashOfCopiedFolder(t *testing.T) {
	dir, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	st := openPebble(t, dir, Options{})
	join(t, st, 1)
	put(t, st, 1, 1, "default/a=1")
	ok(t, st.Flush())
	put(t, st, 2, 1, "default/b=1")
	done, err := vfs.Clone(vfs.Default, vfs.Default, dir, copied)
	ok(t, err)
	equal(t, "copied", done, true)
	ok(t, st.Close())
	st = openPebble(t, copied, Options{})
	equal(t, "position", st.Position().Seq, 1)
	equal(t, "records", now(t, st, 1), []string{"default/a=1"})
	ok(t, st.Close())
}
