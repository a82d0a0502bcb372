//go:build unix

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// settings are the flags with which a cluster's router is started.
type settings struct {
	buckets    int
	replicas   int
	checkpoint string
	window     string
	server     string        // an address: no server is started then
	payload    string        // largest message of the server that is started
	patience   time.Duration // until the cluster is healthy; default healthySoon
}

func (s settings) flags() []string {
	var flags []string
	if s.buckets > 0 {
		flags = append(flags, fmt.Sprintf("--buckets=%d", s.buckets))
	}
	if s.replicas > 0 {
		flags = append(flags, fmt.Sprintf("--replicas=%d", s.replicas))
	}
	if s.checkpoint != "" {
		flags = append(flags, "--checkpoint-bytes="+s.checkpoint)
	}
	if s.window != "" {
		flags = append(flags, "--duplicate-window="+s.window)
	}
	return flags
}

// cluster is a NATS server, a router and three storages.
type cluster struct {
	t        *testing.T
	dir      string
	server   string
	nats     *process // nil if the server is not the cluster's own
	router   *process
	storages []*process
	client   *pinion.Client
	pace     float64 // million turns of the guest paced in a second, once addPaced has measured it
}

// startCluster starts a cluster and returns when it is healthy.
func startCluster(t *testing.T, s settings) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), server: s.server}
	if s.server == "" {
		flags := []string{"nats", "--dir", c.folder("nats")}
		if s.payload != "" {
			flags = append(flags, "--max-payload="+s.payload)
		}
		c.nats = newProcess(t, "nats", c.dir, "engine", append(flags, "--listen=127.0.0.1:0")...)
		c.nats.start()
		c.server = c.nats.listening()
		c.nats.args[len(c.nats.args)-1] = "--listen=" + strings.TrimPrefix(c.server, "nats://") // the same at a restart
	}
	router := []string{"router", "--id=r1", "--expect=3", "--dir", c.folder("r1"), "--server", c.server}
	c.router = newProcess(t, "r1", c.dir, "engine", append(router, s.flags()...)...)
	c.router.start()
	c.connect()
	c.waitFor(30*time.Second, "the cluster to be created", func(ctx context.Context) error {
		_, err := c.client.Settings(ctx)
		return err
	})
	for _, id := range []string{"s1", "s2", "s3"} {
		p := c.newStorage(id, id)
		c.storages = append(c.storages, p)
		p.start()
	}
	c.waitHealthyFor(cmp.Or(s.patience, healthySoon))
	return c
}

func (c *cluster) folder(name string) string { return filepath.Join(c.dir, name) }

// newStorage describes the process of a storage.
func (c *cluster) newStorage(id, folder string) *process {
	return newProcess(c.t, folder, c.dir, "engine", "storage", "--id", id, "--dir", c.folder(folder), "--server", c.server)
}

func (c *cluster) storage(id string) *process {
	for _, p := range c.storages {
		if p.name == id {
			return p
		}
	}
	c.t.Fatalf("there is no storage %s", id)
	return nil
}

// connect opens the client, as soon as the server takes connections.
func (c *cluster) connect() {
	c.t.Helper()
	c.waitFor(20*time.Second, "a connection", func(ctx context.Context) (err error) {
		c.client, err = pinion.Connect(ctx, pinion.Config{Server: c.server})
		return err
	})
	c.t.Cleanup(c.client.Close)
}

// bus opens a connection for what the client does not offer.
func (c *cluster) bus() *bus.Bus {
	c.t.Helper()
	b, err := bus.Connect(c.t.Context(), bus.Config{Server: c.server, Cluster: pinion.DefaultCluster, Name: "e2e"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(b.Close)
	return b
}

// submit runs the submit program on this cluster.
func (c *cluster) submit(stdin string, args ...string) outcome {
	c.t.Helper()
	return command(c.t, stdin, "submit", append(args, "--server", c.server)...)
}

// waitFor polls a condition until it holds. The test fails with its last error otherwise.
func (c *cluster) waitFor(patience time.Duration, what string, holds func(ctx context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	var last error
	for {
		err := holds(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil { // else it only says that the time is over
			last = err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			c.t.Fatalf("waited %s for %s: %v", patience, what, last)
		}
	}
}

// healthySoon is how long a cluster may take to be healthy.
const healthySoon = 60 * time.Second

func (c *cluster) waitHealthy() {
	c.t.Helper()
	c.waitHealthyFor(healthySoon)
}

func (c *cluster) waitHealthyFor(patience time.Duration) {
	c.t.Helper()
	c.waitFor(patience, "a healthy cluster", func(ctx context.Context) error {
		st, err := c.client.Status(ctx)
		switch {
		case err != nil:
			return err
		case !st.Healthy || len(st.Storages) < 3:
			return fmt.Errorf("%d storages, problems: %s", len(st.Storages), strings.Join(st.Problems, "; "))
		}
		return nil
	})
}

// status is what a storage says of itself.
func (c *cluster) status(id string) api.StorageStatus {
	c.t.Helper()
	var found api.StorageStatus
	c.waitFor(20*time.Second, "the status of "+id, func(ctx context.Context) error {
		st, err := c.client.Status(ctx)
		if err != nil {
			return err
		}
		for _, s := range st.Storages {
			if s.Storage == id {
				found = s
				return nil
			}
		}
		return fmt.Errorf("%s does not answer", id)
	})
	return found
}

// importLines stores each line as a record with an assigned key.
func (c *cluster) importLines(space string, lines [][]byte) {
	c.t.Helper()
	w, err := c.client.NewWriter(c.t.Context(), space)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, line := range lines {
		if err := w.Add(line); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		c.t.Fatal(err)
	}
}

// run runs a job and returns its rows as lines of key TAB value.
func (c *cluster) run(ctx context.Context, job pinion.Job) ([]byte, error) {
	result, err := c.client.Run(ctx, job)
	if err != nil {
		return nil, err
	}
	var rows bytes.Buffer
	for row, err := range result.Rows(ctx) {
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&rows, "%s\t%s\n", row.Key, row.Value.Text())
	}
	return rows.Bytes(), nil
}

// wantRows runs a job, which must give exactly these rows.
func (c *cluster) wantRows(job pinion.Job, want []byte) {
	c.t.Helper()
	got, err := c.run(c.t.Context(), job)
	if err != nil {
		c.t.Fatalf("job over space %q: %v", job.Space, err)
	}
	if !bytes.Equal(got, want) {
		c.t.Fatalf("job over space %q: %s", job.Space, difference(got, want))
	}
}

// wantIdle waits until nothing is pinned and no snapshot parked on any storage.
func (c *cluster) wantIdle(patience time.Duration) {
	c.t.Helper()
	c.waitFor(patience, "the storages to be idle", func(ctx context.Context) error {
		st, err := c.client.Status(ctx)
		if err != nil {
			return err
		}
		if st.Jobs > 0 || len(st.Storages) < 3 {
			return fmt.Errorf("%d jobs run, %d storages answer", st.Jobs, len(st.Storages))
		}
		for _, s := range st.Storages {
			if len(s.PMRs) > 0 || s.Parked > 0 {
				return fmt.Errorf("storage %s: %d PMRs %v, %d snapshots parked", s.Storage, len(s.PMRs), s.PMRs, s.Parked)
			}
		}
		return nil
	})
}

// stopAll ends every process in order, each with exit code 0, and startAll starts them again.
func (c *cluster) stopAll() {
	c.t.Helper()
	for _, p := range c.storages {
		p.terminate()
	}
	c.router.terminate()
	if c.nats != nil {
		c.nats.terminate()
	}
}

func (c *cluster) startAll() {
	c.t.Helper()
	if c.nats != nil {
		c.nats.start()
		c.nats.listening()
	}
	c.router.start()
	for _, p := range c.storages {
		p.start()
	}
	c.waitHealthy()
}

// copyIdentity gives a folder the identity of another, as when it was restored from a copy.
func (c *cluster) copyIdentity(from, to string) {
	c.t.Helper()
	id, err := os.ReadFile(filepath.Join(c.folder(from), "identity"))
	if err == nil {
		err = os.MkdirAll(c.folder(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(c.folder(to), "identity"), id, 0o644)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (p *process) pause()  { p.t.Helper(); p.signal(syscall.SIGSTOP) }
func (p *process) resume() { p.t.Helper(); p.signal(syscall.SIGCONT) }
