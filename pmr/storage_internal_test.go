package pmr

import (
	"testing"
	"time"
)

// A storage that runs for months hears many routers. Those that are silent and own nothing are forgotten.
func TestStorageForgetsSilentRouters(t *testing.T) {
	s := NewStorage(StorageConfig{Silence: 10 * time.Second, Retention: time.Minute})
	s.Step(0, Heard{Router: "r1"})
	s.Step(5*time.Second, PinAsked{PMR: "a", Job: "j1", Router: "r2", TTL: time.Minute})
	s.Step(10*time.Second, Tick{})
	if _, ok := s.heard["r2"]; len(s.heard) != 1 || !ok {
		t.Errorf("after 10 s the storage remembers %v, want r2 alone", s.heard)
	}
	s.Step(15*time.Second, Tick{})
	if len(s.heard) != 0 || len(s.PMRs()) != 0 {
		t.Errorf("after 15 s the storage remembers %v and holds %v, want nothing", s.heard, s.PMRs())
	}
}
