package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/pinion-mr/pinion/internal/cli"
)

func TestEveryLimitIsKnownToTheConfigFile(t *testing.T) {
	l := defaultLimits()
	var names []string
	limitFlags(&l).VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	slices.Sort(names)
	if !slices.Equal(names, cli.EngineOnly) {
		t.Errorf("flags %v\nknown %v", names, cli.EngineOnly)
	}
	if err := l.check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

// settled are the limits of a program that was started with arguments.
func settled(t *testing.T, args ...string) (limits, string) {
	t.Helper()
	var out bytes.Buffer
	s := newSession(&out, &out)
	root := s.rootCommand()
	cmd, rest, err := root.Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = s.options.Settle()
	}
	if err != nil {
		return s.limits, err.Error()
	}
	return s.limits, ""
}

func TestLimitsFromFlagEnvironmentAndFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pinion.yaml")
	if err := os.WriteFile(path, []byte("guest-memory: 16MiB\nguest-fuel: 7\ncompile-timeout: 9s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PINION_GUEST_FUEL", "8")
	t.Setenv("PINION_COMPILE_TIMEOUT", "10s")
	for _, role := range []string{"dev", "router", "storage"} {
		got, fault := settled(t, role, "--config", path, "--compile-timeout", "11s", "--guest-output", "1GiB")
		want := defaultLimits()
		want.memory, want.fuel, want.compileTimeout, want.output = 16<<20, 8, 11*time.Second, 1<<30
		if fault != "" || got != want {
			t.Errorf("%s: %+v, %s", role, got, fault)
		}
	}
	t.Setenv("PINION_GUEST_FUEL", "much")
	if _, fault := settled(t, "dev"); !strings.Contains(fault, "PINION_GUEST_FUEL") {
		t.Errorf("a bad variable: %s", fault)
	}
}

func TestLimitsOutOfRange(t *testing.T) {
	for args, want := range map[string]string{
		"--guest-memory 1KiB":    "--guest-memory is 1024; it must be 65536 to 4294967296",
		"--guest-memory 5GiB":    "--guest-memory is",
		"--guest-fuel 0":         "--guest-fuel is 0",
		"--guest-table 0":        "--guest-table is 0",
		"--guest-log-lines -1":   "--guest-log-lines is -1",
		"--compile-timeout 1ms":  "--compile-timeout is 1ms",
		"--compile-cpu 3h":       "--compile-cpu is 3h0m0s",
		"--compile-memory 1MiB":  "--compile-memory is 1048576",
		"--aggregation-total 1":  "--aggregation-total is 1",
		"--module-size 0":        "is not a size",
		"--aggregation-memory x": "is not a size",
	} {
		var out bytes.Buffer
		all := append([]string{"storage", "--id", "s", "--dir", t.TempDir()}, strings.Fields(args)...)
		if code := run(context.Background(), all, &out, &out); code != cli.ExitUsage || !strings.Contains(out.String(), want) {
			t.Errorf("%s: code %d, %s", args, code, out.String())
		}
	}
}

func TestHelpShowsTheLimitsApart(t *testing.T) {
	var out bytes.Buffer
	if code := run(context.Background(), []string{"storage", "--help"}, &out, &out); code != cli.ExitDone {
		t.Fatal(out.String())
	}
	first, limits, ok := strings.Cut(out.String(), "Limits in this process")
	if !ok || strings.Contains(first, "--guest-memory") || !strings.Contains(first, "Exit status") {
		t.Errorf("help is\n%s", out.String())
	}
	for _, name := range cli.EngineOnly {
		if !strings.Contains(limits, "--"+name+" ") {
			t.Errorf("--%s is missing in\n%s", name, limits)
		}
	}
	if !strings.Contains(limits, "(default 64MiB)") {
		t.Errorf("sizes without a unit:\n%s", limits)
	}
	if strings.Contains(out.String(), cli.CompileModule) {
		t.Errorf("the command that compiles is shown")
	}
}
