package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(untilSignal(os.Args[1:])) }

// untilSignal runs the program. The first signal cancels what it does; the second ends it at once.
func untilSignal(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return submit(ctx, args, os.Stdin, os.Stdout, os.Stderr)
}
