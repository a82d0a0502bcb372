package bus

import (
	"context"
	"sort"
	"strings"

	"github.com/pinion-mr/pinion/api"
)

// Watch calls fn for each key with a prefix that exists, then for each change, until ctx ends, which is
// the error that it returns. A key that was deleted or whose time to live is over comes with Deleted set
// and no value. The revisions of one key rise from call to call; of several changes that happen
// while the connection is lost, only the last one of each key is told, but it is told.
func (k *KV) Watch(ctx context.Context, prefix string, fn func(api.KVEntry)) error {
	w := &watcher{kv: k, prefix: prefix, fn: fn, live: map[string]uint64{}}
	p := &passage{bus: k.bus, stream: k.name, filters: []string{k.filter(prefix)}, latest: true}
	return p.run(ctx, func(pending uint64) error {
		w.begin(pending)
		p.idle = listingIdle
		if pending == 0 {
			p.idle = 0
			return w.vanished(ctx)
		}
		return nil
	}, func(batch []delivery) error {
		for _, d := range batch {
			w.take(d)
			if !w.listing.done && w.listing.complete(d) {
				p.idle = 0
				if err := w.vanished(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// watcher knows what was told.
type watcher struct {
	kv      *KV
	prefix  string
	fn      func(api.KVEntry)
	live    map[string]uint64 // revision of each key that was told and not deleted since
	last    uint64            // greatest revision told
	listing listing           // of the present consumer
	seen    map[string]bool   // in it
}

func (w *watcher) begin(pending uint64) {
	w.listing = listing{expected: pending, done: pending == 0}
	w.seen = map[string]bool{}
}

// take tells a message, if it is news. Changes come in order, so a revision at or below the greatest one
// is news only while a first listing, which is in the order of positions too, has not reached it.
func (w *watcher) take(d delivery) {
	e := w.kv.decode(d)
	if !strings.HasPrefix(e.Key, w.prefix) {
		return
	}
	if !w.listing.done {
		w.seen[e.Key] = true
	}
	w.tell(e)
}

func (w *watcher) tell(e api.KVEntry) {
	if e.Revision <= w.last {
		return
	}
	w.last = e.Revision
	_, known := w.live[e.Key]
	switch {
	case !e.Deleted:
		w.live[e.Key] = e.Revision
	case !known:
		return
	default:
		delete(w.live, e.Key)
	}
	w.fn(e)
}

// vanished finds the keys whose deletion was missed and whose mark is gone too. As the listing may have
// come from a server that lags, each is asked of the leader.
func (w *watcher) vanished(ctx context.Context) error {
	var gone []string
	for key := range w.live {
		if !w.seen[key] {
			gone = append(gone, key)
		}
	}
	sort.Strings(gone)
	w.seen = nil
	for _, key := range gone {
		e, err := w.kv.last(ctx, key)
		if err != nil {
			w.kv.bus.log.Debug("watched key not read", "key", key, "error", err)
			return errLost // and listed again
		}
		if e.Deleted {
			rev := w.live[key]
			delete(w.live, key)
			w.fn(api.KVEntry{Key: key, Revision: max(e.Revision, rev), Deleted: true})
		}
	}
	return nil
}
