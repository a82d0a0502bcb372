package node

import (
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
)

func TestOnDelivery(t *testing.T) {
	queued := api.JobRecord{Version: 1, Job: "j", Durable: true, State: api.JobQueued, Request: &api.JobRequest{}}
	with := func(rec api.JobRecord, change func(*api.JobRecord)) api.JobRecord {
		change(&rec)
		return rec
	}
	running := with(queued, func(r *api.JobRecord) { r.State, r.Router, r.Take, r.Message = api.JobRunning, "r1", 1, 7 })
	for name, tc := range map[string]struct {
		rec   api.JobRecord
		want  verdict
		state api.JobStatus
		take  int
		says  string // in the record's error
	}{
		"first":                      {queued, runIt, api.JobRunning, 1, ""},
		"its router fell silent":     {running, runIt, api.JobRunning, 2, "router r1, which ran the job, fell silent"},
		"a double while it runs":     {with(running, func(r *api.JobRecord) { r.Message = 6 }), dropIt, api.JobRunning, 1, ""},
		"done":                       {with(running, func(r *api.JobRecord) { r.State = api.JobDone }), dropIt, api.JobDone, 1, ""},
		"interactive":                {with(running, func(r *api.JobRecord) { r.Durable = false }), dropIt, api.JobRunning, 1, ""},
		"cancelled while it ran":     {with(running, func(r *api.JobRecord) { r.Cancel = true }), endIt, api.JobCanceled, 1, "cancelled"},
		"the last time":              {with(running, func(r *api.JobRecord) { r.Take = 4 }), runIt, api.JobRunning, 5, "fell silent"},
		"too often":                  {with(running, func(r *api.JobRecord) { r.Take = 5 }), endIt, api.JobFailed, 5, "taken 5 times and never finished; the last time: router r1"},
		"often, but most given back": {with(running, func(r *api.JobRecord) { r.Take, r.Back = 7, 3 }), runIt, api.JobRunning, 8, "fell silent"},
	} {
		t.Run(name, func(t *testing.T) {
			next, what := onDelivery(tc.rec, 7, "r2", 99)
			message := ""
			if next.Error != nil {
				message = next.Error.Message
			}
			if what != tc.want || next.State != tc.state || next.Take != tc.take || !strings.Contains(message, tc.says) || tc.says == "" && message != "" {
				t.Errorf("verdict %d, record %+v, error %q", what, next, message)
			}
			if what == runIt && !held(next, "r2", next.Take) {
				t.Errorf("it is not the taker's: %+v", next)
			}
		})
	}
}

func TestCommitted(t *testing.T) {
	rec := api.JobRecord{Version: 1, Job: "j", Durable: true, State: api.JobRunning, Router: "r1", Take: 2, Attempts: 3}
	done := ending{stats: &api.JobStats{Rows: 5, Pinned: []api.PinnedOnStorage{{}}, Skipped: []api.SkippedRecord{{}}}, attempts: 1, result: "j.2", bytes: 9}
	if got := committed(rec, done, 99); got.State != api.JobDone || got.Result != "j.2" || got.Attempts != 4 || got.Stats.Pinned != nil || got.Stats.Skipped != nil || done.stats.Pinned == nil {
		t.Errorf("done: %+v", got)
	}
	rec.Cancel = true
	if got := committed(rec, done, 99); got.State != api.JobCanceled || got.Result != "" || got.Error == nil {
		t.Errorf("cancelled meanwhile: %+v", got)
	}
	rec.Cancel = false
	if got := committed(rec, ending{err: api.Errorf(api.CodeTimeout, "over")}, 99); got.State != api.JobFailed || got.Error.Code != api.CodeTimeout {
		t.Errorf("failed: %+v", got)
	}
	if back := givenBack(rec, nil, true); held(back, "r1", 2) || back.State != api.JobQueued || back.Take != 2 || back.Back != 1 {
		t.Errorf("given back: %+v", back)
	}
}

func TestFingerprint(t *testing.T) {
	sum := func(req api.JobRequest) string {
		t.Helper()
		s, err := fingerprint(req)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	req := api.JobRequest{Module: "m", Params: map[string]api.Bytes{"a": api.Bytes("1"), "b": api.Bytes("\xff"), "c": api.Bytes("3")}}
	same := req
	same.Job, same.Client, same.WaitMS, same.MaxBytes = "j", "shop", 5, 6
	other := req
	other.Limit = 1
	for range 20 {
		if sum(req) != sum(same) {
			t.Fatal("what only concerns the answer makes another request")
		}
	}
	if sum(req) == sum(other) {
		t.Error("another limit makes the same request")
	}
}

func TestKeepsResult(t *testing.T) {
	done := api.JobRecord{State: api.JobDone, Take: 2, Result: "j.2"}
	running := api.JobRecord{State: api.JobRunning, Take: 2}
	for _, tc := range []struct {
		rec  api.JobRecord
		take int
		want bool
	}{
		{done, 2, true},
		{done, 1, false},
		{done, 3, false},
		{running, 2, true},
		{running, 1, false},
		{running, 3, true},
		{api.JobRecord{}, 1, false},
		{api.JobRecord{State: api.JobFailed, Take: 1}, 1, false},
	} {
		if got := keepsResult(tc.rec, "j", tc.take); got != tc.want {
			t.Errorf("%+v keeps the result of take %d: %v", tc.rec, tc.take, got)
		}
	}
}
