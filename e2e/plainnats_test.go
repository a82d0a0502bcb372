//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
)

// announcedPort reads where a nats-server listens, from the file that it writes when it does.
func announcedPort(t *testing.T, dir string) string {
	t.Helper()
	deadline := time.After(20 * time.Second)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		if names, err := filepath.Glob(filepath.Join(dir, "*.ports")); err == nil && len(names) == 1 {
			var ports struct {
				NATS []string `json:"nats"`
			}
			body, err := os.ReadFile(names[0])
			if err == nil && json.Unmarshal(body, &ports) == nil && len(ports.NATS) > 0 {
				return ports.NATS[0]
			}
		}
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatal("nats-server does not say where it listens")
		}
	}
}

// The engine is a plain client of a NATS server that is not its own, with that server's default limit of
// 1 MiB for a message. Records and results are cut to it.
func TestPlainNATSServer(t *testing.T) {
	heavy(t)
	dir := t.TempDir()
	server := newProcess(t, "nats-server", dir, "nats-server", "--addr=127.0.0.1", "--port=-1", "--ports_file_dir="+dir,
		"--jetstream", "--store_dir="+filepath.Join(dir, "js"))
	server.start()
	c := startCluster(t, settings{server: announcedPort(t, dir)})
	text := newText(11, scaled(20_000))
	c.importLines("", text.lines)
	c.wantRows(countWords(""), text.rows())

	st, err := c.client.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st.MaxRecord >= 1<<20 || st.MaxRecord < 1<<20-8<<10 {
		t.Errorf("max_record is %d, want a little less than 1 MiB", st.MaxRecord)
	}
	c.storeLargest("largest", st.MaxRecord)
	_, err = c.client.Put(t.Context(), "largest", []byte("over"), make([]byte, st.MaxRecord))
	if api.CodeOf(err) != api.CodeRecordTooBig {
		t.Errorf("a record over the limit: %v, want RECORD_TOO_BIG", err)
	}
	c.wantRows(countWords(""), text.rows())
}

// storeLargest stores three records that are as large as can be, and has a job and a read bring them back.
func (c *cluster) storeLargest(space string, size int) {
	c.t.Helper()
	stored := map[string][]byte{}
	for _, key := range []string{"x", "y", "z"} {
		value := bytes.Repeat([]byte(key), size-len(key))
		stored[key] = value
		if _, err := c.client.Put(c.t.Context(), space, []byte(key), value); err != nil {
			c.t.Fatalf("put a record of %d bytes: %v", size, err)
		}
		if got, err := c.client.Get(c.t.Context(), space, []byte(key)); err != nil || !bytes.Equal(got, value) {
			c.t.Errorf("get a record of %d bytes: %d bytes, %v", size, len(got), err)
		}
	}
	result, err := c.client.Run(c.t.Context(), pinion.Job{Space: space})
	if err != nil {
		c.t.Errorf("pass records of %d bytes through a job: %v", size, err)
		return
	}
	rows := 0
	for row, err := range result.Rows(c.t.Context()) {
		if err != nil {
			c.t.Errorf("rows of records of %d bytes: %v", size, err)
			return
		}
		rows++
		if !bytes.Equal(row.Value.Bytes, stored[string(row.Key)]) {
			c.t.Errorf("the value of %q has %d bytes and is not what was put", row.Key, len(row.Value.Bytes))
		}
	}
	if rows != len(stored) {
		c.t.Errorf("the job returned %d records, want %d", rows, len(stored))
	}
}
