//go:build unix

package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
)

// The public nats command runs a job, fetches more of its rows and gets errors with their codes: nothing of
// ours is needed to use a cluster.
func TestPublicNATSCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short")
	}
	nats, err := exec.LookPath("nats")
	if err != nil {
		t.Skip("the public nats command is not installed: `make tools` installs it")
	}
	c := startCluster(t, settings{buckets: 16})
	if out := c.submit("to be or not to be\nthat is the question\n", "import", "-"); out.code != 0 {
		t.Fatal(out.stderr)
	}
	request := func(subject, body string, reply any) string {
		t.Helper()
		args := []string{"--server", c.server, "req", "--raw", "--timeout", "60s", "pinion.dev." + subject, body}
		out, err := exec.CommandContext(t.Context(), nats, args...).Output()
		if err != nil {
			t.Fatalf("nats %s: %v", strings.Join(args, " "), err)
		}
		if err := json.Unmarshal(out, reply); err != nil {
			t.Fatalf("%s: %v in %s", subject, err, out)
		}
		return string(out)
	}
	for args, wants := range map[string][]string{
		"micro ls":                   {"pinion-router", "pinion-storage"},
		"micro info pinion-router":   {"pinion.dev.job.run", "pinion.dev.record.put"},
		"micro info pinion-storage":  {".pin", ".map"},
		"micro stats pinion-storage": {"pinion-storage Service Statistics"},
	} {
		out, err := exec.CommandContext(t.Context(), nats, append([]string{"--server", c.server}, strings.Fields(args)...)...).CombinedOutput()
		for _, want := range wants {
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("nats %s: %v, no %q in\n%s", args, err, want, out)
			}
		}
	}
	var reply api.JobReply
	text := request("job.run", `{"module":"wordcount","reduce":"sum","space":"default","limit":5,"sort":"-value"}`, &reply)
	if !strings.Contains(text, `"rows":[{"key":"be","value":2},{"key":"to","value":2},`) || len(reply.Rows) != 5 {
		t.Errorf("job.run answers %s", text)
	}
	request("job.run", `{"module":"wordcount","reduce":"sum","max_bytes":60}`, &reply)
	rows := len(reply.Rows)
	for reply.Next != "" {
		body, err := json.Marshal(api.ResultRequest{Job: reply.Job, Cursor: reply.Next, MaxBytes: 60})
		if err != nil {
			t.Fatal(err)
		}
		reply = api.JobReply{}
		request("job.result", string(body), &reply)
		rows += len(reply.Rows)
	}
	if rows != 8 {
		t.Errorf("%d rows came in pages, want 8", rows)
	}
	var put api.SeqReply
	request("record.put", `{"key":"k1","value":"hello"}`, &put)
	var got api.GetReply
	request("record.get", `{"key":"k1"}`, &got)
	if put.Seq == 0 || string(got.Value) != "hello" {
		t.Errorf("put at %d, got %q", put.Seq, got.Value)
	}
	var failure api.Error
	request("job.run", `{"module":"wordcout"}`, &failure)
	if failure.Code != api.CodeUnknownModule || !strings.Contains(failure.Hint, "wordcount") {
		t.Errorf("an unknown module: %+v", failure)
	}
}
