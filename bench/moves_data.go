package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	bigBytes  = 64 << 20
	bigValue  = 16 << 10
	bigRounds = 3
)

// bigBucket moves a bucket of 64 MB to and fro and compares with what must be done at the least: to get so many bytes
// from an object store of the same server, and to write them.
func (m *moving) bigBucket(ctx context.Context) error {
	const bucket = 5
	if err := m.fill(ctx, "big", bigBytes/bigValue, bigValue, func(b int) bool { return b == bucket }); err != nil {
		return err
	}
	if err := m.storeBareObject(ctx); err != nil {
		return err
	}
	var bare, moved time.Duration
	var extra int64
	for range bigRounds {
		d, err := m.getBareObject(ctx)
		if err != nil {
			return err
		}
		bare = shorter(bare, d)
		owner, _ := m.owners.of(bucket)
		grew, err := m.growth([]string{owner, nextStorage(owner)}, func() error {
			d, err := m.move(ctx, bucket, moveWithin)
			moved = shorter(moved, d)
			return err
		})
		if err != nil {
			return err
		}
		extra = max(extra, grew)
	}
	fmt.Printf("  a bucket of %.0f MB moves in %.2f s, %.0f MB/s; a bare get and a synced write of it take %.2f s, %.0f MB/s\n",
		mb(bigBytes), moved.Seconds(), rate(bigBytes, moved), bare.Seconds(), rate(bigBytes, bare))
	atLeast("speed of the move / get and write", bare.Seconds()/moved.Seconds(), 0.5)
	if extra > 0 {
		atMost("more memory of a storage during the move, MB", mb(extra), mb(64<<20))
	}
	return nil
}

func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}

const bareStore = "BENCH"

func (m *moving) storeBareObject(ctx context.Context) error {
	store, err := m.conn.Objects(ctx, bareStore, true, 1)
	if err != nil {
		return err
	}
	return store.Put(ctx, "bare", io.LimitReader(randomBytes{}, bigBytes))
}

// randomBytes are bytes of no meaning, made fast.
type randomBytes struct{}

func (randomBytes) Read(b []byte) (int, error) {
	x := uint64(len(b))
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return len(b), nil
}

// getBareObject copies the object to a file.
func (m *moving) getBareObject(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	store, err := m.conn.Objects(ctx, bareStore, false, 1)
	if err != nil {
		return 0, err
	}
	in, err := store.Get(ctx, "bare")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.Create(filepath.Join(m.bench.dir, "bare"))
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(out, in)
	if err = errors.Join(err, out.Sync(), out.Close()); err == nil && n != bigBytes {
		err = fmt.Errorf("the object has %d bytes", n)
	}
	return time.Since(began), err
}

// growth is by how much the memory of a storage grew beyond what it was before, at the most, of the one that grew
// most; 0 where there is no /proc.
func (m *moving) growth(ids []string, fn func() error) (int64, error) {
	before := make([]int64, len(ids))
	for i, id := range ids {
		pid := m.pidOf(id)
		// Writing 5 sets the peak to what it is now.
		if os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "clear_refs"), []byte("5"), 0) != nil {
			return 0, fn()
		}
		before[i] = residentOf(pid, "VmRSS:")
	}
	if err := fn(); err != nil {
		return 0, err
	}
	var most int64
	for i, id := range ids {
		most = max(most, residentOf(m.pidOf(id), "VmHWM:")-before[i])
	}
	return most, nil
}

// residentOf reads a line of a process's status, in bytes.
func residentOf(pid int, name string) int64 {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == name {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n << 10
		}
	}
	return 0
}
