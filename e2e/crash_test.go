//go:build unix

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// A storage that is killed again and again during an import loses nothing and counts nothing twice; nor
// does one that has lost its folder.
func TestStorageKilledDuringImport(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{checkpoint: "64KiB"})
	killed := c.storage("s2")
	records := &text{count: map[string]int64{}}
	w, err := c.client.NewWriter(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	n := scaled(100_000)
	for i := range n {
		line := fmt.Appendf(nil, "record-%d", i) // each word is there once
		records.add(line)
		if err := w.Add(line); err != nil {
			t.Fatal(err)
		}
		if i%(n/8) == n/16 { // eight times
			if killed.running() {
				killed.kill()
			} else {
				killed.start()
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := w.Written().Records; got != uint64(n) {
		t.Fatalf("%d records are acknowledged, want %d", got, n)
	}
	if !killed.running() {
		t.Fatal("the storage was killed once more than it was started")
	}
	want := records.rows()
	c.wantRows(countWords(""), want)

	killed.kill()
	if err := os.RemoveAll(c.folder("s2")); err != nil {
		t.Fatal(err)
	}
	killed.args = append(killed.args, "--replace")
	killed.start()
	c.waitHealthy()
	c.wantRows(countWords(""), want)
}

// Everything that is stopped by SIGTERM ends with exit code 0 and is there again when it is started.
func TestRestartOfEverything(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{})
	text := newText(3, 5_000)
	c.importLines("books", text.lines)
	c.wantRows(countWords("books"), text.rows())
	c.stopAll()
	c.startAll()
	c.wantRows(countWords("books"), text.rows())
}

// retried reports whether an error says that a job could not be done now, for a reason that passes.
func retried(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeTimeout, api.CodeUnavailable, api.CodeNoCut, api.CodePMRExpired, api.CodeLost, api.CodeBusy, api.CodeNoOwner, api.CodeCoverage:
		return true
	}
	return false
}

// waitRight runs a job until it gives these rows. Meanwhile it may fail for want of a storage, but never
// give others.
func (c *cluster) waitRight(patience time.Duration, job pinion.Job, want []byte) {
	c.t.Helper()
	c.waitFor(patience, "the right answer", func(ctx context.Context) error {
		got, err := c.run(ctx, job)
		if err != nil && !retried(err) {
			c.t.Fatalf("the job failed with code %s: %v", api.CodeOf(err), err)
		}
		if err == nil && !bytes.Equal(got, want) {
			c.t.Fatalf("a wrong answer: %s", difference(got, want))
		}
		return err
	})
}

// A storage that was stopped while records were written counts them all when it goes on. While it is
// stopped a job fails and says which storage is missing.
func TestStorageStopped(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{})
	text := newText(4, 5_000)
	c.importLines("", text.lines)
	c.wantRows(countWords(""), text.rows())

	c.storage("s3").pause()
	more := newText(5, scaled(20_000))
	c.importLines("", more.lines)
	for _, line := range more.lines {
		text.add(line)
	}
	job := countWords("")
	job.Timeout = 2 * time.Second
	_, err := c.run(t.Context(), job)
	if !retried(err) || !bytes.Contains([]byte(err.Error()), []byte("s3")) {
		t.Errorf("a job without s3: %v, want an error that names s3", err)
	}
	c.storage("s3").resume()
	c.waitRight(30*time.Second, countWords(""), text.rows())
	c.waitHealthy()
	c.wantIdle(30 * time.Second)
}

// A storage is stopped and another process takes its place, as after a restore from a copy. The log is purged
// past the stopped one. When the other leaves and the first goes on, it notices and loads again.
func TestLogPurgedPastStoppedStorage(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16, checkpoint: "64KiB", window: "2s"})
	log, err := c.bus().Log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := newText(6, 5_000)
	c.importLines("", text.lines)
	c.wantRows(countWords(""), text.rows())
	stopped, before := c.storage("s1"), c.status("s1")
	c.copyIdentity("s1", "s1-copy")
	stopped.pause()
	reached, err := log.State(t.Context()) // it cannot have applied more
	if err != nil {
		t.Fatal(err)
	}

	other := c.newStorage("s1", "s1-copy")
	other.start()
	c.waitFor(30*time.Second, "the other process to serve", func(ctx context.Context) error {
		st, err := c.client.Status(ctx)
		if err != nil {
			return err
		}
		for _, s := range st.Storages {
			if s.Storage == "s1" && s.Incarnation != before.Incarnation && st.Healthy {
				return nil
			}
		}
		return errors.New("it does not answer")
	})
	c.importUntilPurged(log, text, reached.Last, time.Now())
	c.waitRight(30*time.Second, countWords(""), text.rows())
	other.terminate()

	stopped.resume()
	c.waitRight(60*time.Second, countWords(""), text.rows())
	after := c.status("s1")
	if after.Incarnation != before.Incarnation {
		t.Errorf("incarnation %s answers, want %s, which was stopped", after.Incarnation, before.Incarnation)
	}
	if after.Reloads == 0 {
		t.Errorf("the stopped storage did not load again: %+v", after)
	}
}

// importUntilPurged stores lines until the log begins beyond what a storage can have got that had applied
// it to a position when it was stopped: the server goes on sending for as long as the last request of that
// storage is good.
func (c *cluster) importUntilPurged(log *bus.Log, text *text, reached uint64, stopped time.Time) {
	c.t.Helper()
	const requestGood = 5 * time.Second
	seed := uint64(100)
	c.waitFor(90*time.Second, "the log to be purged past the stopped storage", func(ctx context.Context) error {
		seed++
		more := newText(seed, scaled(500))
		c.importLines("", more.lines)
		for _, line := range more.lines {
			text.add(line)
		}
		now, err := log.State(ctx)
		if err != nil {
			return err
		}
		if time.Since(stopped) < requestGood {
			reached = now.Last
		}
		if now.First <= reached+1 {
			return fmt.Errorf("it begins at %d; the stopped storage can have got up to %d", now.First, reached)
		}
		return nil
	})
}

// The router is killed while a job runs. Its client gets an answer or an error in time, and the storages
// let the job's buckets go.
func TestRouterKilledDuringJob(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{})
	c.addFaulty()
	text := newText(8, 3_000)
	c.importLines("", text.lines)
	job := pinion.Job{Module: "faulty", Function: "slow", Reduce: "sum", Timeout: 8 * time.Second}
	started := make(chan struct{})
	job.Progress = func(p api.JobProgress) {
		if p.Phase == "map" {
			select {
			case <-started:
			default:
				close(started)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), job.Timeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := c.client.Run(ctx, job)
		ended <- err
	}()
	select {
	case <-started:
	case err := <-ended:
		t.Fatalf("the job ended before the router was killed: %v", err)
	}
	c.router.kill()
	select {
	case err := <-ended:
		if err == nil || !retried(err) {
			t.Errorf("the job of the killed router: %v, want an error that says it is lost", err)
		}
	case <-time.After(job.Timeout + 5*time.Second):
		t.Fatalf("the job of the killed router has no end")
	}
	c.router.start()
	c.waitHealthy()
	c.wantIdle(30 * time.Second)
	c.wantRows(countWords(""), text.rows())
}

// addFaulty uploads the guest of testdata/faulty.wat.
func (c *cluster) addFaulty() {
	c.t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", "faulty.wasm"))
	if err == nil {
		_, err = c.client.AddModule(c.t.Context(), "faulty", "", "", file)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
