package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// gather writes all .go files of the standard library into one file, each ending with a newline.
func (b *bench) gather(ctx context.Context) (err error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	b.lines = filepath.Join(b.dir, "lines.txt")
	f, err := os.Create(b.lines)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(out)), "src"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || len(text) == 0 {
			return err
		}
		if !bytes.HasSuffix(text, []byte("\n")) {
			text = append(text, '\n')
		}
		b.bytes += int64(len(text))
		_, err = w.Write(text)
		return err
	})
	return errors.Join(err, w.Flush())
}

// countWords is the idiomatic Go program: a reader, a map, and what the standard library has.
func countWords(path string) (map[string]int, error) {
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
