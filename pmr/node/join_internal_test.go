package node

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// What came to be owned or needed between the decision to forget it and the moment when that is done is kept.
func TestWhatIsOwnedOrNeededIsNotForgotten(t *testing.T) {
	a := NewApplier(api.Settings{Buckets: 5}, "s1", nil, Ports{Logger: slog.New(slog.DiscardHandler)})
	table := buckets.NewTable(5)
	for b, owner := range []string{"s1", "s2", "s2", "s2"} {
		if _, err := table.Own(uint64(b+1), buckets.Own{Bucket: buckets.ID(b), Owner: owner}); err != nil {
			t.Fatal(err)
		}
	}
	a.view = table.View()
	a.joined = map[buckets.ID]bool{0: true, 1: true, 2: true, 4: true}
	left := a.unjoin([]buckets.ID{0, 1, 2, 3, 4}, func(b buckets.ID) bool { return b == 2 })
	if want := []buckets.ID{1, 4}; !slices.Equal(left, want) || !a.joined[0] || a.joined[1] || !a.joined[2] || a.joined[4] {
		t.Errorf("left %v, want %v; joined is %v", left, want, a.joined)
	}
}
