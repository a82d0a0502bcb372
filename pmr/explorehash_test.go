package pmr_test

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/pinion-mr/pinion/buckets"
)

// words is a machine as numbers; positions among them are marked.
type words struct {
	nums []uint64
	pos  []int // indices of positions in nums
}

func (w *words) Num(n int)     { w.nums = append(w.nums, uint64(n)) }
func (w *words) PMR(id string) { w.nums = append(w.nums, uint64(parseCode(id))) }
func (w *words) Pos(p uint64) {
	w.pos = append(w.pos, len(w.nums))
	w.nums = append(w.nums, p)
}

func (w *words) View(v *buckets.View) {
	for b := range v.Len() {
		o := v.Owner(buckets.ID(b))
		if o.Storage == "" {
			w.Num(nobody)
		} else {
			w.Num(number(o.Storage))
		}
		w.Pos(o.Generation)
	}
}

func (w *words) add(o words) {
	for _, i := range o.pos {
		w.pos = append(w.pos, len(w.nums)+i)
	}
	w.nums = append(w.nums, o.nums...)
	w.Num(-2)
}

// write brings the words of a storage up to date, after a change.
func (h *host) write() {
	if h.words.nums != nil {
		return
	}
	h.words.Num(boolBit(h.machine == nil) | boolBit(h.jumped)<<1 | boolBit(h.presumed)<<2)
	if h.machine != nil {
		h.machine.Write(&h.words, always)
		h.words.Pos(h.fence)
	}
	for _, p := range h.parked {
		h.words.Pos(p.cut)
		for _, r := range p.held {
			h.words.Num(int(r))
		}
	}
	for _, c := range h.copies {
		h.words.Num(boolBit(c.joined) | boolBit(c.loading)<<1 | boolBit(c.wanted)<<2)
		h.words.Num(int(c.records))
		h.words.Pos(c.from)
	}
}

func (c *client) write() {
	if c.words.nums != nil || c.machine == nil {
		return
	}
	c.machine.Write(&c.words)
}

// hasher hashes worlds; two that differ only in the positions of the log, and not in their order, are one.
type hasher struct {
	words words
	all   []uint64
	bytes []byte
}

func (h *hasher) hash(w *world) uint64 {
	h.words.nums, h.words.pos = h.words.nums[:0], h.words.pos[:0]
	w.write(&h.words)
	h.all = h.all[:0]
	for _, i := range h.words.pos {
		h.all = append(h.all, h.words.nums[i])
	}
	slices.Sort(h.all)
	h.all = slices.Compact(h.all)
	for _, i := range h.words.pos {
		if h.words.nums[i] != 0 {
			rank, _ := slices.BinarySearch(h.all, h.words.nums[i])
			h.words.nums[i] = uint64(rank) + 1
		}
	}
	h.bytes = h.bytes[:0]
	for _, n := range h.words.nums {
		h.bytes = binary.LittleEndian.AppendUint64(h.bytes, n)
	}
	return xxhash.Sum64(h.bytes)
}

func (w *world) write(to *words) {
	to.Num(w.lost | w.doubled<<8 | w.crashed<<16 | w.expired<<24 | w.deadlined<<32 | w.rivalled<<36 | w.lapsed<<40 | w.written<<44 | w.purges<<48)
	to.View(w.table())
	for s, h := range w.storages {
		to.Pos(w.table().Fence(storageID(s)))
		to.add(h.words)
	}
	for _, j := range w.jobs {
		to.add(j.words)
	}
	for _, o := range w.orders {
		to.Num(o.delivered | boolBit(o.over)<<8 | boolBit(o.published)<<9)
	}
	for _, m := range w.movers {
		to.Num(m.order<<8 | m.delivery)
		to.add(m.words)
	}
	for _, m := range w.msgs {
		to.Num(int(m.kind) | m.job<<8 | m.storage<<16 | m.attempt<<24 | m.set<<32)
		to.Num(int(m.pmr))
		for _, p := range m.pos {
			to.Pos(p)
		}
		if m.kind == pinRequest {
			to.View(w.viewAt(m.pos[0]))
		}
	}
	to.Num(-2)
	for _, t := range w.truth {
		to.Num(int(t.code))
		to.Num(int(t.guest) | boolBit(t.gone)<<4 | boolBit(t.late)<<5)
		to.Pos(t.cut)
		to.View(t.view)
	}
	w.writeLog(to)
}

// writeLog tells what of the log somebody has still to read.
func (w *world) writeLog(to *words) {
	to.Num(-2)
	if w.m.data {
		to.Pos(w.purged)
		for _, m := range w.manifests {
			to.Pos(m.at)
			to.Num(int(m.records))
		}
	}
	unread := w.end()
	for s, h := range w.storages {
		if w.follows(s) && (h.machine != nil || !w.m.data) {
			continue
		}
		to.Num(s)
		to.Pos(h.at)
		if !w.follows(s) {
			to.View(w.viewAt(h.at))
			unread = min(unread, h.at)
		}
	}
	for i, e := range w.log[unread:] {
		to.Pos(unread + uint64(i) + 1)
		switch what := e.what.(type) {
		case buckets.Own:
			to.Num(1 | int(what.Bucket)<<8 | number(what.Owner)<<16 | boolBit(e.changed)<<24)
		case buckets.Fence:
			to.Num(2 | number(what.Storage)<<8)
		case buckets.Cut:
			to.Num(3)
		case buckets.Records:
			to.Num(4 | int(what.Bucket)<<8)
		}
	}
}

func boolBit(b bool) int {
	if b {
		return 1
	}
	return 0
}
