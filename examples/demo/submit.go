package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// imported is what submit import --output json prints.
type imported struct {
	Records uint64 `json:"records"`
	Bytes   uint64 `json:"bytes"`
	Millis  int64  `json:"millis"`
}

// result is what submit run --output json prints, and its last line on stderr.
type result struct {
	Rows []struct {
		Key   text  `json:"key"`
		Value int64 `json:"value"`
	} `json:"rows"`
	Stats struct {
		Storages int    `json:"storages"`
		Records  uint64 `json:"records"`
		Bytes    uint64 `json:"bytes"`
		Millis   int64  `json:"millis"`
	} `json:"stats"`
	proof string
}

// text is a key: in JSON a string, or {"base64": ".."} if it is not UTF-8.
type text string

func (t *text) UnmarshalJSON(body []byte) error {
	if bytes.HasPrefix(body, []byte("{")) {
		var raw struct {
			Base64 []byte `json:"base64"`
		}
		err := json.Unmarshal(body, &raw)
		*t = text(raw.Base64)
		return err
	}
	return json.Unmarshal(body, (*string)(t))
}

// argBytes is how much of names one command is given. Systems take 1 MiB and more.
const argBytes = 512 << 10

// chunks cuts names into pieces that a command can be given.
func chunks(names []string, most int) [][]string {
	var pieces [][]string
	size, begin := 0, 0
	for i, name := range names {
		if size += len(name) + 1; size > most && i > begin {
			pieces = append(pieces, names[begin:i])
			begin, size = i, len(name)+1
		}
	}
	if begin < len(names) {
		pieces = append(pieces, names[begin:])
	}
	return pieces
}

func (d *demo) importFiles(ctx context.Context, files []string) (imported, error) {
	var all imported
	for _, piece := range chunks(files, argBytes) {
		var out bytes.Buffer
		args := append([]string{"import", "--format", "lines", "--output", "json"}, piece...)
		if err := d.submit(ctx, &out, d.stderr, args...); err != nil {
			return all, err
		}
		var one imported
		if err := json.Unmarshal(out.Bytes(), &one); err != nil {
			return all, fmt.Errorf("submit import --output json printed %.200q: %w", out.Bytes(), err)
		}
		all.Records += one.Records
		all.Bytes += one.Bytes
		all.Millis += one.Millis
	}
	return all, nil
}

// commonest runs the job for its 20 commonest words.
func (d *demo) commonest(ctx context.Context) (*result, error) {
	var out, notes bytes.Buffer
	err := d.submit(ctx, &out, &notes, "run", "wordcount", "--reduce", "sum", "--sort", "-value", "--limit", "20",
		"--output", "json", "--timeout", "5m")
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, strings.TrimSpace(notes.String()))
	}
	r := &result{proof: lastLine(notes.String())}
	if err := json.Unmarshal(out.Bytes(), r); err != nil {
		return nil, fmt.Errorf("submit run --output json printed %.200q: %w", out.Bytes(), err)
	}
	return r, nil
}

// allRows runs the job for all of its rows, into a file.
func (d *demo) allRows(ctx context.Context, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = d.submit(ctx, f, d.stderr, "run", "wordcount", "--reduce", "sum", "--output", "tsv", "--timeout", "5m")
	return errors.Join(err, f.Close())
}

// submit runs a command of submit. If ctx ends it is asked to stop.
func (d *demo) submit(ctx context.Context, stdout, stderr io.Writer, args ...string) error {
	plain := d.program("submit", append(args, "--server", d.server, "--cluster", "dev")...)
	cmd := exec.CommandContext(ctx, plain.Path, plain.Args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = plain.Env, stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("submit %s: %w", args[0], err)
	}
	return nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
