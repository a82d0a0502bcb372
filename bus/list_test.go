package bus_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/pinion-mr/pinion/bus"
)

// A list has every key that was there all the time, also while all of them are written again and again.
func TestListWhileOthersWrite(t *testing.T) {
	const keys, writers, lists = 1000, 8, 12
	s := startServer(t, bus.ServerConfig{Dir: t.TempDir()})
	b := connect(t, bus.Config{Server: s.URL()})
	kv, err := b.KV(t.Context(), "STATE", true, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		if _, err := kv.Put(t.Context(), fmt.Sprintf("k.%d", i), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := w; ctx.Err() == nil; i = (i + writers) % keys {
				if _, err := kv.Put(ctx, fmt.Sprintf("k.%d", i), []byte("y")); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range lists {
		list, err := kv.List(t.Context(), "k.")
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != keys {
			t.Errorf("%d of %d keys are listed", len(list), keys)
		}
	}
	stop()
	writing.Wait()
}
