package node

import (
	"context"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// idle waits, and runs commands meanwhile.
func (a *Applier) idle(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case cmd := <-a.cmds:
			cmd()
		}
	}
}

// runCommand runs the command that interrupted a read, unless its caller has given up.
func (a *Applier) runCommand(ctx context.Context) error {
	a.mu.Lock()
	changed, pending := a.changed, a.pending
	a.mu.Unlock()
	if pending == 0 {
		return nil
	}
	select {
	case cmd := <-a.cmds:
		cmd()
		return nil
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// do runs fn in the goroutine of Run, between two reads: nothing is applied meanwhile.
func (a *Applier) do(ctx context.Context, fn func()) error {
	a.mu.Lock()
	a.pending++
	if a.stopRead != nil {
		a.stopRead(errCommand)
	}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.pending--
		a.broadcast()
		a.mu.Unlock()
	}()
	done := make(chan struct{})
	select {
	case a.cmds <- func() { defer close(done); fn() }:
		<-done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// broadcast wakes everybody who waits for a change. mu is held.
func (a *Applier) broadcast() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// waitUntil waits until ok, which is called with mu held.
func (a *Applier) waitUntil(ctx context.Context, ok func() bool) error {
	for {
		a.mu.Lock()
		done, changed := ok(), a.changed
		a.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// WaitApplied waits until everything up to a position was applied.
func (a *Applier) WaitApplied(ctx context.Context, seq uint64) error {
	err := a.waitUntil(ctx, func() bool { return a.loaded && a.applied >= seq })
	if err != nil {
		return api.Errorf(api.CodeTimeout, "log position %d was not reached in time; %d is applied", seq, a.Applied())
	}
	return nil
}
