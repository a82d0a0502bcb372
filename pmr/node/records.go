package node

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Put stores one record. It is durable when Put returns.
func (r *Router) Put(ctx context.Context, req api.PutRequest) (api.SeqReply, error) {
	space, err := r.space(ctx, req.Space)
	if err != nil {
		return api.SeqReply{}, err
	}
	if req.Key == nil {
		if err := r.checkSize(nil, req.Value); err != nil {
			return api.SeqReply{}, err
		}
		b := buckets.ID(rand.N(r.cfg.Settings.Buckets))
		reply, err := r.append(ctx, b, space, buckets.AppendFrame(nil, buckets.FlagAssign, nil, req.Value))
		if err == nil {
			reply.Key = buckets.AppendAssigned(nil, reply.Seq, 0, b)
		}
		return reply, err
	}
	key := []byte(*req.Key)
	if err := r.checkSize(key, req.Value); err != nil {
		return api.SeqReply{}, err
	}
	if _, _, _, ok := buckets.ParseAssigned(key); ok {
		return api.SeqReply{}, api.Errorf(api.CodeBadRequest, "the key %s has the form of assigned keys", buckets.KeyText(key)).
			WithHint("leave the key away to have one assigned")
	}
	b := buckets.Of(key, r.cfg.Settings.Buckets)
	return r.append(ctx, b, space, buckets.AppendFrame(nil, 0, key, req.Value))
}

// Delete removes one record, if it is there.
func (r *Router) Delete(ctx context.Context, req api.KeyRequest) (api.SeqReply, error) {
	space, err := r.space(ctx, req.Space)
	if err != nil {
		return api.SeqReply{}, err
	}
	if err := r.checkSize(req.Key, nil); err != nil {
		return api.SeqReply{}, err
	}
	b, err := r.bucketOf(req.Key)
	if err != nil {
		return api.SeqReply{}, err
	}
	return r.append(ctx, b, space, buckets.AppendFrame(nil, buckets.FlagDelete, req.Key, nil))
}

// Get reads one record, with every write that was acknowledged before.
func (r *Router) Get(ctx context.Context, req api.KeyRequest) (api.GetReply, error) {
	space := req.Space
	if space == "" {
		space = api.DefaultSpace
	}
	b, err := r.bucketOf(req.Key)
	if err != nil {
		return api.GetReply{}, err
	}
	var reply api.GetReply
	err = retry(ctx, DefaultPinTTL, func(ctx context.Context) error {
		owner := r.applier.View().Owner(b).Storage
		if owner == "" {
			return api.Errorf(api.CodeNoOwner, "no storage owns bucket %d", b)
		}
		return r.ports.Peers.Request(ctx, "storage."+owner+".get", api.GetRequest{Bucket: uint16(b), Space: space, Key: req.Key}, &reply)
	})
	return reply, err
}

// Spaces lists the spaces that were created by name or hold a record.
func (r *Router) Spaces(ctx context.Context, _ api.Empty) (api.SpacesReply, error) {
	found := map[string]bool{api.DefaultSpace: true}
	named, err := r.ports.State.List(ctx, prefixSpace)
	if err != nil {
		return api.SpacesReply{}, err
	}
	for _, e := range named {
		found[strings.TrimPrefix(e.Key, prefixSpace)] = true
	}
	for _, storage := range r.applier.View().Storages() {
		var held api.SpacesReply
		err := retry(ctx, DefaultPinTTL, func(ctx context.Context) error {
			return r.ports.Peers.Request(ctx, "storage."+storage+".spaces", api.Empty{}, &held)
		})
		if err != nil {
			return api.SpacesReply{}, err
		}
		for _, space := range held.Spaces {
			found[space] = true
		}
	}
	return api.SpacesReply{Spaces: slices.Sorted(maps.Keys(found))}, nil
}

func (r *Router) space(ctx context.Context, space string) (string, error) {
	if space == "" {
		return api.DefaultSpace, nil
	}
	_, err := r.CreateSpace(ctx, api.SpaceRequest{Space: space})
	return space, err
}

// bucketOf is the bucket of a key of any form. An assigned one may name a bucket that does not exist.
func (r *Router) bucketOf(key []byte) (buckets.ID, error) {
	b := buckets.Of(key, r.cfg.Settings.Buckets)
	if int(b) >= r.cfg.Settings.Buckets {
		return 0, api.Errorf(api.CodeBadRequest, "the key %s names bucket %d; there are 0..%d", buckets.KeyText(key), b, r.cfg.Settings.Buckets-1)
	}
	return b, nil
}

func (r *Router) checkSize(key, value []byte) error {
	return buckets.CheckRecord(key, value, r.cfg.Settings.MaxRecord)
}

func (r *Router) append(ctx context.Context, b buckets.ID, space string, frame []byte) (api.SeqReply, error) {
	var header map[string]string
	if space != api.DefaultSpace {
		header = map[string]string{api.HeaderSpace: space}
	}
	seq, err := r.ports.Log.Append(ctx, buckets.RecSubject(b), header, frame, "put-"+newID())
	return api.SeqReply{Seq: seq}, err
}

// retry calls fn again while another try may help, for a time.
func retry(ctx context.Context, patience time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		err := fn(ctx)
		switch api.CodeOf(err) {
		case api.CodeBusy, api.CodeNoCut, api.CodeNoOwner, api.CodeUnavailable:
		default:
			return err
		}
		if sleep(ctx, pause) != nil {
			return err
		}
	}
}
