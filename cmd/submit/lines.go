package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// record is what a format makes of a line.
type record struct {
	key, value []byte
	keyed      bool // else the key is assigned
	blank      bool // there is no record
}

// format reads records out of lines. The record may share the line.
type format interface {
	parse(line []byte) (record, error)
}

// plainLines is the format lines: each line is a record, whatever bytes it holds.
type plainLines struct{}

func (plainLines) parse(line []byte) (record, error) { return record{value: line}, nil }

// readBuffer is how much is read at a time.
const readBuffer = 256 << 10

// lineReader cuts a stream into lines. A line ends with LF or CR LF, the last one also with the stream; a CR
// elsewhere is data. Lines have no greatest length but max.
type lineReader struct {
	r      *bufio.Reader
	max    int // bytes without terminator
	number int // of the line that next returned last, from 1
	long   []byte
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, readBuffer), max: limit}
}

// tooLong is a line over the limit. It has been read to its end, so that next goes on behind it.
type tooLong struct {
	size int64
	max  int
}

func (e *tooLong) Error() string {
	return fmt.Sprintf("the line has %d bytes; the limit max_record is %d", e.size, e.max)
}

// next returns a line without its terminator, valid until the next call. At the end the error is io.EOF; a
// line in whose middle reading failed is not returned.
func (l *lineReader) next() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	l.number++
	if errors.Is(err, bufio.ErrBufferFull) {
		return l.nextLong(line)
	}
	return l.end(line, int64(len(line)), err)
}

// nextLong gathers a line that is longer than the buffer.
func (l *lineReader) nextLong(part []byte) ([]byte, error) {
	l.long = l.long[:0]
	size, err := int64(0), bufio.ErrBufferFull
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(l.long)+len(part) > l.max+2 && len(l.long) > 2 {
			l.long = l.long[len(l.long)-2:] // too long: only its end matters now
		}
		l.long = append(l.long, part...)
		size += int64(len(part))
		part, err = l.r.ReadSlice('\n')
	}
	l.long = append(l.long, part...)
	return l.end(l.long, size+int64(len(part)), err)
}

// end takes the terminator off. The line may be only the end of one of size bytes.
func (l *lineReader) end(line []byte, size int64, err error) ([]byte, error) {
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case err != nil && size == 0:
		l.number--
		return nil, io.EOF
	}
	whole := len(line)
	if err == nil {
		line = bytes.TrimSuffix(line[:whole-1], []byte{'\r'})
	}
	size -= int64(whole - len(line))
	if size > int64(l.max) {
		return nil, &tooLong{size, l.max}
	}
	return line, nil
}
