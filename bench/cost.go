package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// cost is what something took.
type cost struct{ cpu, wall time.Duration }

func better(a, b cost) cost {
	if a.wall == 0 || b.cpu < a.cpu {
		return b
	}
	return a
}

func measure(cpu func() (time.Duration, error), fn func() error) (cost, error) {
	before, err := cpu()
	if err != nil {
		return cost{}, err
	}
	began := time.Now()
	if err := fn(); err != nil {
		return cost{}, err
	}
	wall := time.Since(began)
	after, err := cpu()
	return cost{after - before, wall}, err
}

func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// cpuOf is the CPU time of a process so far, user and system; 0 where there is no /proc.
func cpuOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, nil //nolint:nilerr // not Linux
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	var total time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}

func median(n int, fn func() error) (time.Duration, error) {
	var took []time.Duration
	for range n {
		began := time.Now()
		if err := fn(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
