package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// health is Pebble's logger and remembers its first failure. Pebble retries failed flushes for ever, and
// ends the process on others; here, the store fails instead, and can be closed.
type health struct {
	log *slog.Logger

	mu      sync.Mutex
	err     error
	failed  chan struct{} // closed when err is set
	changed chan struct{} // closed and replaced by wake
}

var _ pebble.Logger = (*health)(nil)

func newHealth(log *slog.Logger) *health {
	return &health{log: log, failed: make(chan struct{}), changed: make(chan struct{})}
}

// fail makes the store unusable for writing. Pebble may hold its locks: nothing here calls it.
func (h *health) fail(err error) {
	h.mu.Lock()
	first := h.err == nil
	if first {
		h.err = fmt.Errorf("store: the disk fails or is full; mend it and start again, the log has all data: %w", err)
		close(h.failed)
	}
	h.mu.Unlock()
	if first {
		h.log.Error("store failed", slog.Any("error", err))
	}
}

// check returns the failure, or nil.
func (h *health) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// wake tells waiters that a flush or compaction ended, or that a file was removed.
func (h *health) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.changed)
	h.changed = make(chan struct{})
}

// change returns a channel that is closed at the next wake.
func (h *health) change() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

// await waits for c to be closed, or for a failure and returns it.
func (h *health) await(c <-chan struct{}) error {
	select {
	case <-c:
		return h.check()
	case <-h.failed:
		return h.check()
	}
}

// Infof implements pebble.Logger.
func (h *health) Infof(format string, args ...any) {
	if h.log.Enabled(context.Background(), slog.LevelDebug) {
		h.log.Debug("pebble", slog.String("text", fmt.Sprintf(format, args...)))
	}
}

// Errorf implements pebble.Logger.
func (h *health) Errorf(format string, args ...any) {
	h.log.Error("pebble", slog.String("text", fmt.Sprintf(format, args...)))
}

// Fatalf implements pebble.Logger. It returns: Pebble goes on to return the error to its caller.
func (h *health) Fatalf(format string, args ...any) { h.fail(fmt.Errorf(format, args...)) }
