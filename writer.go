package pinion

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus"
)

// Sizes of what a writer sends and holds, in bytes.
const (
	firstBatch   = 8 << 10   // of assigned keys in the first round over the buckets, so that little data is spread too
	fullBatch    = 128 << 10 // of all others
	maxHeld      = 64 << 20  // waiting in batches
	maxUnderWay  = 8 << 20   // sent and not acknowledged; a server that syncs slowly still answers in time
	maxMessages  = 256       // sent and not acknowledged
	messageSpare = 4 << 10   // of max_payload, for headers
)

// Writer stores many records: it gathers them in batches, each of one bucket, and sends these to the log
// without waiting for one before the next. Records of one key keep their order. A record counts as stored when
// Flush or Close has returned nil. It holds at most about 72 MiB. Its methods are for one goroutine at a time,
// but Written.
type Writer struct {
	ctx      context.Context // of every message, as these outlive the calls that filled them
	space    string
	header   map[string]string
	settings api.Settings
	batch    int // size of a full one
	log      *bus.Appender

	keyed  []*batch // by bucket; nil is empty
	held   int      // bytes in them
	spread *batch   // of records whose keys are assigned
	next   buckets.ID
	round  int // batches of assigned keys sent
	err    error

	mu       sync.Mutex
	changed  sync.Cond
	inFlight map[buckets.ID]bool // buckets of keyed batches under way
	underWay int                 // bytes
	sent     Written
	stored   Written
	refused  uint64 // records
	spare    []*batch
}

// Written counts records, and the bytes of their keys and values.
type Written struct {
	Records, Bytes uint64
}

// batch is a record entry in the making.
type batch struct {
	bucket buckets.ID
	frames []byte
	Written
}

// WriteError is the failure of a [Writer]. It counts all records that the writer ever took: those of which the
// log said that they are stored, those of which nobody knows (IN_DOUBT), and those that are not stored.
type WriteError struct {
	Stored, InDoubt, Unstored uint64
	Err                       error
}

// Error gives the counts and the cause.
func (e *WriteError) Error() string {
	return fmt.Sprintf("%d records are stored, %d may or may not be, %d are not: %v", e.Stored, e.InDoubt, e.Unstored, e.Err)
}

// Unwrap gives the cause, an api.Error.
func (e *WriteError) Unwrap() error { return e.Err }

// NewWriter makes a writer into a space, which is created if need be; an empty space is the default one. All
// that is sent is bound to ctx: when it ends, the writer fails.
func (c *Client) NewWriter(ctx context.Context, space string) (*Writer, error) {
	settings, err := c.Settings(ctx)
	if err != nil {
		return nil, err
	}
	if space == "" {
		space = api.DefaultSpace
	}
	if err := c.CreateSpace(ctx, space); err != nil {
		return nil, err
	}
	log, err := c.conn.openLog(ctx)
	if err != nil {
		return nil, err
	}
	w := &Writer{
		ctx: ctx, space: space, settings: settings, log: log.NewAppender(maxMessages),
		batch: min(fullBatch, c.conn.MaxPayload()-messageSpare),
		keyed: make([]*batch, settings.Buckets), inFlight: map[buckets.ID]bool{},
		next: buckets.ID(rand.N(settings.Buckets)),
	}
	w.changed.L = &w.mu
	if space != api.DefaultSpace {
		w.header = map[string]string{api.HeaderSpace: space}
	}
	return w, nil
}

// Put adds a record. A record that cannot be stored at all (RECORD_TOO_BIG, or BAD_REQUEST for a key of the
// form of assigned keys) is not taken, and the writer can be used on. Any other error is a [WriteError], and
// the end of the writer.
func (w *Writer) Put(key, value []byte) error {
	if _, _, _, ok := buckets.ParseAssigned(key); ok {
		return api.Errorf(api.CodeBadRequest, "the key %s has the form of assigned keys", buckets.KeyText(key)).
			WithHint("only the log gives such keys: use another key, or none to have one assigned")
	}
	return w.add(0, key, value)
}

// Delete adds the removal of a key, which may be an assigned one.
func (w *Writer) Delete(key []byte) error {
	return w.add(buckets.FlagDelete, key, nil)
}

// Add adds a record whose key the log assigns, in a bucket of the writer's choice. Keys ascend in the order of
// Add, unless the log had to be asked twice. Errors are those of Put.
func (w *Writer) Add(value []byte) error {
	if err := w.check(nil, value); err != nil {
		return err
	}
	limit := w.batch
	if w.round < len(w.keyed) {
		limit = min(limit, firstBatch)
	}
	size := buckets.FrameHeader + len(value)
	if w.spread != nil && len(w.spread.frames)+size > limit {
		if err := w.sendSpread(); err != nil {
			return err
		}
	}
	if w.spread == nil {
		w.spread = w.newBatch(w.next)
		w.next = buckets.ID((int(w.next) + 1) % len(w.keyed))
	}
	w.spread.add(buckets.FlagAssign, nil, value)
	return nil
}

func (w *Writer) add(flags uint32, key, value []byte) error {
	if err := w.check(key, value); err != nil {
		return err
	}
	size := buckets.FrameHeader + len(key) + len(value)
	b := buckets.Of(key, len(w.keyed))
	if p := w.keyed[b]; p != nil && len(p.frames)+size > w.batch {
		if err := w.sendKeyed(b); err != nil {
			return err
		}
	}
	if w.keyed[b] == nil {
		w.keyed[b] = w.newBatch(b)
	}
	w.keyed[b].add(flags, key, value)
	w.held += size
	if w.held > maxHeld {
		return w.sendAll()
	}
	return nil
}

func (w *Writer) check(key, value []byte) error {
	if w.err != nil {
		return w.failure(w.err)
	}
	return buckets.CheckRecord(key, value, w.settings.MaxRecord)
}

func (b *batch) add(flags uint32, key, value []byte) {
	b.frames = buckets.AppendFrame(b.frames, flags, key, value)
	b.Records++
	b.Bytes += uint64(len(key) + len(value))
}

// newBatch takes a buffer that was acknowledged, or makes one.
func (w *Writer) newBatch(b buckets.ID) *batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.spare); n > 0 {
		used := w.spare[n-1]
		w.spare = w.spare[:n-1]
		*used = batch{bucket: b, frames: used.frames[:0]}
		return used
	}
	return &batch{bucket: b}
}

func (w *Writer) sendSpread() error {
	b := w.spread
	if b == nil {
		return nil
	}
	w.spread = nil
	w.round++
	return w.send(b, false)
}

func (w *Writer) sendKeyed(id buckets.ID) error {
	b := w.keyed[id]
	w.keyed[id] = nil
	w.held -= len(b.frames)
	return w.send(b, true)
}

func (w *Writer) sendAll() error {
	for id, b := range w.keyed {
		if b == nil {
			continue
		}
		if err := w.sendKeyed(buckets.ID(id)); err != nil {
			return err
		}
	}
	return w.sendSpread()
}

// send hands a batch to the log when there is room. Two batches of one bucket with keys are never under way
// together: one that has to be sent again could fall behind the other.
func (w *Writer) send(b *batch, keyed bool) error {
	size := len(b.frames)
	w.mu.Lock()
	for w.underWay > 0 && w.underWay+size > maxUnderWay || keyed && w.inFlight[b.bucket] {
		w.changed.Wait()
	}
	w.underWay += size
	if keyed {
		w.inFlight[b.bucket] = true
	}
	w.sent.add(b.Written)
	w.mu.Unlock()
	err := w.log.AppendThen(w.ctx, buckets.RecSubject(b.bucket), w.header, b.frames, func(err error) { w.ended(b, keyed, err, true) })
	if err != nil {
		w.ended(b, keyed, err, false)
		w.err = err
		return w.failure(err)
	}
	return nil
}

// ended notes what became of a batch. One that was not sent never left.
func (w *Writer) ended(b *batch, keyed bool, err error, sent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.underWay -= len(b.frames)
	if keyed {
		delete(w.inFlight, b.bucket)
	}
	switch {
	case err == nil:
		w.stored.add(b.Written)
		if cap(b.frames) <= 2*fullBatch && len(w.spare) < maxMessages {
			w.spare = append(w.spare, b)
		}
	case !sent || api.CodeOf(err) != api.CodeInDoubt:
		w.refused += b.Records
	}
	w.changed.Broadcast()
}

func (n *Written) add(m Written) {
	n.Records += m.Records
	n.Bytes += m.Bytes
}

// Flush sends what is held and waits until the log has stored everything. Its error is a [WriteError].
func (w *Writer) Flush() error {
	if w.err != nil {
		return w.failure(w.err)
	}
	if err := w.sendAll(); err != nil {
		return err
	}
	if err := w.log.Wait(w.ctx); err != nil {
		w.err = err
		return w.failure(err)
	}
	return nil
}

// Close is Flush. After a failure it waits until it is known what became of all that was sent; the error
// counts it.
func (w *Writer) Close() error {
	err := w.Flush()
	if err == nil {
		w.err = api.Errorf(api.CodeBadRequest, "the writer is closed")
		return nil
	}
	_ = w.log.Wait(context.WithoutCancel(w.ctx)) // every message knows its fate soon after ctx ended
	return w.failure(w.err)
}

// Written counts what the log said it has stored up to now. It may be called from any goroutine.
func (w *Writer) Written() Written {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stored
}

// failure counts everything that the writer took.
func (w *Writer) failure(err error) error {
	waiting := uint64(0)
	for _, b := range w.keyed {
		if b != nil {
			waiting += b.Records
		}
	}
	if w.spread != nil {
		waiting += w.spread.Records
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return &WriteError{
		Stored: w.stored.Records, InDoubt: w.sent.Records - w.stored.Records - w.refused,
		Unstored: waiting + w.refused, Err: err,
	}
}
