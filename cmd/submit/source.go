package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// stdinName stands for stdin among files.
const stdinName = "-"

// source is a file to import, or stdin.
type source struct {
	path string
	name string // in messages
	size int64  // on disk, -1 for stdin
}

// findSource looks whether a file can be imported, before anything is.
func findSource(path string) (source, error) {
	if path == stdinName {
		return source{path: path, name: "stdin", size: -1}, nil
	}
	info, err := os.Stat(path)
	var fault *fs.PathError
	if errors.As(err, &fault) {
		return source{}, fmt.Errorf("%s: %w", path, fault.Err)
	} else if err != nil {
		return source{}, err
	}
	if info.IsDir() {
		return source{}, fmt.Errorf("%s is a directory: name the files in it", path)
	}
	size := info.Size()
	if !info.Mode().IsRegular() {
		size = -1
	}
	return source{path: path, name: path, size: size}, nil
}

// bare is the file's name without the extension of its compression.
func bare(path string) string {
	for _, ext := range []string{".gz", ".gzip", ".zst", ".zstd"} {
		if cut, ok := strings.CutSuffix(strings.ToLower(path), ext); ok {
			return path[:len(cut)]
		}
	}
	return path
}

// formatOf is the name of the format that a file's name stands for.
func formatOf(path string) string {
	switch strings.ToLower(filepath.Ext(bare(path))) {
	case ".ndjson", ".jsonl":
		return "ndjson"
	}
	return "lines"
}

// open begins to read a source. read is told of each piece that is read from it, compressed as it is. The
// stream is decompressed, and a UTF-8 byte order mark is left out.
func (f source) open(ctx context.Context, stdin io.Reader, read func(int)) (io.Reader, func(), error) {
	var raw io.Reader
	var closeFile func()
	if f.path == stdinName {
		raw, closeFile = interruptible(ctx, stdin)
	} else {
		file, err := os.Open(f.path)
		if err != nil {
			return nil, nil, err
		}
		raw, closeFile = file, func() { _ = file.Close() }
	}
	plain, closePlain, err := decompress(f.path, io.TeeReader(raw, counter(read)))
	if err != nil {
		closeFile()
		return nil, nil, fmt.Errorf("%s: %w", f.name, err)
	}
	done := func() { closePlain(); closeFile() }
	text, err := skipMark(plain)
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("%s: %w", f.name, err)
	}
	return text, done, nil
}

// counter is a writer that only counts.
type counter func(int)

func (c counter) Write(p []byte) (int, error) {
	c(len(p))
	return len(p), nil
}

// interruptible reads stdin until ctx ends. A read of a terminal or pipe cannot be interrupted, so it is
// left behind.
func interruptible(ctx context.Context, stdin io.Reader) (io.Reader, func()) {
	out, in := io.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = in.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.CopyBuffer(in, stdin, make([]byte, readBuffer))
		_ = in.CloseWithError(err)
	}()
	return out, func() { stop(); _ = out.Close() }
}

// decompress reads gzip and zstd by their first bytes. A file whose name promises one of them must be it.
func decompress(path string, raw io.Reader) (io.Reader, func(), error) {
	buffered := bufio.NewReaderSize(raw, readBuffer)
	head, err := buffered.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { _ = z.Close() }, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(buffered)
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case bare(path) != path && len(head) > 0:
		return nil, nil, fmt.Errorf("the name ends with %s, but the file is not compressed so", strings.ToLower(path[len(bare(path)):]))
	}
	return buffered, func() {}, nil
}

// skipMark passes a UTF-8 byte order mark and refuses those of UTF-16 and UTF-32.
func skipMark(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(r, readBuffer)
	head, err := buffered.Peek(3)
	if len(head) == 0 && err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0xef, 0xbb, 0xbf}):
		_, err := buffered.Discard(3)
		return buffered, err
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}), bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return nil, fmt.Errorf("the text is UTF-16; convert it first, as with iconv -f UTF-16 -t UTF-8")
	}
	return buffered, nil
}
