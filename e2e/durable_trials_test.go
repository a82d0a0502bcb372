//go:build unix

package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// pacedRecords is how many records a cluster that runs the guest paced holds.
const pacedRecords = 64

// addPaced uploads the guest of testdata/paced.wat, stores records for it and has every process compile it.
func (c *cluster) addPaced() {
	c.t.Helper()
	c.addModule("paced")
	w, err := c.client.NewWriter(c.t.Context(), "")
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range pacedRecords {
		if err := w.Put(fmt.Appendf(nil, "record %d", i), []byte("x")); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		c.t.Fatal(err)
	}
	c.wantRows(paced(1, 1), pacedRows)
	const sample = 500
	one := paced(1, sample)
	began := time.Now()
	c.wantRows(one, pacedRows)
	c.pace = sample / time.Since(began).Seconds()
}

// turns is what a call takes about so many seconds for, on this machine as it was when addPaced looked.
func (c *cluster) turns(seconds float64) int { return max(1, int(seconds*c.pace)) }

// pacedRows is the answer of all jobs of the guest paced.
var pacedRows = fmt.Appendf(nil, "records\t%d\n", pacedRecords)

// paced is a job that computes for a while: a thousand take most of a second of one processor, in each bucket
// that holds records and in the reduce.
func paced(mapFor, reduceFor int) pinion.Job {
	return pinion.Job{
		Module: "paced", Reduce: "module", Timeout: 2 * time.Minute,
		Params: map[string][]byte{"map": []byte(strconv.Itoa(mapFor)), "reduce": []byte(strconv.Itoa(reduceFor))},
	}
}

// trial is a job that was started and what has become of it.
type trial struct {
	c       *cluster
	name    string
	job     pinion.Job
	durable bool
	done    chan struct{} // closed when the outcome is there
	rows    []byte
	err     error
	took    time.Duration

	mu     sync.Mutex
	phases []string // as they were told
	wrong  []string // what was told and cannot be
}

// unhurried is how much longer than its timeout the outcome of a job may take to arrive on a busy machine.
const unhurried = 20 * time.Second

// start starts a job that goes on beside the test: an interactive one, or one that a queue holds.
func (c *cluster) start(b *bus.Bus, name string, durable bool, job pinion.Job) *trial {
	c.t.Helper()
	job.ID = strings.ToLower(rand.Text())
	tr := &trial{c: c, name: name, job: job, durable: durable, done: make(chan struct{})}
	stop, err := b.Subscribe("job."+job.ID+".events", tr.told)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(stop)
	began := time.Now()
	if durable {
		if _, err := c.client.Submit(c.t.Context(), job); err != nil {
			c.t.Fatalf("submit %s: %v", name, err)
		}
	}
	go func() {
		defer close(tr.done)
		tr.rows, tr.err = tr.outcome()
		tr.took = time.Since(began)
	}()
	return tr
}

func (tr *trial) outcome() ([]byte, error) {
	if !tr.durable {
		return tr.c.run(tr.c.t.Context(), tr.job)
	}
	result, err := tr.c.client.Wait(tr.c.t.Context(), tr.job.ID, nil)
	if err != nil {
		return nil, err
	}
	var rows bytes.Buffer
	for row, err := range result.Rows(tr.c.t.Context()) {
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&rows, "%s\t%s\n", row.Key, row.Value.Text())
	}
	return rows.Bytes(), nil
}

// told takes an event of the job. Its progress never goes beyond all there is.
func (tr *trial) told(_ string, body []byte) {
	var p api.JobProgress
	if api.Decode(body, &p, api.Lenient) != nil {
		return
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.phases = append(tr.phases, p.Phase)
	if p.Buckets > p.Of || tr.job.Module == "paced" && p.Records > pacedRecords {
		tr.wrong = append(tr.wrong, fmt.Sprintf("%d of %d buckets, %d records in attempt %d", p.Buckets, p.Of, p.Records, p.Attempt))
	}
}

// ends is how often the job was said to be done.
func (tr *trial) ends() (n int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, phase := range tr.phases {
		if phase == string(api.JobDone) {
			n++
		}
	}
	return n
}

// wantPhase waits until the job is in a phase.
func (tr *trial) wantPhase(phase string) {
	tr.c.t.Helper()
	tr.c.waitFor(60*time.Second, tr.name+" to be in phase "+phase, func(ctx context.Context) error {
		return tr.inPhase(ctx, phase)
	})
}

func (tr *trial) inPhase(ctx context.Context, phase string) error {
	info, err := tr.c.client.Job(ctx, tr.job.ID)
	switch {
	case err != nil:
		return err
	case info.State.Over():
		tr.c.t.Fatalf("%s was %s before it was seen in phase %s: %v", tr.name, info.State, phase, info.Error)
	case info.Progress == nil || info.Progress.Phase != phase:
		return fmt.Errorf("it is %s: %+v", info.State, info.Progress)
	}
	return nil
}

// await waits for the outcome. It comes within the job's time, of which a durable job has that of each take and
// what passes between them.
func (tr *trial) await() {
	tr.c.t.Helper()
	patience := tr.job.Timeout + unhurried
	if tr.durable {
		patience += tr.job.Timeout + unhurried
	}
	select {
	case <-tr.done:
	case <-time.After(patience):
		tr.c.t.Fatalf("%s has no outcome after %s", tr.name, patience)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if len(tr.wrong) > 0 {
		tr.c.t.Errorf("%s: progress that cannot be: %s", tr.name, strings.Join(tr.wrong, "; "))
	}
}

// wantSound waits for the outcome, which is these rows or an error that says that the job could not be done now.
func (tr *trial) wantSound(want []byte) {
	tr.c.t.Helper()
	tr.await()
	switch {
	case tr.err != nil && !retried(tr.err):
		tr.c.t.Errorf("%s failed with code %s: %v", tr.name, api.CodeOf(tr.err), tr.err)
	case tr.err == nil && !bytes.Equal(tr.rows, want):
		tr.c.t.Errorf("%s: %s", tr.name, difference(tr.rows, want))
	}
	tr.c.t.Logf("%s: %v after %.1f s", tr.name, tr.err, tr.took.Seconds())
}

// wantRight waits for the outcome, which is these rows, told to be done once, with a certificate that the log bears
// out. It returns what is known of the job.
func (tr *trial) wantRight(want []byte) api.JobInfo {
	tr.c.t.Helper()
	tr.await()
	if tr.err != nil {
		tr.c.t.Fatalf("%s failed with code %s: %v", tr.name, api.CodeOf(tr.err), tr.err)
	}
	if !bytes.Equal(tr.rows, want) {
		tr.c.t.Errorf("%s: %s", tr.name, difference(tr.rows, want))
	}
	ctx := tr.c.t.Context()
	info, err := tr.c.client.Job(ctx, tr.job.ID)
	if err != nil {
		tr.c.t.Fatalf("%s: %v", tr.name, err)
	}
	cert, err := tr.c.client.Certificate(ctx, tr.job.ID)
	if err != nil {
		tr.c.t.Fatalf("certificate of %s: %v", tr.name, err)
	}
	check, err := tr.c.client.CheckCertificate(ctx, cert)
	if err := errors.Join(err, check.Err()); err != nil {
		tr.c.t.Errorf("certificate of %s: %v", tr.name, err)
	}
	tr.c.waitFor(10*time.Second, "the end of "+tr.name+" to be told", func(context.Context) error {
		if n := tr.ends(); n != 1 {
			return fmt.Errorf("it was told to be done %d times", n)
		}
		return nil
	})
	tr.c.t.Logf("%s: right in take %d after %.1f s", tr.name, info.Take, tr.took.Seconds())
	return info
}

// wantNothingPinned waits until the cluster is healthy and holds nothing for a job, and has engine status say so.
func (c *cluster) wantNothingPinned() {
	c.t.Helper()
	c.waitHealthy()
	c.wantUnpinned()
	out := command(c.t, "", "engine", "status", "--server", c.server)
	if out.code != 0 || strings.Contains(out.stdout, "\npin ") {
		c.t.Errorf("engine status ends with %d:\n%s%s", out.code, out.stdout, out.stderr)
	}
}

// wantUnpinned waits until no job runs and no storage holds anything for one. Snapshots that nobody has claimed go by
// themselves later.
func (c *cluster) wantUnpinned() {
	c.t.Helper()
	c.waitFor(45*time.Second, "nothing to be pinned", func(ctx context.Context) error {
		st, err := c.client.Status(ctx)
		if err != nil {
			return err
		}
		if st.Jobs > 0 || len(st.Storages) < len(c.storages) {
			return fmt.Errorf("%d jobs run, %d storages answer", st.Jobs, len(st.Storages))
		}
		for _, s := range st.Storages {
			if len(s.PMRs) > 0 || s.Gate != "" || s.GatesWaiting > 0 {
				return fmt.Errorf("storage %s: PMRs %v, gate %q, %d gates wait", s.Storage, s.PMRs, s.Gate, s.GatesWaiting)
			}
		}
		return nil
	})
}

// newRouter describes the process of one more router.
func (c *cluster) newRouter(id string) *process {
	return newProcess(c.t, id, c.dir, "engine", "router", "--id", id, "--expect=3", "--dir", c.folder(id), "--server", c.server)
}

// wantMember waits until a role of this id is there, of a process that was started just now.
func (c *cluster) wantMember(p *process) {
	c.t.Helper()
	c.waitFor(30*time.Second, p.name+" to be there", func(ctx context.Context) error {
		st, err := c.client.Status(ctx)
		if err != nil {
			return err
		}
		for _, m := range st.Members {
			if m.ID == p.name && m.PID == p.cmd.Process.Pid {
				return nil
			}
		}
		return fmt.Errorf("members: %+v", st.Members)
	})
}

// idsOf are the ids of some jobs.
func idsOf(jobs []*trial) (list []string) {
	for _, tr := range jobs {
		list = append(list, tr.job.ID)
	}
	return list
}

// wantPMRs waits until a storage has PMRs of a state for all of some jobs.
func (c *cluster) wantPMRs(b *bus.Bus, storage, state string, jobs ...string) {
	c.t.Helper()
	c.waitFor(60*time.Second, fmt.Sprintf("%s to have %d jobs %s", storage, len(jobs), state), func(ctx context.Context) error {
		st, err := storageStatus(ctx, b, storage)
		if err != nil {
			return err
		}
		missing := map[string]bool{}
		for _, id := range jobs {
			missing[id] = true
		}
		for _, p := range st.PMRs {
			if p.State == state {
				delete(missing, p.Job)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("it has %+v", st.PMRs)
		}
		return nil
	})
}

// storageStatus asks a storage itself.
func storageStatus(ctx context.Context, b *bus.Bus, id string) (api.StorageStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var st api.StorageStatus
	err := b.Request(ctx, "storage."+id+".status", api.Empty{}, &st)
	return st, err
}
