package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

// localBuckets is into how many buckets the records of files are spread for a job here.
const localBuckets = 16

// dataset holds the records of files in buckets, as an import would spread them. A key that is assigned is
// #FILE.LINE.BUCKET, files and lines counted from 1, so keys ascend in the order of the lines.
type dataset struct {
	buckets.Snapshot // nil: a job only asks what there is, and scans
	files            []string
	parts            [localBuckets]part
	records, bytes   uint64
}

// part is a bucket: its records as frames, in the order of their keys once it is sorted.
type part struct {
	frames []byte
	index  []place
	keyed  bool // some keys are the records' own
}

// place says where a record is, and where it came from.
type place struct {
	at, size   int // in frames
	file, line uint32
}

// readDataset reads files into memory.
func (s *session) readDataset(ctx context.Context, items []importItem, key string) (*dataset, error) {
	d := &dataset{}
	for i, item := range items {
		d.files = append(d.files, item.name)
		in := &importer{key: key, max: node.DefaultMaxRecord, bar: &progress{}, note: s.note}
		in.w = &datasetWriter{d: d, in: in, file: uint32(i + 1)}
		if err := in.file(ctx, item, s.stdin); err != nil {
			return nil, err
		}
	}
	for b := range d.parts {
		d.parts[b].sort()
	}
	return d, nil
}

// datasetWriter takes the records of one file.
type datasetWriter struct {
	d    *dataset
	in   *importer
	file uint32
}

func (w *datasetWriter) Add(value []byte) error {
	b := buckets.ID(w.d.records % localBuckets)
	return w.put(b, buckets.AppendAssigned(nil, uint64(w.file), uint32(w.in.line), b), value)
}

func (w *datasetWriter) Put(key, value []byte) error {
	if _, _, _, ok := buckets.ParseAssigned(key); ok {
		return fmt.Errorf("the key %s has the form of assigned keys", buckets.KeyText(key))
	}
	b := buckets.Of(key, localBuckets)
	w.d.parts[b].keyed = true
	return w.put(b, key, value)
}

func (w *datasetWriter) put(b buckets.ID, key, value []byte) error {
	if err := buckets.CheckRecord(key, value, node.DefaultMaxRecord); err != nil {
		return err
	}
	p := &w.d.parts[b]
	at := len(p.frames)
	p.frames = buckets.AppendFrame(p.frames, 0, key, value)
	p.index = append(p.index, place{at, len(p.frames) - at, w.file, uint32(w.in.line)})
	w.d.records++
	w.d.bytes += uint64(len(key) + len(value))
	return nil
}

// sort orders the records by key. Of several with one key the last one stands.
func (p *part) sort() {
	if !p.keyed {
		return
	}
	slices.SortStableFunc(p.index, func(a, b place) int { return bytes.Compare(p.key(a), p.key(b)) })
	kept := p.index[:0]
	for i, e := range p.index {
		if i+1 == len(p.index) || !bytes.Equal(p.key(e), p.key(p.index[i+1])) {
			kept = append(kept, e)
		}
	}
	p.index = kept
}

func (p *part) key(e place) []byte {
	f, _, err := buckets.CutFrame(p.frames[e.at : e.at+e.size])
	if err != nil {
		return nil // not of frames that put made
	}
	return f.Key
}

// Scan reads a bucket.
func (d *dataset) Scan(b buckets.ID, _ string) (buckets.Cursor, error) {
	return &partCursor{p: &d.parts[b]}, nil
}

// Holding lists the buckets with records.
func (d *dataset) Holding(bs []buckets.ID, _ string, _ int) (holding []buckets.ID, err error) {
	for _, b := range bs {
		if len(d.parts[b].index) > 0 {
			holding = append(holding, b)
		}
	}
	return holding, nil
}

// partCursor reads a part from its first record to its last.
type partCursor struct {
	p    *part
	next int
}

func (c *partCursor) Fill(dst []byte, limit int) ([]byte, int, error) {
	n := 0
	for ; c.next < len(c.p.index); c.next++ {
		e := c.p.index[c.next]
		if n > 0 && len(dst)+e.size > limit {
			break
		}
		dst = append(dst, c.p.frames[e.at:e.at+e.size]...)
		n++
	}
	return dst, n, nil
}

func (c *partCursor) Close() error { return nil }

// place finds the line of a record by its number in a bucket.
func (d *dataset) place(bucket int, record uint64) (file string, line uint32, ok bool) {
	if bucket < 0 || bucket >= localBuckets || record >= uint64(len(d.parts[bucket].index)) {
		return "", 0, false
	}
	e := d.parts[bucket].index[record]
	return d.files[e.file-1], e.line, true
}

// locate puts the line before the message of a failure that names one record.
func (d *dataset) locate(err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	bucket, err1 := strconv.Atoi(e.Details["bucket"])
	record, err2 := strconv.ParseUint(e.Details["record"], 10, 64)
	if err1 != nil || err2 != nil {
		return err
	}
	file, line, ok := d.place(bucket, record)
	if !ok {
		return err
	}
	at := *e.With("file", file).With("line", strconv.FormatUint(uint64(line), 10))
	if n := e.Details["records"]; n == "1" {
		at.Message = fmt.Sprintf("%s:%d: %s", file, line, e.Message)
	} else {
		at.Message = fmt.Sprintf("%s (the first of these records is %s:%d)", e.Message, file, line)
	}
	return &at
}

var (
	_ recordWriter     = (*datasetWriter)(nil)
	_ buckets.Snapshot = (*dataset)(nil)
)
