package bus

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/pinion-mr/pinion/api"
)

// How a consumer is held. By default nats.go notices a lost one only after 10 s.
const (
	pullHeartbeat     = time.Second
	pullExpiry        = 3 * time.Second
	consumerThreshold = time.Minute // after which the server forgets an abandoned consumer
	consumerTimeout   = 5 * time.Second

	batchMessages = 256 // of a batch handed on, at most
	batchBytes    = 4 << 20
	minPullBytes  = 4 << 20 // in flight from the server
)

// delivery is one message of a stream.
type delivery struct {
	subject string
	header  nats.Header
	data    []byte
	seq     uint64
	time    time.Time
	pending uint64 // messages for the same consumer behind this one, as far as the server knew
}

// passage reads a stream in order by one consumer after the other: each ends at the first irregularity,
// and the next one begins behind what was delivered.
type passage struct {
	bus     *Bus
	stream  string
	filters []string // full subjects; none: all
	latest  bool     // only the last message of each subject, then what follows
	bare    bool     // headers only
	next    uint64   // position to go on at
	ahead   int      // messages that are held for a slow callback; default batchMessages

	idle      time.Duration // silence after which a consumer is replaced; 0: any silence is right
	delivered uint64        // in all
}

// errDone ends a passage from inside its callback.
var errDone = errors.New("bus: done")

// errLost says that a consumer has to be replaced. A callback may say so too.
var errLost = errors.New("bus: consumer lost")

// callbackError keeps a callback's error apart from those of the reading.
type callbackError struct{ err error }

func (e callbackError) Error() string { return e.err.Error() }

// run calls fn with batches until ctx ends or fn fails; errDone makes it return nil. begin, which may
// be nil, is called for each consumer with the number of messages that wait for it.
func (p *passage) run(ctx context.Context, begin func(pending uint64) error, fn func([]delivery) error) error {
	var pause backoff
	missing := time.Time{} // since when the stream is not there
	for {
		before := p.delivered
		err := p.session(ctx, begin, fn)
		var failed callbackError
		switch {
		case errors.As(err, &failed) && errors.Is(failed.err, errDone):
			return nil
		case errors.As(err, &failed) && !errors.Is(failed.err, errLost):
			return failed.err
		case ctx.Err() != nil:
			return ctx.Err()
		case p.bus.nc.IsClosed():
			return api.Errorf(api.CodeUnavailable, "reading %s: the connection was closed", p.stream)
		case hopeless(err):
			return p.bus.streamError(ctx, "read stream "+p.stream, err)
		case errors.Is(err, jetstream.ErrStreamNotFound):
			if missing.IsZero() {
				missing = time.Now()
			}
			if time.Since(missing) > publishPatience {
				return p.bus.unknownCluster()
			}
		default:
			missing = time.Time{}
		}
		if p.delivered != before {
			pause = backoff{}
		}
		p.bus.log.Debug("consumer replaced", "stream", p.stream, "next", p.next, "error", err)
		if !pause.wait(ctx) {
			return ctx.Err()
		}
	}
}

// hopeless reports a refusal that a repeat would not change.
func hopeless(err error) bool {
	var apiErr *jetstream.APIError
	return errors.As(err, &apiErr) && apiErr.Code == 400
}

// session reads with one consumer.
func (p *passage) session(ctx context.Context, begin func(uint64) error, fn func([]delivery) error) error {
	lost := make(chan struct{}, 1)
	stopListening := p.bus.OnReconnect(func() { signal(lost) })
	defer stopListening()
	cons, err := p.consumer(ctx)
	if err != nil {
		return err
	}
	defer p.abandon(cons.CachedInfo().Name)
	if begin != nil {
		if err := begin(cons.CachedInfo().NumPending); err != nil {
			return callbackError{err}
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	msgs := make(chan jetstream.Msg, cmp.Or(p.ahead, batchMessages))
	consuming, err := cons.Consume(func(m jetstream.Msg) {
		select {
		case msgs <- m:
		case <-ctx.Done():
		}
	}, jetstream.PullMaxBytes(max(minPullBytes, 2*p.bus.MaxPayload())),
		jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			if consumerGone(err) {
				signal(lost)
			}
		}))
	if err != nil {
		return err
	}
	defer consuming.Stop()
	return p.hand(ctx, msgs, lost, fn)
}

// consumerGone tells real losses from passing complaints.
func consumerGone(err error) bool {
	return errors.Is(err, jetstream.ErrNoHeartbeat) || errors.Is(err, jetstream.ErrConsumerDeleted) ||
		errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrConnectionClosed) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrConsumerLeadershipChanged) ||
		errors.Is(err, jetstream.ErrServerShutdown)
}

// signal fills a channel of one place.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// consumer creates the session's consumer: in memory, on one server, with nothing to acknowledge.
func (p *passage) consumer(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel := p.bus.untilReconnect(ctx, consumerTimeout)
	defer cancel()
	cfg := jetstream.ConsumerConfig{
		Name:              "r_" + nuid.Next(),
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       max(p.next, 1),
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: consumerThreshold,
		FilterSubjects:    p.filters,
		HeadersOnly:       p.bare,
	}
	if p.latest {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverLastPerSubjectPolicy, 0
		if len(p.filters) == 0 {
			cfg.FilterSubjects = []string{">"}
		}
	}
	return p.bus.js.CreateConsumer(ctx, p.stream, cfg)
}

// abandon deletes a consumer without waiting for the answer; should the request be lost, the server
// forgets it after consumerThreshold.
func (p *passage) abandon(name string) {
	_ = p.bus.nc.PublishRequest("$JS.API.CONSUMER.DELETE."+p.stream+"."+name, p.bus.nc.NewInbox(), nil)
}

// hand passes batches on until something is missing.
func (p *passage) hand(ctx context.Context, msgs <-chan jetstream.Msg, lost <-chan struct{}, fn func([]delivery) error) error {
	received := uint64(0) // from this consumer
	batch := make([]delivery, 0, batchMessages)
	for {
		var silence <-chan time.Time
		if p.idle > 0 {
			silence = time.After(p.idle)
		}
		select {
		case m := <-msgs:
			var err error
			if batch, err = p.collect(batch[:0], m, msgs, &received); err != nil {
				return err
			}
			p.delivered += uint64(len(batch))
			if err := fn(batch); err != nil {
				return callbackError{err}
			}
		case <-lost:
			return errLost
		case <-silence:
			return errLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// collect fills a batch with m and whatever is there behind it. A message out of order ends the batch.
func (p *passage) collect(batch []delivery, m jetstream.Msg, more <-chan jetstream.Msg, received *uint64) ([]delivery, error) {
	for size := 0; ; {
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		if meta.Sequence.Consumer != *received+1 || (!p.latest && meta.Sequence.Stream < p.next) {
			return nil, errLost
		}
		*received++
		batch = append(batch, delivery{
			subject: m.Subject(), header: m.Headers(), data: m.Data(),
			seq: meta.Sequence.Stream, time: meta.Timestamp, pending: meta.NumPending,
		})
		size += len(m.Data())
		if len(batch) == batchMessages || size >= batchBytes {
			break
		}
		select {
		case m = <-more:
			continue
		default:
		}
		break
	}
	return batch, nil
}

// Read follows the log from a position on: it calls fn with batches of the entries that are there and
// then with each that is added, in order, none twice, until ctx ends or fn fails; that error is
// returned. Filters are subjects with wildcards below log., of which no two may overlap; none is all.
//
// A lost consumer, connection or server is waited for. Entries that were purged before they were read
// are jumped over without an error: compare with State.
func (l *Log) Read(ctx context.Context, from uint64, filters []string, fn func([]api.LogEntry) error) error {
	p := l.passage(from, filters)
	entries := make([]api.LogEntry, 0, batchMessages)
	return p.run(ctx, nil, func(batch []delivery) error {
		entries = entries[:0]
		for _, d := range batch {
			entries = append(entries, l.decode(d.subject, d.header, d.seq, d.time, d.data))
		}
		p.next = batch[len(batch)-1].seq + 1
		return fn(entries)
	})
}

func (l *Log) passage(from uint64, filters []string) *passage {
	p := &passage{bus: l.bus, stream: l.name, next: max(from, 1)}
	for _, f := range filters {
		p.filters = append(p.filters, l.prefix+f)
	}
	return p
}

// ReadTo calls fn with each entry from one position to another, both included, that matches a filter
// (see Read), and returns when there are no more: at once if nothing matches. A position beyond the
// log's end stands for its end at the time of the call.
func (l *Log) ReadTo(ctx context.Context, from, to uint64, filters []string, fn func(api.LogEntry) error) error {
	state, err := l.State(ctx)
	if err != nil {
		return err
	}
	to = min(to, state.Last)
	p := l.passage(from, filters)
	for more := true; more && p.next <= to; {
		// The count of what is pending is exact when a consumer is made and kept up to date by
		// additions afterwards. So its zero ends this consumer only; that a new one has none ends all.
		err := p.run(ctx, func(pending uint64) error {
			if pending == 0 {
				more = false
				return errDone
			}
			return nil
		}, func(batch []delivery) error {
			return l.handEach(p, batch, to, fn)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// handEach passes on what lies before the end.
func (l *Log) handEach(p *passage, batch []delivery, to uint64, fn func(api.LogEntry) error) error {
	for _, d := range batch {
		if d.seq <= to {
			if err := fn(l.decode(d.subject, d.header, d.seq, d.time, d.data)); err != nil {
				return err
			}
		}
		p.next = d.seq + 1
		if d.seq >= to || d.pending == 0 {
			return errDone
		}
	}
	return nil
}
