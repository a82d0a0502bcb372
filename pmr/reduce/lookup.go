package reduce

// batchPairs is how many keys are looked up together. A key that is not common costs mostly two cache misses; in a
// batch those of all its keys are waited for at once.
const batchPairs = 32

// lookup is a key that is being looked up.
type lookup struct {
	probe
	frame    uint32  // where its pair begins in a block
	next     uint32  // row + 1 if a row seems to have the key; 0 if none has
	segments int     // of the table at that time
	at       *slot   // the row's, or the free one where it would be
	row      *keyRow // the row if it has the key; nil if that is not known yet
}

// lookUp finds the slots of a batch, then the rows. Each step goes through the whole batch without waiting for what
// it reads first.
func (k *keys) lookUp(batch []lookup) {
	for i := range batch {
		l := &batch[i]
		l.at = &k.segment(l.tag)[l.tag%segmentSlots]
		l.next, l.row, l.segments = l.at.next, nil, len(k.segments)
	}
	for i := range batch {
		l := &batch[i]
		if l.next != 0 && l.at.tag != l.tag {
			l.at = k.segment(l.tag).walk(l.tag)
			l.next = l.at.next
		}
	}
	for i := range batch {
		l := &batch[i]
		if l.next == 0 {
			continue
		}
		if row := k.row(l.next - 1); row.differs(&l.probe) == 0 {
			l.row = row
		}
	}
}

// walk returns the first slot with a tag, or the free one where the search for it ends; any if the segment is full.
func (s *segment) walk(tag uint32) *slot {
	at := tag % segmentSlots
	for range segmentSlots - 1 {
		if s[at].next == 0 || s[at].tag == tag {
			break
		}
		at = (at + 1) % segmentSlots
	}
	return &s[at]
}

// settle returns the number of a key that was looked up, a new one if it is not known. What was inserted since is
// taken into account: it may be the same key, or be where this one would be.
func (k *keys) settle(l *lookup, key []byte) uint32 {
	switch {
	case l.row != nil:
		return l.next - 1
	case l.at.next == 0 && l.segments == len(k.segments):
		return k.insert(l.at, &l.probe, key)
	}
	return k.find(&l.probe, key)
}

// numbers returns the number of each key of another table.
func (k *keys) numbers(from *keys) []uint32 {
	rows := make([]uint32, from.len())
	var batch [batchPairs]lookup
	for begin := 0; begin < len(rows); begin += batchPairs {
		part := batch[:min(batchPairs, len(rows)-begin)]
		for i := range part {
			part[i].probe = k.probe(from.key(uint32(begin + i)))
		}
		k.lookUp(part)
		for i := range part {
			rows[begin+i] = k.settle(&part[i], from.key(uint32(begin+i)))
		}
	}
	return rows
}
