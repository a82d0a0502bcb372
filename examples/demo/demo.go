package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/internal/devengine"
)

// demo is one showing.
type demo struct {
	stdout, stderr io.Writer
	dir            string // temporary, removed at the end
	bin            string // where the programs are built
	server         string // of the cluster, as engine printed it
}

// run is the whole program; it returns the exit status.
func run(ctx context.Context, stdout, stderr io.Writer) int {
	began := time.Now()
	d := &demo{stdout: stdout, stderr: stderr, bin: "bin"}
	err := d.show(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("interrupted: %w", cause)
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "demo: %v\n", err)
		return 1
	}
	d.say("The demo took %.0f s. Nothing is left running.", time.Since(began).Seconds())
	return 0
}

func (d *demo) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.stdout, format+"\n", args...)
}

func (d *demo) show(ctx context.Context) (err error) {
	d.say("Building bin/engine and bin/submit ...")
	if err := d.build(ctx); err != nil {
		return err
	}
	files, err := sources(ctx)
	if err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp("", "pinion-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()

	data := filepath.Join(d.dir, "data")
	d.say("Starting a cluster: engine dev --dir %s --listen 127.0.0.1:0", data)
	e, err := devengine.Start(ctx, d.program("engine", "dev", "--dir", data, "--listen", "127.0.0.1:0"), filepath.Join(d.dir, "engine.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Stop()) }()
	d.server = e.Server

	d.say("Importing %d files of the Go standard library, one record a line: submit import --format lines FILE...", len(files))
	in, err := d.importFiles(ctx, files)
	if err != nil {
		return err
	}
	d.say("Counting their words: submit run wordcount --reduce sum --sort -value --limit 20")
	top, err := d.commonest(ctx)
	if err != nil {
		return err
	}
	d.printTop(top, in)
	return d.compare(ctx, files, top)
}

// build makes the programs of the repository in whose root the demo was started.
func (d *demo) build(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", d.bin+string(filepath.Separator), "./cmd/engine", "./cmd/submit")
	cmd.Stderr = d.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building engine and submit: %w (the demo must be started in the root of the repository)", err)
	}
	return nil
}

// program is a command of the cluster's programs. It ignores what the caller's environment says of other
// clusters. When its context is done it is asked to stop, and killed if it does not.
func (d *demo) program(name string, args ...string) *exec.Cmd {
	path, err := filepath.Abs(filepath.Join(d.bin, name))
	if err != nil {
		path = filepath.Join(d.bin, name)
	}
	cmd := exec.Command(path, args...)
	cmd.Stderr = d.stderr
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PINION_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

func (d *demo) printTop(top *result, in imported) {
	d.say("")
	for _, row := range top.Rows {
		d.say("%12d  %s", row.Value, row.Key)
	}
	s := top.Stats
	d.say("")
	d.say("imported  %d records, %d bytes, in %.1f s", in.Records, in.Bytes, float64(in.Millis)/1000)
	d.say("counted   %d records, %d bytes with their keys, in %.1f s on %d storages", s.Records, s.Bytes, float64(s.Millis)/1000, s.Storages)
	d.say("proof     %s", top.proof)
	d.say("")
}

// compare counts without Pinion and holds every row of the cluster against it.
func (d *demo) compare(ctx context.Context, files []string, top *result) error {
	d.say("Counting again in plain Go, and comparing every word ...")
	want := newTally()
	for _, name := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		want.add(text)
	}
	if top.Stats.Records != want.lines {
		return fmt.Errorf("the job saw %d records, but the files have %d lines", top.Stats.Records, want.lines)
	}
	rows := filepath.Join(d.dir, "rows.tsv")
	if err := d.allRows(ctx, rows); err != nil {
		return err
	}
	f, err := os.Open(rows)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	words, occurrences := want.words(), want.occurrences
	if err := want.match(f); err != nil {
		return err
	}
	d.say("the same %d words, %d occurrences", words, occurrences)
	return nil
}

// sources returns all .go files of the standard library on this machine.
func sources(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	src := filepath.Join(strings.TrimSpace(string(out)), "src")
	var files []string
	err = filepath.WalkDir(src, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && filepath.Ext(path) == ".go" {
			files = append(files, path)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s holds no .go file", src)
	}
	return files, err
}
