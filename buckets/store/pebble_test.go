package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"github.com/pinion-mr/pinion/buckets"
)

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	st := openPebble(t, dir, Options{})
	join(t, st, 1, 300)
	ok(t, st.Load(2))
	put(t, st, 1, 300, "default/a=1", "s/b=2")
	put(t, st, 0, 2, "default/lost=1")
	var w buckets.Writes
	w.Position = buckets.Position{Seq: 9, Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Digest: 77}
	w.Table = []byte{0, 1, 2}
	ok(t, st.Apply(&w))
	ok(t, st.Close())

	st = openPebble(t, dir, Options{})
	equal(t, "position", st.Position(), w.Position)
	equal(t, "table", st.Table(), w.Table)
	equal(t, "joined", st.Joined(), []buckets.ID{1, 300})
	equal(t, "records", now(t, st, 300), []string{"default/a=1", "s/b=2"})
	equal(t, "records of a bucket that was not joined", now(t, st, 2), nil)
	ok(t, st.Close())
}

func TestOpenRefuses(t *testing.T) {
	t.Run("another format", func(t *testing.T) {
		dir := t.TempDir()
		st := openPebble(t, dir, Options{})
		ok(t, st.db.Set(keyFormat, []byte("99"), pebble.NoSync))
		ok(t, st.Close())
		_, err := OpenPebble(dir, Options{})
		refused(t, err, dir, `"99"`, `"1"`, "remove the folder")
		equal(t, "is ErrFormat", errors.Is(err, ErrFormat), true)
		_, err = OpenPebble(dir, Options{}) // the lock was given back
		equal(t, "is ErrFormat", errors.Is(err, ErrFormat), true)
	})
	t.Run("a database of something else", func(t *testing.T) {
		dir := t.TempDir()
		db, err := pebble.Open(dir, &pebble.Options{Logger: newHealth(slog.New(slog.DiscardHandler))})
		ok(t, err)
		ok(t, db.Set([]byte("k"), nil, pebble.Sync))
		ok(t, db.Close())
		_, err = OpenPebble(dir, Options{})
		equal(t, "is ErrFormat", errors.Is(err, ErrFormat), true)
	})
	t.Run("options", func(t *testing.T) {
		_, err := OpenPebble(t.TempDir(), Options{Memtable: 1})
		refused(t, err, "64 KiB")
		_, err = OpenPebble(t.TempDir(), Options{OpenFiles: 1})
		refused(t, err, "16")
	})
	t.Run("a file in the way", func(t *testing.T) {
		path := t.TempDir() + "/f"
		ok(t, os.WriteFile(path, nil, 0o600))
		_, err := OpenPebble(path, Options{})
		refused(t, err, path)
	})
}

// TestOpenLocked opens a folder that this process holds, here and, through this very test, in another one.
func TestOpenLocked(t *testing.T) {
	const variable = "PINION_TEST_STORE"
	if dir := os.Getenv(variable); dir != "" {
		_, err := OpenPebble(dir, Options{})
		refused(t, err, dir, "is locked", "stop the process")
		return
	}
	dir := t.TempDir()
	st := openPebble(t, dir, Options{})
	_, err := OpenPebble(dir, Options{})
	refused(t, err, dir, "is locked", "stop the process")
	other := exec.Command(os.Args[0], "-test.run=^TestOpenLocked$")
	other.Env = append(os.Environ(), variable+"="+dir)
	if out, err := other.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ok(t, st.Close())
	ok(t, openPebble(t, dir, Options{}).Close())
}

func TestSharedCache(t *testing.T) {
	cache := NewCache(1 << 20)
	a, b := openPebble(t, t.TempDir(), Options{Cache: cache}), openPebble(t, t.TempDir(), Options{Cache: cache})
	for _, st := range []*Pebble{a, b} {
		join(t, st, 1)
		fill(t, st, 1, 100)
		ok(t, st.Flush())
	}
	equal(t, "records", len(now(t, a, 1))+len(now(t, b, 1)), 200)
	equal(t, "one cache", a.db.Metrics().BlockCache.Size, b.db.Metrics().BlockCache.Size)
	ok(t, a.Close())
	ok(t, b.Close())
	cache.Close()
}

// TestLeaveFreesSpace waits, by Pebble's events, until the files of a bucket that left are gone.
func TestLeaveFreesSpace(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshot open %v", open), func(t *testing.T) {
			dir := t.TempDir()
			st := openPebble(t, dir, Options{Memtable: 256 << 10})
			join(t, st, 1)
			for seq := range uint64(8) {
				var w buckets.Writes
				for i := range 100 {
					w.Put(1, "default", fmt.Appendf(nil, "%d", i), bytes.Repeat([]byte{byte(seq)}, 2000))
				}
				w.Position.Seq = seq + 1
				ok(t, st.Apply(&w))
			}
			ok(t, st.Flush())
			if n := tableBytes(t, dir); n < 200_000 {
				t.Fatalf("the tables have only %d bytes before", n)
			}
			snap := snapshot(t, st)
			if !open {
				ok(t, snap.Close())
			}
			ok(t, st.Leave([]buckets.ID{1}))
			if open {
				ok(t, st.db.Compact(t.Context(), bucketSpan(1).lower, bucketSpan(1).upper, false))
				equal(t, "records of the snapshot", len(read(t, snap, 1)), 100)
				ok(t, snap.Close())
				ok(t, st.Apply(&buckets.Writes{}))
				equal(t, "buckets still covered", len(st.covered), 0)
			}
			deadline := time.After(20 * time.Second)
			for {
				change := st.health.change()
				n := tableBytes(t, dir)
				if n < 10_000 {
					break
				}
				select {
				case <-change:
				case <-deadline:
					t.Fatalf("the tables still have %d bytes\n%s", n, st.db.Metrics())
				}
			}
			ok(t, st.Close())
		})
	}
}

// tableBytes is the size of all table files of a store.
func tableBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	ok(t, err)
	for _, path := range paths {
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		ok(t, err)
		n += info.Size()
	}
	return n
}

// TestDiskFull lets writing of files fail: the error must come out of Apply and Flush, nothing may hang,
// what is on disk stays readable, and the store reopens with it when there is space again.
func TestDiskFull(t *testing.T) {
	defer goleak.VerifyNone(t)
	full := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".sst") {
			return errors.New("no space left on device")
		}
		return nil
	})}
	fsys := errorfs.Wrap(vfs.NewMem(), full)
	var logged bytes.Buffer
	o := Options{Memtable: 64 << 10, fs: fsys, Logger: slog.New(slog.NewTextHandler(&logged, nil))}
	st := openPebble(t, "db", o)
	join(t, st, 1)
	put(t, st, 1, 1, "default/a=1")
	ok(t, st.Flush())
	snap := snapshot(t, st)

	full.On()
	var w buckets.Writes
	w.Put(1, "default", []byte("b"), bytes.Repeat([]byte("x"), 20_000))
	var err error
	for seq := uint64(2); err == nil && seq < 1000; seq++ {
		w.Position.Seq = seq
		err = st.Apply(&w)
	}
	refused(t, err, "full", "no space left on device")
	for name, err := range map[string]error{
		"Flush": st.Flush(), "Load": st.Load(2), "Join": st.Join(nil), "Leave": st.Leave([]buckets.ID{1}), "Reset": st.Reset(),
	} {
		if err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%s: %v", name, err)
		}
	}
	equal(t, "records", read(t, snap, 1), []string{"default/a=1"})
	ok(t, snap.Close())
	refused(t, st.Close(), "no space left on device")
	equal(t, "messages of failure", strings.Count(logged.String(), "store failed"), 1)

	full.Off()
	st = openPebble(t, "db", o)
	equal(t, "position", st.Position().Seq, 1)
	equal(t, "records", now(t, st, 1), []string{"default/a=1"})
	ok(t, st.Close())
}

// TestManifestFails covers what Pebble would end the process for.
func TestManifestFails(t *testing.T) {
	broken := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, "MANIFEST") {
			return errors.New("input/output error")
		}
		return nil
	})}
	o := Options{fs: errorfs.Wrap(vfs.NewMem(), broken)}
	st := openPebble(t, "db", o)
	join(t, st, 1)
	put(t, st, 1, 1, "default/a=1")
	broken.On()
	refused(t, st.Flush(), "input/output error")
	refused(t, st.Apply(&buckets.Writes{}), "input/output error")
	refused(t, st.Close(), "input/output error")
	broken.Off()
	st = openPebble(t, "db", o)
	equal(t, "joined", st.Joined(), []buckets.ID{1})
	equal(t, "records", now(t, st, 1), nil)
	ok(t, st.Close())
}

// waits is a log handler that tells when writing waits for the disk.
type waits struct {
	slog.Handler
	seen chan struct{}
}

func (w waits) Enabled(context.Context, slog.Level) bool { return true }

func (w waits) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "writing waits for the disk" {
		select {
		case w.seen <- struct{}{}:
		default:
		}
	}
	return nil
}

// TestMakeRoomWaits holds flushes up: the writer must wait before it has filled many memtables, and go on
// when they are released.
func TestMakeRoomWaits(t *testing.T) {
	release := make(chan struct{})
	var held errorfs.Toggle
	held.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".sst") {
			<-release
		}
		return nil
	})
	const memtable = 256 << 10
	log := waits{slog.DiscardHandler, make(chan struct{}, 1)}
	st := openPebble(t, "db", Options{Memtable: memtable, fs: errorfs.Wrap(vfs.NewMem(), &held), Logger: slog.New(log)})
	join(t, st, 1)
	held.On()
	result := make(chan error, 1)
	go func() {
		var w buckets.Writes
		for seq := range 40 {
			w.Reset()
			w.Put(1, "default", fmt.Appendf(nil, "%d", seq), make([]byte, memtable/4))
			w.Position.Seq = uint64(seq + 1)
			if err := st.Apply(&w); err != nil {
				result <- err
				return
			}
		}
		result <- nil
	}()
	select {
	case err := <-result:
		t.Fatalf("ten memtables were filled with nothing flushed: %v", err)
	case <-log.seen:
	}
	close(release)
	ok(t, <-result)
	equal(t, "records", len(now(t, st, 1)), 40)
	ok(t, st.Close())
}

func TestNothingLeaks(t *testing.T) {
	defer goleak.VerifyNone(t)
	st := openPebble(t, t.TempDir(), Options{})
	join(t, st, 1)
	fill(t, st, 1, 100)
	equal(t, "records", len(now(t, st, 1)), 100)
	ok(t, st.Close())
}

// A copy is a store of its own: what was there when it was made, whatever became of the first.
func TestCopyIsAStore(t *testing.T) {
	st, err := OpenPebble(t.TempDir(), Options{})
	ok(t, err)
	ok(t, st.Load(1))
	ok(t, st.Join([]buckets.ID{1}))
	var w buckets.Writes
	w.Put(1, "s", []byte("k"), []byte("v"))
	w.Position = buckets.Position{Seq: 7}
	ok(t, st.Apply(&w))
	dir := filepath.Join(t.TempDir(), "copy")
	ok(t, st.Copy(dir))
	ok(t, st.Reset())
	ok(t, st.Close())
	second, err := OpenPebble(dir, Options{})
	ok(t, err)
	snap, err := second.Snapshot()
	ok(t, err)
	if v, found, err := snap.Get(1, "s", []byte("k")); err != nil || !found || string(v) != "v" || second.Position().Seq != 7 {
		t.Errorf("the copy holds %q, %v, %v at %d", v, found, err, second.Position().Seq)
	}
	ok(t, snap.Close())
	ok(t, second.Close())
}
