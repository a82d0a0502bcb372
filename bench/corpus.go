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

	"github.com/pinion-mr/pinion/buckets"
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

// corpus is the lines as a storage gives them to a guest: records with keys that the log assigned, in batches.
type corpus struct {
	batches [][]byte
	records []int // of each batch
	bytes   int64 // of the lines
}

const batchBytes = 64 << 10

func (b *bench) corpus() (*corpus, error) {
	if b.frames != nil {
		return b.frames, nil
	}
	text, err := os.ReadFile(b.lines)
	if err != nil {
		return nil, err
	}
	c := &corpus{bytes: int64(len(text))}
	var batch, key []byte
	records, index := 0, uint32(0)
	for line := range bytes.Lines(text) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		key = buckets.AppendAssigned(key[:0], 1, index, 0)
		if index++; records > 0 && len(batch)+buckets.FrameHeader+len(key)+len(line) > batchBytes {
			c.batches, c.records = append(c.batches, batch), append(c.records, records)
			batch, records = nil, 0
		}
		batch, records = buckets.AppendFrame(batch, 0, key, line), records+1
	}
	c.batches, c.records = append(c.batches, batch), append(c.records, records)
	b.frames = c
	return c, nil
}

// part is one n-th of the batches, of all places.
func (c *corpus) part(n int) *corpus {
	p := &corpus{}
	for i := 0; i < len(c.batches); i += n {
		p.batches, p.records = append(p.batches, c.batches[i]), append(p.records, c.records[i])
		p.bytes += int64(len(c.batches[i]) - c.records[i]*(buckets.FrameHeader+15))
	}
	return p
}

// cursor reads a corpus as a guest's source does.
type cursor struct {
	of   *corpus
	next int
}

func (c *cursor) Fill(dst []byte, _ int) ([]byte, int, error) {
	if c.next == len(c.of.batches) {
		return dst, 0, nil
	}
	i := c.next
	c.next++
	return append(dst, c.of.batches[i]...), c.of.records[i], nil
}
