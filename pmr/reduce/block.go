package reduce

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/pinion-mr/pinion/buckets"
)

// EmitBlock is [Table.Emit] for each frame of a block in turn, and faster. It returns the number of pairs that
// were added. Nothing of the block is kept.
//
// Errors are those of Emit, for the first pair that has one; and a frame that is not whole.
func (t *Table) EmitBlock(block []byte) (pairs int, err error) {
	if t.err != nil {
		return 0, t.err
	}
	begin := t.pair.seq
	var batch [batchPairs]lookup
	for len(block) > 0 && err == nil {
		n, size := t.keys.cut(block, &batch)
		if n > 0 {
			t.keys.lookUp(batch[:n])
			err = t.addBatch(block, batch[:n])
		} else {
			size, err = t.emitFirst(block)
		}
		block = block[size:]
	}
	return int(t.pair.seq - begin), err
}

// emitFirst emits a frame that cut does not take and returns its size.
func (t *Table) emitFirst(block []byte) (size int, err error) {
	f, rest, err := buckets.CutFrame(block)
	if err != nil {
		t.err = fmt.Errorf("reduce: bucket %d, pair %d: %w", t.pair.bucket, t.pair.seq, err)
		return 0, t.err
	}
	return len(block) - len(rest), t.Emit(f.Flags, f.Key, f.Value)
}

// cut takes up to a batch of whole frames off a block and hashes their keys. It returns the number of frames and
// their size, and stops at a frame that has a fault.
func (k *keys) cut(block []byte, batch *[batchPairs]lookup) (n, size int) {
	block = block[:min(len(block), math.MaxInt32)]
	for n < batchPairs {
		rest := block[size:]
		if len(rest) < buckets.FrameHeader {
			break
		}
		klen := uint64(binary.LittleEndian.Uint32(rest[4:]))
		end := buckets.FrameHeader + klen + uint64(binary.LittleEndian.Uint32(rest[8:]))
		if end > uint64(len(rest)) || klen > buckets.MaxKey {
			break
		}
		l := &batch[n]
		if klen <= inlineKey && len(rest) >= buckets.FrameHeader+keyBytes {
			l.probe = k.wordProbe((*[keyBytes]byte)(rest[buckets.FrameHeader:]), klen)
		} else {
			l.probe = k.probe(rest[buckets.FrameHeader : buckets.FrameHeader+klen])
		}
		l.frame = uint32(size)
		size += int(end)
		n++
	}
	return n, size
}

// addBatch emits the pairs of a batch.
func (t *Table) addBatch(block []byte, batch []lookup) error {
	sum, _ := t.column.(*sumColumn)
	for i := range batch {
		l := &batch[i]
		frame := block[l.frame:]
		flags := binary.LittleEndian.Uint32(frame)
		klen, vlen := int(l.c>>sizeShift), int(binary.LittleEndian.Uint32(frame[8:]))
		body := frame[buckets.FrameHeader : buckets.FrameHeader+klen+vlen]
		key, value := body[:klen], body[klen:]
		if l.row != nil && sum != nil && flags == buckets.FlagInt && len(value) == 8 &&
			sum.addQuick(l.row, int64(binary.LittleEndian.Uint64(value))) {
			t.pair.seq++
			t.pairs++
			continue
		}
		if err := t.pair.read(flags, value); err != nil {
			return t.failAt(err, key)
		}
		if err := t.add(t.keys.settle(l, key), key); err != nil {
			return err
		}
	}
	return nil
}
