package pinion

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus/busmem"
)

// history is a cluster of four buckets and its log.
type history struct {
	*cluster
	log *busmem.Log
	kv  *busmem.KV
}

func newHistory(t *testing.T) *history {
	t.Helper()
	h := &history{cluster: newCluster(t, api.Settings{ID: "c1", Buckets: 4, MaxRecord: 1000})}
	var err error
	if h.log, err = h.router.Log(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.kv, err = h.router.KV(t.Context(), stateStore, true, 1); err != nil {
		t.Fatal(err)
	}
	for b := range buckets.ID(4) { // at 1 to 4
		h.own(buckets.Own{Bucket: b, Owner: fmt.Sprintf("s%d", b/2+1)})
	}
	h.append("rec.1", []byte("no frame")) // at 5
	h.own(buckets.Own{Bucket: 0, Prev: 3, Owner: "s9"})
	return h
}

func (h *history) append(subject string, entry any) uint64 {
	h.t.Helper()
	body, ok := entry.([]byte)
	if !ok {
		var err error
		if body, err = api.Encode(api.Msgpack, entry); err != nil {
			h.t.Fatal(err)
		}
	}
	seq, err := h.log.Append(h.t.Context(), subject, nil, body, "")
	if err != nil {
		h.t.Fatal(err)
	}
	return seq
}

func (h *history) own(o buckets.Own) uint64 { return h.append(buckets.OwnSubject(o.Bucket), o) }

// cut appends a job's cut and returns its certificate, which is right.
func (h *history) cut(job string) api.Certificate {
	h.t.Helper()
	at := h.append(buckets.SubjectCut, buckets.Cut{Job: job, Attempt: 2})
	return api.Certificate{
		Version: 1, Cluster: "c1", Job: job, Attempt: 2, Cut: at, Buckets: 4, Records: 4, Pairs: 8,
		Storages: []api.CertifiedStorage{
			{Storage: "s1", Buckets: []api.BucketCount{{Bucket: 0, Generation: 1, Records: 1, Pairs: 2}, {Bucket: 1, Generation: 2, Records: 1, Pairs: 2}}},
			{Storage: "s2", Buckets: []api.BucketCount{{Bucket: 2, Generation: 3, Records: 1, Pairs: 2}, {Bucket: 3, Generation: 4, Records: 1, Pairs: 2}}},
		},
	}
}

// save stores the table as it is at the log's end, as routers do before they purge.
func (h *history) save() {
	h.t.Helper()
	table := buckets.NewTable(4)
	for _, e := range h.entries() {
		if entry, err := buckets.Decode(e, 4); err == nil {
			_, _ = table.Apply(e.Seq, entry) // void and forged ones change nothing
		}
	}
	body, err := table.Save()
	if err != nil {
		h.t.Fatal(err)
	}
	old, err := h.kv.Get(h.t.Context(), tableKey)
	if err == nil && old.Revision == 0 {
		_, err = h.kv.Create(h.t.Context(), tableKey, body)
	} else if err == nil {
		_, err = h.kv.Update(h.t.Context(), tableKey, body, old.Revision)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) purge(upTo uint64) {
	h.t.Helper()
	if err := h.log.Purge(h.t.Context(), upTo); err != nil {
		h.t.Fatal(err)
	}
}

func TestCheckCertificateAgainstTheLog(t *testing.T) {
	for name, tc := range map[string]struct {
		then   func(h *history, c *api.Certificate) // after the cut
		cut    CutState
		table  uint64
		proven int
		open   []buckets.ID
		code   api.Code
		text   string
	}{
		"right": {cut: CutFound, table: 8, proven: 4},
		"a bucket moved later": {
			then: func(h *history, _ *api.Certificate) { h.own(buckets.Own{Bucket: 1, Prev: 2, Owner: "s2"}) },
			cut:  CutFound, table: 8, proven: 4,
		},
		"a bucket moved later, saved, and nothing purged": {
			then: func(h *history, _ *api.Certificate) { h.own(buckets.Own{Bucket: 1, Prev: 2, Owner: "s2"}); h.save() },
			cut:  CutFound, table: 8, proven: 4,
		},
		"purged up to the cut": {
			then: func(h *history, _ *api.Certificate) {
				h.save()
				h.purge(7)
				h.own(buckets.Own{Bucket: 1, Prev: 2, Owner: "s2"})
			},
			cut: CutFound, table: 8, proven: 4,
		},
		"purged beyond the cut": {
			then: func(h *history, _ *api.Certificate) {
				h.append("fence.s1", buckets.Fence{Storage: "s1"})
				h.save()
				h.purge(8)
			},
			cut: CutPurged, table: 9, proven: 4,
		},
		"purged beyond the cut, after a bucket moved": {
			then: func(h *history, _ *api.Certificate) {
				h.own(buckets.Own{Bucket: 1, Prev: 2, Owner: "s2"})
				h.append(buckets.SubjectCut, buckets.Cut{})
				h.save()
				h.purge(9)
			},
			cut: CutPurged, table: 10, proven: 3, open: []buckets.ID{1}, code: api.CodeNotFound, text: "bucket 1",
		},
		"a wrong generation": {
			then: func(_ *history, c *api.Certificate) { c.Storages[1].Buckets[1].Generation = 3 },
			cut:  CutFound, table: 8, proven: 3, code: api.CodeCoverage, text: "bucket 3",
		},
		"a bucket lost and another doubled": {
			then: func(_ *history, c *api.Certificate) { c.Storages[1].Buckets[1] = c.Storages[1].Buckets[0] },
			cut:  CutFound, table: 8, proven: 2, code: api.CodeCoverage, text: "bucket 3",
		},
		"the cut of another job": {
			then: func(_ *history, c *api.Certificate) { c.Job = "j2" },
			cut:  CutDiffers, code: api.CodeCoverage, text: "cut",
		},
		"the cut of another attempt": {
			then: func(_ *history, c *api.Certificate) { c.Attempt = 1 },
			cut:  CutDiffers, code: api.CodeCoverage, text: "cut",
		},
		"no cut": {
			then: func(_ *history, c *api.Certificate) { c.Cut = 1 },
			cut:  CutDiffers, code: api.CodeCoverage, text: "cut",
		},
		"a cut that is still to come": {
			then: func(_ *history, c *api.Certificate) { c.Cut = 1000 },
			cut:  CutDiffers, code: api.CodeCoverage, text: "cut",
		},
		"no position at all": {
			then: func(h *history, c *api.Certificate) { c.Cut = 0; h.save(); h.purge(3) },
			cut:  CutDiffers, code: api.CodeCoverage, text: "cut",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			h.own(buckets.Own{Bucket: 2, Prev: 5, Owner: "s9"}) // forged: it builds on what never was
			c := h.cut("j1")
			if tc.then != nil {
				tc.then(h, &c)
			}
			got, err := h.client.CheckCertificate(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if got.Cut != tc.cut || got.Table != tc.table || got.Proven != tc.proven || !slices.Equal(got.Open, tc.open) {
				t.Errorf("%+v", got)
			}
			if err := got.Err(); api.CodeOf(err) != tc.code || err != nil && !strings.Contains(err.Error(), tc.text) {
				t.Errorf("it says: %v", err)
			}
		})
	}
}

func TestCertificatesThatCannotBeChecked(t *testing.T) {
	h := newHistory(t)
	c := h.cut("j1")
	c.Version++
	_, err := h.client.CheckCertificate(t.Context(), c)
	wantCode(t, err, api.CodeVersion)
	c.Version, c.Cluster = 1, "c2"
	_, err = h.client.CheckCertificate(t.Context(), c)
	wantCode(t, err, api.CodeClusterDiffer)
	answer(h.cluster, "job.certificate", func(api.CertificateRequest) (api.Certificate, error) {
		return api.Certificate{Version: api.CertificateVersion + 1}, nil
	})
	_, err = h.client.Certificate(t.Context(), "j1")
	wantCode(t, err, api.CodeVersion)
}

// racing has something happen when the log is first read.
type racing struct {
	memBus
	race func()
}

type racingLog struct {
	clusterLog
	race *func()
}

func (r *racing) openLog(ctx context.Context) (clusterLog, error) {
	log, err := r.memBus.openLog(ctx)
	return racingLog{log, &r.race}, err
}

func (l racingLog) ReadTo(ctx context.Context, from, to uint64, filters []string, fn func(api.LogEntry) error) error {
	if race := *l.race; race != nil {
		*l.race = nil
		race()
	}
	return l.clusterLog.ReadTo(ctx, from, to, filters, fn)
}

// While the log is read, bucket 1 moves and the log is purged behind that: what was read up to there is worth
// nothing, and the check begins again with the table that was saved.
func TestTheLogIsPurgedWhileItIsRead(t *testing.T) {
	h := newHistory(t)
	h.own(buckets.Own{Bucket: 1, Prev: 2, Owner: "s2"}) // at 7
	c := h.cut("j1")
	c.Storages[1].Buckets = append(c.Storages[1].Buckets, api.BucketCount{Bucket: 1, Generation: 7, Records: 1, Pairs: 2})
	c.Storages[0].Buckets = c.Storages[0].Buckets[:1]
	h.client.conn = &racing{h.client.conn.(memBus), func() { h.save(); h.purge(7) }}
	got, err := h.client.CheckCertificate(t.Context(), c)
	if err != nil || got.Err() != nil || got.Cut != CutFound || got.Proven != 4 {
		t.Errorf("%+v, error %v", got, err)
	}
}
