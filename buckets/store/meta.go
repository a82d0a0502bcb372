package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pinion-mr/pinion/buckets"
)

// layoutVersion is the version of what doc.go describes.
const layoutVersion = "1"

var (
	keyFormat   = []byte{metaTag, 'f', 'o', 'r', 'm', 'a', 't'}
	keyPosition = []byte{metaTag, 'p', 'o', 's', 'i', 't', 'i', 'o', 'n'}
	keyTable    = []byte{metaTag, 't', 'a', 'b', 'l', 'e'}
	keyJoined   = []byte{metaTag, 'j', 'o', 'i', 'n', 'e', 'd'}
)

// ErrFormat says that a folder holds something else than this version's store.
var ErrFormat = errors.New("another format")

func joinedKey(b buckets.ID) []byte {
	return binary.BigEndian.AppendUint16(bytes.Clone(keyJoined), uint16(b))
}

// plain is p without what a position loses when it is stored: the zone of its time and the clock's reading.
func plain(p buckets.Position) buckets.Position {
	p.Time = p.Time.Round(0).UTC()
	return p
}

// meta is what a database says about itself.
type meta struct {
	position buckets.Position
	table    []byte
	joined   []buckets.ID
}

// readMeta reads a database's meta keys; fresh is true if it holds nothing at all.
func readMeta(db *pebble.DB) (m meta, fresh bool, err error) {
	format, err := getMeta(db, keyFormat)
	if err != nil {
		return m, false, err
	}
	if format == nil {
		if fresh, err = isEmpty(db); err != nil || fresh {
			return m, fresh, err
		}
	}
	if string(format) != layoutVersion {
		return m, false, fmt.Errorf("%w: the folder holds format %q, this program reads %q; run the version that wrote it, or remove the folder, for the buckets are rebuilt from the log",
			ErrFormat, format, layoutVersion)
	}
	position, err := getMeta(db, keyPosition)
	if err != nil {
		return m, false, err
	}
	if position != nil {
		if err := json.Unmarshal(position, &m.position); err != nil {
			return m, false, fmt.Errorf("read the position: %w", err)
		}
	}
	if m.table, err = getMeta(db, keyTable); err != nil {
		return m, false, err
	}
	m.joined, err = readJoined(db)
	return m, false, err
}

func readJoined(db *pebble.DB) (joined []buckets.ID, err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: keyJoined, UpperBound: afterPrefix(keyJoined)})
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		joined = append(joined, buckets.ID(binary.BigEndian.Uint16(it.Key()[len(keyJoined):])))
	}
	return joined, errors.Join(it.Error(), it.Close())
}

// getMeta returns a copy of the value of a key, or nil.
func getMeta(db *pebble.DB, key []byte) ([]byte, error) {
	value, closer, err := db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	value = append([]byte{}, value...)
	return value, closer.Close()
}

func isEmpty(db *pebble.DB) (bool, error) {
	it, err := db.NewIter(nil)
	if err != nil {
		return false, err
	}
	empty := !it.First()
	return empty, errors.Join(it.Error(), it.Close())
}

// strays returns spans that cover all records of buckets which are not joined; none where there are none.
// joined is ascending.
func strays(db *pebble.DB, joined []buckets.ID) (spans []span, err error) {
	records := recordsSpan()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: records.lower, UpperBound: records.upper})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Error(), it.Close()) }()
	next := 0
	for i := range len(joined) + 1 {
		end := 1 << 16
		if i < len(joined) {
			end = int(joined[i])
		}
		gap := bucketsSpan(next, end)
		if next < end && it.SeekGE(gap.lower) && gap.holds(it.Key()) {
			spans = append(spans, gap)
		}
		next = end + 1
	}
	return spans, nil
}
