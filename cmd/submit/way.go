package main

import (
	"context"

	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

// way runs the guests of a job in one of the ways that they have to put up with.
type way struct {
	node.Mapper
	batch int  // bytes of a batch at most, but for one record; 0 leaves it to the host
	fresh bool // each bucket has an instance of its own
}

// Prepare is node.Mapper's.
func (w way) Prepare(ctx context.Context, task node.Task) (node.Program, error) {
	p, err := w.Mapper.Prepare(ctx, task)
	if err != nil {
		return nil, err
	}
	return wayProgram{p, w}, nil
}

type wayProgram struct {
	node.Program
	way way
}

func (p wayProgram) Open(ctx context.Context, yield func(context.Context) error) (node.Guest, error) {
	open := func(ctx context.Context) (node.Guest, error) { return p.Program.Open(ctx, yield) }
	guest, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return &wayGuest{Guest: guest, way: p.way, open: open}, nil
}

type wayGuest struct {
	node.Guest
	used bool
	way  way
	open func(context.Context) (node.Guest, error)
}

func (g *wayGuest) Map(ctx context.Context, b buckets.ID, in node.Source, out node.Sink) (node.Figures, error) {
	if g.way.fresh && g.used {
		another, err := g.open(ctx)
		if err != nil {
			return node.Figures{}, err
		}
		g.Close()
		g.Guest = another
	}
	g.used = true
	return g.Guest.Map(ctx, b, g.way.cut(in), out)
}

func (g *wayGuest) Group(ctx context.Context, function string, in node.Source, out node.Sink) (node.Figures, error) {
	return g.Guest.Group(ctx, function, g.way.cut(in), out)
}

// cut makes the batches of a source smaller, if they are to be. Else the source stays what it is, which may know
// more than to fill batches.
func (w way) cut(in node.Source) node.Source {
	if w.batch == 0 {
		return in
	}
	return batches{in, w.batch}
}

// batches is a source in smaller batches.
type batches struct {
	node.Source
	limit int
}

func (b batches) Fill(dst []byte, limit int) ([]byte, int, error) {
	return b.Source.Fill(dst, min(limit, len(dst)+b.limit))
}
