//go:build unix

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// countWords is the job that most tests run.
func countWords(space string) pinion.Job {
	return pinion.Job{Module: "wordcount", Reduce: "sum", Space: space}
}

func heavy(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short")
	}
	t.Parallel() // most of these wait for lapse times
}

// The words of a file that the submit program imports are counted as plain Go counts them.
func TestWordsOfAFile(t *testing.T) {
	c := startCluster(t, settings{})
	text := newText(1, scaled(20_000))
	file := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(file, bytes.Join(text.lines, []byte("\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := c.submit("", "import", file); out.code != 0 {
		t.Fatalf("import ended with %d:\n%s", out.code, out.stderr)
	}
	c.wantRows(countWords(""), text.rows())

	result, err := c.client.Run(t.Context(), countWords(""))
	if err != nil {
		t.Fatal(err)
	}
	st := result.Stats
	if st.Records != uint64(len(text.lines)) || st.Bytes < uint64(text.bytes) || st.Buckets != 256 || st.Storages != 3 || st.Attempts != 1 {
		t.Errorf("stats %+v, want %d records, at least %d bytes, 256 buckets, 3 storages, 1 attempt", st, len(text.lines), text.bytes)
	}
}

// Many jobs give the same bytes, one after another and at once, and leave nothing behind.
func TestManyJobs(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{})
	text := newText(2, 2_000)
	c.importLines("", text.lines)
	want := text.rows()
	c.wantRows(countWords(""), want)
	c.wantIdle(30 * time.Second)
	files := c.openFiles()

	for range scaled(200) {
		c.wantRows(countWords(""), want)
	}
	jobs := make(chan int)
	failures := make(chan error, 16)
	for range cap(failures) {
		go func() {
			for i := range jobs {
				got, err := c.run(t.Context(), countWords(""))
				if err == nil && !bytes.Equal(got, want) {
					err = fmt.Errorf("%s", difference(got, want))
				}
				if err != nil {
					failures <- fmt.Errorf("job %d of many at once: %w", i, err)
					return
				}
			}
			failures <- nil
		}()
	}
	for i := range scaled(200) {
		select {
		case jobs <- i:
		case err := <-failures:
			t.Fatal(err)
		}
	}
	close(jobs)
	for range cap(failures) {
		if err := <-failures; err != nil {
			t.Fatal(err)
		}
	}

	c.wantIdle(25 * time.Second)
	c.wantConsumers()
	c.waitFor(20*time.Second, "the files opened for jobs to be closed", func(context.Context) error {
		for name, now := range c.openFiles() {
			if now > files[name]+8 { // table files that the store has written meanwhile
				return fmt.Errorf("%s has %d files open, %d before the jobs", name, now, files[name])
			}
		}
		return nil
	})
}

func (c *cluster) openFiles() map[string]int {
	open := map[string]int{c.router.name: c.router.openFiles()}
	for _, p := range c.storages {
		open[p.name] = p.openFiles()
	}
	return open
}

// wantConsumers waits until only the four who follow the log read it.
func (c *cluster) wantConsumers() {
	c.t.Helper()
	log, err := c.bus().Log(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	c.waitFor(30*time.Second, "one consumer of the log for each storage and the router", func(ctx context.Context) error {
		n, err := log.Consumers(ctx)
		if err == nil && n != 4 {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
}

// Writers put a_i and, once that is acknowledged, b_i into a bucket of another storage. No job sees b_i
// without a_i.
func TestCausality(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{})
	owner := c.owners()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var pairs, jobs atomic.Int64
	failed := make(chan error, 16)
	var writers, readers sync.WaitGroup
	for n := range 8 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				first, second := fmt.Appendf(nil, "a %d %d", n, i), fmt.Appendf(nil, "b %d %d", n, i)
				if owner[buckets.Of(first, len(owner))] == owner[buckets.Of(second, len(owner))] {
					continue
				}
				if err := c.putBoth(first, second); err != nil {
					failed <- err
					return
				}
				pairs.Add(1)
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			for most := 0; jobs.Load() < int64(scaled(80)) || most < 100; jobs.Add(1) {
				seen, err := c.checkPairs()
				if err != nil {
					failed <- err
					return
				}
				most = max(most, seen)
			}
		})
	}
	readers.Wait()
	stop()
	writers.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	if seen, err := c.checkPairs(); err != nil || int64(seen) != pairs.Load() {
		t.Errorf("at the end there are %d pairs (%v), %d were written", seen, err, pairs.Load())
	}
}

// putBoth puts a record and, once it is acknowledged, another.
func (c *cluster) putBoth(first, second []byte) error {
	for _, key := range [][]byte{first, second} {
		if _, err := c.client.Put(c.t.Context(), "", key, []byte("x")); err != nil {
			return fmt.Errorf("put %q: %w", key, err)
		}
	}
	return nil
}

// owners tells which storage owns each bucket, as the proof of a job says.
func (c *cluster) owners() []string {
	c.t.Helper()
	var reply api.JobReply
	if err := c.bus().Request(c.t.Context(), "job.run", api.JobRequest{Proof: true}, &reply); err != nil {
		c.t.Fatal(err)
	}
	owners := make([]string, reply.Stats.Buckets)
	for _, p := range reply.Stats.Pinned {
		for _, b := range p.Buckets {
			owners[b.Bucket] = p.Storage
		}
	}
	return owners
}

// checkPairs passes all records through a job and returns the number of b_i, each of which has its a_i.
func (c *cluster) checkPairs() (int, error) {
	result, err := c.client.Run(c.t.Context(), pinion.Job{})
	if err != nil {
		return 0, err
	}
	seen := map[string]bool{}
	for row, err := range result.Rows(c.t.Context()) {
		if err != nil {
			return 0, err
		}
		seen[string(row.Key)] = true
	}
	pairs := 0
	for key := range seen {
		if key[0] != 'b' {
			continue
		}
		pairs++
		if !seen["a"+key[1:]] {
			return pairs, fmt.Errorf("the job at log position %d saw %q without %q", result.Stats.Cut, key, "a"+key[1:])
		}
	}
	return pairs, nil
}
