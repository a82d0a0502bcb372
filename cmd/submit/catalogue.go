package main

import (
	"context"
	"io"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/plugins"
	"github.com/pinion-mr/pinion/plugins/builtin"
	"github.com/pinion-mr/pinion/pmr/node"
)

// localCatalogue knows the module of a file, and those that are built in.
type localCatalogue struct {
	file *moduleFile // may be nil
}

func newLocalCatalogue(file *moduleFile) *localCatalogue { return &localCatalogue{file: file} }

// Resolve finds the file by its name, and built-in modules as a cluster's catalogue does.
func (c *localCatalogue) Resolve(ctx context.Context, ref string) (api.Module, error) {
	if f := c.file; f != nil && ref == f.name {
		return api.Module{
			Name: f.name, Digest: f.manifest.Digest, Size: f.manifest.Size, Kind: string(f.manifest.Kind), Functions: f.manifest.Functions,
		}, nil
	}
	catalogue, err := plugins.NewCatalogue(noEntries{}, noObjects{}, plugins.DefaultLimits())
	if err != nil {
		return api.Module{}, err
	}
	m, err := catalogue.Resolve(ctx, ref)
	if api.CodeOf(err) == api.CodeUnknownModule {
		e := api.AsError(err)
		return m, api.Errorf(e.Code, "%s among the built-in modules", e.Message).
			WithHint("with --local, MODULE is wordcount, grep, or a file: ./mine.wasm, ./map.go, a folder with a project")
	}
	return m, err
}

// Check passes everything: what is run here is compiled here.
func (c *localCatalogue) Check(context.Context, string) error { return nil }

// Load returns the bytes of a digest.
func (c *localCatalogue) Load(_ context.Context, digest string) ([]byte, error) {
	if c.file != nil && digest == c.file.manifest.Digest {
		return c.file.bytes, nil
	}
	for _, b := range builtin.All() {
		if plugins.Digest(b.File) == digest {
			return b.File, nil
		}
	}
	return nil, api.Errorf(api.CodeUnknownModule, "there is no module of the digest %.12s here", digest)
}

// noEntries is a store of a catalogue's entries without any.
type noEntries struct{}

func (noEntries) Get(context.Context, string) (api.KVEntry, error)       { return api.KVEntry{}, nil }
func (noEntries) List(context.Context, string) ([]api.KVEntry, error)    { return nil, nil }
func (noEntries) Delete(context.Context, string) error                   { return errNotHere }
func (noEntries) Create(context.Context, string, []byte) (uint64, error) { return 0, errNotHere }

// noObjects is a store of modules without any.
type noObjects struct{}

func (noObjects) Get(_ context.Context, name string) (io.ReadCloser, error) {
	return nil, api.Errorf(api.CodeNotFound, "there is no object %.12s", name)
}

var _ node.Catalogue = (*localCatalogue)(nil)
