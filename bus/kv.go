package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pinion-mr/pinion/api"
)

// markerTTL is how long the mark of a deleted or expired key stays for watchers that were cut off.
const markerTTL = 5 * time.Minute

// Headers of NATS key-value buckets (NATS ADR-8 and ADR-48), so that `nats kv` reads ours.
const (
	headerKVOperation = "KV-Operation"
	headerRollup      = "Nats-Rollup"
	headerTTL         = "Nats-TTL"
	headerMarker      = "Nats-Marker-Reason"
)

// KV is a key-value bucket of a cluster. Keys hold letters, digits and -/_=. and neither begin nor end
// with a dot. A revision is a position in the bucket, so it grows with every write to any key.
type KV struct {
	bus    *Bus
	name   string // of its stream
	prefix string // of its subjects
	stream jetstream.Stream
}

// KV opens a bucket, and makes it first if create is true and it does not exist. It fails with
// UNKNOWN_CLUSTER if it does not exist.
func (b *Bus) KV(ctx context.Context, name string, create bool, replicas int) (*KV, error) {
	bucket := b.stream(name)
	prefix := "$KV." + bucket + "."
	cfg := jetstream.StreamConfig{
		Name:                   "KV_" + bucket,
		Description:            "Pinion's " + strings.ToLower(name) + " of cluster " + b.cfg.Cluster,
		Subjects:               []string{prefix + ">"},
		Storage:                jetstream.FileStorage,
		Discard:                jetstream.DiscardNew,
		Replicas:               max(replicas, 1),
		MaxMsgsPerSubject:      1,
		Duplicates:             defaultDuplicateWindow,
		AllowRollup:            true,
		DenyDelete:             true,
		AllowDirect:            false, // replicas answer with old revisions
		AllowMsgTTL:            true,
		SubjectDeleteMarkerTTL: markerTTL,
	}
	stream, err := b.openOrMake(ctx, cfg, create)
	if err != nil {
		return nil, err
	}
	return &KV{bus: b, name: cfg.Name, prefix: prefix, stream: stream}, nil
}

// openOrMake opens a stream or makes it, and sees to it that only its leader is read.
func (b *Bus) openOrMake(ctx context.Context, cfg jetstream.StreamConfig, create bool) (jetstream.Stream, error) {
	if !create {
		return b.openStream(ctx, cfg.Name)
	}
	stream, err := b.makeStream(ctx, cfg)
	if err != nil || !stream.CachedInfo().Config.AllowDirect {
		return stream, err
	}
	mended := stream.CachedInfo().Config
	mended.AllowDirect = false
	stream, err = b.js.UpdateStream(ctx, mended)
	if err != nil {
		return nil, b.streamError(ctx, "update stream "+cfg.Name, err)
	}
	return stream, nil
}

var validKey = regexp.MustCompile(`^[-/_=A-Za-z0-9]+(\.[-/_=A-Za-z0-9]+)*$`)

// CheckKey refuses what is no key of a key-value bucket.
func CheckKey(key string) error {
	if !validKey.MatchString(key) {
		return api.Errorf(api.CodeBadRequest, "%q is no key: it may hold letters, digits and -/_=. only, and words between dots", key)
	}
	return nil
}

// Get reads a key. A key that does not exist has revision 0 and is no error. In a partition the answer
// may be old: what it decides has to end in an Update.
func (k *KV) Get(ctx context.Context, key string) (api.KVEntry, error) {
	e, err := k.last(ctx, key)
	if err != nil || e.Deleted {
		return api.KVEntry{Key: key}, err
	}
	return e, nil
}

// last reads a key or the mark of its deletion.
func (k *KV) last(ctx context.Context, key string) (api.KVEntry, error) {
	if err := CheckKey(key); err != nil {
		return api.KVEntry{}, err
	}
	m, err := k.bus.lastOf(ctx, k.stream, k.prefix+key)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return api.KVEntry{Key: key, Deleted: true}, nil
	}
	if err != nil {
		return api.KVEntry{}, k.bus.streamError(ctx, "read key "+key, err)
	}
	return api.KVEntry{Key: key, Value: m.Data, Revision: m.Sequence, Deleted: isMarker(m.Header)}, nil
}

// lastOf reads the last message of a subject from the stream's leader.
func (b *Bus) lastOf(ctx context.Context, stream jetstream.Stream, subject string) (m *jetstream.RawStreamMsg, err error) {
	err = b.ask(ctx, func(ctx context.Context) (err error) {
		m, err = stream.GetLastMsgForSubject(ctx, subject)
		return err
	})
	return m, err
}

// isMarker tells the mark of a deletion from a value.
func isMarker(h nats.Header) bool {
	return h.Get(headerKVOperation) != "" || h.Get(headerMarker) != ""
}

// Put writes a key, whatever is there, and returns its revision.
func (k *KV) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return k.write(ctx, key, value, nil)
}

// Create writes a key that must not exist; if it does, the error is NAME_TAKEN.
func (k *KV) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return k.create(ctx, key, value, nil)
}

// CreateTTL is Create for a key that goes away by itself after ttl, in whole seconds, rounded up. Renew
// prolongs it; Put and Update would make it stay.
func (k *KV) CreateTTL(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	return k.create(ctx, key, value, map[string]string{headerTTL: ttlText(ttl)})
}

// ttlText is a time to live as the server takes it: at least a second, in seconds.
func ttlText(ttl time.Duration) string {
	return strconv.FormatInt(int64(max(ttl+time.Second-1, time.Second)/time.Second), 10) + "s"
}

func (k *KV) create(ctx context.Context, key string, value []byte, header map[string]string) (uint64, error) {
	rev, err := k.write(ctx, key, value, expect(header, 0))
	if !errors.Is(err, ErrConflict) {
		return rev, err
	}
	e, getErr := k.last(ctx, key)
	switch {
	case getErr != nil:
		return 0, getErr
	case !e.Deleted:
		return 0, KeyTaken(key)
	case e.Revision == 0:
		return 0, err // a rival was in flight; what came of it is not known
	}
	return k.write(ctx, key, value, expect(header, e.Revision))
}

// KeyTaken is the error of a Create of a key that exists.
func KeyTaken(key string) *api.Error {
	return api.Errorf(api.CodeNameTaken, "key %s exists already", key).With("key", key)
}

// expect adds the revision that a key must have.
func expect(header map[string]string, rev uint64) map[string]string {
	out := map[string]string{jetstream.ExpectedLastSubjSeqHeader: strconv.FormatUint(rev, 10)}
	for k, v := range header {
		out[k] = v
	}
	return out
}

// Update writes a key that must be at revision last. The error is [ErrConflict], with code BUSY, if it is
// not, or if a rival's write is in flight.
func (k *KV) Update(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	return k.write(ctx, key, value, expect(nil, last))
}

// Renew is Update for a key with a time to live, which starts anew.
func (k *KV) Renew(ctx context.Context, key string, value []byte, last uint64, ttl time.Duration) (uint64, error) {
	return k.write(ctx, key, value, expect(map[string]string{headerTTL: ttlText(ttl)}, last))
}

// Delete removes a key; one that does not exist is no error. The server forgets its mark after some
// minutes.
func (k *KV) Delete(ctx context.Context, key string) error {
	e, err := k.last(ctx, key)
	if err != nil || e.Deleted {
		return err
	}
	_, err = k.write(ctx, key, nil, map[string]string{
		headerKVOperation: "PURGE", headerRollup: "sub", headerTTL: ttlText(markerTTL),
	})
	return err
}

func (k *KV) write(ctx context.Context, key string, value []byte, header map[string]string) (uint64, error) {
	if err := CheckKey(key); err != nil {
		return 0, err
	}
	m := nats.NewMsg(k.prefix + key)
	for h, v := range header {
		m.Header.Set(h, v)
	}
	m.Data = value
	rev, err := k.bus.store(ctx, m, publishPatience)
	if !errors.Is(err, ErrConflict) {
		return rev, err
	}
	// The server looks at revisions before message ids. So if the acknowledgement of the first try was
	// lost, what is in the way is our own write.
	if last, err := k.bus.lastOf(ctx, k.stream, m.Subject); err == nil &&
		last.Header.Get(jetstream.MsgIDHeader) == m.Header.Get(jetstream.MsgIDHeader) {
		return last.Sequence, nil
	}
	return 0, Conflict(key)
}

// Conflict is [ErrConflict] for a key, with a code.
func Conflict(key string) error {
	return fmt.Errorf("%w: %w", ErrConflict, api.Errorf(api.CodeBusy, "key %s was written by somebody else", key).
		WithHint("read it and try again").With("key", key))
}

// List reads all keys with a prefix, in the order of their names. All of them are in memory at once: see Each.
func (k *KV) List(ctx context.Context, prefix string) ([]api.KVEntry, error) {
	found, err := k.collect(ctx, prefix, false)
	out := make([]api.KVEntry, 0, len(found))
	for _, e := range found {
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Key < out[j].Key })
	return out, err
}

// Keys is the names of List. The values stay on the server.
func (k *KV) Keys(ctx context.Context, prefix string) ([]string, error) {
	found, err := k.collect(ctx, prefix, true)
	return slices.Sorted(maps.Keys(found)), err
}

func (k *KV) collect(ctx context.Context, prefix string, bare bool) (map[string]api.KVEntry, error) {
	found := map[string]api.KVEntry{}
	err := k.each(ctx, prefix, bare, func(e api.KVEntry) {
		if e.Deleted {
			delete(found, e.Key)
		} else {
			found[e.Key] = e
		}
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Each calls fn with the keys that have a prefix, oldest value first, without holding more than a few of them. One that
// is written or removed meanwhile may come again, and so may all if a connection is lost: what comes last counts. Keys
// that were removed some minutes ago come as Deleted.
func (k *KV) Each(ctx context.Context, prefix string, fn func(api.KVEntry)) error {
	return k.each(ctx, prefix, false, fn)
}

// each is Each, with bare without values.
func (k *KV) each(ctx context.Context, prefix string, bare bool, fn func(api.KVEntry)) error {
	p := &passage{stream: k.name, filters: []string{k.filter(prefix)}, bare: bare}
	err := k.bus.latest(ctx, p, func(d delivery) {
		if e := k.decode(d); strings.HasPrefix(e.Key, prefix) {
			fn(e)
		}
	})
	if err != nil {
		return k.bus.streamError(ctx, "list keys "+prefix, err)
	}
	return nil
}

// filter is the narrowest subject that covers a prefix.
func (k *KV) filter(prefix string) string {
	return k.prefix + prefix[:strings.LastIndexByte(prefix, '.')+1] + ">"
}

func (k *KV) decode(d delivery) api.KVEntry {
	e := api.KVEntry{Key: strings.TrimPrefix(d.subject, k.prefix), Revision: d.seq}
	if e.Deleted = isMarker(d.header); !e.Deleted {
		e.Value = d.data
	}
	return e
}

// latest calls fn with the last message of each subject below p's filter, in the order of the stream. One that is
// replaced meanwhile, or all if a consumer is lost, may come again.
func (b *Bus) latest(ctx context.Context, p *passage, fn func(delivery)) error {
	var found map[string]bool
	l := listing{}
	p.bus, p.latest, p.idle = b, true, listingIdle
	err := p.run(ctx, func(pending uint64) error {
		found = map[string]bool{}
		l = listing{expected: pending}
		if pending == 0 {
			return errDone
		}
		return nil
	}, func(batch []delivery) error {
		for _, d := range batch {
			found[d.subject] = true
			fn(d)
			if l.complete(d) {
				return errDone
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.addMissed(ctx, p.stream, p.filters[0], found, fn)
}

// addMissed reads what a listing has left out: a message that is replaced while it runs is delivered as another
// one or twice, so that the count of what there was says nothing.
func (b *Bus) addMissed(ctx context.Context, stream, filter string, found map[string]bool, fn func(delivery)) error {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	var info *jetstream.StreamInfo
	if err := b.ask(ctx, func(ctx context.Context) (err error) {
		info, err = s.Info(ctx, jetstream.WithSubjectFilter(filter))
		return err
	}); err != nil {
		return err
	}
	for subject := range info.State.Subjects {
		if found[subject] {
			continue
		}
		m, err := b.lastOf(ctx, s, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // it has lapsed meanwhile
		}
		if err != nil {
			return err
		}
		fn(delivery{subject: m.Subject, seq: m.Sequence, header: m.Header, data: m.Data})
	}
	return nil
}

// listingIdle is the silence after which an unfinished listing is begun again: messages that it counts
// on may have been replaced or removed meanwhile.
const listingIdle = time.Second

// listing knows when a consumer of last messages has delivered all that there were at its creation.
type listing struct {
	expected, received uint64
	done               bool
}

// complete counts d in and reports whether it was the last one.
func (l *listing) complete(d delivery) bool {
	l.received++
	l.done = l.done || l.received >= l.expected || d.pending == 0
	return l.done
}
