package plugins

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/plugins/builtin"
)

// memoryKV is a KV of which every catalogue of a test has the same.
type memoryKV map[string]api.KVEntry

func (kv memoryKV) Get(_ context.Context, key string) (api.KVEntry, error) { return kv[key], nil }

func (kv memoryKV) Create(_ context.Context, key string, value []byte) (uint64, error) {
	if _, ok := kv[key]; ok {
		return 0, api.Errorf(api.CodeNameTaken, "there is a key %s", key)
	}
	n := uint64(len(kv) + 1)
	kv[key] = api.KVEntry{Key: key, Value: value, Revision: n}
	return n, nil
}

func (kv memoryKV) Delete(_ context.Context, key string) error {
	delete(kv, key)
	return nil
}

func (kv memoryKV) List(_ context.Context, prefix string) ([]api.KVEntry, error) {
	var list []api.KVEntry
	for key, e := range kv {
		if strings.HasPrefix(key, prefix) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b api.KVEntry) int { return strings.Compare(a.Key, b.Key) })
	return list, nil
}

type memoryObjects map[string][]byte

func (o memoryObjects) Get(_ context.Context, name string) (io.ReadCloser, error) {
	b, ok := o[name]
	if !ok {
		return nil, api.Errorf(api.CodeNotFound, "there is no object %s", name)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// catalogues are those of a router, which compiles, and of a storage, over the same stores.
type catalogues struct {
	router, storage *Catalogue
	objects         memoryObjects
	compiled        []string
	failure         error
}

func newCatalogues(t *testing.T) *catalogues {
	t.Helper()
	c := &catalogues{objects: memoryObjects{}}
	kv := memoryKV{}
	for _, p := range []**Catalogue{&c.router, &c.storage} {
		var err error
		if *p, err = NewCatalogue(kv, c.objects, DefaultLimits()); err != nil {
			t.Fatal(err)
		}
	}
	c.router.Compile = func(_ context.Context, digest string, file []byte) error {
		if Digest(file) != digest {
			t.Errorf("%s is given to the compiler as %s", Digest(file), digest)
		}
		c.compiled = append(c.compiled, digest)
		return c.failure
	}
	return c
}

func (c *catalogues) store(b []byte) string {
	c.objects[Digest(b)] = b
	return Digest(b)
}

func TestOnlyWhatPassedIsLoaded(t *testing.T) {
	c, ctx := newCatalogues(t), t.Context()
	digest := c.store(file(t, "good"))
	if _, err := c.storage.Load(ctx, digest); api.CodeOf(err) != api.CodeBusy {
		t.Errorf("before any check: %v", err)
	}
	if err := c.storage.Check(ctx, digest); api.CodeOf(err) != api.CodeBusy {
		t.Errorf("a storage that checks: %v", err)
	}
	if m, err := c.router.Resolve(ctx, digest); err != nil || m.Digest != digest || len(c.compiled) > 0 {
		t.Errorf("to find a module is not to compile it: %v, %v, %v", m, err, c.compiled)
	}
	for range 2 {
		if err := c.router.Check(ctx, digest); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := c.storage.Load(ctx, digest); err != nil || Digest(b) != digest {
		t.Errorf("after the check: %d bytes, %v", len(b), err)
	}
	other, err := NewCatalogue(c.router.kv, c.objects, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	other.Compile = c.router.Compile
	if err := other.Check(ctx, digest); err != nil || len(c.compiled) != 1 {
		t.Errorf("another router: %v; compiled were %v", err, c.compiled)
	}
	if err := c.storage.Check(ctx, digest); err != nil {
		t.Errorf("a storage, after the check: %v", err)
	}
}

func TestAddCompiles(t *testing.T) {
	c, ctx := newCatalogues(t), t.Context()
	digest := c.store(file(t, "good"))
	c.failure = api.Errorf(api.CodeLimitExceeded, "compiling took longer than compile-timeout (1s)")
	req := api.ModuleAddRequest{Digest: digest, Name: "mine"}
	if _, err := c.router.Add(ctx, req); !errors.Is(err, c.failure) {
		t.Errorf("a module that cannot be compiled: %v", err)
	}
	if _, err := c.router.Resolve(ctx, "mine"); api.CodeOf(err) != api.CodeUnknownModule {
		t.Errorf("it got its name all the same: %v", err)
	}
	if _, err := c.storage.Load(ctx, digest); api.CodeOf(err) != api.CodeBusy {
		t.Errorf("and storages load it: %v", err)
	}
	c.failure = nil
	for _, name := range []string{"mine", "yours"} {
		req.Name = name
		if _, err := c.router.Add(ctx, req); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.compiled) != 2 { // once in vain
		t.Errorf("compiled were %v", c.compiled)
	}
}

func TestRemoveListsTheVersions(t *testing.T) {
	c, ctx := newCatalogues(t), t.Context()
	req := api.ModuleAddRequest{Digest: c.store(file(t, "good")), Name: "mine"}
	for _, req.Version = range []string{"1", "2", "2.1"} {
		if _, err := c.router.Add(ctx, req); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.router.Remove(ctx, "mine")
	if e := api.AsError(err); e == nil || e.Code != api.CodeBadRequest || e.Hint != "say which: mine@1, mine@2, mine@2.1" {
		t.Errorf("%v", err)
	}
}

func TestCheckReadsBeforeItCompiles(t *testing.T) {
	c, ctx := newCatalogues(t), t.Context()
	if err := c.router.Check(ctx, c.store(file(t, "bad"))); api.CodeOf(err) != api.CodeBadModule {
		t.Errorf("a bad module: %v", err)
	}
	if err := c.router.Check(ctx, strings.Repeat("0", 64)); api.CodeOf(err) != api.CodeUnknownModule {
		t.Errorf("bytes that are not stored: %v", err)
	}
	if err := c.router.Check(ctx, "../x"); api.CodeOf(err) != api.CodeBadRequest {
		t.Errorf("no digest: %v", err)
	}
	for _, b := range builtin.All() {
		if err := c.storage.Check(ctx, Digest(b.File)); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
		if _, err := c.storage.Load(ctx, Digest(b.File)); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
	if len(c.compiled) > 0 {
		t.Errorf("compiled were %v", c.compiled)
	}
}

func TestVerdictsAreBounded(t *testing.T) {
	var v verdicts
	for i := range 3 * maxVerdicts {
		v.add(string(rune(i)))
	}
	if len(v.passed) > maxVerdicts || !v.has(string(rune(3*maxVerdicts-1))) {
		t.Errorf("%d are remembered", len(v.passed))
	}
}
