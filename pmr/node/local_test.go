package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/buckets/store"
	"github.com/pinion-mr/pinion/pmr/node"
)

// A local job gives the rows, figures and errors of a cluster's, and maps its buckets in the order given.
func TestLocal(t *testing.T) {
	st := store.NewMem()
	var w buckets.Writes
	for i, text := range []string{"a b", "b c", "c c"} {
		if err := st.Load(buckets.ID(i)); err != nil {
			t.Fatal(err)
		}
		w.Put(buckets.ID(i), api.DefaultSpace, fmt.Append(nil, "k", i), []byte(text))
	}
	if err := st.Apply(&w); err != nil {
		t.Fatal(err)
	}
	snap, err := st.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snap.Close() }()
	mapper := &fakeMapper{}
	var order []buckets.ID
	mapper.setHook(func(_ context.Context, _ node.Task, b buckets.ID) error {
		order = append(order, b)
		return nil
	})
	local := node.Local{
		Snapshot: snap, Buckets: []buckets.ID{2, 0, 3, 1}, Catalogue: fakeCatalogue{}, Mapper: mapper,
		Logger: slog.New(slog.DiscardHandler),
	}
	got, err := local.Run(t.Context(), api.JobRequest{Module: "words", Reduce: "sum", Sort: "-value", Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for i := range got.Len() {
		rows = append(rows, string(got.Row(i).Key)+"="+got.Row(i).Value.Text())
	}
	if want := []string{"c=3", "b=2"}; !slices.Equal(rows, want) {
		t.Errorf("rows are %v, want %v", rows, want)
	}
	if want := []buckets.ID{2, 0, 1}; !slices.Equal(order, want) { // bucket 3 holds nothing
		t.Errorf("buckets were mapped in the order %v, want %v", order, want)
	}
	if s := got.Stats; s.Buckets != 4 || s.Records != 3 || s.Pairs != 6 || s.Reduce != "sum" || s.Counters["buckets"] != 3 {
		t.Errorf("stats are %+v", s)
	}
	mapper.setHook(func(context.Context, node.Task, buckets.ID) error { return api.Errorf(api.CodeGuestFailed, "it broke") })
	if _, err := local.Run(t.Context(), api.JobRequest{Module: "words"}); api.CodeOf(err) != api.CodeGuestFailed {
		t.Errorf("a guest that fails: %v", err)
	}
	if _, err := local.Run(t.Context(), api.JobRequest{Module: "words", Reduce: "summ"}); api.CodeOf(err) != api.CodeBadRequest {
		t.Errorf("an unknown reduce: %v", err)
	}
	if mapper.open != 0 {
		t.Errorf("%d programs and guests are open still", mapper.open)
	}
}
