package node

import (
	"fmt"
	"math"
	"slices"

	"github.com/pinion-mr/pinion/buckets"
)

// source gives a bucket's records to a guest and knows which they were. Records have the numbers that they
// have in the whole bucket, also when some are left out; a batch then ends before those.
type source struct {
	cursor   buckets.Cursor
	skip     []uint64  // numbers of the records to leave out, ascending
	single   uint64    // from this record on a batch has one record
	progress *progress // counts what is read; may be nil
	place    *place    // of the guest that reads; may be nil

	buffer []byte // rest is a part of it
	rest   []byte // frames that were read and not given yet
	unread int    // how many
	next   uint64 // number of the next record to give

	batch uint64 // number of the first record of the last batch
	key   []byte // of that record, if it is alone in the batch
	ended bool   // there was nothing more to give

	records, bytes uint64 // counted in progress
}

func newSource(cursor buckets.Cursor, skip []uint64) *source {
	return &source{cursor: cursor, skip: skip, single: math.MaxUint64}
}

// peek reads the first records before anything runs, and reports whether there is none to give.
func (s *source) peek() (empty bool, err error) {
	if err := s.read(); err != nil {
		return false, err
	}
	if len(s.skip) > 0 {
		err = s.leaveOut()
	}
	return s.unread == 0, err
}

// Fill is buckets.Cursor's.
func (s *source) Fill(dst []byte, limit int) (out []byte, n int, err error) {
	start := len(dst)
	if s.place != nil {
		s.place.begin()
	}
	if len(s.skip) > 0 {
		if err := s.leaveOut(); err != nil {
			return dst, 0, err
		}
	}
	s.batch, s.key = s.next, nil
	switch {
	case len(s.skip) > 0 || s.next >= s.single || s.unread > 0 && start+len(s.rest) > limit:
		dst, n, err = s.pick(dst, limit)
	case s.unread > 0:
		dst, n = append(dst, s.rest...), s.unread
		s.rest, s.unread = nil, 0
	default:
		dst, n, err = s.cursor.Fill(dst, limit)
	}
	s.next += uint64(n)
	s.ended = n == 0
	s.count(n, len(dst)-start)
	return dst, n, err
}

// First is the number in the bucket of the first record of the last batch.
func (s *source) First() uint64 { return s.batch }

// atRecord reports whether the last batch was a single record, and nothing was asked for after it.
func (s *source) atRecord() bool { return s.key != nil && !s.ended }

// read fills rest if it is empty.
func (s *source) read() (err error) {
	if s.unread > 0 {
		return nil
	}
	s.buffer, s.unread, err = s.cursor.Fill(s.buffer[:0], passBatch)
	s.rest = s.buffer
	return err
}

// pick takes frames one by one: one record if they are to be alone, else up to one that is left out.
func (s *source) pick(dst []byte, limit int) ([]byte, int, error) {
	n := 0
	for at := s.next; n == 0 || at < s.single && !s.skips(at); at++ {
		if err := s.read(); err != nil || s.unread == 0 {
			return dst, n, err
		}
		f, tail, err := buckets.CutFrame(s.rest)
		if err != nil {
			return dst, n, fmt.Errorf("node: the store's frames: %w", err)
		}
		size := len(s.rest) - len(tail)
		if n > 0 && len(dst)+size > limit {
			break
		}
		if at >= s.single {
			s.key = append(make([]byte, 0, keptKey), f.Key[:min(len(f.Key), keptKey)]...)
		}
		dst = append(dst, s.rest[:size]...)
		s.rest, n = tail, n+1
		s.unread--
	}
	return dst, n, nil
}

// leaveOut passes over the records that come next and are to be left out.
func (s *source) leaveOut() error {
	for {
		if err := s.read(); err != nil || s.unread == 0 || !s.skips(s.next) {
			return err
		}
		_, tail, err := buckets.CutFrame(s.rest)
		if err != nil {
			return fmt.Errorf("node: the store's frames: %w", err)
		}
		s.count(1, len(s.rest)-len(tail))
		s.rest = tail
		s.unread--
		s.next++
	}
}

func (s *source) skips(record uint64) bool {
	_, found := slices.BinarySearch(s.skip, record)
	return found
}

// count adds frames to the progress.
func (s *source) count(records, bytes int) {
	if s.progress == nil || records == 0 {
		return
	}
	n, size := uint64(records), uint64(bytes-records*buckets.FrameHeader)
	s.records, s.bytes = s.records+n, s.bytes+size
	s.progress.records.Add(n)
	s.progress.bytes.Add(size)
}

// undo takes back from the progress what was read: the bucket will be read again.
func (s *source) undo() {
	s.progress.records.Add(-s.records)
	s.progress.bytes.Add(-s.bytes)
	s.records, s.bytes = 0, 0
}
