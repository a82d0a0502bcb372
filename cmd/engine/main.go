// Command engine runs the roles of a Pinion cluster: all of them in one process (engine dev), or each in
// its own (engine nats, router, storage).
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// ballastBytes is memory that nobody touches. It counts as live for Go's collector, which therefore runs once in
// more than this much that is allocated, and not once in 4 MiB as in a small heap: a role that does many short jobs
// otherwise spends a third of its time collecting.
const ballastBytes = 32 << 20

func main() {
	ballast := make([]byte, ballastBytes)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	runtime.KeepAlive(ballast)
	os.Exit(code)
}
