package busmem

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sort"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// Objects is a peer's view of an object store: see [bus.Objects], whose methods it has.
type Objects struct {
	bus  *Bus
	name string
}

// Objects opens a store: see [bus.Bus.Objects].
func (b *Bus) Objects(ctx context.Context, name string, create bool, _ int) (*Objects, error) {
	if err := b.reach(ctx, "open store "+name, false); err != nil {
		return nil, err
	}
	defer b.cluster.mu.Unlock()
	if b.cluster.objects[name] == nil {
		if !create {
			return nil, b.unknownCluster(name)
		}
		b.cluster.objects[name] = map[string][]byte{}
	}
	return &Objects{b, name}, nil
}

// Put stores an object: see [bus.Objects.Put].
func (o *Objects) Put(ctx context.Context, name string, r io.Reader) error {
	if name == "" {
		return api.Errorf(api.CodeBadRequest, "an object needs a name")
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("busmem: reading what object %s is to hold: %w", name, err)
	}
	if err := o.bus.reach(ctx, "object "+name, true); err != nil {
		return err
	}
	defer o.bus.cluster.mu.Unlock()
	o.bus.cluster.objects[o.name][name] = data
	return nil
}

// Get opens an object: see [bus.Objects.Get]. Its readers see it as it was then.
func (o *Objects) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := o.bus.reach(ctx, "read object "+name, false); err != nil {
		return nil, err
	}
	defer o.bus.cluster.mu.Unlock()
	data, ok := o.bus.cluster.objects[o.name][name]
	if !ok {
		return nil, bus.NoSuchObject(o.name, name)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// Has reports whether an object exists.
func (o *Objects) Has(ctx context.Context, name string) (bool, error) {
	if err := o.bus.reach(ctx, "look for object "+name, false); err != nil {
		return false, err
	}
	defer o.bus.cluster.mu.Unlock()
	_, ok := o.bus.cluster.objects[o.name][name]
	return ok, nil
}

// Delete removes an object: see [bus.Objects.Delete].
func (o *Objects) Delete(ctx context.Context, name string) error {
	if err := o.bus.reach(ctx, "delete object "+name, true); err != nil {
		return err
	}
	defer o.bus.cluster.mu.Unlock()
	delete(o.bus.cluster.objects[o.name], name)
	return nil
}

// List reads names and sizes: see [bus.Objects.List].
func (o *Objects) List(ctx context.Context) ([]api.ObjectInfo, error) {
	if err := o.bus.reach(ctx, "list the objects of "+o.name, false); err != nil {
		return nil, err
	}
	defer o.bus.cluster.mu.Unlock()
	var out []api.ObjectInfo
	for name, data := range o.bus.cluster.objects[o.name] {
		out = append(out, api.ObjectInfo{Name: name, Size: uint64(len(data))})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}
