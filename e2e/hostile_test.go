//go:build unix

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

const (
	hostileBuckets = 16
	hostileRecords = 64
	atOnce         = 8 // jobs of a wave

	// answerSoon is how long a job may take that needs no time of its own, next to seven like it.
	answerSoon = 20 * time.Second
	// stopSoon is how long after the end of its time a job may still be under way. A test on a busy machine
	// cannot ask for the 200 ms that are measured elsewhere.
	stopSoon = 6 * time.Second
)

// attack is a job of a hostile or odd module and what must come of it.
type attack struct {
	module   string // file in testdata/hostile
	function string // default map
	combine  string
	reduce   string // default sum
	space    string
	timeout  time.Duration // default answerSoon

	code api.Code // of the failure; "" is an answer
	says []string // by the message of the failure
	rows string   // the answer
}

func (a attack) String() string {
	name := a.module
	for _, part := range []string{a.function, a.combine, strings.TrimPrefix(a.reduce, "module:")} {
		if part != "" {
			name += "." + part
		}
	}
	return name
}

func (a attack) job() pinion.Job {
	if a.reduce == "" {
		a.reduce = "sum"
	}
	if a.timeout == 0 {
		a.timeout = answerSoon
	}
	return pinion.Job{Module: a.module, Function: a.function, Combine: a.combine, Reduce: a.reduce, Space: a.space, Timeout: a.timeout}
}

// crowded reports whether an attack was stopped for its time, but before it was seen at work: next to many that
// never end its turn may have come too late, or the storage's account of it.
func (a attack) crowded(err error) bool {
	e := api.AsError(err)
	return a.code == api.CodeTimeout && e.Code == a.code && e.Details["function"] == ""
}

// complaints compares what came of an attack with what must.
func (a attack) complaints(rows []byte, err error, took time.Duration) (list []string) {
	complain := func(format string, args ...any) {
		list = append(list, fmt.Sprintf("%s: "+format, append([]any{a}, args...)...))
	}
	if limit := a.job().Timeout + stopSoon; took > limit {
		complain("it took more than %s", limit)
	}
	e := api.AsError(err)
	switch {
	case a.code == "" && err != nil:
		complain("%v", err)
	case a.code == "" && string(rows) != a.rows:
		complain("%s", difference(rows, []byte(a.rows)))
	case a.code == "":
	case err == nil || e.Code != a.code:
		complain("%d bytes of rows and %s: %v, want %s", len(rows), api.CodeOf(err), err, a.code)
	case len(e.Message) > 2000:
		complain("the message has %d bytes: %.300s", len(e.Message), e.Message)
	default:
		for _, part := range a.says {
			if !strings.Contains(e.Message, part) {
				complain("the message does not say %q: %s", part, e.Message)
			}
		}
		if strings.Contains(fmt.Sprint(e.Message, e.Details), "goroutine ") {
			complain("it shows a stack of ours: %s %v", e.Message, e.Details)
		}
	}
	return list
}

// siege is a cluster under attack.
type siege struct {
	*cluster
	batches int // in the default space: the buckets that hold records
	began   map[string]int64
	again   map[string]attack // that were crowded
}

// startSiege starts a cluster with records in the default space, one record in the space "single", and all
// modules of testdata/hostile in its catalogue.
func startSiege(t *testing.T) *siege {
	s := &siege{cluster: startCluster(t, settings{buckets: hostileBuckets}), again: map[string]attack{}}
	holds := map[buckets.ID]bool{}
	w, err := s.client.NewWriter(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range hostileRecords {
		key := fmt.Appendf(nil, "record %d", i)
		holds[buckets.Of(key, hostileBuckets)] = true
		if err := w.Put(key, []byte("to be or not to be")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s.batches = len(holds)
	if _, err := s.client.Put(t.Context(), "single", []byte("the only one"), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	s.addHostile()
	s.wantCount()
	s.began = s.memory()
	return s
}

// addHostile puts the modules of testdata/hostile into the catalogue, which accepts them: what they do shows
// only when they run.
func (s *siege) addHostile() {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "hostile", "*.wasm"))
	if err != nil || len(files) == 0 {
		s.t.Fatalf("no modules: %v", err)
	}
	for _, path := range files {
		file, err := os.ReadFile(path)
		if err != nil {
			s.t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".wasm")
		began := time.Now()
		if _, err := s.client.AddModule(s.t.Context(), name, "", "", file); err != nil {
			s.t.Errorf("add %s: %v", name, err)
		}
		if took := time.Since(began); took > answerSoon {
			s.t.Errorf("add %s: it took %s", name, took)
		}
	}
}

// wantCount runs the control.
func (s *siege) wantCount() {
	s.t.Helper()
	s.wantRows(pinion.Job{Module: "count", Reduce: "sum", Timeout: answerSoon}, fmt.Appendf(nil, "k\t%d\n", hostileRecords))
}

// warm has the storages compile the modules of attacks one by one, so that the time of these is not spent on it.
func (s *siege) warm(attacks []attack) {
	s.t.Helper()
	known := map[string]bool{}
	for _, a := range attacks {
		if !known[a.module] {
			known[a.module] = true
			_, _ = s.run(s.t.Context(), attack{module: a.module, timeout: time.Second}.job()) // most fail, as they must
		}
	}
	s.wantCount()
}

// wave runs attacks at once, with a control beside them, and a control after them.
func (s *siege) wave(attacks []attack) {
	s.t.Helper()
	var running sync.WaitGroup
	var mu sync.Mutex
	times := map[string]int{} // a complaint was heard
	start := time.Now()
	for _, a := range append(slices.Clone(attacks), attack{module: "count", rows: fmt.Sprintf("k\t%d\n", hostileRecords)}) {
		running.Go(func() {
			began := time.Now()
			rows, err := s.run(s.t.Context(), a.job())
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			if a.crowded(err) {
				s.again[a.String()] = a
				a.says = nil
			}
			list := a.complaints(rows, err, took)
			for _, c := range list {
				times[c]++
			}
		})
	}
	running.Wait()
	if took := time.Since(start); took > 4*time.Second {
		s.t.Logf("%s and others: %s", attacks[0], took.Round(100*time.Millisecond))
	}
	for _, c := range slices.Sorted(maps.Keys(times)) {
		s.t.Errorf("%d of a wave: %s", times[c], c)
	}
	s.wantCount()
}

// storm sends each attack eight times at once; twice in a row if there is time.
func (s *siege) storm(attacks []attack) {
	s.t.Helper()
	rounds := 1
	if long() {
		rounds = 2
	}
	for _, a := range attacks {
		for range rounds {
			s.wave(slices.Repeat([]attack{a}, atOnce))
		}
	}
}

// runAgain runs the attacks that were crowded, each for itself.
func (s *siege) runAgain() {
	s.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(s.again)) {
		a := s.again[name]
		began := time.Now()
		rows, err := s.run(s.t.Context(), a.job())
		for _, c := range a.complaints(rows, err, time.Since(began)) {
			s.t.Errorf("alone: %s", c)
		}
	}
	s.wantCount()
}

// memory is the resident memory of each process in bytes, where the system tells; else nothing.
func (s *siege) memory() map[string]int64 {
	now := map[string]int64{}
	for _, p := range append([]*process{s.router}, s.storages...) {
		if n := p.resident("VmRSS"); n > 0 {
			now[p.name] = n
		}
	}
	return now
}

// resident reads a line of the kernel's account of a process, in bytes; 0 if this system keeps none.
func (p *process) resident(line string) int64 {
	account, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(account), line+":")
	var kib int64
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
		return 0
	}
	return kib << 10
}

// Bounds of what an attack may leave behind in a process.
const (
	memoryLeft = 1536 << 20 // more than before; Go gives memory back in minutes, and a leak would be many times that
	logLeft    = 8 << 20    // written to a log in all
)

// wantUnharmed demands that the processes are those that began, hold nothing of the attacks, and said little.
func (s *siege) wantUnharmed() {
	s.t.Helper()
	s.wantIdle(30 * time.Second)
	s.waitHealthy()
	s.waitFor(20*time.Second, "the memory of attacks to be given back", func(context.Context) error {
		now := s.memory()
		for name := range now {
			if now[name] > s.began[name]+memoryLeft {
				return fmt.Errorf("bytes of resident memory are %v, were %v", now, s.began)
			}
		}
		return nil
	})
	for _, p := range append([]*process{s.nats, s.router}, s.storages...) {
		if !p.running() {
			s.t.Errorf("%s has ended", p.name)
		}
		log, err := os.ReadFile(p.log)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(log) > logLeft {
			s.t.Errorf("%s wrote a log of %d bytes", p.name, len(log))
		}
		for _, bad := range []string{"goroutine ", "panic: ", "fatal error: "} {
			if bytes.Contains(log, []byte(bad)) {
				s.t.Errorf("the log of %s says %q", p.name, bad)
			}
		}
		s.t.Logf("%s: %d MiB before, %d MiB after, %d MiB at the most; log of %d KiB", p.name,
			s.began[p.name]>>20, p.resident("VmRSS")>>20, p.resident("VmHWM")>>20, len(log)>>10)
	}
}
