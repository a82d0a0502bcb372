package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// tableFileBytes is about how much one table file of a checkpoint holds, and deadFor how long a file is
// kept after no manifest needs it, for those who still read it.
const (
	tableFileBytes = 16 << 20
	deadFor        = time.Minute
)

// checkpointer writes the buckets of a storage to the checkpoint store, so that the log can be purged.
type checkpointer struct {
	a        *Applier
	settings api.Settings
	ports    Ports
	logger   *slog.Logger
	swept    time.Time // when all manifests were last looked at for dead files
}

// round looks at every owned bucket once. A bucket is written when its part of the log outgrows
// max(checkpoint_bytes, half the bucket), or when it holds back a log that has grown large; a bucket
// without new records only moves its manifest forward.
func (c *checkpointer) round(ctx context.Context) error {
	state, err := c.ports.Log.State(ctx)
	if err != nil {
		return err
	}
	sweep := time.Since(c.swept) >= deadFor
	if sweep {
		c.swept = time.Now()
	}
	large := int64(state.Bytes) > c.settings.CheckpointBytes*int64(c.settings.Buckets)/4
	middle := state.First + (state.Last-min(state.First, state.Last))/2
	if large && c.a.Applied() < middle {
		// Idle storages see few entries of their own; a barrier brings them forward.
		if _, err := c.a.Barrier(ctx); err != nil {
			return err
		}
	}
	var work []checkpointWork
	for _, b := range c.a.View().Of(c.a.self) {
		w, err := c.look(ctx, b, large || sweep, large, middle)
		if err != nil {
			return fmt.Errorf("bucket %d: %w", b, err)
		}
		if w.due() {
			work = append(work, w)
		}
	}
	if len(work) == 0 {
		return nil
	}
	return c.do(ctx, work)
}

// checkpointWork is a bucket that is due: to be written, or only to be moved forward.
type checkpointWork struct {
	manifest       Manifest
	revision       uint64
	dirty          int64 // bytes of its log that a checkpoint of now covers
	write, advance bool
}

func (w checkpointWork) due() bool { return w.write || w.advance }

// look says what a bucket is due for. Its manifest is read only if it may be due, or anyway.
func (c *checkpointer) look(ctx context.Context, b buckets.ID, anyway, large bool, middle uint64) (checkpointWork, error) {
	joined, dirty, last := c.a.bucketLog(b)
	if !joined || dirty < c.settings.CheckpointBytes && !anyway {
		return checkpointWork{}, nil
	}
	m, revision, err := loadManifest(ctx, c.ports.Manifests, b)
	if err != nil {
		return checkpointWork{}, err
	}
	m, revision = c.clean(ctx, m, revision)
	behind := large && m.Position.Seq < middle
	return checkpointWork{
		manifest: m, revision: revision, dirty: dirty,
		write:   dirty > max(c.settings.CheckpointBytes, m.bytes()/2) || behind && last > m.Position.Seq,
		advance: behind && last <= m.Position.Seq,
	}, nil
}

// do works on one snapshot for all.
func (c *checkpointer) do(ctx context.Context, work []checkpointWork) error {
	f, err := c.a.verifiedNow(ctx)
	if err != nil {
		return err
	}
	// What lies before a checkpoint may be purged: the local copy must not fall behind it in a crash.
	failed := c.a.persist(ctx)
	if failed != nil {
		return errors.Join(failed, f.Close())
	}
	for _, w := range work {
		owner := f.view.Owner(w.manifest.Bucket)
		if !f.joined[w.manifest.Bucket] || owner.Storage != c.a.self || f.at.Seq <= w.manifest.Position.Seq || owner.Generation < w.manifest.Generation {
			continue
		}
		w.manifest.Generation = owner.Generation
		if w.write {
			err = c.write(ctx, f, w)
		} else {
			err = c.advance(ctx, f, w)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("bucket %d: %w", w.manifest.Bucket, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed, f.Close())
}

// bucketLog tells what is known of a bucket's log.
func (a *Applier) bucketLog(b buckets.ID) (joined bool, dirty int64, lastRecord uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.joined[b], a.dirty[b], a.lastRecord[b]
}

// persist stores the verified position and flushes the store.
func (a *Applier) persist(ctx context.Context) error {
	var failed error
	err := a.do(ctx, func() {
		a.tableDirty = true
		if failed = a.commit(); failed != nil {
			return
		}
		a.writing.Lock()
		defer a.writing.Unlock()
		failed = a.store.Flush()
	})
	return errors.Join(err, failed)
}

// write makes a checkpoint of a bucket and moves its manifest to it. The names of the files are in the
// manifest before the files exist, so that nothing is ever left that no manifest names.
func (c *checkpointer) write(ctx context.Context, f *frozen, w checkpointWork) error {
	m := w.manifest
	dir, err := os.MkdirTemp(c.ports.TempDir, "checkpoint-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	paths, err := f.Export(m.Bucket, dir, tableFileBytes)
	if err != nil {
		return err
	}
	files, err := nameFiles(m.Bucket, paths)
	if err != nil {
		return err
	}
	for _, file := range files {
		m.Pending = append(m.Pending, file.Name)
	}
	revision, err := storeManifest(ctx, c.ports.Manifests, m, w.revision)
	if err != nil {
		return err
	}
	for i, file := range files {
		if err := upload(ctx, c.ports.Checkpoints, file.Name, paths[i]); err != nil {
			return fmt.Errorf("upload %s: %w", file.Name, err)
		}
	}
	for _, old := range m.Files {
		m.bury(time.Now(), old.Name)
	}
	m.Files, m.Pending, m.Position = files, nil, f.at
	if !c.a.sameEpoch(f.epoch) { // it may have been found that the log is another one
		return api.Errorf(api.CodeNoCut, "the node was loading again during the checkpoint")
	}
	if _, err := storeManifest(ctx, c.ports.Manifests, m, revision); err != nil {
		return err
	}
	c.a.checkpointed(m.Bucket, w.dirty)
	return nil
}

// checkpointed takes what a checkpoint covers off the bucket's log.
func (a *Applier) checkpointed(b buckets.ID, covered int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dirty[b] -= covered
}

// advance moves the manifest of a bucket that has no new records.
func (c *checkpointer) advance(ctx context.Context, f *frozen, w checkpointWork) error {
	if _, _, last := c.a.bucketLog(w.manifest.Bucket); last > w.manifest.Position.Seq {
		return nil
	}
	if !c.a.sameEpoch(f.epoch) {
		return nil
	}
	w.manifest.Position = f.at
	_, err := storeManifest(ctx, c.ports.Manifests, w.manifest, w.revision)
	return err
}

// clean deletes files that have been dead for long enough, and buries what an upload that never ended has
// left.
func (c *checkpointer) clean(ctx context.Context, m Manifest, revision uint64) (Manifest, uint64) {
	now := time.Now()
	pending := len(m.Pending)
	m.bury(now, m.Pending...)
	m.Pending = nil
	before := len(m.Dead)
	m.Dead = slices.DeleteFunc(slices.Clone(m.Dead), func(d DeadFile) bool {
		if now.Sub(d.Since) < deadFor {
			return false
		}
		err := c.ports.Checkpoints.Delete(ctx, d.Name)
		return err == nil || api.CodeOf(err) == api.CodeNotFound
	})
	if pending == 0 && len(m.Dead) == before {
		return m, revision
	}
	next, err := storeManifest(ctx, c.ports.Manifests, m, revision)
	if err != nil {
		c.logger.Warn("cannot clean a manifest", "bucket", m.Bucket, "reason", err)
		return m, revision
	}
	return m, next
}

// nameFiles gives table files names that were never used.
func nameFiles(b buckets.ID, paths []string) ([]TableFile, error) {
	var files []TableFile
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		files = append(files, TableFile{Name: fmt.Sprintf("%d-%s-%d%s", b, rand.Text(), i, filepath.Ext(path)), Size: info.Size()})
	}
	return files, nil
}

func upload(ctx context.Context, objects Objects, name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(objects.Put(ctx, name, f), f.Close())
}
