package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pinion-mr/pinion/api"
)

const (
	logStream = "LOG"  // its name behind the cluster's prefix
	logPrefix = "log." // of its subjects
)

// Log is the log of a cluster: one JetStream stream. Subjects are relative to it: rec.17, own.17, cut.
type Log struct {
	bus    *Bus
	name   string
	prefix string
	window time.Duration // in which a message id is stored once
	stream jetstream.Stream
}

// CreateLog makes the cluster's log, or opens it as it is if it exists.
func (b *Bus) CreateLog(ctx context.Context, cfg LogConfig) (*Log, error) {
	window := cfg.DuplicateWindow
	if window <= 0 {
		window = defaultDuplicateWindow
	}
	size := int32(-1)
	if cfg.MaxMsgSize > 0 {
		size = int32(cfg.MaxMsgSize)
	}
	stream, err := b.makeStream(ctx, jetstream.StreamConfig{
		Name:               b.stream(logStream),
		Description:        "Pinion's log of cluster " + b.cfg.Cluster,
		Subjects:           []string{b.prefix + logPrefix + ">"},
		Storage:            jetstream.FileStorage,
		Retention:          jetstream.LimitsPolicy,
		Discard:            jetstream.DiscardNew,
		Replicas:           max(cfg.Replicas, 1),
		Duplicates:         window,
		MaxMsgSize:         size,
		AllowAtomicPublish: true,
	})
	if err != nil {
		return nil, err
	}
	return b.newLog(stream), nil
}

// Log opens the cluster's log. It fails with UNKNOWN_CLUSTER if there is none.
func (b *Bus) Log(ctx context.Context) (*Log, error) {
	stream, err := b.openStream(ctx, b.stream(logStream))
	if err != nil {
		return nil, err
	}
	return b.newLog(stream), nil
}

func (b *Bus) newLog(stream jetstream.Stream) *Log {
	info := stream.CachedInfo()
	return &Log{
		bus: b, name: info.Config.Name, prefix: b.prefix + logPrefix,
		window: info.Config.Duplicates, stream: stream,
	}
}

// makeStream creates a stream. One that exists stays as it is, whatever its replicas and limits.
func (b *Bus) makeStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := b.openStream(ctx, cfg.Name)
	if err == nil || api.CodeOf(err) != api.CodeNoSuchCluster {
		return stream, err
	}
	stream, err = b.js.CreateStream(ctx, cfg)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // a rival was faster, with other settings
		return b.openStream(ctx, cfg.Name)
	}
	if err != nil {
		return nil, b.streamError(ctx, "create stream "+cfg.Name, err)
	}
	return stream, nil
}

// openStream looks a stream up.
func (b *Bus) openStream(ctx context.Context, name string) (jetstream.Stream, error) {
	var stream jetstream.Stream
	err := b.ask(ctx, func(ctx context.Context) (err error) {
		stream, err = b.js.Stream(ctx, name)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, b.unknownCluster()
	case err != nil:
		return nil, b.streamError(ctx, "open stream "+name, err)
	}
	return stream, nil
}

// streamError codes a failure of JetStream's API.
func (b *Bus) streamError(ctx context.Context, what string, err error) error {
	var apiErr *jetstream.APIError
	var e *api.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return b.unknownCluster()
	case errors.As(err, &apiErr) && apiErr.Code < 500:
		return api.Errorf(api.CodeInternal, "cannot %s: %s", what, apiErr.Description)
	case ctx.Err() != nil:
		return contextError(ctx, what)
	default:
		return api.Errorf(api.CodeUnavailable, "cannot %s on %s: %v", what, b.Server(), err)
	}
}

// Append adds an entry and returns its position. The subject is below log.: rec.17. Of the header,
// only the keys [api.HeaderSpace] and [api.HeaderKey] are taken; any other is refused. An empty msgID
// is replaced by a fresh one; two appends with the same one within the duplicate window are one entry,
// and both return its position.
//
// A server that does not answer is asked again, with the same id, for up to 15 s, half the duplicate
// window or ctx, whichever is shorter; then the error is IN_DOUBT. Other errors mean that nothing was
// stored: LIMIT_EXCEEDED for an entry over max_payload or a full stream, BAD_REQUEST for a bad header.
func (l *Log) Append(ctx context.Context, subject string, header map[string]string, data []byte, msgID string) (uint64, error) {
	m, err := l.entry(subject, header, data, msgID)
	if err != nil {
		return 0, err
	}
	return l.bus.store(ctx, m, l.patience())
}

// patience is how long one entry is tried. Beyond half the window, a repeat could be stored twice.
func (l *Log) patience() time.Duration { return min(publishPatience, l.window/2) }

// entry builds the message of an entry.
func (l *Log) entry(subject string, header map[string]string, data []byte, msgID string) (*nats.Msg, error) {
	if err := errors.Join(CheckHeader(header), checkSubject(subject)); err != nil {
		return nil, err
	}
	m := nats.NewMsg(l.prefix + subject)
	for k, v := range header {
		m.Header.Set(k, v)
	}
	if msgID != "" {
		m.Header.Set(jetstream.MsgIDHeader, msgID)
	}
	m.Data = data
	return m, nil
}

// CheckHeader refuses a log entry's header that would not come back as it was: keys other than the
// two of package api, and values with line breaks or with spaces at an end.
func CheckHeader(header map[string]string) error {
	for k, v := range header {
		if k != api.HeaderSpace && k != api.HeaderKey {
			return api.Errorf(api.CodeBadRequest, "a log entry has no header %q", k)
		}
		if strings.ContainsAny(v, "\r\n") || strings.Trim(v, " \t") != v {
			return api.Errorf(api.CodeBadRequest, "header %s cannot hold %q", k, v).
				WithHint("line breaks, and spaces or tabs at an end, do not survive in a header: send the record in a batch")
		}
	}
	return nil
}

// State is the log's extent as the stream's leader knows it. In a partition a leader that was cut off
// may still answer, with an old state.
func (l *Log) State(ctx context.Context) (api.LogState, error) {
	var info *jetstream.StreamInfo
	err := l.bus.ask(ctx, func(ctx context.Context) (err error) {
		info, err = l.stream.Info(ctx)
		return err
	})
	if err != nil {
		return api.LogState{}, l.bus.streamError(ctx, "read the state of the log", err)
	}
	s := api.LogState{First: info.State.FirstSeq, Last: info.State.LastSeq, Bytes: info.State.Bytes, Replicas: info.Config.Replicas}
	if info.State.Msgs == 0 {
		s.First = s.Last + 1
	}
	return s, nil
}

// Consumers is the number of those who read the log at the moment.
func (l *Log) Consumers(ctx context.Context) (int, error) {
	var info *jetstream.StreamInfo
	err := l.bus.ask(ctx, func(ctx context.Context) (err error) {
		info, err = l.stream.Info(ctx)
		return err
	})
	if err != nil {
		return 0, l.bus.streamError(ctx, "count the readers of the log", err)
	}
	return info.State.Consumers, nil
}

// Entry reads one entry. It fails with NOT_FOUND if there is none at that position, or none any more.
func (l *Log) Entry(ctx context.Context, seq uint64) (api.LogEntry, error) {
	var m *jetstream.RawStreamMsg
	err := l.bus.ask(ctx, func(ctx context.Context) (err error) {
		m, err = l.stream.GetMsg(ctx, seq)
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) || seq == 0 {
		return api.LogEntry{}, api.Errorf(api.CodeNotFound, "the log has no entry at position %d", seq)
	}
	if err != nil {
		return api.LogEntry{}, l.bus.streamError(ctx, fmt.Sprintf("read entry %d of the log", seq), err)
	}
	return l.decode(m.Subject, m.Header, m.Sequence, m.Time, m.Data), nil
}

func (l *Log) decode(subject string, header nats.Header, seq uint64, at time.Time, data []byte) api.LogEntry {
	e := api.LogEntry{Seq: seq, Time: at, Subject: strings.TrimPrefix(subject, l.prefix), Data: data}
	for _, k := range [...]string{api.HeaderSpace, api.HeaderKey} {
		if v, ok := header[k]; ok && len(v) > 0 {
			if e.Header == nil {
				e.Header = make(map[string]string, 2)
			}
			e.Header[k] = v[0]
		}
	}
	return e
}

// Purge removes the entries up to and including a position. The last entry of the log always stays, so
// that positions are never given twice.
func (l *Log) Purge(ctx context.Context, upTo uint64) error {
	s, err := l.State(ctx)
	if err != nil {
		return err
	}
	if s.Last == 0 || s.First > s.Last {
		return nil
	}
	upTo = min(upTo, s.Last-1)
	if upTo < s.First {
		return nil
	}
	err = l.bus.ask(ctx, func(ctx context.Context) error {
		return l.stream.Purge(ctx, jetstream.WithPurgeSequence(upTo+1))
	})
	if err != nil {
		return l.bus.streamError(ctx, fmt.Sprintf("purge the log up to %d", upTo), err)
	}
	return nil
}
