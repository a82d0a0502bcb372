//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
)

// journal is a writer that goes on whatever happens, and what it knows of each record.
type journal struct {
	c     *cluster
	space string // its own

	mu           sync.Mutex
	acknowledged map[string]bool
	attempted    map[string]bool
}

// write puts one record after the other until ctx ends. One that failed may have been stored or not.
func (j *journal) write(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		key := fmt.Sprint("entry ", i)
		j.mu.Lock()
		j.attempted[key] = true
		j.mu.Unlock()
		if _, err := j.c.client.Put(ctx, j.space, []byte(key), []byte("x")); err != nil {
			continue
		}
		j.mu.Lock()
		j.acknowledged[key] = true
		j.mu.Unlock()
	}
}

// startJournal begins to write. The function that it returns ends that, and demands that every record that was
// acknowledged is there, and none that was never sent.
func (c *cluster) startJournal(space string) (check func()) {
	c.t.Helper()
	j := &journal{c: c, space: space, acknowledged: map[string]bool{}, attempted: map[string]bool{}}
	ctx, stop := context.WithCancel(c.t.Context())
	var writing sync.WaitGroup
	writing.Go(func() { j.write(ctx) })
	c.waitFor(30*time.Second, "the first record of the journal", func(context.Context) error {
		j.mu.Lock()
		defer j.mu.Unlock()
		if len(j.acknowledged) == 0 {
			return fmt.Errorf("%d were sent", len(j.attempted))
		}
		return nil
	})
	return func() {
		c.t.Helper()
		stop()
		writing.Wait()
		result, err := c.client.Run(c.t.Context(), pinion.Job{Space: space})
		if err != nil {
			c.t.Fatal(err)
		}
		seen := 0
		for row, err := range result.Rows(c.t.Context()) {
			if err != nil {
				c.t.Fatal(err)
			}
			seen++
			if !j.attempted[string(row.Key)] {
				c.t.Errorf("record %q was never written", row.Key)
			}
			delete(j.acknowledged, string(row.Key))
		}
		for key := range j.acknowledged {
			c.t.Errorf("record %q was acknowledged and is not there", key)
		}
		c.t.Logf("%d records are there of %d that were sent", seen, len(j.attempted))
	}
}

// The NATS server is killed, and then stopped in order, in the middle of 50 jobs. Each of them ends right or with a
// clear error within its time, and no acknowledged write is lost.
func TestNATSRestartedAmongJobs(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	c.addPaced()
	b := c.bus()
	for _, how := range []struct {
		name string
		stop func()
	}{{"killed", c.nats.kill}, {"stopped", c.nats.terminate}} {
		check := c.startJournal(how.name)
		jobs := make([]*trial, 50)
		for i := range jobs {
			jobs[i] = c.start(b, fmt.Sprintf("job %d beside a server that is %s", i, how.name), i%2 == 1, paced(5, 1))
		}
		over := func() (n int) {
			for _, tr := range jobs {
				select {
				case <-tr.done:
					n++
				default:
				}
			}
			return n
		}
		c.waitFor(60*time.Second, "some of the jobs to be over", func(context.Context) error {
			if n := over(); n < 5 {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
		before := over()
		how.stop()
		c.nats.start()
		c.nats.listening()
		right := 0
		for _, tr := range jobs {
			tr.wantSound(pacedRows)
			if tr.err == nil {
				right++
			}
		}
		if before == len(jobs) {
			t.Errorf("all jobs were over before the server was %s", how.name)
		}
		t.Logf("the server was %s when %d of %d jobs were over; %d were right in the end", how.name, before, len(jobs), right)
		c.waitRight(60*time.Second, paced(1, 1), pacedRows)
		check()
		c.wantNothingPinned()
	}
}

// A storage is stopped for some time while jobs come all the time. Each is right, or fails with a clear error, which
// names it while it is away.
func TestStorageStoppedAmongJobs(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	text := newText(61, 500)
	c.importLines("", text.lines)
	c.wantRows(countWords(""), text.rows())
	want := text.rows()
	stopFor := 10 * time.Second
	if long() {
		stopFor = 30 * time.Second
	}
	var mu sync.Mutex
	right, named := 0, 0
	stop := make(chan struct{})
	var jobs sync.WaitGroup
	for i := range 4 {
		jobs.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				job := countWords("")
				job.Timeout = time.Duration(2+4*i) * time.Second
				rows, err := c.run(t.Context(), job)
				mu.Lock()
				switch {
				case err == nil && string(rows) != string(want):
					t.Errorf("a wrong answer: %s", difference(rows, want))
				case err == nil:
					right++
				case !retried(err):
					t.Errorf("a job failed with code %s: %v", api.CodeOf(err), err)
				case strings.Contains(err.Error(), "s3"):
					named++
				}
				mu.Unlock()
			}
		})
	}
	c.storage("s3").pause()
	resume := time.NewTimer(stopFor)
	<-resume.C
	c.storage("s3").resume()
	c.waitRight(30*time.Second, countWords(""), want)
	close(stop)
	jobs.Wait()
	t.Logf("%d jobs right, %d named the stopped storage", right, named)
	if named == 0 {
		t.Error("no job named the stopped storage")
	}
	c.waitHealthy()
	c.wantNothingPinned()
}

// wantSaid runs a program, which must fail and say something.
func (c *cluster) wantSaid(says, program string, args ...string) {
	c.t.Helper()
	out := command(c.t, "x\n", program, append(args, "--server", c.server)...)
	if out.code != 1 || !strings.Contains(out.stderr, says) {
		c.t.Errorf("%s %s: code %d, want 1 and %q\n%s%s", program, strings.Join(args, " "), out.code, says, out.stdout, out.stderr)
	}
}

// wantRunning demands that all processes but the server are those that were started.
func (c *cluster) wantRunning() {
	c.t.Helper()
	for _, p := range append(slices.Clone(c.storages), c.router) {
		if !p.running() {
			c.t.Errorf("%s has ended", p.name)
		}
	}
}

// NATS comes back without JetStream, and then with it: programs say what is wrong, and afterwards all is as before.
func TestNATSComesBackWithoutJetStream(t *testing.T) {
	heavy(t)
	dir := t.TempDir()
	server := newProcess(t, "nats-server", dir, "nats-server", "--addr=127.0.0.1", "--port=-1", "--ports_file_dir="+dir, "--jetstream", "--store_dir="+filepath.Join(dir, "js"))
	server.start()
	c := startCluster(t, settings{server: announcedPort(t, dir), buckets: 16})
	text := newText(62, 500)
	c.importLines("", text.lines)
	c.wantRows(countWords(""), text.rows())

	server.kill()
	server.args[1] = "--port=" + c.server[strings.LastIndex(c.server, ":")+1:]
	with := slices.Clone(server.args)
	server.args = server.args[:2]
	server.start()
	c.waitFor(10*time.Second, "the server to listen", func(ctx context.Context) error {
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.server, "nats://"))
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	c.wantSaid("JetStream is not enabled on nats://", "submit", "run", "wordcount")
	c.wantSaid("JetStream is not enabled on nats://", "engine", "status")
	server.kill()
	server.args = with
	server.start()
	c.waitRight(60*time.Second, countWords(""), text.rows())
	c.wantRunning()
	c.wantNothingPinned()
}

// NATS comes back without its files. Programs say that the cluster is gone, nothing hangs and nothing ends; a router
// that is started again says what it misses. When the files are restored all is as before, without a restart of a
// storage.
func TestNATSComesBackEmpty(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	text := newText(63, 500)
	c.importLines("", text.lines)
	c.wantRows(countWords(""), text.rows())
	c.nats.kill()
	files, away := c.folder("nats"), c.folder("nats-away")
	if err := os.Rename(files, away); err != nil {
		t.Fatal(err)
	}
	c.nats.start()
	c.nats.listening()
	const gone = `no cluster "dev" on nats://`
	var programs sync.WaitGroup
	programs.Go(func() { c.wantSaid(gone, "engine", "status") })
	for _, args := range [][]string{{"run", "wordcount", "--timeout", "5s"}, {"run", "wordcount", "--detach"}, {"import", "-"}, {"spaces"}, {"jobs"}, {"put", "k", "v"}} {
		programs.Go(func() { c.wantSaid(gone, "submit", args...) })
	}
	programs.Wait()
	c.wantRunning()

	c.router.terminate()
	c.router.start()
	if code := c.router.wait(30 * time.Second); code != 1 {
		t.Errorf("the router ended with %d, want 1", code)
	}
	if log := c.router.logTail(); !strings.Contains(log, "if the cluster has lost its NATS server's files, restore them") {
		t.Errorf("the router says:\n%s", log)
	}
	c.nats.terminate()
	if err := errors.Join(os.RemoveAll(files), os.Rename(away, files)); err != nil {
		t.Fatal(err)
	}
	c.nats.start()
	c.nats.listening()
	c.router.start()
	c.waitRight(60*time.Second, countWords(""), text.rows())
	c.wantRunning()
	c.wantUnpinned()
}
