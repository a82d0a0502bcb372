package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/internal/cli"
	"github.com/pinion-mr/pinion/plugins"
)

// router answers as a cluster without storages would, over a real server.
type router struct {
	t   *testing.T
	bus *bus.Bus
	log *bus.Log

	mu     sync.Mutex
	job    api.JobRequest // asked for last
	rows   []api.Row      // of every job, two a page
	failed error          // of every job
}

func newRouter(t *testing.T) *router {
	t.Helper()
	server, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0", MaxPayload: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	t.Setenv("PINION_SERVER", server.URL())
	r := &router{t: t}
	if r.bus, err = bus.Connect(t.Context(), bus.Config{Server: server.URL(), Cluster: "dev"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.bus.Close)
	if r.log, err = r.bus.CreateLog(t.Context(), bus.LogConfig{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.bus.Objects(t.Context(), "MODULES", true, 1); err != nil {
		t.Fatal(err)
	}
	serve(r, "admin.settings", func(api.Empty) (api.Settings, error) {
		return api.Settings{Buckets: 4, MaxRecord: 100_000}, nil
	})
	serve(r, "space.create", func(req api.SpaceRequest) (api.Empty, error) {
		return api.Empty{}, buckets.CheckSpace(req.Space)
	})
	serve(r, "job.run", r.run)
	serve(r, "job.result", func(req api.ResultRequest) (api.JobReply, error) { return r.page(req.Job, req.Cursor) })
	return r
}

func serve[Req, Resp any](r *router, subject string, fn func(Req) (Resp, error)) {
	r.t.Helper()
	_, err := bus.Handle(r.bus, subject, "router", func(_ context.Context, req Req) (Resp, error) { return fn(req) })
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *router) run(req api.JobRequest) (api.JobReply, error) {
	r.mu.Lock()
	r.job = req
	r.mu.Unlock()
	return r.page(req.Job, "0")
}

func (r *router) page(job, cursor string) (api.JobReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return api.JobReply{}, r.failed
	}
	var from int
	if _, err := fmt.Sscan(cmp.Or(cursor, "0"), &from); err != nil {
		return api.JobReply{}, err
	}
	reply := api.JobReply{Job: job, Status: api.JobDone, Rows: r.rows[from:min(from+2, len(r.rows))], Stats: &api.JobStats{
		Cut: 48113, Buckets: 4, Storages: 2, Records: 3_210_000, Bytes: 268_000_000, Attempts: 1, Millis: 2100,
		Pinned: []api.PinnedOnStorage{{Buckets: []api.BucketPin{{Bucket: 0}, {Bucket: 3}}}, {Buckets: []api.BucketPin{{Bucket: 2}, {Bucket: 1}}}},
	}}
	if from+2 < len(r.rows) {
		reply.Next = fmt.Sprint(from + 2)
	}
	return reply, nil
}

// records reads the log: key and value of each record of a space, "" for an assigned key.
func (r *router) records(space string) []string {
	r.t.Helper()
	state, err := r.log.State(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var all []string
	err = r.log.ReadTo(r.t.Context(), 1, state.Last, nil, func(e api.LogEntry) error {
		entry, err := buckets.Decode(e, 4)
		if err != nil {
			return err
		}
		records := entry.(buckets.Records)
		if records.Space != space {
			return nil
		}
		records.Each(func(key, value []byte, _ bool) {
			if _, _, _, ok := buckets.ParseAssigned(key); ok {
				key = nil
			}
			all = append(all, string(key)+"="+string(value))
		})
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

const proofLine = "4/4 buckets on 2 storages, each exactly once, at log position 48113; 3.2 M records, 268 MB, 2.1 s, 1 attempt\n"

func TestRun(t *testing.T) {
	r := newRouter(t)
	for i := range 5 {
		r.rows = append(r.rows, api.Row{Key: api.Bytes(fmt.Sprint("k", i)), Value: api.IntValue(int64(i))})
	}
	got := call(t, "", "run", "wordcount", "--reduce", "sum", "--sort", "-value", "--limit", "5", "-p", "a=1=2", "-p", "b=", "--space", "logs", "--timeout", "90s")
	if got.code != cli.ExitDone || got.stdout != "k0\t0\nk1\t1\nk2\t2\nk3\t3\nk4\t4\n" || got.stderr != proofLine {
		t.Errorf("%+v", got)
	}
	req := r.job
	if req.Module != "wordcount" || req.Reduce != "sum" || req.Sort != "-value" || req.Limit != 5 || req.Space != "logs" ||
		req.TimeoutMS != 90_000 || string(req.Params["a"]) != "1=2" || req.Params["b"] == nil {
		t.Errorf("asked for %+v", req)
	}
	asJSON := call(t, "", "run", "none", "--output", "json")
	var whole struct {
		Rows  []api.Row    `json:"rows"`
		Stats api.JobStats `json:"stats"`
	}
	if err := json.Unmarshal([]byte(asJSON.stdout), &whole); err != nil || len(whole.Rows) != 5 || whole.Stats.Cut != 48113 {
		t.Errorf("%v, %+v", err, asJSON)
	}
	if r.job.Module != "" {
		t.Errorf("none asked for module %q", r.job.Module)
	}
}

func TestRunFails(t *testing.T) {
	r := newRouter(t)
	r.failed = api.Errorf(api.CodeUnknownModule, "there is no module wordcuont").WithHint("did you mean wordcount?")
	got := call(t, "", "run", "wordcuont")
	if got.code != cli.ExitFailed || got.stdout != "" || got.stderr != "submit: there is no module wordcuont (did you mean wordcount?)\n" {
		t.Errorf("%+v", got)
	}
	got = call(t, "", "run", "wordcount", "--cluster", "nowhere")
	if got.code != cli.ExitFailed || !strings.Contains(got.stderr, `no cluster "nowhere"`) {
		t.Errorf("%+v", got)
	}
}

func TestRunUploadsAFile(t *testing.T) {
	r := newRouter(t)
	got := call(t, "", "run", "../../plugins/builtin/wordcount.wasm")
	if got.code != cli.ExitDone || len(r.job.Module) != 64 || r.job.Label != "wordcount.wasm" {
		t.Fatalf("%+v, module %q, called %q", got, r.job.Module, r.job.Label)
	}
	store, err := r.bus.Objects(t.Context(), "MODULES", false, 0)
	if err != nil {
		t.Fatal(err)
	}
	if has, err := store.Has(t.Context(), r.job.Module); !has || err != nil {
		t.Errorf("the module is not stored: %v", err)
	}
}

func TestExport(t *testing.T) {
	r := newRouter(t)
	got := call(t, "", "export")
	if got.code != cli.ExitDone || got.stdout != "" || got.stderr != proofLine {
		t.Errorf("nothing: %+v", got)
	}
	for _, v := range []string{"one", "two", "three"} {
		r.rows = append(r.rows, api.Row{Key: api.Bytes(v), Value: api.BytesValue([]byte(v))})
	}
	if got := call(t, "", "export"); got.code != cli.ExitDone || got.stdout != "one\ntwo\nthree\n" {
		t.Errorf("lines: %+v", got)
	}
	if got := call(t, "", "export", "--format", "ndjson"); got.code != cli.ExitDone || !strings.HasPrefix(got.stdout, "{\"key\":\"one\",\"value\":\"one\"}\n{") {
		t.Errorf("ndjson: %+v", got)
	}
	if r.job.Reduce != "none" || r.job.Sort != "key" {
		t.Errorf("asked for %+v", r.job)
	}
}

func TestImport(t *testing.T) {
	r := newRouter(t)
	dir := t.TempDir()
	lines, events := filepath.Join(dir, "a.log"), filepath.Join(dir, "e.ndjson")
	for path, text := range map[string]string{lines: "one\ntwo\n", events: "{\"id\":\"x\"}\n{\"id\":7}\n\n{\"id\":NaN}\n{\"id\":8}\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := call(t, "three\n", "import", lines, "-", "--output", "json")
	if got.code != cli.ExitDone || !strings.HasPrefix(got.stderr, "imported 3 records, 11 B, ") || !strings.HasPrefix(got.stdout, `{"records":3,"bytes":11,"skipped":0,`) {
		t.Errorf("lines: %+v", got)
	}
	if all := r.records("default"); fmt.Sprint(all) != "[=one =two =three]" {
		t.Errorf("stored %q", all)
	}
	got = call(t, "", "import", events, "--key", "id", "--space", "events")
	if got.code != cli.ExitFailed || got.stdout != "" || !strings.HasPrefix(got.stderr, "stopped; stored 2 records, ") ||
		!strings.Contains(got.stderr, "e.ndjson:4: NaN is not JSON") || !strings.Contains(got.stderr, "--skip-bad") {
		t.Errorf("ndjson: %+v", got)
	}
	if all := r.records("events"); len(all) != 2 {
		t.Errorf("stored %q", all)
	}
	got = call(t, "", "import", events, "--key", "id", "--space", "skipped", "--skip-bad", "1")
	if got.code != cli.ExitFailed || !strings.Contains(got.stderr, "left out: ") || !strings.Contains(got.stderr, "imported 3 records") ||
		!strings.HasSuffix(got.stderr, "submit: 1 bad line left out\n") {
		t.Errorf("skipping: %+v", got)
	}
	if all := r.records("skipped"); len(all) != 3 {
		t.Errorf("stored %q", all)
	}
	got = call(t, "a\n"+strings.Repeat("x", 100_001)+"\nb\n", "import", "-", "--space", "big")
	if got.code != cli.ExitFailed || !strings.Contains(got.stderr, "stdin:2: the line has 100001 bytes; the limit max_record is 100000") {
		t.Errorf("big: %+v", got)
	}
	got = call(t, "", "import", lines, "--space", "no space")
	if got.code != cli.ExitFailed || !strings.Contains(got.stderr, "space's name") {
		t.Errorf("bad space: %+v", got)
	}
}

// An import that is stopped stores what it read, and says up to which line.
func TestImportStopped(t *testing.T) {
	r := newRouter(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, out := io.Pipe()
	defer func() { _ = out.Close() }()
	go func() {
		for _, piece := range []string{"one\ntwo\n", "half", "more"} { // that the last is taken means that two lines were read
			_, _ = io.WriteString(out, piece)
		}
		cancel()
	}()
	var stdout, stderr strings.Builder
	code := submit(ctx, []string{"import", "-"}, in, &stdout, &stderr)
	if code != cli.ExitFailed || !strings.HasPrefix(stderr.String(), "stopped; stored 2 records, ") ||
		!strings.HasSuffix(stderr.String(), "submit: stdin: stopped after line 2: context canceled\n") {
		t.Errorf("exit %d, stderr %q", code, stderr.String())
	}
	if all := r.records("default"); len(all) != 2 {
		t.Errorf("stored %q", all)
	}
}

func TestRecords(t *testing.T) {
	r := newRouter(t)
	var put api.PutRequest
	serve(r, "record.put", func(req api.PutRequest) (api.SeqReply, error) { put = req; return api.SeqReply{Seq: 9}, nil })
	var asked api.KeyRequest
	serve(r, "record.get", func(req api.KeyRequest) (api.GetReply, error) {
		asked = req
		if string(req.Key) == "none" {
			return api.GetReply{}, api.Errorf(api.CodeNotFound, "no record")
		}
		return api.GetReply{Key: req.Key, Value: api.Bytes("v\x00")}, nil
	})
	serve(r, "record.delete", func(req api.KeyRequest) (api.SeqReply, error) { asked = req; return api.SeqReply{Seq: 10}, nil })
	serve(r, "space.list", func(api.Empty) (api.SpacesReply, error) { return api.SpacesReply{Spaces: []string{"a", "b"}}, nil })
	for _, tc := range []struct {
		args string
		want outcome
	}{
		{"put k - --space s", outcome{0, "", "stored at log position 9\n"}},
		{"put k v --output json", outcome{0, "{\"seq\":9}\n", ""}},
		{"get k", outcome{0, "v\x00", ""}},
		{"get #5.0.1 --output json", outcome{0, "{\"key\":\"#5.0.1\",\"value\":\"v\\u0000\"}\n", ""}},
		{"get none", outcome{1, "", "submit: no record\n"}},
		{"delete #5.0.1", outcome{0, "", "deleted at log position 10\n"}},
		{"spaces", outcome{0, "a\nb\n", ""}},
		{"spaces --output json", outcome{0, "{\"spaces\":[\"a\",\"b\"]}\n", ""}},
	} {
		if got := call(t, "from stdin\n", strings.Fields(tc.args)...); got != tc.want {
			t.Errorf("submit %s: %+v, want %+v", tc.args, got, tc.want)
		}
		if strings.HasPrefix(tc.args, "put k -") && (string(put.Value) != "from stdin\n" || put.Space != "s" || string(*put.Key) != "k") {
			t.Errorf("put %+v", put)
		}
	}
	if string(asked.Key) != string(buckets.AppendAssigned(nil, 5, 0, 1)) {
		t.Errorf("deleted %q", asked.Key)
	}
}

func TestModules(t *testing.T) {
	r := newRouter(t)
	m := api.Module{Name: "mine", Version: "1", Digest: strings.Repeat("ab", 32), Size: 700, Kind: "reactor", Functions: []string{"map"}}
	var added api.ModuleAddRequest
	serve(r, "module.add", func(req api.ModuleAddRequest) (api.Module, error) { added = req; return m, nil })
	serve(r, "module.list", func(api.Empty) (api.ModulesReply, error) { return api.ModulesReply{Modules: []api.Module{m}}, nil })
	serve(r, "module.show", func(req api.ModuleRequest) (api.Module, error) { return m, nil })
	serve(r, "module.remove", func(req api.ModuleRequest) (api.Empty, error) { return api.Empty{}, nil })
	got := call(t, "", "module", "add", "../../plugins/builtin/wordcount.wasm", "--name", "mine@7", "--reduce", "sum")
	if got.code != cli.ExitDone || !strings.Contains(got.stdout, "version    1") || added.Name != "mine" || added.Version != "7" || added.Reduce != "sum" {
		t.Errorf("%+v, asked for %+v", got, added)
	}
	if strings.Contains(got.stderr, "unchanged") {
		t.Errorf("other bytes: %+v", got)
	}
	m.Digest = plugins.Digest([]byte(fixture(t, "../../plugins/builtin/wordcount.wasm")))
	if got := call(t, "", "module", "add", "../../plugins/builtin/wordcount.wasm", "--name", "mine"); !strings.Contains(got.stderr, "unchanged: mine@1 has these bytes already\n") {
		t.Errorf("the same bytes: %+v", got)
	}
	m.Digest = strings.Repeat("ab", 32)
	for args, want := range map[string]string{
		"module list":                      "mine  1        reactor  -       700   abababababab  map\n",
		"module show mine":                 "functions  map\n",
		"module list --output json":        `{"modules":[{"name":"mine"`,
		"module show mine --output json":   `{"name":"mine","version":"1"`,
		"module remove mine --output json": `{"removed":"mine"}`,
	} {
		if got := call(t, "", strings.Fields(args)...); got.code != cli.ExitDone || !strings.Contains(got.stdout, want) {
			t.Errorf("submit %s: %+v, want %q", args, got, want)
		}
	}
}
