package store

import (
	"errors"
	"fmt"
	"sync"
)

// ErrClosed is returned by every use of a store, snapshot or cursor after its Close.
var ErrClosed = errors.New("store: closed")

// readers counts the open snapshots and cursors of a store. Its lock also orders the opening of snapshots
// against the steps of the writer that must not meet one.
type readers struct {
	mu        sync.Mutex
	closed    bool
	snapshots int
	cursors   int
}

// close marks the store as closed, unless something is still open.
func (r *readers) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	if r.snapshots+r.cursors > 0 {
		return fmt.Errorf("store: close: %d snapshots and %d cursors are still open; close them first", r.snapshots, r.cursors)
	}
	r.closed = true
	return nil
}

func (r *readers) addCursor(n int) {
	r.mu.Lock()
	r.cursors += n
	r.mu.Unlock()
}

func (r *readers) dropSnapshot() {
	r.mu.Lock()
	r.snapshots--
	r.mu.Unlock()
}

// check returns ErrClosed once the store is closed.
func (r *readers) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	return nil
}
