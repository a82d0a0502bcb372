package sim

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus/busmem"
)

// oracle knows the truth: every entry of the log, and every pin that was granted. It takes no part in the
// cluster and reads the log past all faults.
type oracle struct {
	w       *world
	log     *busmem.Log
	entries []api.LogEntry // from position 1, also those that were purged since
	table   *buckets.Table // after the last of them

	mu       sync.Mutex
	owners   *owners // after the last of them, worked out a second time
	pmrs     map[string]*pin
	ended    map[string]api.JobRecord // durable jobs that are over
	failures []string
}

// pin is a PMR that was granted.
type pin struct {
	name    string // job/attempt on process: the same in every run of a seed
	who     *process
	expires time.Duration
	mapped  bool
	release bool // its router has tried to release it
}

func (o *oracle) failf(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failLocked(format, args...)
}

func (o *oracle) failLocked(format string, args ...any) {
	o.failures = append(o.failures, fmt.Sprintf(format, args...))
}

// pinned notes a pin that a storage grants.
func (o *oracle) pinned(p *process, req api.PinRequest, reply api.PinReply) {
	pins := map[buckets.ID]uint64{}
	for _, b := range reply.Buckets {
		pins[buckets.ID(b.Bucket)] = b.Generation
	}
	o.checkPins(p, req.Cut, pins)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pmrs[reply.PMR] != nil {
		o.failures = append(o.failures, "a PMR's id was minted twice")
	}
	o.pmrs[reply.PMR] = &pin{
		name: fmt.Sprintf("%s/%d@%s", req.Job, req.Attempt, p.peer), who: p,
		expires: o.w.pool.now() + time.Duration(req.TTLMS)*time.Millisecond,
	}
}

// mapping checks a map that a storage accepts, by when it was asked: its pin must be there and not have expired, or it maps already.
func (o *oracle) mapping(req api.MapRequest, asked time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.pmrs[req.PMR]
	switch {
	case p == nil:
		o.failures = append(o.failures, "a map was accepted for a PMR that never was")
	case !p.mapped && asked >= p.expires:
		o.failures = append(o.failures, fmt.Sprintf("the map of %s was accepted at %v, its pin had expired at %v", p.name, asked, p.expires))
	default:
		p.mapped = true
	}
}

// name is what traces call a PMR.
func (o *oracle) name(pmr string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.pmrs[pmr]; p != nil {
		return p.name
	}
	return "unknown"
}

// recorded checks a change of a job's record: the end of a durable job is written once.
func (o *oracle) recorded(value []byte) {
	var rec api.JobRecord
	err := api.Decode(value, &rec, api.Lenient)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch before, over := o.ended[rec.Job]; {
	case err != nil:
		o.failures = append(o.failures, fmt.Sprintf("a job's record cannot be read: %v", err))
	case over && rec.Durable:
		o.failures = append(o.failures, fmt.Sprintf("job %s was %s in take %d, and then %s in take %d", rec.Job, before.State, before.Take, rec.State, rec.Take))
	case rec.Durable && rec.State.Over():
		o.ended[rec.Job] = rec
	}
}

// record is how a durable job has ended.
func (o *oracle) record(id string) api.JobRecord {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended[id]
}

// releasing notes that a router tries to release a PMR.
func (o *oracle) releasing(pmr string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.pmrs[pmr]; p != nil {
		p.release = true
	}
}

// follow reads what the log has got since.
func (o *oracle) follow() {
	ctx := context.Background()
	state, err := o.log.State(ctx)
	o.w.must(err)
	from := uint64(len(o.entries)) + 1
	if state.Last < from {
		return
	}
	if state.First > from {
		o.failf("the log was purged to %d before the oracle had read %d", state.First, from)
		return
	}
	o.w.must(o.log.ReadTo(ctx, from, state.Last, nil, func(e api.LogEntry) error {
		e.Data = bytes.Clone(e.Data)
		o.entries = append(o.entries, e)
		o.own(e)
		return nil
	}))
}

// own follows the table of owners.
func (o *oracle) own(e api.LogEntry) {
	entry, err := buckets.Decode(e, o.w.settings.Buckets)
	if err != nil {
		o.failf("the log's entry %d is malformed: %v", e.Seq, err)
		return
	}
	before := o.table.View()
	changed, err := o.table.Apply(e.Seq, entry)
	if err != nil {
		o.failf("the log's entry %d: %v", e.Seq, err)
	}
	o.mu.Lock()
	counts := o.owners.apply(e.Seq, entry)
	o.mu.Unlock()
	own, isOwn := entry.(buckets.Own)
	if isOwn && counts != changed {
		o.failf("the claim of %s to bucket %d at %d counts: %v; it counts for the table: %v", own.Owner, own.Bucket, e.Seq, counts, changed)
	}
	if isOwn && changed {
		o.w.activated(own, before.Owner(own.Bucket), e.Seq)
	} else if isOwn {
		o.w.did("void claim", true)
	}
}

// view is the table of owners as it is.
func (o *oracle) view() *buckets.View { return o.table.View() }

// truth is what a job has to find at a cut: the records that it wants, or how often each word stands in them; and who
// owns what.
func (o *oracle) truth(j *job, cut uint64) (map[string]string, *buckets.View) {
	records := map[string]string{}
	table := buckets.NewTable(o.w.settings.Buckets)
	for _, e := range o.entries[:cut] {
		entry, err := buckets.Decode(e, o.w.settings.Buckets)
		if err != nil {
			continue
		}
		if r, ok := entry.(buckets.Records); ok {
			if cmp.Or(r.Space, api.DefaultSpace) != cmp.Or(j.req.Space, api.DefaultSpace) {
				continue
			}
			r.Each(func(key, value []byte, del bool) {
				if !j.wants(r.Bucket, key) {
					return
				}
				if del {
					delete(records, string(key))
				} else {
					records[string(key)] = string(value)
				}
			})
		} else if _, err := table.Apply(e.Seq, entry); err != nil {
			o.failf("the log's entry %d: %v", e.Seq, err)
		}
	}
	if j.req.Module == "" {
		return records, table.View()
	}
	words := map[string]int64{}
	for _, value := range records {
		for _, word := range strings.Fields(value) {
			words[word]++
		}
	}
	counts := map[string]string{}
	for word, n := range words {
		counts[word] = strconv.FormatInt(n, 10)
	}
	return counts, table.View()
}

func (j *job) wants(b buckets.ID, key []byte) bool {
	if len(j.req.Keys) > 0 {
		return slices.ContainsFunc(j.req.Keys, func(k api.Bytes) bool { return bytes.Equal(k, key) })
	}
	return len(j.wanted) == 0 || slices.Contains(j.wanted, b)
}

// checkDone checks a job that says it is done: every bucket pinned once, by its owner at the cut, and exactly the
// content there, which has all that was acknowledged before the job was submitted.
func (o *oracle) checkDone(j *job) {
	if rec := o.record(j.id); j.durable && rec.State != api.JobDone {
		o.failf("job %s is done for its client, its record says %q", j.id, rec.State)
	}
	st := j.reply.Stats
	if st == nil || st.Cut == 0 || st.Cut > uint64(len(o.entries)) {
		o.failf("job %s is done at no cut of the log: %+v", j.id, st)
		return
	}
	if e := o.entries[st.Cut-1]; e.Subject != buckets.SubjectCut {
		o.failf("job %s is done at %d, which is no cut", j.id, st.Cut)
	}
	if st.Cut <= j.acked {
		o.failf("job %s saw the log to %d, but %d was acknowledged before it was submitted", j.id, st.Cut, j.acked)
	}
	want, view := o.truth(j, st.Cut)
	got := map[string]string{}
	for _, row := range j.reply.Rows {
		got[string(row.Key)] = strconv.FormatInt(row.Value.Int, 10)
		if j.req.Module == "" {
			got[string(row.Key)] = string(row.Value.Bytes)
		}
	}
	if !maps.Equal(got, want) || len(got) != len(j.reply.Rows) || j.reply.Next != "" {
		o.failf("job %s counted %v at cut %d, where there are %v", j.id, got, st.Cut, want)
	}
	pins := map[uint16]int{}
	for _, p := range st.Pinned {
		for _, b := range p.Buckets {
			pins[b.Bucket]++
			if owner := view.Owner(buckets.ID(b.Bucket)); owner.Storage != p.Storage || owner.Generation != b.Generation {
				o.failf("job %s: bucket %d was pinned by %s at generation %d; at the cut it was %+v", j.id, b.Bucket, p.Storage, b.Generation, owner)
			}
		}
	}
	for b := range o.w.settings.Buckets {
		want := 1
		if len(j.wanted) > 0 && !slices.Contains(j.wanted, buckets.ID(b)) {
			want = 0
		}
		if pins[uint16(b)] != want {
			o.failf("job %s: bucket %d was pinned %d times", j.id, b, pins[uint16(b)])
		}
	}
}

// leftovers checks that no storage holds a PMR, but for output that its router tried to release, in vain, before
// all was healed: it expires by itself.
func (o *oracle) leftovers(m *machine) {
	if m.store == nil {
		return
	}
	st, err := m.process.storage.Status(context.Background(), api.Empty{})
	o.w.must(err)
	if st.Gate != "" || st.GatesWaiting > 0 || st.Tickets > 0 {
		o.failf("%s still has the gate %q, %d waiting, %d tickets", m.process.peer, st.Gate, st.GatesWaiting, st.Tickets)
	}
	for _, info := range st.PMRs {
		o.mu.Lock()
		p := o.pmrs[info.PMR]
		o.mu.Unlock()
		if info.State == "mapped" && p != nil && p.release {
			o.w.reached["output that no release reached"]++
			continue
		}
		o.failf("%s still holds %s of job %s", m.process.peer, info.State, info.Job)
	}
}

// report lists what was found to be wrong.
func (o *oracle) report() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.failures)
}
