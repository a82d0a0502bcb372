//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// proxy stands between processes and their NATS server, and can be cut.
type proxy struct {
	url string

	mu       sync.Mutex
	cut      bool
	open     map[net.Conn]bool
	upstream func(piece []byte) // looks at what goes to the server
}

// newProxy starts a proxy of the server at an address.
func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{url: "nats://" + l.Addr().String(), open: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = l.Close()
		p.set(true)
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.pass(conn, strings.TrimPrefix(server, "nats://"))
		}
	}()
	return p
}

// pass copies both ways until one side ends or the proxy is cut.
func (p *proxy) pass(client net.Conn, server string) {
	defer client.Close()
	conn, err := net.Dial("tcp", server)
	if err != nil || !p.enter(client, conn) {
		if err == nil {
			_ = conn.Close()
		}
		return
	}
	defer p.leave(client, conn)
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{client, conn}, {conn, client}} {
		go func() {
			_, _ = io.Copy(way[0], p.watched(way[0] == conn, way[1]))
			done <- struct{}{}
		}()
	}
	<-done
}

// look has a function look at what goes to the server over connections that are made from now on. It can hold it back.
func (p *proxy) look(upstream func(piece []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = upstream
}

func (p *proxy) watched(up bool, r io.Reader) io.Reader {
	p.mu.Lock()
	defer p.mu.Unlock()
	look := p.upstream
	if !up || look == nil {
		return r
	}
	return readerFunc(func(b []byte) (int, error) {
		n, err := r.Read(b)
		look(b[:n])
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func (p *proxy) enter(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.open[c] = !p.cut
	}
	return !p.cut
}

func (p *proxy) leave(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.open, c)
	}
}

// set cuts the proxy, which ends all connections and takes no new ones, or mends it.
func (p *proxy) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	for c := range p.open {
		if cut {
			_ = c.Close()
		}
	}
}

// reroute has a process use another address of the server from its next start on.
func (p *process) reroute(server string) {
	for i, arg := range p.args {
		if arg == "--server" {
			p.args[i+1] = server
		}
	}
}

// Some processes are cut off from NATS. Meanwhile buckets move, a module is added and a setting is changed. When they
// are back they know all of it, and no job is run on what they knew before.
func TestChangesDuringACut(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	text := newText(51, 500)
	c.importLines("", text.lines)
	way := newProxy(t, c.server)
	for _, p := range []*process{c.router, c.storage("s2")} {
		p.terminate()
		p.reroute(way.url)
		p.start()
	}
	c.waitHealthy()
	second := c.newRouter("r2")
	second.start()
	c.wantMember(second)
	m := c.newMoves(c.bus())

	way.set(true)
	cutFor := 6 * time.Second
	if long() {
		cutFor = 20 * time.Second
	}
	began := time.Now()
	moved := m.ownedBy("s1")[:2]
	m.wantMoved("s1", "s3", moved...)
	c.addModule("paced")
	quota := 5
	if err := m.bus.Request(t.Context(), "admin.quotas", api.QuotasRequest{Gates: &quota}, nil); err != nil {
		t.Errorf("change a quota: %v", err)
	}
	for tries := 0; tries < 2 || time.Since(began) < cutFor; tries++ {
		job := countWords("")
		job.Timeout = 2 * time.Second
		if _, err := c.run(t.Context(), job); !retried(err) || !strings.Contains(err.Error(), "s2") {
			t.Errorf("a job without s2: %v, want an error that names it", err)
		}
	}
	way.set(false)
	c.waitRight(30*time.Second, countWords(""), text.rows())
	second.terminate() // the router that was cut off is alone
	c.waitHealthy()
	m.wantOwners()
	c.wantRows(countWords(""), text.rows())
	if _, err := c.client.Module(t.Context(), "paced"); err != nil {
		t.Errorf("the module that was added during the cut: %v", err)
	}
	job := paced(1, 1)
	c.wantRows(job, fmt.Appendf(nil, "records\t%d\n", len(text.lines)))
	var quotas api.Quotas
	if err := m.bus.Request(t.Context(), "admin.quotas", api.QuotasRequest{}, &quotas); err != nil || quotas.Gates != quota {
		t.Errorf("the quotas are %+v (%v), want gate_quota %d", quotas, err, quota)
	}
	for _, b := range moved {
		if owner := m.table.View().Owner(b).Storage; owner != "s3" {
			t.Errorf("bucket %d is owned by %s", b, owner)
		}
	}
	c.wantNothingPinned()
}

// addModule uploads a guest of testdata.
func (c *cluster) addModule(name string) {
	c.t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", name+".wasm"))
	if err == nil {
		_, err = c.client.AddModule(c.t.Context(), name, "", "", file)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// The connections of all processes break every second. Afterwards each follows the log once, and the server has no
// more subscriptions than before.
func TestFlappingNATS(t *testing.T) {
	heavy(t)
	dir := t.TempDir()
	server := newProcess(t, "nats-server", dir, "nats-server", "--addr=127.0.0.1", "--port=-1", "--http_port=-1", "--ports_file_dir="+dir,
		"--jetstream", "--store_dir="+filepath.Join(dir, "js"))
	server.start()
	way := newProxy(t, announcedPort(t, dir))
	monitor := announcedMonitor(t, dir)
	c := startCluster(t, settings{server: way.url, buckets: 16})
	text := newText(52, 500)
	c.importLines("", text.lines)
	c.wantRows(countWords(""), text.rows())
	c.wantConsumers()
	before := subscriptions(t, monitor)

	flaps := 10
	if long() {
		flaps = 60
	}
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	for range flaps {
		way.set(true)
		<-beat.C
		way.set(false)
		<-beat.C
	}
	c.waitRight(60*time.Second, countWords(""), text.rows())
	c.waitHealthy()
	c.wantConsumers()
	c.waitFor(40*time.Second, "the subscriptions to be what they were", func(context.Context) error {
		if now := subscriptions(t, monitor); now > before+8 {
			return fmt.Errorf("there are %d, before there were %d", now, before)
		}
		return nil
	})
	t.Logf("%d subscriptions before, %d after %d flaps", before, subscriptions(t, monitor), flaps)
	c.wantNothingPinned()
}

// announcedMonitor reads where a nats-server answers questions about itself.
func announcedMonitor(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.ports"))
	if err != nil || len(names) != 1 {
		t.Fatalf("the server's file of ports: %v, %v", names, err)
	}
	var ports struct {
		Monitoring []string `json:"monitoring"`
	}
	body, err := os.ReadFile(names[0])
	if err != nil || json.Unmarshal(body, &ports) != nil || len(ports.Monitoring) == 0 {
		t.Fatalf("%s: %v, %s", names[0], err, body)
	}
	return ports.Monitoring[0]
}

// subscriptions is how many the server has.
func subscriptions(t *testing.T, monitor string) int {
	t.Helper()
	reply, err := http.Get(monitor + "/subsz")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var stats struct {
		Subscriptions int `json:"num_subscriptions"`
	}
	if err := json.NewDecoder(reply.Body).Decode(&stats); err != nil || stats.Subscriptions == 0 {
		t.Fatalf("the server's subscriptions: %d, %v", stats.Subscriptions, err)
	}
	return stats.Subscriptions
}
