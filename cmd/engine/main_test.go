package main

import (
	"context"
	"os"
	"testing"

	"github.com/pinion-mr/pinion/internal/cli"
)

// TestMain lets engines in this process start it again to compile modules.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == cli.CompileModule {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}
