package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pinion-mr/pinion/buckets"
)

// countFile is the idiomatic Go program: a reader, a map, and what the standard library has.
func countFile(path string) (map[string]int, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	counts := map[string]int{}
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		for _, word := range bytes.FieldsFunc(line, isSpace) {
			counts[string(word)]++
		}
		if err != nil {
			return counts, nil // the end of the file
		}
	}
}

// isSpace is ASCII white space, where the example guests split.
func isSpace(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' }

// countWords is what a Go programmer who cares writes for records in memory: one lookup and no new string for a
// word that is known. It returns the number of words that differ, and of all.
func countWords(c *corpus) (keys int, words uint64) {
	counts := map[string]*uint64{}
	for _, batch := range c.batches {
		for len(batch) > 0 {
			f, rest, err := buckets.CutFrame(batch)
			if err != nil {
				return 0, 0
			}
			for _, word := range bytes.Fields(f.Value) {
				n := counts[string(word)]
				if n == nil {
					n = new(uint64)
					counts[string(word)] = n
				}
				*n++
			}
			batch = rest
		}
	}
	for _, n := range counts {
		words += *n
	}
	return len(counts), words
}

// walkFrames is the Go loop over the frames of a source.
func walkFrames(source *cursor) (total uint64) {
	var batch []byte
	for {
		var records int
		if batch, records, _ = source.Fill(batch[:0], batchBytes); records == 0 {
			return total
		}
		for rest := batch; len(rest) > 0; {
			f, tail, err := buckets.CutFrame(rest)
			if err != nil {
				return 0
			}
			total += uint64(len(f.Value))
			rest = tail
		}
	}
}

// mawk counts the words of the file with awk, in the version that is fastest.
func (b *bench) mawk(ctx context.Context) (cost, error) {
	const program = `{ for (i = 1; i <= NF; i++) n[$i]++ } END { for (w in n) print w, n[w] }`
	cmd := exec.CommandContext(ctx, "mawk", program, b.lines)
	cmd.Stdout = io.Discard
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return cost{}, fmt.Errorf("mawk: %w", err)
	}
	return cost{cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), time.Since(began)}, nil
}

// native is testdata/frames.c, compiled for this machine, and a corpus in a file.
type native struct{ program, batches string }

func (b *bench) compileNative(ctx context.Context, c *corpus) (native, error) {
	n := native{filepath.Join(b.dir, "frames"), filepath.Join(b.dir, "batches")}
	cmd := exec.CommandContext(ctx, "clang", "-O2", "-o", n.program, "bench/testdata/frames.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		return n, fmt.Errorf("clang: %w\n%s", err, out)
	}
	return n, writeBatches(n.batches, c)
}

// run runs a function of the program and returns the better of two rounds, and what it counted.
func (n native) run(ctx context.Context, function string) (cost, uint64, error) {
	out, err := exec.CommandContext(ctx, n.program, function, n.batches, "2").Output()
	if err != nil {
		return cost{}, 0, fmt.Errorf("%s: %w", n.program, err)
	}
	var ns, total uint64
	if _, err := fmt.Sscan(string(out), &ns, &total); err != nil {
		return cost{}, 0, fmt.Errorf("%s wrote %q: %w", n.program, out, err)
	}
	return cost{cpu: time.Duration(ns), wall: time.Duration(ns)}, total, nil
}

func writeBatches(path string, c *corpus) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, batch := range c.batches {
		n := uint32(len(batch))
		if _, err := f.Write([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}); err != nil {
			return err
		}
		if _, err := f.Write(batch); err != nil {
			return err
		}
	}
	return nil
}
