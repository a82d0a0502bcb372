package pinion

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// compilePatience bounds a request to add a module whose context has no deadline.
const compilePatience = 3 * time.Minute

// UploadModule stores the bytes of a module under their SHA-256, which it returns as 64 hex digits. A job can
// name the module by it. Bytes that are there already are not sent again.
func (c *Client) UploadModule(ctx context.Context, file []byte) (digest string, err error) {
	sum := sha256.Sum256(file)
	digest = hex.EncodeToString(sum[:])
	store, err := c.conn.openModules(ctx)
	if err != nil {
		return "", err
	}
	if has, err := store.Has(ctx, digest); err != nil || has {
		return digest, err
	}
	return digest, store.Put(ctx, digest, bytes.NewReader(file))
}

// AddModule stores a module and enters it into the catalogue. The version may be empty: then it is the next
// whole number. The reduce is that of jobs that name none, and may be empty. Errors: BAD_MODULE with all that
// is wrong with the file; LIMIT_EXCEEDED if it takes too long or too much memory to compile; NAME_TAKEN if that
// version holds other bytes. A router compiles bytes that it sees for the first time, so without a deadline in ctx
// it may take three minutes.
func (c *Client) AddModule(ctx context.Context, name, version, reduce string, file []byte) (api.Module, error) {
	digest, err := c.UploadModule(ctx, file)
	if err != nil {
		return api.Module{}, err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, compilePatience)
		defer cancel()
	}
	var m api.Module
	err = c.request(ctx, "module.add", api.ModuleAddRequest{Digest: digest, Name: name, Version: version, Reduce: reduce}, &m)
	return m, err
}

// Modules lists the catalogue, with the modules that are built in.
func (c *Client) Modules(ctx context.Context) ([]api.Module, error) {
	var reply api.ModulesReply
	err := c.request(ctx, "module.list", nil, &reply)
	return reply.Modules, err
}

// Module finds a module by name (its newest version), name@version or digest. It fails with UNKNOWN_MODULE.
func (c *Client) Module(ctx context.Context, ref string) (api.Module, error) {
	var m api.Module
	err := c.request(ctx, "module.show", api.ModuleRequest{Module: ref}, &m)
	return m, err
}

// RemoveModule takes an entry out of the catalogue: name@version, or a bare name that has one version only
// (BAD_REQUEST if it has several). Built-in modules stay.
func (c *Client) RemoveModule(ctx context.Context, ref string) error {
	return c.request(ctx, "module.remove", api.ModuleRequest{Module: ref}, nil)
}
