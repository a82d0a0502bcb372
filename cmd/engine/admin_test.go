package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// startDev runs a cluster of three storages and 16 buckets in this process until the test's end, and returns its
// server.
func startDev(t *testing.T) string {
	t.Helper()
	dir := t.TempDir() // before the cleanup that stops the cluster, so that it is removed after it
	ctx, stop := context.WithCancel(context.Background())
	out := &lineWait{prefix: "export PINION_SERVER=", found: make(chan string, 1)}
	ready := &lineWait{prefix: "ready", found: make(chan string, 1)}
	var log bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"dev", "--dir", dir, "--listen", "127.0.0.1:0", "--buckets", "16"}, io.MultiWriter(out, ready), &log)
	}()
	t.Cleanup(func() {
		stop()
		if c := <-code; c != 0 {
			t.Errorf("engine dev ended with %d: %s", c, log.String())
		}
	})
	server := ""
	for _, w := range []*lineWait{out, ready} {
		select {
		case line := <-w.found:
			if server == "" {
				server = line
			}
		case c := <-code:
			code <- c
			t.Fatalf("engine dev ended with %d: %s", c, log.String())
		case <-time.After(time.Minute):
			t.Fatal("engine dev is not ready within a minute")
		}
	}
	return server
}

// told runs a command and wants an exit code, and words on either stream.
func told(t *testing.T, server string, code int, words []string, args ...string) (stdout string) {
	t.Helper()
	var out, err bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if got := run(ctx, append(args, "--server", server), &out, &err); got != code {
		t.Errorf("engine %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out.String(), err.String())
	}
	for _, w := range words {
		if !strings.Contains(out.String()+err.String(), w) {
			t.Errorf("engine %s does not say %q:\n%s%s", strings.Join(args, " "), w, out.String(), err.String())
		}
	}
	return out.String()
}

// value reads the one JSON value that a command prints.
func value[T any](t *testing.T, server string, args ...string) (v T) {
	t.Helper()
	out := told(t, server, 0, nil, append(args, "--output", "json")...)
	dec := json.NewDecoder(strings.NewReader(out))
	if err := dec.Decode(&v); err != nil {
		t.Errorf("engine %s: %v in %q", strings.Join(args, " "), err, out)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		t.Errorf("engine %s prints more than one value: %q", strings.Join(args, " "), out)
	}
	return v
}

func ownedBy(t *testing.T, server, storage string) (list []uint16) {
	t.Helper()
	for _, b := range value[api.BucketsReply](t, server, "buckets").Buckets {
		if b.State != api.BucketOwned {
			t.Errorf("bucket %+v", b)
		}
		if b.Owner == storage {
			list = append(list, b.Bucket)
		}
	}
	return list
}

// Every change is made, waited for, shown and undone by the command that it names.
func TestAdministration(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short")
	}
	server := startDev(t)
	if n := len(ownedBy(t, server, "s1")); n != 6 {
		t.Fatalf("s1 owns %d of 16", n)
	}

	told(t, server, 0, []string{"to undo: engine weight s1 default", "nothing is to be moved"}, "weight", "s1", "2")
	if n := len(ownedBy(t, server, "s1")); n != 8 {
		t.Errorf("with weight 2 s1 owns %d", n)
	}
	told(t, server, 0, []string{"weight of storage s1: 2"}, "status")
	told(t, server, 0, []string{"to undo: engine weight s1 2"}, "weight", "s1", "default")

	told(t, server, 0, []string{"owns nothing: it is safe to stop it and to delete its folder", "engine weight s3 default"}, "drain", "s3")
	if list := ownedBy(t, server, "s3"); len(list) > 0 {
		t.Errorf("drained s3 owns %v", list)
	}
	told(t, server, 0, nil, "weight", "s3", "default")

	told(t, server, 0, []string{"to undo: engine rebalance resume", "the rebalancer is paused; under way: 0"}, "rebalance", "pause")
	one := ownedBy(t, server, "s1")
	moved := value[moveResult](t, server, "move", arguments(one[:2]), "--to", "s2")
	if !slices.Equal(moved.Moved, one[:2]) || len(moved.Stayed) > 0 {
		t.Errorf("the move says %+v", moved)
	}
	told(t, server, 0, []string{"is there already"}, "move", arguments(one[:1]), "--to", "s2")
	told(t, server, 0, []string{"moves are paused", "done"}, "rebalance", "status")
	told(t, server, 0, []string{"none of this is ordered"}, "rebalance", "plan")
	told(t, server, 1, []string{"the rebalancer is paused, so storage s2 keeps its buckets"}, "drain", "s2")
	told(t, server, 0, []string{"nothing moves: engine rebalance resume"}, "weight", "s2", "default")

	first := arguments(one[:1])
	told(t, server, 0, []string{"locked: bucket " + first, "to undo: engine unlock bucket " + first}, "lock", "bucket", first)
	told(t, server, 1, []string{"is locked", "engine unlock bucket " + first}, "move", first, "--to", "s3")
	told(t, server, 0, []string{"locked: bucket " + first + ", storage s3"}, "lock", "storage", "s3")
	told(t, server, 1, []string{"storage s3 is locked"}, "move", arguments(one[2:3]), "--to", "s3")
	told(t, server, 0, []string{"locked: bucket " + first + ", storage s3"}, "status")
	told(t, server, 0, []string{"locked: storage s3"}, "unlock", "bucket", first)
	if list := value[api.Topology](t, server, "unlock", "storage", "s3").LockedStorages; len(list) > 0 {
		t.Errorf("locked are %v", list)
	}
	told(t, server, 0, []string{"the rebalancer runs"}, "rebalance", "resume")
	if plan := value[api.PlanReply](t, server, "rebalance", "plan"); !plan.Balanced || plan.Paused || len(plan.Shares) != 3 {
		t.Errorf("the plan is %+v", plan)
	}
}

func TestADrainThatCannotEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short")
	}
	server := startDev(t)
	two := ownedBy(t, server, "s2")
	told(t, server, 0, nil, "lock", "bucket", arguments(two[:1]))
	told(t, server, 1, []string{"storage s2 keeps more than its share", "is locked", "engine unlock"}, "drain", "s2")
	if list := ownedBy(t, server, "s2"); !slices.Equal(list, two[:1]) {
		t.Errorf("s2 owns %v, and %v is locked", list, two[:1])
	}
	told(t, server, 0, nil, "drain", "s1")
	told(t, server, 1, []string{"no other storage may take its buckets"}, "drain", "s3")
}

// A command that is interrupted says that what it ordered goes on, and how to see it.
func TestInterruptedWait(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short")
	}
	server := startDev(t)
	told(t, server, 1, []string{"not done within --timeout", "engine rebalance status"}, "drain", "s3", "--timeout", "30ms")
	told(t, server, 0, []string{"it is safe"}, "drain", "s3")
	told(t, server, 0, []string{"to undo"}, "weight", "s3", "default", "--detach")
	ctx, cancel := context.WithCancel(t.Context())
	var out, text bytes.Buffer
	told := &lineWait{prefix: "to undo", found: make(chan string, 1)}
	go func() { <-told.found; cancel() }()
	if code := run(ctx, []string{"drain", "s2", "--server", server}, &out, io.MultiWriter(&text, told)); code != 1 || !strings.Contains(text.String(), "interrupted; what was ordered goes on") {
		t.Errorf("exit code %d, and it says %s", code, text.String())
	}
}

func TestSettingsCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short")
	}
	server := startDev(t)
	told(t, server, 0, []string{"takeover_grace", "20s", "gate_quota", "parallel_moves"}, "set")
	told(t, server, 0, []string{"to undo: engine set parallel_moves 1"}, "set", "parallel_moves", "4")
	if list := value[[]api.Setting](t, server, "set", "parallel_moves"); len(list) != 1 || list[0].Value != "4" || list[0].Default != "1" {
		t.Errorf("the setting is %+v", list)
	}
	told(t, server, 0, []string{"to undo: engine set parallel_moves 4"}, "set", "parallel_moves", "default")
	told(t, server, 1, []string{"parallel_moves cannot be", "1 to 64"}, "set", "parallel_moves", "many")
	told(t, server, 2, []string{"did you mean parallel_moves?"}, "set", "parallel_move", "2")
}

func TestWrongAdministration(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short")
	}
	server := startDev(t)
	for _, tc := range []struct {
		code  int
		words []string
		args  []string
	}{
		{2, []string{"--to is missing"}, []string{"move", "3"}},
		{2, []string{`"5-3" is no bucket or range`}, []string{"move", "5-3", "--to", "s1"}},
		{2, []string{`"70000" is no bucket`}, []string{"lock", "bucket", "70000"}},
		{2, []string{"move needs buckets"}, []string{"move"}},
		{2, []string{"is no number of at least 0"}, []string{"weight", "s1", "NaN"}},
		{2, []string{"did you mean bucket?"}, []string{"lock", "buckets", "3"}},
		{2, []string{"did you mean pause?"}, []string{"rebalance", "pase"}},
		{2, []string{"--output"}, []string{"buckets", "--output", "xml"}},
		{1, []string{"there is no bucket 16: the cluster has 0 to 15"}, []string{"move", "16", "--to", "s1"}},
		{1, []string{"no bucket 99"}, []string{"buckets", "--bucket", "3,99"}},
		{1, []string{`no storage "s4"`, "did you mean s"}, []string{"move", "3", "--to", "s4"}},
		{1, []string{`no storage "elsewhere"`, "s1, s2, s3"}, []string{"drain", "elsewhere"}},
		{1, []string{`no storage "s4"`}, []string{"lock", "storage", "s4"}},
	} {
		told(t, server, tc.code, tc.words, tc.args...)
	}
}

func TestParseBuckets(t *testing.T) {
	got, err := parseBuckets([]string{"3", "7-9,20", "65535"})
	if err != nil || !slices.Equal(got, []uint16{3, 7, 8, 9, 20, 65535}) {
		t.Errorf("parsed %v, %v", got, err)
	}
	if text := arguments(got); text != "3 7-9 20 65535" {
		t.Errorf("written back as %q", text)
	}
	for _, bad := range []string{"", "x", "3-", "-3", "9-7", "65536", "1,,2"} {
		if list, err := parseBuckets([]string{bad}); err == nil {
			t.Errorf("%q is taken for %v", bad, list)
		}
	}
}
