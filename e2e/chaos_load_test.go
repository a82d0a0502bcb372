//go:build unix

package e2e

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
)

const (
	idSpace   = "ids"
	idRate    = 1000 // records in a second
	idBeat    = 50 * time.Millisecond
	mostOfIDs = 200 // in one go, to catch up after a pause
)

// ledger is what the writer knows of its records. Each has an id: its number.
type ledger struct {
	mu           sync.Mutex
	acknowledged []bool // by id; false is in doubt
	sure         int    // are acknowledged
	took         time.Duration
}

// offer gives out the next ids.
func (l *ledger) offer(n int) (first int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = len(l.acknowledged)
	l.acknowledged = append(l.acknowledged, make([]bool, n)...)
	return first
}

func (l *ledger) acknowledge(first, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range n {
		l.acknowledged[first+i] = true
	}
	l.sure += n
}

// bounds are how many records there must and can be now.
func (l *ledger) bounds() (sure, offered int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sure, len(l.acknowledged)
}

func (l *ledger) String() string {
	sure, offered := l.bounds()
	return fmt.Sprintf("%d records acknowledged of %d in %.1f s", sure, offered, l.took.Seconds())
}

// check compares with how often each id is there.
func (l *ledger) check(rows []api.Row) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	there := make([]bool, len(l.acknowledged))
	for _, row := range rows {
		var id int
		if _, err := fmt.Sscanf(string(row.Key), "id-%d", &id); err != nil || id >= len(there) || row.Value.Int != 1 {
			errs = append(errs, fmt.Errorf("record %q is there %d times, of %d ids", row.Key, row.Value.Int, len(there)))
			continue
		}
		there[id] = true
	}
	for id, sure := range l.acknowledged {
		if sure && !there[id] {
			errs = append(errs, fmt.Errorf("record %d was acknowledged and is not there", id))
		}
	}
	if more := len(errs) - 20; more > 0 {
		errs = append(errs[:20], fmt.Errorf("and %d more such", more))
	}
	return errors.Join(errs...)
}

// write stores records at an even rate until it is to stop: in one go those without keys as a batch of one bucket, in
// the next those with keys, in many. A writer that has failed is replaced: what it was about is in doubt.
func (x *chaos) write(stop <-chan struct{}) error {
	beat := time.NewTicker(idBeat)
	defer beat.Stop()
	began := time.Now()
	defer func() { x.ids.took = time.Since(began) }()
	var w *pinion.Writer
	for turn := 0; ; turn++ {
		select {
		case <-beat.C:
		case <-stop:
			return nil
		}
		var err error
		if w == nil {
			w, err = x.client.NewWriter(x.t.Context(), idSpace)
		}
		if err == nil {
			_, offered := x.ids.bounds()
			due := int(time.Since(began).Seconds()*idRate) - offered
			if due <= 0 {
				continue
			}
			err = x.put(w, min(due, mostOfIDs), turn%2 == 0)
		}
		if err != nil {
			if w != nil {
				_ = w.Close() // all of it is in doubt anyway
				w = nil
			}
			if !passing(err) {
				return fmt.Errorf("write with code %s: %w", api.CodeOf(err), err)
			}
		}
	}
}

func (x *chaos) put(w *pinion.Writer, n int, keyed bool) (err error) {
	first := x.ids.offer(n)
	for i := range n {
		id := fmt.Appendf(nil, "id-%d", first+i)
		if keyed {
			err = errors.Join(err, w.Put(id, id))
		} else {
			err = errors.Join(err, w.Add(id))
		}
	}
	if err = errors.Join(err, w.Flush()); err == nil {
		x.ids.acknowledge(first, n)
	}
	return err
}

// jobTally counts jobs by what became of them.
type jobTally struct {
	right, refused, bulk, durable, purged atomic.Int64
}

func (y *jobTally) String() string {
	return fmt.Sprintf("%d jobs right, of them %d over all that is moved and %d durable (%d certificates older than the log), %d failed for a reason that passes",
		y.right.Load(), y.bulk.Load(), y.durable.Load(), y.purged.Load(), y.refused.Load())
}

// count runs jobs without a pause: half of the clients with jobs that hold buckets in place, half without. Each counts
// what was there when it began, and nothing that came after it ended.
func (x *chaos) count(client *pinion.Client, number int) error {
	for turn := number; !x.stopping(); turn++ {
		job := pinion.Job{Space: idSpace, Mode: []string{api.ModeHold, api.ModeSnapshot}[number%2], Timeout: time.Minute}
		least, _ := x.ids.bounds()
		bulk, durable := turn%16 == 15, turn%4 == 3
		if bulk {
			job.Space, least = bulkSpace, x.bulk
		}
		count := x.countOf
		if durable {
			count = x.countDurably
		}
		began := time.Now()
		n, err := count(client, job)
		_, most := x.ids.bounds()
		if bulk {
			most = x.bulk
		}
		switch {
		case err != nil && passing(err):
			x.jobs.refused.Add(1)
		case err != nil:
			return fmt.Errorf("a job in mode %s, durable %t, failed with code %s after %.1f s: %w", job.Mode, durable, api.CodeOf(err), time.Since(began).Seconds(), err)
		case n < least || n > most:
			return fmt.Errorf("a job over %s in mode %s, durable %t, counted %d records; %d were acknowledged when it began, %d offered when it ended",
				job.Space, job.Mode, durable, n, least, most)
		default:
			x.jobs.right.Add(1)
			if bulk {
				x.jobs.bulk.Add(1)
			}
			if durable {
				x.jobs.durable.Add(1)
			}
		}
	}
	return nil
}

// counting makes a job one that counts the records of its space.
func counting(job pinion.Job) pinion.Job {
	job.Module, job.Reduce = "paced", "module"
	job.Params = map[string][]byte{"map": []byte("0"), "reduce": []byte("0")}
	return job
}

// countOf counts the records of a space, with a proof that every bucket was read once.
func (x *chaos) countOf(client *pinion.Client, job pinion.Job) (int, error) {
	job.Proof = true
	result, err := client.Run(x.t.Context(), counting(job))
	if err != nil {
		return 0, err
	}
	n, err := x.countIn(result)
	return n, errors.Join(err, result.CheckCoverage(chaosBuckets))
}

// countDurably does the same by a job that a queue holds, and checks its certificate, unless the log was purged beyond
// it meanwhile.
func (x *chaos) countDurably(client *pinion.Client, job pinion.Job) (int, error) {
	ctx := x.t.Context()
	id, err := client.Submit(ctx, counting(job))
	if err != nil {
		return 0, err
	}
	result, err := client.Wait(ctx, id, nil)
	if err != nil {
		return 0, err
	}
	n, err := x.countIn(result)
	if err != nil {
		return 0, err
	}
	cert, err := client.Certificate(ctx, id)
	if err != nil {
		return 0, err
	}
	check, err := client.CheckCertificate(ctx, cert)
	if err == nil {
		err = check.Err()
	}
	if api.CodeOf(err) == api.CodeNotFound {
		x.jobs.purged.Add(1)
		err = nil
	}
	return n, err
}

// countIn reads the one row of a job that counts; none is 0.
func (x *chaos) countIn(result *pinion.Result) (n int, err error) {
	for row, rowErr := range result.Rows(x.t.Context()) {
		n += int(row.Value.Int)
		err = rowErr
	}
	return n, err
}
