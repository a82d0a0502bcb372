package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/plugins/builtin"
)

// KV is where a [Catalogue] keeps its entries. A revision of 0 means that the key does not exist.
type KV interface {
	Get(ctx context.Context, key string) (api.KVEntry, error)
	Create(ctx context.Context, key string, value []byte) (uint64, error) // NAME_TAKEN if it exists
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]api.KVEntry, error)
}

// Objects is where the bytes of modules are, by digest.
type Objects interface {
	Get(ctx context.Context, name string) (io.ReadCloser, error) // NOT_FOUND
}

// Catalogue knows modules by name and version. Entries never change: a name and version stand for the same
// bytes until they are removed.
type Catalogue struct {
	// Compile compiles a module, within limits of time and memory, to find out whether that can be done. A
	// process that has none takes other processes' word.
	Compile func(ctx context.Context, digest string, file []byte) error

	kv      KV
	objects Objects
	limits  Limits
	builtin []api.Module
	files   map[string][]byte // of the built-in ones, by digest
	passed  verdicts
}

const catalogueKeys = "module."

// NewCatalogue returns the catalogue kept in kv, with the modules that are in the binary.
func NewCatalogue(kv KV, objects Objects, limits Limits) (*Catalogue, error) {
	c := &Catalogue{kv: kv, objects: objects, limits: limits, files: map[string][]byte{}}
	for _, b := range builtin.All() {
		manifest, err := Inspect(b.File, limits)
		if err != nil {
			return nil, fmt.Errorf("plugins: built-in module %s: %w", b.Name, err)
		}
		m := entryOf(manifest, b.Name, b.Version, b.Reduce)
		m.Builtin = true
		c.builtin = append(c.builtin, m)
		c.files[m.Digest] = b.File
	}
	return c, nil
}

func entryOf(m *Manifest, name, version, reduce string) api.Module {
	return api.Module{
		Name: name, Version: version, Digest: m.Digest, Size: m.Size,
		Kind: string(m.Kind), Functions: m.Functions, Reduce: reduce,
	}
}

// Load returns the bytes of a module that has passed [Catalogue.Check] somewhere: BUSY if it has not,
// UNKNOWN_MODULE if there are none, BAD_MODULE if they are not those of the digest or too many.
func (c *Catalogue) Load(ctx context.Context, digest string) ([]byte, error) {
	if ok, err := c.hasPassed(ctx, digest); err != nil {
		return nil, err
	} else if !ok {
		return nil, api.Errorf(api.CodeBusy, "no router has found yet that module %.12s can be compiled by this version of the engine", digest).
			WithHint("run the same version of the engine on all routers and storages").With("digest", digest)
	}
	return c.read(ctx, digest)
}

// read returns the bytes of any module.
func (c *Catalogue) read(ctx context.Context, digest string) ([]byte, error) {
	if file, ok := c.files[digest]; ok {
		return file, nil
	}
	r, err := c.objects.Get(ctx, digest)
	if api.CodeOf(err) == api.CodeNotFound {
		return nil, api.Errorf(api.CodeUnknownModule, "the bytes of module %.12s are not stored", digest).
			WithHint("`submit module add FILE.wasm` stores them")
	}
	if err != nil {
		return nil, err
	}
	file, err := io.ReadAll(io.LimitReader(r, int64(c.limits.ModuleBytes)+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("plugins: read module %.12s: %w", digest, err)
	}
	switch {
	case len(file) > c.limits.ModuleBytes:
		return nil, api.Errorf(api.CodeBadModule, "the module has more than %d bytes", c.limits.ModuleBytes)
	case Digest(file) != digest:
		return nil, api.Errorf(api.CodeBadModule, "the object %.12s holds other bytes than its name says", digest).
			WithHint("store a module under the sha256 of its bytes")
	}
	return file, nil
}

// Add enters a module whose bytes are stored, after looking at them and compiling them. Without a version it gets the next
// whole number, unless the newest version has the same bytes. The same bytes again are no fault; others
// under the same name and version are NAME_TAKEN.
func (c *Catalogue) Add(ctx context.Context, req api.ModuleAddRequest) (api.Module, error) {
	if err := c.checkAdd(req); err != nil {
		return api.Module{}, err
	}
	file, err := c.read(ctx, req.Digest)
	if err != nil {
		return api.Module{}, err
	}
	manifest, err := Inspect(file, c.limits)
	if err != nil {
		return api.Module{}, err
	}
	if fn := reduceFunction(req.Reduce); fn != "" && manifest.Kind != Command && !slices.Contains(manifest.Functions, fn) {
		return api.Module{}, api.Errorf(api.CodeUnknownFunction, "the module has no function %s to reduce with", quote(fn)).
			WithHint("it has %s", strings.Join(manifest.Functions[:min(len(manifest.Functions), 20)], ", "))
	}
	if err := c.Check(ctx, req.Digest); err != nil {
		return api.Module{}, err
	}
	versions, err := c.versions(ctx, req.Name)
	if err != nil {
		return api.Module{}, err
	}
	version := req.Version
	if version == "" {
		if newest := len(versions) - 1; newest >= 0 && versions[newest].Digest == req.Digest && (req.Reduce == "" || versions[newest].Reduce == req.Reduce) {
			return versions[newest], nil
		}
		var names []string
		for _, v := range versions {
			names = append(names, v.Version)
		}
		version = NextVersion(names)
	}
	return c.enter(ctx, entryOf(manifest, req.Name, version, req.Reduce))
}

// reduceFunction is the function that a reduce of the form module or module:NAME names.
func reduceFunction(reduce string) string {
	if reduce == "module" {
		return "reduce"
	}
	name, _ := strings.CutPrefix(reduce, "module:")
	if name == reduce {
		return ""
	}
	return name
}

func (c *Catalogue) checkAdd(req api.ModuleAddRequest) error {
	if err := CheckName(req.Name); err != nil {
		return err
	}
	if req.Version != "" {
		if err := CheckVersion(req.Version); err != nil {
			return err
		}
	}
	if !digestRule.MatchString(req.Digest) {
		return api.Errorf(api.CodeBadRequest, "the digest must be the sha256 of the module in 64 hex digits, not %s", quote(req.Digest))
	}
	if c.isBuiltin(req.Name) {
		return api.Errorf(api.CodeNameTaken, "%s is a built-in module", req.Name).WithHint("choose another --name")
	}
	return nil
}

func (c *Catalogue) isBuiltin(name string) bool {
	return slices.ContainsFunc(c.builtin, func(m api.Module) bool { return m.Name == name })
}

func (c *Catalogue) enter(ctx context.Context, m api.Module) (api.Module, error) {
	body, err := api.Encode(api.JSON, m)
	if err != nil {
		return m, err
	}
	key := catalogueKeys + m.Name + "." + m.Version
	_, err = c.kv.Create(ctx, key, body)
	if api.CodeOf(err) != api.CodeNameTaken {
		return m, err
	}
	found, err := c.kv.Get(ctx, key)
	if err != nil {
		return m, err
	}
	var there api.Module
	if err := api.Decode(found.Value, &there, api.Lenient); err != nil {
		return m, err
	}
	if there.Digest == m.Digest && there.Reduce == m.Reduce {
		return there, nil
	}
	return m, api.Errorf(api.CodeNameTaken, "%s@%s exists already, as %.12s with reduce %q", m.Name, m.Version, there.Digest, there.Reduce).
		WithHint("choose another version, or leave it away to get the next one")
}

// versions lists the entries of a name, oldest first.
func (c *Catalogue) versions(ctx context.Context, name string) ([]api.Module, error) {
	entries, err := c.kv.List(ctx, catalogueKeys+name+".")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b api.KVEntry) int { return int(int64(a.Revision) - int64(b.Revision)) })
	return decodeModules(entries)
}

func decodeModules(entries []api.KVEntry) ([]api.Module, error) {
	var list []api.Module
	for _, e := range entries {
		var m api.Module
		if err := api.Decode(e.Value, &m, api.Lenient); err != nil {
			return nil, fmt.Errorf("plugins: entry %s: %w", e.Key, err)
		}
		list = append(list, m)
	}
	return list, nil
}

// List returns all entries, by name and then in order of their addition, the built-in ones first.
func (c *Catalogue) List(ctx context.Context) ([]api.Module, error) {
	entries, err := c.kv.List(ctx, catalogueKeys)
	if err != nil {
		return nil, err
	}
	name := func(e api.KVEntry) string {
		n, _, _ := strings.Cut(strings.TrimPrefix(e.Key, catalogueKeys), ".")
		return n
	}
	slices.SortFunc(entries, func(a, b api.KVEntry) int {
		if d := strings.Compare(name(a), name(b)); d != 0 {
			return d
		}
		return int(int64(a.Revision) - int64(b.Revision))
	})
	added, err := decodeModules(entries)
	return append(slices.Clone(c.builtin), added...), err
}

// Resolve finds a module by name (its newest version), name@version or digest: UNKNOWN_MODULE that lists
// what there is if there is none. Bytes that were stored but never given a name are found by digest.
func (c *Catalogue) Resolve(ctx context.Context, s string) (api.Module, error) {
	ref, err := ParseRef(s)
	if err != nil {
		return api.Module{}, err
	}
	if ref.Digest != "" {
		return c.byDigest(ctx, ref.Digest)
	}
	candidates := slices.DeleteFunc(slices.Clone(c.builtin), func(m api.Module) bool { return m.Name != ref.Name })
	if len(candidates) == 0 {
		if candidates, err = c.versions(ctx, ref.Name); err != nil {
			return api.Module{}, err
		}
	}
	if ref.Version == "" && len(candidates) > 0 {
		return candidates[len(candidates)-1], nil
	}
	for _, m := range candidates {
		if m.Version == ref.Version {
			return m, nil
		}
	}
	return api.Module{}, c.unknown(ctx, ref, candidates)
}

func (c *Catalogue) byDigest(ctx context.Context, digest string) (api.Module, error) {
	file, err := c.read(ctx, digest)
	if err != nil {
		return api.Module{}, err
	}
	manifest, err := Inspect(file, c.limits)
	if err != nil {
		return api.Module{}, err
	}
	for _, m := range c.builtin {
		if m.Digest == digest {
			return m, nil
		}
	}
	return entryOf(manifest, digest[:12], "", ""), nil
}

func (c *Catalogue) unknown(ctx context.Context, ref Ref, versions []api.Module) error {
	e := api.Errorf(api.CodeUnknownModule, "there is no module %s", quote(ref.String()))
	var there []string
	for _, m := range versions {
		there = append(there, m.Version)
	}
	if len(there) > 0 {
		return e.WithHint("%s has the versions %s", ref.Name, strings.Join(there, ", "))
	}
	all, err := c.List(ctx)
	if err != nil {
		return errors.Join(e, err)
	}
	for _, m := range all {
		if !slices.Contains(there, m.Name) {
			there = append(there, m.Name)
		}
	}
	if near := api.Nearest(ref.Name, there); near != "" {
		return e.WithHint("did you mean %s?", near)
	}
	if len(there) > 10 {
		there = append(there[:10], "...")
	}
	return e.WithHint("there are %s; `submit module add FILE.wasm` adds one", strings.Join(there, ", "))
}

// Remove takes an entry out; a name without a version must have only one. The bytes stay: a job that runs
// may need them, and so may other names.
func (c *Catalogue) Remove(ctx context.Context, s string) (api.Module, error) {
	ref, err := ParseRef(s)
	if err != nil {
		return api.Module{}, err
	}
	if ref.Digest != "" {
		return api.Module{}, api.Errorf(api.CodeBadRequest, "name the entry to remove, not a digest")
	}
	m, err := c.Resolve(ctx, s)
	if err != nil {
		return m, err
	}
	if m.Builtin {
		return m, api.Errorf(api.CodeBadRequest, "%s is a built-in module and cannot be removed", m.Name)
	}
	versions, err := c.versions(ctx, m.Name)
	if err != nil {
		return m, err
	}
	if ref.Version == "" && len(versions) > 1 {
		var names []string
		for _, v := range versions {
			names = append(names, v.Name+"@"+v.Version)
		}
		return m, api.Errorf(api.CodeBadRequest, "%s has %d versions", m.Name, len(versions)).
			WithHint("say which: %s", strings.Join(names, ", "))
	}
	return m, c.kv.Delete(ctx, catalogueKeys+m.Name+"."+m.Version)
}
