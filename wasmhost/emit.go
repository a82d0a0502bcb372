package wasmhost

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// given are the keys of a batch of grouped frames.
type given struct {
	keys [][]byte
	next int                 // where the key that is emitted next is expected
	set  map[string]struct{} // made when keys are emitted in another order
}

func (g *given) read(batch []byte) error {
	*g = given{keys: g.keys[:0]}
	for len(batch) > 0 {
		f, rest, err := buckets.CutFrame(batch)
		if err != nil {
			return fmt.Errorf("wasmhost: batch of groups: %w", err)
		}
		if n := len(g.keys); n == 0 || string(g.keys[n-1]) != string(f.Key) {
			g.keys = append(g.keys, f.Key)
		}
		batch = rest
	}
	return nil
}

// has reports whether key is one of the batch. Most guests emit in the order of the keys.
func (g *given) has(key []byte) bool {
	for i := g.next; i < min(g.next+2, len(g.keys)); i++ {
		if string(g.keys[i]) == string(key) {
			g.next = i
			return true
		}
	}
	if g.set == nil {
		g.set = make(map[string]struct{}, len(g.keys))
		for _, k := range g.keys {
			g.set[string(k)] = struct{}{}
		}
	}
	_, ok := g.set[string(key)]
	return ok
}

// BlockSink is a [Sink] that takes blocks of frames, which is faster than pair by pair. The frames of a block are
// whole and what they say is allowed, as with Emit. The block is valid only during the call. pairs is how many
// of them were taken: all, if there is no error.
type BlockSink interface {
	Sink
	EmitBlock(block []byte) (pairs int, err error)
}

// emitBlock takes a block of frames from the guest's memory, which begins at byte from of what the guest emitted.
// What is sound of it goes to the sink at once, if that can take it; then comes what has a fault, which
// emitPair names.
func (in *Instance) emitBlock(block []byte, from int) error {
	at := 0
	if sink, ok := in.blockSink(); ok {
		size, pairs := soundFrames(block)
		if err := in.emitSound(sink, block[:size], pairs); err != nil {
			return err
		}
		at = size
	}
	for at < len(block) {
		f, rest, err := buckets.CutFrame(block[at:])
		if err != nil {
			return in.fault(in.place.function, fmt.Sprintf("emitted a block whose byte %d begins no frame: %v", from+at, err))
		}
		if err := in.emitPair(f.Flags, f.Key, f.Value); err != nil {
			return err
		}
		at = len(block) - len(rest)
	}
	return nil
}

// blockSink is the sink of the Map under way, if it takes blocks. Not so in Group, where keys are compared with
// those of the batch.
func (in *Instance) blockSink() (sink BlockSink, ok bool) {
	if !in.mayEmit() || in.run.group != nil {
		return nil, false
	}
	sink, ok = in.run.sink.(BlockSink)
	return sink, ok
}

// mayEmit reports whether the guest may emit now.
func (in *Instance) mayEmit() bool {
	return in.run != nil && in.phase != phaseLoad && (in.phase != phaseEnd || in.run.group == nil)
}

// soundFrames returns the size and number of the frames at the beginning of a block that emitPair would take.
func soundFrames(block []byte) (size, pairs int) {
	for {
		rest := block[size:]
		if len(rest) < buckets.FrameHeader {
			return size, pairs
		}
		flags := binary.LittleEndian.Uint32(rest)
		klen, vlen := uint64(binary.LittleEndian.Uint32(rest[4:])), uint64(binary.LittleEndian.Uint32(rest[8:]))
		whole := buckets.FrameHeader+klen+vlen <= uint64(len(rest))
		number := (flags == buckets.FlagInt || flags == buckets.FlagFloat) && vlen == 8
		if !whole || klen > buckets.MaxKey || flags != 0 && !number {
			return size, pairs
		}
		size += buckets.FrameHeader + int(klen+vlen)
		pairs++
	}
}

// emitSound hands checked frames to the sink.
func (in *Instance) emitSound(sink BlockSink, block []byte, pairs int) error {
	if pairs == 0 {
		return nil
	}
	output := len(block) - pairs*buckets.FrameHeader
	if err := in.job.Quota.emit(output); err != nil {
		return in.placed(err)
	}
	if _, err := sink.EmitBlock(block); err != nil {
		return in.placed(err)
	}
	in.run.figures.Pairs += uint64(pairs)
	in.run.figures.Output += uint64(output)
	return nil
}

// emitPair checks one pair and hands it to the sink.
func (in *Instance) emitPair(flags uint32, key, value []byte) error {
	if !in.mayEmit() {
		return in.fault(in.place.function, "emitted outside a batch: only the function of the job may emit, and pmr_end after a map")
	}
	r := in.run
	if r.group != nil {
		flags &^= buckets.FlagFirst | buckets.FlagLast
	}
	switch {
	case flags&^(buckets.FlagInt|buckets.FlagFloat) != 0 || flags == buckets.FlagInt|buckets.FlagFloat:
		return in.fault(in.place.function, fmt.Sprintf("emitted a frame with flags %d; 0, 4 (i64) and 8 (f64) are allowed (key %s)", flags, keyText(key)))
	case flags != 0 && len(value) != 8:
		return in.fault(in.place.function, fmt.Sprintf("emitted a number of %d bytes; a number has 8 (key %s)", len(value), keyText(key)))
	case len(key) > buckets.MaxKey:
		return in.fault(in.place.function, fmt.Sprintf("emitted a key of %d bytes; the limit is %d (key %s)", len(key), buckets.MaxKey, keyText(key)))
	case r.group != nil && !r.group.has(key):
		return in.fault(in.place.function, fmt.Sprintf("emitted key %s, which is not in the batch it was given; combine and reduce may emit only those", keyText(key)))
	}
	if err := in.job.Quota.emit(len(key) + len(value)); err != nil {
		return in.placed(err)
	}
	if err := r.sink.Emit(flags, key, value); err != nil {
		return in.placed(err)
	}
	r.figures.Pairs++
	r.figures.Output += uint64(len(key) + len(value))
	return nil
}

// emitNumber is emitPair of an i64 or the bits of an f64.
func (in *Instance) emitNumber(flags uint32, key []byte, bits uint64) error {
	binary.LittleEndian.PutUint64(in.number[:], bits)
	return in.emitPair(flags, key, in.number[:])
}

func keyText(key []byte) string { return fmt.Sprintf("%q", oneLine(buckets.KeyText(key), 64)) }

// placed adds the place to an api.Error. Other errors stay as they are.
func (in *Instance) placed(err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	places := in.guestError(api.CodeGuestFailed, "").API().Details
	out := &api.Error{Code: e.Code, Message: e.Message, Hint: e.Hint, Details: places}
	for key, text := range e.Details {
		out.Details[key] = text
	}
	return out
}
