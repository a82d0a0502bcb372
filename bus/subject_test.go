package bus_test

import (
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// A subject that the server would end the connection for is refused before it is sent.
func TestLongSubjectsAreRefused(t *testing.T) {
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	b := connect(t, bus.Config{Server: s.URL(), Cluster: "shop"})
	log, err := b.CreateLog(t.Context(), bus.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 5000)
	_, appended := log.Append(t.Context(), "rec."+long, nil, []byte("x"), "")
	for name, err := range map[string]error{
		"request": b.Request(t.Context(), "router."+long+".result", api.Empty{}, nil),
		"publish": b.Publish("router."+long+".beat", api.Empty{}),
		"append":  appended,
	} {
		if api.CodeOf(err) != api.CodeBadRequest {
			t.Errorf("%s on a subject of 5,000 bytes: %v", name, err)
		}
	}
	select {
	case <-b.Lost():
		t.Error("the connection is gone")
	default:
	}
	if _, err := log.Append(t.Context(), "cut", nil, []byte("x"), ""); err != nil {
		t.Errorf("after that: %v", err)
	}
}
