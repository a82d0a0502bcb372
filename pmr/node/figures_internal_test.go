package node

import (
	"context"
	"errors"
	"testing"
)

// One request counts at a time. Another that has to count waits for it, and not for longer than it may.
func TestThePlaceOfTheOneWhoCounts(t *testing.T) {
	c := newCounts()
	enter := func(ctx context.Context, wait, want bool, wantErr error) {
		t.Helper()
		if got, err := c.enter(ctx, wait); got != want || !errors.Is(err, wantErr) {
			t.Errorf("entered: %v, error %v", got, err)
		}
	}
	enter(t.Context(), false, true, nil)
	enter(t.Context(), false, false, nil)
	ended, end := context.WithCancel(t.Context())
	end()
	enter(ended, true, false, context.Canceled)
	c.leave()
	enter(t.Context(), true, true, nil)
	c.leave()
}
