package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus"
)

// owners follows the log for who owns which bucket: that costs the cluster less than to be asked all the time.
type owners struct {
	stop  context.CancelFunc
	ended chan error

	mu      sync.Mutex
	table   *buckets.Table
	changed chan struct{} // closed at the next change
}

func followOwners(ctx context.Context, b *bus.Bus) (*owners, error) {
	log, err := b.Log(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	o := &owners{stop: stop, ended: make(chan error, 1), table: buckets.NewTable(moveBuckets), changed: make(chan struct{})}
	go func() { o.ended <- log.Read(ctx, 1, buckets.TableSubjects(), o.take) }()
	return o, nil
}

func (o *owners) take(entries []api.LogEntry) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range entries {
		entry, err := buckets.Decode(e, moveBuckets)
		if err != nil {
			return err
		}
		_, _ = o.table.Apply(e.Seq, entry) // an entry that is void changes nothing
	}
	close(o.changed)
	o.changed = make(chan struct{})
	return nil
}

// of is the owner of a bucket, and what is closed when some bucket has another one.
func (o *owners) of(bucket uint16) (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.table.View().Owner(buckets.ID(bucket)).Storage, o.changed
}

// wait waits until a bucket belongs to a storage.
func (o *owners) wait(ctx context.Context, bucket uint16, storage string) error {
	for {
		owner, changed := o.of(bucket)
		if owner == storage {
			return nil
		}
		select {
		case <-changed:
		case err := <-o.ended:
			return fmt.Errorf("bucket %d is with %s, and the log is not followed any more: %w", bucket, owner, err)
		case <-ctx.Done():
			return fmt.Errorf("bucket %d is with %s: %w", bucket, owner, ctx.Err())
		}
	}
}
