package wasmhost

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/pinion-mr/pinion/api"
)

// Limits of what a guest says about itself.
const (
	maxLogLine     = 4096 // bytes, the rest of a line is cut
	maxCounterName = 128
)

// Quota is what the instances of one job may use in all. Make one per job with [Host.NewQuota] and give it
// to each of its instances.
type Quota struct {
	output   atomic.Int64 // bytes left
	lines    atomic.Int64 // left
	limit    int64
	counters int

	mu    sync.Mutex
	names map[string]bool // of counters
}

// NewQuota makes a full quota of the host's limits.
func (h *Host) NewQuota() *Quota {
	q := &Quota{limit: h.config.MaxOutputBytes, counters: h.config.MaxCounters, names: map[string]bool{}}
	q.output.Store(q.limit)
	q.lines.Store(int64(h.config.MaxLogLines))
	return q
}

// emit takes n bytes of output.
func (q *Quota) emit(n int) error {
	if q.output.Add(-int64(n)) < 0 {
		return api.Errorf(api.CodeLimitExceeded, "the job emitted more than output_bytes (%d)", q.limit).
			WithHint("emit less, reduce with a combine function, or raise output_bytes")
	}
	return nil
}

// line takes a log line: ok is false if none is left, last is true for the last one.
func (q *Quota) line() (ok, last bool) {
	left := q.lines.Add(-1)
	return left >= 0, left == 0
}

// counter admits the name of a counter.
func (q *Quota) counter(name string) error {
	if len(name) > maxCounterName {
		return api.Errorf(api.CodeLimitExceeded, "the name of counter %.40q has %d bytes; the limit is %d", name, len(name), maxCounterName)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.names[name] {
		return nil
	}
	if len(q.names) == q.counters {
		return api.Errorf(api.CodeLimitExceeded, "the job counts under more than counters (%d) names; the next is %q", q.counters, name).
			WithHint("count under fewer names; values belong into what is emitted").With("counters", strconv.Itoa(q.counters))
	}
	q.names[name] = true
	return nil
}
