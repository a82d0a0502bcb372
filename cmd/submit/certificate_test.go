package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// certify gives a router a job with three rows, and its certificate: two storages own two buckets each.
func (r *router) certify() *api.Certificate {
	r.t.Helper()
	if _, err := r.bus.KV(r.t.Context(), "STATE", true, 1); err != nil {
		r.t.Fatal(err)
	}
	cert := &api.Certificate{
		Version: 1, Job: "j1", Attempt: 1, Buckets: 4, Module: "ab12", Params: "cd34", Records: 8, Pairs: 12,
		Storages: []api.CertifiedStorage{{Storage: "s1", Incarnation: "0123456789", PMR: "p1"}, {Storage: "s2", PMR: "p2"}},
	}
	for b := range uint16(4) {
		owner := &cert.Storages[b/2]
		seq := r.entry(buckets.OwnSubject(buckets.ID(b)), buckets.Own{Bucket: buckets.ID(b), Owner: owner.Storage})
		owner.Buckets = append(owner.Buckets, api.BucketCount{Bucket: b, Generation: seq, Records: 2, Pairs: 3})
	}
	cert.Cut = r.entry(buckets.SubjectCut, buckets.Cut{Job: "j1", Attempt: 1})
	digest := pmr.NewRowDigest()
	for _, key := range []string{"a", "b", "c"} {
		row := api.Row{Key: api.Bytes(key), Value: api.IntValue(1)}
		r.rows = append(r.rows, row)
		digest.Add(row)
	}
	cert.Rows, cert.Output = digest.Rows(), digest.Sum()
	serve(r, "job.get", func(req api.JobName) (api.JobInfo, error) { return api.JobInfo{Job: req.Job, State: api.JobDone}, nil })
	serve(r, "job.certificate", func(req api.CertificateRequest) (api.Certificate, error) {
		if req.Job != "j1" {
			return api.Certificate{}, api.Errorf(api.CodeUnknownJob, "no router knows a job %q", req.Job)
		}
		return *cert, nil
	})
	return cert
}

func (r *router) entry(subject string, entry any) uint64 {
	r.t.Helper()
	body, err := api.Encode(api.Msgpack, entry)
	if err != nil {
		r.t.Fatal(err)
	}
	seq, err := r.log.Append(r.t.Context(), subject, nil, body, "")
	if err != nil {
		r.t.Fatal(err)
	}
	return seq
}

func TestJobCertificate(t *testing.T) {
	r := newRouter(t)
	cert := r.certify()
	got := call(t, "", "job", "certificate", "j1", "--rows", "--buckets")
	for _, want := range []string{
		"attempt 1, at log position 5", "ab12", "is in the log, of this job and attempt",
		"4 of 4 were read exactly once, by their owner at the cut", "the rows are those of the certificate",
		"s1       01234567     p1   2        4        6", "3       s2       4           2        3",
	} {
		if got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("exit %d, want 0 and %q\n%s%s", got.code, want, got.stdout, got.stderr)
		}
	}
	kept := filepath.Join(t.TempDir(), "kept.json")
	got = call(t, "", "job", "certificate", "j1", "--output", "json")
	if err := os.WriteFile(kept, []byte(got.stdout), 0o600); err != nil || got.code != 0 {
		t.Fatal(got, err)
	}
	if got := call(t, "", "job", "certificate", "--file", kept); got.code != 0 || !strings.Contains(got.stdout, "4 of 4") {
		t.Errorf("of a file: %+v", got)
	}

	good := *cert
	for name, tc := range map[string]struct {
		change func()
		args   string
		want   []string // on stdout
		fails  string   // with
	}{
		"two faults": {
			func() {
				cert.Storages[0].Buckets = cert.Storages[0].Buckets[:1]
				cert.Storages[1].Buckets[1].Generation = 3
			}, "",
			[]string{
				"WRONG    pinned by nobody: bucket 1\n", "WRONG    pinned by another owner or generation than the table's: bucket 3\n",
				"WRONG    the buckets' records are 6 together, the job's 8\n", "2 of 4",
			},
			"the certificate is wrong: pinned by nobody: bucket 1",
		},
		"no cut":     {func() { cert.Cut = 4 }, "", []string{"WRONG   the log has no cut of this job and attempt at position 4"}, "its cut is not in the log"},
		"other rows": {func() { cert.Output = "00" }, " --rows", []string{"WRONG    the rows are not those of the certificate"}, "not those of its certificate"},
		"newer":      {func() { cert.Version = 2 }, "", nil, "has version 2; this program reads 1"},
		"as JSON":    {func() { cert.Records = 9 }, " --output json", []string{`"right":false`, `"kind":"counts"`}, "the certificate is wrong"},
	} {
		*cert = good
		cert.Storages = []api.CertifiedStorage{good.Storages[0], good.Storages[1]}
		for i := range cert.Storages {
			cert.Storages[i].Buckets = append([]api.BucketCount(nil), good.Storages[i].Buckets...)
		}
		tc.change()
		got := call(t, "", strings.Fields("job certificate j1"+tc.args)...)
		for _, want := range tc.want {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%s: want %q\n%s", name, want, got.stdout)
			}
		}
		if got.code != 1 || !strings.Contains(got.stderr, tc.fails) {
			t.Errorf("%s: exit %d\n%s", name, got.code, got.stderr)
		}
	}
	if got := call(t, "", "job", "certificate", "j2"); got.code != 1 || !strings.Contains(got.stderr, "no router knows a job") {
		t.Errorf("of a job that never was: %+v", got)
	}
	if got := call(t, "", "job", "certificate"); got.code != 2 || !strings.Contains(got.stderr, "needs the ID of a job") {
		t.Errorf("without an id: %+v", got)
	}
}

// Buckets that moved after the cut cannot be checked once the log is purged; the exit status says so.
func TestJobCertificateAfterAPurge(t *testing.T) {
	r := newRouter(t)
	cert := r.certify()
	r.entry(buckets.OwnSubject(2), buckets.Own{Bucket: 2, Prev: 3, Owner: "s1"})
	last := r.entry(buckets.SubjectCut, buckets.Cut{})
	table := buckets.NewTable(4)
	err := r.log.ReadTo(t.Context(), 1, last, nil, func(e api.LogEntry) error {
		entry, err := buckets.Decode(e, 4)
		if err == nil {
			_, err = table.Apply(e.Seq, entry)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	state, err := r.bus.KV(t.Context(), "STATE", false, 0)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := table.Save()
	if err == nil {
		_, err = state.Create(t.Context(), "table", saved)
	}
	if err == nil {
		err = r.log.Purge(t.Context(), cert.Cut)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := call(t, "", "job", "certificate", "j1", "--output", "json")
	var report certificateReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != 1 {
		t.Fatalf("%+v, error %v", got, err)
	}
	if c := report.Check; c.Right || c.Cut != "purged" || c.Proven != 3 || len(c.Open) != 1 || c.Open[0] != 2 || len(c.Faults) != 0 {
		t.Errorf("%+v", c)
	}
	got = call(t, "", "job", "certificate", "j1")
	if !strings.Contains(got.stdout, "OPEN") || !strings.Contains(got.stdout, "purged") || !strings.Contains(got.stderr, "bucket 2 at the cut was purged from the log") {
		t.Errorf("%+v", got)
	}
}
