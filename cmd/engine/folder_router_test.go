package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// A router with the folder of another cluster makes no cluster on an empty server.
func TestARouterOnAnEmptyServerRefusesItsFolderFirst(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	srv, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	dir := filepath.Join(t.TempDir(), "r1")
	if _, err := folderIdentity(dir, owner{"another-cluster", "router r1"}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code := run(ctx, []string{"router", "--server", srv.URL(), "--id", "r1", "--dir", dir}, &out, &out)
	if code == 0 || !strings.Contains(out.String(), "belongs to router r1 of cluster another-") || !strings.Contains(out.String(), "holds no cluster") {
		t.Errorf("exit status %d: %s", code, out.String())
	}
	b, err := bus.Connect(ctx, bus.Config{Server: srv.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.KV(ctx, kvState, false, 0); api.CodeOf(err) != api.CodeNoSuchCluster {
		t.Errorf("there is a cluster: %v", err)
	}
}
