package busmem

import (
	"bytes"
	"context"
	"sort"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// kvData is a key-value bucket. Deleted keys stay, marked.
type kvData struct {
	revision uint64
	keys     map[string]api.KVEntry
}

// KV is a peer's view of a key-value bucket: see [bus.KV], whose methods it has.
type KV struct {
	bus  *Bus
	name string
}

// KV opens a bucket: see [bus.Bus.KV].
func (b *Bus) KV(ctx context.Context, name string, create bool, _ int) (*KV, error) {
	if err := b.reach(ctx, "open bucket "+name, false); err != nil {
		return nil, err
	}
	defer b.cluster.mu.Unlock()
	if b.cluster.kvs[name] == nil {
		if !create {
			return nil, b.unknownCluster(name)
		}
		b.cluster.kvs[name] = &kvData{keys: map[string]api.KVEntry{}}
	}
	return &KV{b, name}, nil
}

func (k *KV) data() *kvData { return k.bus.cluster.kvs[k.name] }

// Get reads a key: see [bus.KV.Get].
func (k *KV) Get(ctx context.Context, key string) (api.KVEntry, error) {
	if err := bus.CheckKey(key); err != nil {
		return api.KVEntry{}, err
	}
	if err := k.bus.reach(ctx, "read key "+key, false); err != nil {
		return api.KVEntry{}, err
	}
	defer k.bus.cluster.mu.Unlock()
	if e, ok := k.data().keys[key]; ok && !e.Deleted {
		return copied(e), nil
	}
	return api.KVEntry{Key: key}, nil
}

func copied(e api.KVEntry) api.KVEntry {
	e.Value = bytes.Clone(e.Value)
	return e
}

// Put writes a key: see [bus.KV.Put].
func (k *KV) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return k.write(ctx, key, value, 0, func(api.KVEntry) error { return nil })
}

// Create writes a new key: see [bus.KV.Create].
func (k *KV) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return k.write(ctx, key, value, 0, absent)
}

// CreateTTL writes a new key for a time: see [bus.KV.CreateTTL].
func (k *KV) CreateTTL(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	return k.write(ctx, key, value, ttl, absent)
}

func absent(e api.KVEntry) error {
	if e.Revision != 0 && !e.Deleted {
		return bus.KeyTaken(e.Key)
	}
	return nil
}

// Update writes a key at a revision: see [bus.KV.Update].
func (k *KV) Update(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	return k.write(ctx, key, value, 0, at(key, last))
}

// Renew prolongs a key: see [bus.KV.Renew].
func (k *KV) Renew(ctx context.Context, key string, value []byte, last uint64, ttl time.Duration) (uint64, error) {
	return k.write(ctx, key, value, ttl, at(key, last))
}

func at(key string, last uint64) func(api.KVEntry) error {
	return func(e api.KVEntry) error {
		if e.Revision != last {
			return bus.Conflict(key)
		}
		return nil
	}
}

// Delete removes a key: see [bus.KV.Delete].
func (k *KV) Delete(ctx context.Context, key string) error {
	if err := bus.CheckKey(key); err != nil {
		return err
	}
	if err := k.bus.reach(ctx, "delete key "+key, true); err != nil {
		return err
	}
	defer k.bus.cluster.mu.Unlock()
	k.data().remove(key)
	k.bus.cluster.touch()
	return nil
}

func (d *kvData) remove(key string) {
	if e, ok := d.keys[key]; ok && !e.Deleted {
		d.revision++
		d.keys[key] = api.KVEntry{Key: key, Revision: d.revision, Deleted: true}
	}
}

// write stores a value that allow, which gets the present entry, does not object to.
func (k *KV) write(ctx context.Context, key string, value []byte, ttl time.Duration, allow func(api.KVEntry) error) (uint64, error) {
	if err := bus.CheckKey(key); err != nil {
		return 0, err
	}
	if err := k.bus.reach(ctx, "key "+key, true); err != nil {
		return 0, err
	}
	c := k.bus.cluster
	defer c.mu.Unlock()
	d := k.data()
	if err := allow(d.keys[key]); err != nil {
		return 0, err
	}
	d.revision++
	rev := d.revision
	d.keys[key] = api.KVEntry{Key: key, Value: bytes.Clone(value), Revision: rev}
	if ttl > 0 {
		time.AfterFunc(max(ttl+time.Second-1, time.Second).Truncate(time.Second), func() { c.expire(d, key, rev) })
	}
	c.touch()
	return rev, nil
}

// expire removes a key that was not written since.
func (c *Cluster) expire(d *kvData, key string, rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.keys[key].Revision == rev {
		d.remove(key)
		c.touch()
	}
}

// List reads all keys with a prefix: see [bus.KV.List].
func (k *KV) List(ctx context.Context, prefix string) ([]api.KVEntry, error) {
	if err := k.bus.reach(ctx, "list keys "+prefix, false); err != nil {
		return nil, err
	}
	defer k.bus.cluster.mu.Unlock()
	var out []api.KVEntry
	for _, e := range k.data().after(0, prefix) {
		if !e.Deleted {
			out = append(out, e)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Key < out[j].Key })
	return out, nil
}

// Keys is the names of List.
func (k *KV) Keys(ctx context.Context, prefix string) ([]string, error) {
	entries, err := k.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Key
	}
	return out, nil
}

// Each calls fn with all keys that have a prefix: see [bus.KV.Each].
func (k *KV) Each(ctx context.Context, prefix string, fn func(api.KVEntry)) error {
	if err := k.bus.reach(ctx, "list keys "+prefix, false); err != nil {
		return err
	}
	found := k.data().after(0, prefix)
	k.bus.cluster.mu.Unlock()
	for _, e := range found {
		fn(e)
	}
	return nil
}

// after is what changed behind a revision, in the order of the changes.
func (d *kvData) after(rev uint64, prefix string) []api.KVEntry {
	var out []api.KVEntry
	for key, e := range d.keys {
		if e.Revision > rev && strings.HasPrefix(key, prefix) {
			out = append(out, copied(e))
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Revision < out[j].Revision })
	return out
}

// Watch tells of changes: see [bus.KV.Watch].
func (k *KV) Watch(ctx context.Context, prefix string, fn func(api.KVEntry)) error {
	c := k.bus.cluster
	told := map[string]bool{} // keys that were told as existing
	for last := uint64(0); ; {
		var news []api.KVEntry
		err := c.waitUntil(ctx, func() (bool, time.Time) {
			if !c.cut[k.bus.peer] {
				news = k.data().after(last, prefix)
			}
			return len(news) > 0 || k.bus.closed, time.Time{}
		})
		if err != nil {
			return err
		}
		c.mu.Unlock()
		if len(news) == 0 {
			return api.Errorf(api.CodeUnavailable, "watching %s: the connection was closed", k.name)
		}
		for _, e := range news {
			last = e.Revision
			if e.Deleted && !told[e.Key] {
				continue
			}
			told[e.Key] = !e.Deleted
			fn(e)
		}
	}
}
