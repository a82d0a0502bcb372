//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// A storage has been stopped in order. Every job then ends the same way, and the error names the storage; not one has
// a part of the answer.
func TestJobsWithoutAStorage(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	text := newText(41, 500)
	c.importLines("", text.lines)
	c.wantRows(countWords(""), text.rows())
	c.storage("s2").terminate()
	outcomes := make([]string, 20)
	var jobs sync.WaitGroup
	for i := range outcomes {
		jobs.Go(func() {
			job := countWords("")
			job.Timeout = 3 * time.Second
			_, err := c.run(t.Context(), job)
			e := api.AsError(err)
			_, reason, _ := strings.Cut(e.Message, "the last failure: ")
			outcomes[i] = fmt.Sprintf("%s, storage %s: %s", e.Code, e.Details["storage"], reason)
		})
	}
	jobs.Wait()
	for i, o := range outcomes {
		if o != outcomes[0] || !strings.HasPrefix(o, "TIMEOUT, storage s2: storage s2, pin: ") {
			t.Errorf("job %d: %s; job 0: %s", i, o, outcomes[0])
		}
	}
	c.waitFor(30*time.Second, "the status to name s2", func(ctx context.Context) error {
		st, err := c.client.Status(ctx)
		if err == nil && !strings.Contains(strings.Join(st.Problems, "\n"), "storage s2 is not there; it owns ") {
			err = fmt.Errorf("problems: %q", st.Problems)
		}
		return err
	})
	c.storage("s2").start()
	c.waitHealthy()
	c.wantRows(countWords(""), text.rows())
	c.wantNothingPinned()
}

// A router starts while a storage is stopped. Its status names the storage and why, and when the storage goes on it is
// there again without a restart of anything.
func TestRouterStartsBesideAStoppedStorage(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	text := newText(42, 500)
	c.importLines("", text.lines)
	c.router.terminate()
	c.storage("s2").pause()
	c.router.start()
	c.waitFor(30*time.Second, "the status to name s2", func(ctx context.Context) error {
		st, err := c.client.Status(ctx)
		if err != nil {
			return err
		}
		problems := strings.Join(st.Problems, "\n")
		if st.Healthy || !strings.Contains(problems, "storage s2 does not answer: timeout after 2s") && !strings.Contains(problems, "storage s2 is not there") {
			return fmt.Errorf("healthy: %v, problems: %s", st.Healthy, problems)
		}
		return nil
	})
	pid := c.router.cmd.Process.Pid
	c.storage("s2").resume()
	c.waitHealthy()
	c.wantRows(countWords(""), text.rows())
	if !c.router.running() || c.router.cmd.Process.Pid != pid {
		t.Error("the router is not the process that was started")
	}
}

// All records are in one bucket, whose map takes long: storages that have nothing to do do not end the job. The
// timeout is the job's own, and reaches the storage that works.
func TestOneHotBucket(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	c.addPaced()
	hot, n := buckets.Of([]byte("hot"), 16), 0
	for i := 0; n < pacedRecords; i++ {
		if key := fmt.Appendf(nil, "key %d", i); buckets.Of(key, 16) == hot {
			if _, err := c.client.Put(t.Context(), "hot", key, []byte("x")); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	patient := paced(scaled(9000), 1) // the map is one call, of some seconds
	patient.Space, patient.Timeout = "hot", 8*time.Minute
	hasty := patient
	hasty.Timeout = time.Second
	b := c.bus()
	short := c.start(b, "the job of one second", false, hasty)
	tr := c.start(b, "the job of minutes", false, patient)
	short.await()
	if e := api.AsError(short.err); e.Code != api.CodeTimeout || e.Details["function"] != "" && e.Details["bucket"] != fmt.Sprint(hot) {
		t.Errorf("the job of one second: code %s, details %v: %v", e.Code, e.Details, short.err)
	}
	tr.wantRight(pacedRows)
	c.wantNothingPinned()
}

// A storage is killed when its map has ended and the router reduces. Its part is not lost, or is made again; it is
// never counted twice.
func TestStorageKilledWhileTheRouterReduces(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	c.addPaced()
	b := c.bus()
	for _, durable := range []bool{false, true} {
		tr := c.start(b, fmt.Sprintf("the job (durable: %v)", durable), durable, paced(1, c.turns(2.5)))
		tr.wantPhase("reduce")
		c.storage("s1").kill()
		c.storage("s1").start()
		tr.wantRight(pacedRows)
		c.waitHealthy()
	}
	c.wantNothingPinned()
}

// A storage joins while a job pins. The job's storages stay those that own its buckets at its cut; the new one gets
// buckets only when nothing is pinned any more.
func TestStorageJoinsWhileAJobPins(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	c.addPaced()
	m := c.newMoves(c.bus())
	c.storage("s2").pause()
	tr := c.start(m.bus, "the slow job", true, paced(c.turns(0.6), 1))
	c.wantPMRs(m.bus, "s1", "pinned", tr.job.ID)
	fourth := c.newStorage("s4", "s4")
	fourth.start()
	c.storages = append(c.storages, fourth)
	c.wantMember(fourth)
	c.storage("s2").resume()
	c.wantPMRs(m.bus, "s1", "mapping", tr.job.ID)

	c.waitFor(30*time.Second, "s4 to serve", func(ctx context.Context) error {
		_, err := storageStatus(ctx, m.bus, "s4")
		return err
	})
	var watch gateWatch
	stop := watch.follow(m.bus, "s1")
	m.wantMoved("s1", "s4", m.ownedBy("s1")[0])
	stop()
	if len(watch.wrong) > 0 {
		t.Errorf("the move did not wait for the job: %s", watch.wrong[0])
	}
	tr.wantRight(pacedRows)
	cert, err := c.client.Certificate(t.Context(), tr.job.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range cert.Storages {
		if p.Storage == "s4" {
			t.Errorf("s4 pinned for the job: %+v", p)
		}
	}
	m.wantOwners()
	c.wantRows(paced(1, 1), pacedRows)
	if st := c.status("s4"); st.Owned != 1 {
		t.Errorf("s4 owns %d buckets, want 1", st.Owned)
	}
	c.wantNothingPinned()
}
