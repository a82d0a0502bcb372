package wasmhost

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// addresses is the size of the process's address space in bytes.
func addresses(t *testing.T) int {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[0])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestMemoryIsGivenBack makes many instances, also some that fail while they are made, trap or are stopped: no
// memory stays mapped.
func TestMemoryIsGivenBack(t *testing.T) {
	h := newHost(t, Config{})
	faults, traps, loops := guest(t, h, "faults"), guest(t, h, "start_traps"), guest(t, h, "start_loops")
	turn := func() {
		instance(t, faults, Job{Function: "echo"}).Close()
		if in, err := traps.Instance(t.Context(), Job{}); err == nil {
			in.Close()
			t.Fatal("the start function did not trap")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if in, err := loops.Instance(ctx, Job{}); err == nil {
			in.Close()
			t.Fatal("the start function did not loop")
		}
	}
	turn()
	before := addresses(t)
	for range 200 {
		turn()
	}
	if more := addresses(t) - before; more > 2<<30 { // each instance had 64 MiB
		t.Errorf("%d MiB more are mapped after 600 instances", more>>20)
	}
}
