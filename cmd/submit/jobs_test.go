package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/internal/cli"
)

// durable has the router answer about jobs as one with a history does.
func (r *router) durable(jobs map[string]api.JobInfo) {
	r.t.Helper()
	get := func(id string) (api.JobInfo, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		info, ok := jobs[id]
		if !ok {
			return info, api.Errorf(api.CodeUnknownJob, "no router knows a job %q", id).WithHint("did you mean done?")
		}
		return info, nil
	}
	serve(r, "job.submit", func(req api.JobRequest) (api.JobState, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.job = req
		return api.JobState{Job: req.Job, State: api.JobQueued}, r.failed
	})
	serve(r, "job.get", func(req api.JobName) (api.JobInfo, error) { return get(req.Job) })
	serve(r, "job.list", func(req api.JobsRequest) (api.JobsReply, error) {
		info, err := get("failed")
		return api.JobsReply{Jobs: []api.JobInfo{info}, More: req.Limit}, err
	})
	serve(r, "job.cancel", func(req api.CancelRequest) (api.JobState, error) {
		info, err := get(req.Job)
		if info.State == api.JobQueued {
			return api.JobState{Job: req.Job, State: api.JobCanceled}, err
		}
		return api.JobState{Job: req.Job, State: info.State, Over: info.State.Over()}, err
	})
}

var (
	doneJob = api.JobInfo{
		Job: "done", State: api.JobDone, Durable: true, Module: "word\x1bcount", Function: "map", Reduce: "sum", Space: "default", Router: "r1-0", Take: 2, Attempts: 1,
		SubmittedMS: 1_700_000_000_000, StartedMS: 1_700_000_001_000, EndedMS: 1_700_000_002_000, Rows: 3, Bytes: 4096, Stats: &api.JobStats{Cut: 99, Millis: 2100},
	}
	runningJob = api.JobInfo{
		Job: "running", State: api.JobRunning, Durable: true, Router: "r1-0", Take: 1, Cancel: true, Error: api.Errorf(api.CodeLost, "router r2 fell silent"),
		Progress: &api.JobProgress{Phase: "map", Attempt: 2, Buckets: 1, Of: 4, Records: 10, Bytes: 100},
	}
	failedJob = api.JobInfo{Job: "failed", State: api.JobFailed, Durable: true, Module: "m", Take: 1, Error: api.Errorf(api.CodeGuestFailed, "it trapped").WithHint("mend it")}
)

func TestJobCommands(t *testing.T) {
	t.Setenv("TZ", "UTC")
	r := newRouter(t)
	r.rows = []api.Row{{Key: api.Bytes("a"), Value: api.IntValue(1)}, {Key: api.Bytes("b"), Value: api.IntValue(2)}, {Key: api.Bytes("c"), Value: api.IntValue(3)}}
	r.durable(map[string]api.JobInfo{"done": doneJob, "running": runningJob, "failed": failedJob, "queued": {Job: "queued", State: api.JobQueued}})
	begun := time.UnixMilli(1_700_000_001_000).Format(time.DateTime)
	for _, tc := range []struct {
		args           string
		code           int
		stdout, stderr string // parts, separated by |
	}{
		{"job done", cli.ExitDone, `state      done|module     word\x1bcount map|taken      2 times|begun      ` + begun + `|result     3 rows, 4.1 kB, at log position 99; 1 attempt in 2.1 s`, ""},
		{"job running", cli.ExitDone, "running, being cancelled: map, 1/4 buckets, 10 records, 100 B, attempt 2|last time  LOST: router r2 fell silent", ""},
		{"job failed", cli.ExitDone, "error  |GUEST_FAILED: it trapped (mend it)", ""},
		{"job don", cli.ExitFailed, "", `no router knows a job "don" (did you mean done?)`},
		{"job reslt done", cli.ExitUsage, "", "did you mean result?"},
		{"job", cli.ExitUsage, "", "job needs the ID of a job"},
		{"jobs --limit 7", cli.ExitDone, "JOB     STATE   MODULE|failed  failed  m|GUEST_FAILED", "and 7 more (--limit, --state)"},
		{"jobs --state dne", cli.ExitUsage, "", "did you mean done?"},
		{"jobs --limit 0", cli.ExitDone, "failed  failed  m", "and 1000 more"},
		{"jobs --limit -1", cli.ExitUsage, "", "--limit is -1; it must be 0 to 1000"},
		{"jobs --limit 1001", cli.ExitUsage, "", "--limit is 1001"},
		{"job result done", cli.ExitDone, "a\t1\nb\t2\nc\t3\n", proofLine},
		{"job result done --limit 1 --output ndjson", cli.ExitDone, `{"key":"a","value":1}` + "\n", proofLine},
		{"job result nope", cli.ExitFailed, "", "did you mean done?"},
		{"job wait done", cli.ExitDone, "", proofLine + "|submit job result done"},
		{"job watch done", cli.ExitDone, "", proofLine},
		{"job wait done --output json", cli.ExitDone, `{"job":"done","state":"done",|"rows":3,`, ""},
		{"job wait done --output yaml", cli.ExitUsage, "", "yaml"},
		{"job cancel queued --output json", cli.ExitDone, `{"job":"queued","state":"canceled"}` + "\n", "job queued is cancelled"},
		{"job cancel done --output json", cli.ExitFailed, `{"job":"done","state":"done","over":true}` + "\n", "was over already"},
		{"job wait nope", cli.ExitFailed, "", "did you mean done?"},
		{"job cancel queued", cli.ExitDone, "", "job queued is cancelled"},
		{"job cancel running", cli.ExitDone, "", "job running is being cancelled"},
		{"job cancel done", cli.ExitFailed, "", "job done was over already: done"},
	} {
		got := call(t, "", strings.Fields(tc.args)...)
		for _, part := range strings.Split(tc.stdout, "|") {
			if got.code != tc.code || !strings.Contains(got.stdout, part) || tc.stdout == "" && got.stdout != "" {
				t.Errorf("submit %s: exit %d, stdout %q; want %d, %q", tc.args, got.code, got.stdout, tc.code, part)
			}
		}
		for _, part := range strings.Split(tc.stderr, "|") {
			if !strings.Contains(got.stderr, part) || tc.stderr == "" && got.stderr != "" {
				t.Errorf("submit %s: stderr %q, want %q", tc.args, got.stderr, part)
			}
		}
	}
	asJSON := call(t, "", "job", "failed", "--output", "json")
	var info api.JobInfo
	if err := json.Unmarshal([]byte(asJSON.stdout), &info); err != nil || info.Error == nil || info.Error.Code != api.CodeGuestFailed {
		t.Errorf("%+v, %v", asJSON, err)
	}
	r.failed = api.Errorf(api.CodeGuestFailed, "it trapped")
	got := call(t, "", "job", "wait", "failed", "--output", "json")
	if err := json.Unmarshal([]byte(got.stdout), &info); err != nil || info.State != api.JobFailed || got.code != cli.ExitFailed || !strings.Contains(got.stderr, "it trapped") {
		t.Errorf("wait for a failed job: %+v, %v", got, err)
	}
	for _, verb := range []string{"wait", "result"} {
		if got := call(t, "", "job", verb, "failed"); got.code != cli.ExitFailed || got.stdout != "" || !strings.Contains(got.stderr, "it trapped") {
			t.Errorf("%s of a failed job: %+v", verb, got)
		}
	}
}

func TestRunDetached(t *testing.T) {
	r := newRouter(t)
	jobs := map[string]api.JobInfo{}
	r.durable(jobs)
	got := call(t, "", "run", "wordcount", "--reduce", "sum", "--detach", "--timeout", "30m")
	if got.code != cli.ExitDone || got.stdout != r.job.Job+"\n" || len(r.job.Job) < 20 || !strings.Contains(got.stderr, "submit job wait "+r.job.Job) {
		t.Errorf("%+v", got)
	}
	if r.job.TimeoutMS != (30*time.Minute).Milliseconds() || !r.job.Proof || r.job.Reduce != "sum" {
		t.Errorf("asked for %+v", r.job)
	}
	got = call(t, "", "run", "wordcount", "--detach", "--id", "mine", "--output", "json")
	if got.code != cli.ExitDone || got.stdout != "{\"job\":\"mine\"}\n" || r.job.Job != "mine" || !strings.HasPrefix(got.stderr, "submitted; see") {
		t.Errorf("%+v", got)
	}
	jobs["mine"] = runningJob
	got = call(t, "", "run", "wordcount", "--detach", "--id", "mine")
	if got.code != cli.ExitDone || got.stdout != "mine\n" || !strings.HasPrefix(got.stderr, "job mine was submitted before and is running; see") {
		t.Errorf("%+v", got)
	}
	for args, want := range map[string]string{
		"run wordcount --detach --output tsv":    "--output is json or left away",
		"run wordcount --detach --golden x":      "does not wait for",
		"run wordcount --detach --local jobs.go": "only one of them can hold",
	} {
		if got := call(t, "", strings.Fields(args)...); got.code != cli.ExitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("submit %s: %+v", args, got)
		}
	}
	r.failed = api.Errorf(api.CodeUnknownModule, "there is no module x")
	if got := call(t, "", "run", "x", "--detach"); got.code != cli.ExitFailed || got.stdout != "" || !strings.Contains(got.stderr, "there is no module x") {
		t.Errorf("%+v", got)
	}
}
