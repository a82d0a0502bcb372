package plugins

import (
	"context"
	"fmt"
	"sync"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/plugins/wasm"
)

// Verdicts are kept beside the entries, one for each digest and version of the rewriter, whose output is what is
// compiled. Only that a module passed is kept: what failed may have lacked no more than memory or time.
const passedKeys = "passed."

func passedKey(digest string) string {
	return fmt.Sprintf("%s%s.%d", passedKeys, digest, wasm.MeterVersion)
}

// verdicts remembers digests that have passed.
type verdicts struct {
	mu     sync.Mutex
	passed map[string]bool
}

// maxVerdicts bounds what is remembered here; the rest is looked up again.
const maxVerdicts = 4096

func (v *verdicts) has(digest string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.passed[digest]
}

func (v *verdicts) add(digest string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.passed) >= maxVerdicts {
		v.passed = nil
	}
	if v.passed == nil {
		v.passed = map[string]bool{}
	}
	v.passed[digest] = true
}

// Check makes sure that a digest's bytes are a module that can be compiled within limits. The first time it
// reads and compiles them; bytes that have passed are not compiled again. Built-in modules always pass.
//
// Errors: BAD_MODULE with all faults, UNKNOWN_MODULE if the bytes are not stored, LIMIT_EXCEEDED if they take
// too long or too much memory to compile, BUSY if they have not passed and this catalogue has no Compile.
func (c *Catalogue) Check(ctx context.Context, digest string) error {
	if ok, err := c.hasPassed(ctx, digest); ok || err != nil {
		return err
	}
	if c.Compile == nil {
		_, err := c.Load(ctx, digest)
		return err
	}
	file, err := c.read(ctx, digest)
	if err != nil {
		return err
	}
	if _, err := Inspect(file, c.limits); err != nil {
		return err
	}
	if err := c.Compile(ctx, digest, file); err != nil {
		return err
	}
	_, err = c.kv.Create(ctx, passedKey(digest), []byte("{}"))
	if err != nil && api.CodeOf(err) != api.CodeNameTaken { // another router was faster
		return fmt.Errorf("plugins: note that module %.12s has passed: %w", digest, err)
	}
	c.passed.add(digest)
	return nil
}

func (c *Catalogue) hasPassed(ctx context.Context, digest string) (bool, error) {
	if _, ok := c.files[digest]; ok || c.passed.has(digest) {
		return true, nil
	}
	if !digestRule.MatchString(digest) {
		return false, api.Errorf(api.CodeBadRequest, "%s is no digest", quote(digest))
	}
	e, err := c.kv.Get(ctx, passedKey(digest))
	if err != nil || e.Revision == 0 {
		return false, err
	}
	c.passed.add(digest)
	return true, nil
}
