//go:build unix

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
)

// mebibyte is the max_payload of a NATS server that nobody has configured.
const mebibyte = 1 << 20

// wantConnected demands that no process has lost its connection to NATS.
func (c *cluster) wantConnected() {
	c.t.Helper()
	for _, p := range append(slices.Clone(c.storages), c.router) {
		log, err := os.ReadFile(p.log)
		if err != nil {
			c.t.Fatal(err)
		}
		if !p.running() || bytes.Contains(log, []byte("connection to NATS lost")) {
			c.t.Errorf("%s has lost its connection or ended", p.name)
		}
	}
}

// One job makes values that no message can carry. It fails and says so; small jobs beside it, on the same storages,
// and the connections do not notice.
func TestOversizedReplyBesideSmallJobs(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16, payload: "1MiB"})
	c.addPaced()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var small sync.WaitGroup
	for range 4 {
		small.Go(func() {
			for n := 0; n < 3 || ctx.Err() == nil; n++ {
				rows, err := c.run(t.Context(), paced(1, 1))
				if err != nil || !bytes.Equal(rows, pacedRows) {
					t.Errorf("a small job: %v, %q", err, rows)
					return
				}
			}
		})
	}
	job := pinion.Job{Module: "paced", Function: "large", Reduce: "none", Timeout: 20 * time.Second, Buckets: []uint16{0, 4, 8, 12}}
	for range scaled(1) {
		job.Params = map[string][]byte{"large": []byte(strconv.Itoa(2 * mebibyte))}
		_, err := c.run(t.Context(), job)
		if e := api.AsError(err); e.Code != api.CodeResultTooLarge || !strings.Contains(err.Error(), "max_payload") {
			t.Errorf("rows of 2 MiB: code %s, %v", e.Code, err)
		}
		job.Params["large"] = []byte(strconv.Itoa(mebibyte / 2)) // the whole is too large for a message, each row is not
		job.PageBytes = 8 * mebibyte
		rows, err := c.run(t.Context(), job)
		if err != nil || len(rows) < 2*mebibyte {
			t.Errorf("rows of half a MiB: %d bytes, %v", len(rows), err)
		}
	}
	stop()
	small.Wait()
	c.wantConnected()
	c.wantNothingPinned()
}

// Records around every limit of size are stored and come back as they were, or are refused with the limit's name:
// the envelope is counted.
func TestRecordsAroundMaxPayload(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16, payload: "1MiB"})
	set, err := c.client.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for _, size := range []int{set.MaxRecord - 1, set.MaxRecord, set.MaxRecord + 1, mebibyte - 512, mebibyte - 64, mebibyte - 1, mebibyte, mebibyte + 1} {
		for how, put := range map[string]func(key, value []byte) error{
			"put": func(key, value []byte) error {
				_, err := c.client.Put(t.Context(), "large", key, value)
				return err
			},
			"import": func(key, value []byte) error {
				w, err := c.client.NewWriter(t.Context(), "large")
				if err != nil {
					return err
				}
				if err := w.Put(key, value); err != nil {
					_ = w.Close()
					return err
				}
				return w.Close()
			},
		} {
			key := fmt.Sprint(how, " ", size)
			value := bytes.Repeat([]byte("v"), size-len(key))
			switch err := put([]byte(key), value); {
			case size > set.MaxRecord:
				if e := api.AsError(err); e.Code != api.CodeRecordTooBig || !strings.Contains(e.Message, strconv.Itoa(set.MaxRecord)) {
					t.Errorf("%s of %d bytes: code %s, %v, want RECORD_TOO_BIG that names %d", how, size, e.Code, err, set.MaxRecord)
				}
			case err != nil:
				t.Errorf("%s of %d bytes: %v", how, size, err)
			default:
				want[key] = len(value)
				if got, err := c.client.Get(t.Context(), "large", []byte(key)); err != nil || !bytes.Equal(got, value) {
					t.Errorf("get of %d bytes: %d bytes, %v", size, len(got), err)
				}
			}
		}
	}
	result, err := c.client.Run(t.Context(), pinion.Job{Space: "large"})
	if err != nil {
		t.Fatal(err)
	}
	for row, err := range result.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if len(row.Value.Bytes) != want[string(row.Key)] {
			t.Errorf("the value of %q has %d bytes, want %d", row.Key, len(row.Value.Bytes), want[string(row.Key)])
		}
		delete(want, string(row.Key))
	}
	if len(want) > 0 {
		t.Errorf("not in the answer of a job: %v", want)
	}
	c.wantConnected()
}

// A catalogue of 300 modules with the longest names and a table of many buckets: all of it reaches everybody. Since
// buckets are assigned 16 at a time, the largest table takes minutes and is left to the long variants.
func TestLargeCatalogueAndTable(t *testing.T) {
	heavy(t)
	most := 512
	if long() {
		most = 16_384
	}
	c := startCluster(t, settings{buckets: most, patience: 10 * time.Minute})
	file := soundGuest().bytes()
	names := map[string]bool{}
	for i := range 300 {
		name := fmt.Sprintf("m%d-%s", i, strings.Repeat("x", 59-len(strconv.Itoa(i))))
		bytes := file
		if long() || i%10 == 0 { // of bytes of its own, which a router compiles
			bytes = slices.Concat(file, section(0, slices.Concat(uleb(2), []byte("id"), []byte(strconv.Itoa(i)))))
		}
		if _, err := c.client.AddModule(t.Context(), name, strings.Repeat("9", 64), "count", bytes); err != nil {
			t.Fatal(err)
		}
		names[name] = true
	}
	second := c.newRouter("r2")
	second.start()
	c.wantMember(second)
	for _, alone := range []*process{c.router, second} { // the other one has gone
		if alone == second {
			c.router.terminate()
		}
		list, err := c.client.Modules(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, m := range list {
			if names[m.Name] {
				found++
			}
		}
		if found != len(names) {
			t.Errorf("%s lists %d of %d modules", alone.name, found, len(names))
		}
	}
	text := newText(71, 2_000)
	c.importLines("", text.lines)
	c.wantRows(countWords(""), text.rows())
	result, err := c.client.Run(t.Context(), pinion.Job{Module: "wordcount", Reduce: "sum", Proof: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := result.CheckCoverage(most); err != nil {
		t.Error(err)
	}
	owned := 0
	for _, id := range []string{"s1", "s2", "s3"} {
		owned += c.status(id).Owned
	}
	if owned != most {
		t.Errorf("the storages own %d buckets, want %d", owned, most)
	}
	c.router = second
	c.wantNothingPinned()
}

// A server of small messages is no place for a table of so many buckets, and says so at once.
func TestTooManyBucketsForTheServer(t *testing.T) {
	heavy(t)
	c := &cluster{t: t, dir: t.TempDir()}
	server := newProcess(t, "nats", c.dir, "engine", "nats", "--dir", c.folder("nats"), "--max-payload=1MiB", "--listen=127.0.0.1:0")
	server.start()
	out := command(t, "", "engine", "router", "--buckets=16384", "--server", server.listening())
	if out.code != 1 || !strings.Contains(out.stderr, "max_payload") || !strings.Contains(out.stderr, "--buckets") {
		t.Errorf("code %d:\n%s", out.code, out.stderr)
	}
}

// padded writes the guest paced with a custom section of a size to a file.
func padded(t *testing.T, size int) (path string) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", "paced.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	file = append(file, section(0, slices.Concat(uleb(3), []byte("pad"), make([]byte, size)))...)
	path = filepath.Join(t.TempDir(), "padded.wasm")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// largeModule is the size of a module that no message can carry: near the limit in the long variants.
func largeModule() int {
	if long() {
		return 30 * mebibyte
	}
	return 12 * mebibyte
}

// wantLargeModule adds a large module, and runs it.
func (c *cluster) wantLargeModule() {
	c.t.Helper()
	if out := c.submit("", "module", "add", padded(c.t, largeModule()), "--name", "padded", "--reduce", "sum"); out.code != 0 {
		c.t.Fatalf("a module of %d bytes: code %d\n%s", largeModule(), out.code, out.stderr)
	}
	job := paced(1, 1)
	job.Module = "padded"
	c.wantRows(job, pacedRows)
}

// Large modules work up to the limit of a module's size; one that is larger is refused before it is sent.
func TestLargeModules(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	c.addPaced()
	c.wantLargeModule()
	objects, err := c.bus().Objects(t.Context(), "MODULES", false, 0)
	if err != nil {
		t.Fatal(err)
	}
	before, err := objects.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := c.submit("", "module", "add", padded(t, 60*mebibyte), "--name", "over")
	if out.code != 1 || !strings.Contains(out.stderr, "a module may have 33554432") {
		t.Errorf("a module of 60 MiB: code %d\n%s", out.code, out.stderr)
	}
	after, err := objects.List(t.Context())
	if err != nil || len(after) != len(before) {
		t.Errorf("%d objects are stored (%v), before there were %d", len(after), err, len(before))
	}
	c.wantConnected()
}

// Three NATS servers keep everything three times. A large module gets through them, and jobs go on when one of them
// is killed.
func TestThreeServers(t *testing.T) {
	heavy(t)
	if !long() {
		t.Skip("three servers take what the machine has: PINION_E2E=long")
	}
	dir := t.TempDir()
	var listen, routes, urls []string
	for range 3 {
		listen, routes = append(listen, freeAddress(t)), append(routes, freeAddress(t))
		urls = append(urls, "nats://"+listen[len(listen)-1])
	}
	var servers []*process
	for i := range 3 {
		name := fmt.Sprint("n", i+1)
		flags := []string{"nats", "--dir", filepath.Join(dir, name), "--listen", listen[i], "--name", name, "--cluster-listen", routes[i]}
		for j := range 3 {
			if j != i {
				flags = append(flags, "--routes", "nats://"+routes[j])
			}
		}
		servers = append(servers, newProcess(t, name, dir, "engine", flags...))
		servers[i].start()
	}
	for _, server := range servers {
		server.listening()
	}
	(&cluster{t: t, server: strings.Join(urls, ",")}).connect() // they have a leader then
	c := startCluster(t, settings{server: strings.Join(urls, ","), buckets: 16, replicas: 3})
	c.addPaced()
	c.wantLargeModule()
	for _, server := range servers {
		server.kill()
		c.waitRight(60*time.Second, paced(1, 1), pacedRows)
		server.start()
		c.waitRight(60*time.Second, paced(1, 1), pacedRows)
		c.waitHealthy()
	}
	c.wantNothingPinned()
}
