//go:build unix

package e2e

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
)

// badCommand is a command that must fail, and what its message must hold.
type badCommand struct {
	name    string
	program string
	args    []string
	stdin   string
	says    []string
}

func (b badCommand) check(t *testing.T) {
	t.Helper()
	out := command(t, b.stdin, b.program, b.args...)
	if out.code == 0 {
		t.Errorf("%s: exit code 0, want a failure\n%s%s", b.name, out.stdout, out.stderr)
	}
	message := lastLine(out.stderr)
	for _, part := range b.says {
		if !strings.Contains(message, part) {
			t.Errorf("%s: the last line on stderr does not say %q:\n%s", b.name, part, out.stderr)
		}
	}
	if strings.Contains(out.stderr, "goroutine ") || strings.Contains(out.stdout, "goroutine ") {
		t.Errorf("%s: a stack trace:\n%s%s", b.name, out.stdout, out.stderr)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// Whatever is asked wrongly is refused with one message that names place and remedy, and the cluster works on.
func TestBadInput(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 32})
	text := newText(9, 500)
	c.importLines("", text.lines)
	c.addFaulty()
	if _, err := c.client.Put(t.Context(), "bangs", []byte("the bad one"), []byte("!trap here")); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	st, err := c.client.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := []string{"--server", c.server}
	on := func(args ...string) []string { return append(args, at...) }
	for _, b := range []badCommand{
		{"unknown module", "submit", on("run", "wordcuont"), "", []string{"wordcuont", "module"}},
		{"unknown function", "submit", on("run", "wordcount", "mop"), "", []string{"mop", "wordcount", "map"}},
		{"unknown space", "submit", on("run", "wordcount", "--space", "nowhere"), "", []string{"nowhere", "space"}},
		{"unknown cluster", "submit", on("run", "wordcount", "--cluster", "elsewhere"), "", []string{"elsewhere", "cluster", "engine"}},
		{"unknown reduce", "submit", on("run", "wordcount", "--reduce", "sumx"), "", []string{"sumx", "sum"}},
		{"unknown command", "submit", on("rnu"), "", []string{"rnu", "run"}},
		{"no such file", "submit", on("import", filepath.Join(dir, "none.txt")), "", []string{"none.txt"}},
		{"record over the limit", "submit", on("import", "--space", "big", file("long.txt", "short\n"+strings.Repeat("x", st.MaxRecord+1)+"\n")), "", []string{"long.txt:2", "4194304"}},
		{"line 7 broken", "submit", on("import", "--space", "broken", file("seven.ndjson", strings.Repeat("{\"a\":1}\n", 6)+"{\"a\":\n")), "", []string{"seven.ndjson:7"}},
		{"key of 70,000 bytes", "submit", on("import", "--space", "big", "--key", "k", file("key.ndjson", `{"k":"`+strings.Repeat("k", 70_000)+`"}`)), "", []string{"70000", "65535"}},
		{"key of 70,000 bytes", "submit", on("put", strings.Repeat("k", 70_000), "v"), "", []string{"70000", "65535"}},
		{"guest that traps", "submit", on("run", "faulty", "--space", "bangs", "--reduce", "sum"), "", []string{"faulty", "bucket", "record 0", "unreachable"}},
		{"module that is text", "submit", on("module", "add", file("text.wasm", "not a module\n")), "", []string{"text.wasm"}},
		{"empty module", "submit", on("module", "add", file("empty.wasm", "")), "", []string{"empty.wasm"}},
		{"storage of a taken id", "engine", on("storage", "--id", "s1", "--dir", filepath.Join(dir, "rival")), "", []string{"s1", "belongs to another folder", "--id", "--replace"}},
		{"folder of another process", "engine", on("storage", "--id", "s9", "--dir", c.folder("s2")), "", []string{"s2"}},
		{"another bucket count", "engine", on("router", "--buckets", "64"), "", []string{"32", "64", "buckets"}},
		{"status of an unknown cluster", "engine", on("status", "--cluster", "elsewhere"), "", []string{"elsewhere", "engine"}},
		{"port taken, nats", "engine", []string{"nats", "--dir", filepath.Join(dir, "n2"), "--listen", strings.TrimPrefix(c.server, "nats://")}, "", []string{strings.TrimPrefix(c.server, "nats://")}},
		{"port taken, dev", "engine", []string{"dev", "--dir", filepath.Join(dir, "d2"), "--listen", strings.TrimPrefix(c.server, "nats://")}, "", []string{strings.TrimPrefix(c.server, "nats://")}},
		{"unknown flag", "engine", []string{"dev", "--stroages", "3"}, "", []string{"--stroages"}},
	} {
		b.check(t)
	}
	if long() { // it waits half a minute for a router to create the cluster
		badCommand{"storage of an unknown cluster", "engine", on("storage", "--id", "s1", "--dir", filepath.Join(dir, "elsewhere"), "--cluster", "elsewhere"), "", []string{"elsewhere", "engine router"}}.check(t)
	}
	if out := c.submit("", "run", "wordcount", "--space", "broken", "--reduce", "sum", "--output", "tsv"); out.code != 0 || out.stdout != "{\"a\":1}\t6\n" {
		t.Errorf("the six lines before the broken one: code %d, %q\n%s", out.code, out.stdout, out.stderr)
	}
	c.waitHealthy()
	c.wantRows(countWords(""), text.rows())
	c.wantIdle(30 * time.Second)
}

// A guest that traps is named with its bucket, its record and its key, and other jobs go on.
func TestGuestTrap(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{})
	c.addFaulty()
	text := newText(10, 2_000)
	c.importLines("", text.lines)
	if _, err := c.client.Put(t.Context(), "", []byte("the bad one"), []byte("!")); err != nil {
		t.Fatal(err)
	}
	_, err := c.client.Run(t.Context(), pinion.Job{Module: "faulty", Reduce: "sum"})
	e := api.AsError(err)
	if e.Code != api.CodeGuestFailed || e.Details["key"] != "the bad one" || e.Details["bucket"] == "" || e.Details["records"] != "1" {
		t.Errorf("code %s, details %v, want GUEST_FAILED at the one record \"the bad one\"", e.Code, e.Details)
	}
	for _, part := range []string{"faulty", "bucket " + e.Details["bucket"], "record " + e.Details["record"], "unreachable"} {
		if !strings.Contains(e.Message, part) {
			t.Errorf("the message does not say %q: %s", part, e.Message)
		}
	}
	if _, err := c.client.Delete(t.Context(), "", []byte("the bad one")); err != nil {
		t.Fatal(err)
	}
	c.wantRows(countWords(""), text.rows())
	c.wantIdle(30 * time.Second)
}

// Where no usable server is, every program says so in one line, soon, and what to do.
func TestNoServer(t *testing.T) {
	heavy(t)
	dir := t.TempDir()
	bare := newProcess(t, "bare", dir, "nats-server", "--addr=127.0.0.1", "--port=-1", "--ports_file_dir="+dir)
	bare.start()
	bareURL := announcedPort(t, dir)
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	webAddress := strings.TrimPrefix(web.URL, "http://")
	mute := silentServer(t)
	free := freeAddress(t)
	for _, where := range []struct {
		name, server string
		says         []string
	}{
		{"nobody listens", "nats://" + free, []string{free, "engine dev"}},
		{"a web server", "nats://" + webAddress, []string{webAddress, "web server"}},
		{"something silent", "nats://" + mute, []string{mute, "not a NATS server"}},
		{"NATS without JetStream", bareURL, []string{"JetStream is not enabled"}},
	} {
		var commands sync.WaitGroup
		for _, b := range []badCommand{
			{program: "engine", args: []string{"status"}},
			{program: "engine", args: []string{"router"}},
			{program: "engine", args: []string{"storage", "--id", "s1", "--dir", filepath.Join(dir, "s1")}},
			{program: "submit", args: []string{"run", "wordcount"}},
			{program: "submit", args: []string{"import", "-"}, stdin: "line\n"},
			{program: "submit", args: []string{"spaces"}},
		} {
			b.name = where.name + ", " + b.program + " " + b.args[0]
			b.args = append(b.args, "--server", where.server)
			b.says = where.says
			commands.Go(func() {
				start := time.Now()
				b.check(t)
				if took := time.Since(start); took > 15*time.Second {
					t.Errorf("%s: it took %s to say so", b.name, took)
				}
			})
		}
		commands.Wait()
	}
}

// freeAddress is an address at which nobody listened a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// silentServer accepts connections and says nothing.
func silentServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	return l.Addr().String()
}
