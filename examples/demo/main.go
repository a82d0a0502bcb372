package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(begin()) }

func begin() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, os.Stdout, os.Stderr)
}
