package busmem

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// logData is the log's stream.
type logData struct {
	first   uint64 // position of entries[0]
	entries []api.LogEntry
	bytes   uint64
	config  bus.LogConfig
	ids     map[string]storedID
}

// storedID is a message id within the duplicate window.
type storedID struct {
	seq uint64
	at  time.Time
}

// Log is a peer's view of the log: see [bus.Log], whose methods it has.
type Log struct{ bus *Bus }

// CreateLog makes the cluster's log, or opens it as it is if it exists.
func (b *Bus) CreateLog(ctx context.Context, cfg bus.LogConfig) (*Log, error) {
	if err := b.reach(ctx, "create the log", false); err != nil {
		return nil, err
	}
	defer b.cluster.mu.Unlock()
	if b.cluster.log == nil {
		cfg.Replicas = max(cfg.Replicas, 1)
		cfg.DuplicateWindow = cmp.Or(cfg.DuplicateWindow, 2*time.Minute)
		b.cluster.log = &logData{first: 1, config: cfg, ids: map[string]storedID{}}
	}
	return &Log{b}, nil
}

// Log opens the cluster's log. It fails with UNKNOWN_CLUSTER if there is none.
func (b *Bus) Log(ctx context.Context) (*Log, error) {
	if err := b.reach(ctx, "open the log", false); err != nil {
		return nil, err
	}
	defer b.cluster.mu.Unlock()
	if b.cluster.log == nil {
		return nil, b.unknownCluster("log")
	}
	return &Log{b}, nil
}

// Append adds an entry: see [bus.Log.Append].
func (l *Log) Append(ctx context.Context, subject string, header map[string]string, data []byte, msgID string) (uint64, error) {
	fault, err := l.before(ctx, subject, header, data)
	if err != nil {
		return 0, err
	}
	if err := l.bus.reach(ctx, "an entry of "+subject, true); err != nil {
		return 0, err
	}
	seq := l.bus.cluster.log.add(subject, header, data, msgID)
	l.bus.cluster.touch()
	l.bus.cluster.mu.Unlock()
	if fault.Doubt {
		return 0, inDoubt("an entry of " + subject)
	}
	return seq, nil
}

// before checks an entry and does what a fault says before it is stored.
func (l *Log) before(ctx context.Context, subject string, header map[string]string, data []byte) (AppendFault, error) {
	var fault AppendFault
	if err := l.check(subject, header, data); err != nil {
		return fault, err
	}
	if hook := l.bus.cluster.currentFaults().Append; hook != nil {
		fault = hook(l.bus.peer, subject)
	}
	if fault.Delay > 0 {
		t := time.NewTimer(fault.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return fault, inDoubt("an entry of " + subject)
		}
	}
	if fault.Lost {
		return fault, inDoubt("an entry of " + subject)
	}
	return fault, fault.Err
}

func (l *Log) check(subject string, header map[string]string, data []byte) error {
	if len(data) > l.bus.cluster.maxPayload {
		return bus.TooLarge(subject, len(data), l.bus.cluster.maxPayload)
	}
	return bus.CheckHeader(header)
}

// add stores an entry, unless its id was seen.
func (d *logData) add(subject string, header map[string]string, data []byte, id string) uint64 {
	now := time.Now()
	if seen, ok := d.ids[id]; ok && now.Sub(seen.at) < d.config.DuplicateWindow {
		return seen.seq
	}
	seq := d.last() + 1
	if id != "" {
		d.ids[id] = storedID{seq, now}
	}
	d.entries = append(d.entries, api.LogEntry{Seq: seq, Time: now.UTC(), Subject: subject, Header: maps.Clone(header), Data: bytes.Clone(data)})
	d.bytes += uint64(len(data))
	return seq
}

// loseTail drops the last n entries and their message ids.
func (d *logData) loseTail(n int) {
	keep := max(0, len(d.entries)-n)
	for _, e := range d.entries[keep:] {
		d.bytes -= uint64(len(e.Data))
	}
	d.entries = d.entries[:keep:keep]
	maps.DeleteFunc(d.ids, func(_ string, id storedID) bool { return id.seq > d.last() })
}

func (d *logData) last() uint64 { return d.first + uint64(len(d.entries)) - 1 }

// NewAppender makes an appender: see [bus.Log.NewAppender].
func (l *Log) NewAppender(maxInFlight int) *bus.Appender {
	return bus.NewAppender(func(ctx context.Context, subject string, header map[string]string, data []byte) (func() error, error) {
		if err := l.check(subject, header, data); err != nil {
			return nil, err
		}
		_, err := l.Append(ctx, subject, header, data, "")
		return func() error { return err }, nil
	}, maxInFlight)
}

// between collects entries from one position to another that match. The lock is held.
func (d *logData) between(from, to uint64, filters []string, limit int) []api.LogEntry {
	var out []api.LogEntry
	for seq := max(from, d.first); seq <= min(to, d.last()) && len(out) < limit; seq++ {
		e := d.entries[seq-d.first]
		if matchesAny(filters, e.Subject) {
			e.Header, e.Data = maps.Clone(e.Header), bytes.Clone(e.Data)
			out = append(out, e)
		}
	}
	return out
}

// spoil overwrites what a callback must not keep.
func spoil(entries []api.LogEntry) {
	for _, e := range entries {
		for i := range e.Data {
			e.Data[i] = 0xdb
		}
	}
}

const batchEntries = 256

// Read follows the log: see [bus.Log.Read].
func (l *Log) Read(ctx context.Context, from uint64, filters []string, fn func([]api.LogEntry) error) error {
	c := l.bus.cluster
	for next := from; ; {
		var batch []api.LogEntry
		err := c.waitUntil(ctx, func() (bool, time.Time) {
			if !c.cut[l.bus.peer] {
				batch = c.log.between(next, c.log.last(), filters, batchEntries)
			}
			return len(batch) > 0 || l.bus.closed, time.Time{}
		})
		if err != nil {
			return err
		}
		c.mu.Unlock()
		if len(batch) == 0 {
			return api.Errorf(api.CodeUnavailable, "reading the log: the connection was closed")
		}
		next = batch[len(batch)-1].Seq + 1
		err = fn(batch)
		spoil(batch)
		if err != nil {
			return err
		}
	}
}

// ReadTo reads a part of the log: see [bus.Log.ReadTo].
func (l *Log) ReadTo(ctx context.Context, from, to uint64, filters []string, fn func(api.LogEntry) error) error {
	state, err := l.State(ctx)
	if err != nil {
		return err
	}
	to = min(to, state.Last)
	for next := from; ; {
		if err := l.bus.reach(ctx, "reading the log", false); err != nil {
			return err
		}
		batch := l.bus.cluster.log.between(next, to, filters, batchEntries)
		l.bus.cluster.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		next = batch[len(batch)-1].Seq + 1
		for i, e := range batch {
			err := fn(e)
			spoil(batch[i : i+1])
			if err != nil {
				return err
			}
		}
	}
}

// State is the log's extent: see [bus.Log.State].
func (l *Log) State(ctx context.Context) (api.LogState, error) {
	if err := l.bus.reach(ctx, "read the state of the log", false); err != nil {
		return api.LogState{}, err
	}
	d := l.bus.cluster.log
	state := api.LogState{First: d.first, Last: d.last(), Bytes: d.bytes, Replicas: d.config.Replicas}
	l.bus.cluster.mu.Unlock()
	if hook := l.bus.cluster.currentFaults().State; hook != nil {
		state = hook(l.bus.peer, state)
	}
	return state, nil
}

// Entry reads one entry: see [bus.Log.Entry].
func (l *Log) Entry(ctx context.Context, seq uint64) (api.LogEntry, error) {
	state, err := l.State(ctx)
	if err != nil {
		return api.LogEntry{}, err
	}
	if err := l.bus.reach(ctx, fmt.Sprintf("read entry %d of the log", seq), false); err != nil {
		return api.LogEntry{}, err
	}
	defer l.bus.cluster.mu.Unlock()
	if found := l.bus.cluster.log.between(seq, min(seq, state.Last), nil, 1); seq > 0 && len(found) == 1 {
		return found[0], nil
	}
	return api.LogEntry{}, api.Errorf(api.CodeNotFound, "the log has no entry at position %d", seq)
}

// Purge removes entries: see [bus.Log.Purge].
func (l *Log) Purge(ctx context.Context, upTo uint64) error {
	if err := l.bus.reach(ctx, fmt.Sprintf("purge the log up to %d", upTo), false); err != nil {
		return err
	}
	defer l.bus.cluster.mu.Unlock()
	d := l.bus.cluster.log
	if d.last() == 0 {
		return nil
	}
	for upTo = min(upTo, d.last()-1); d.first <= upTo; d.first++ {
		d.bytes -= uint64(len(d.entries[0].Data))
		d.entries = d.entries[1:]
	}
	return nil
}
