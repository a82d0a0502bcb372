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
	fuel     atomic.Int64 // steps left
	output   atomic.Int64 // bytes left
	lines    atomic.Int64 // left
	limit    int64
	counters int

	fuelLimit int64

	mu    sync.Mutex
	names map[string]bool // of counters
}

// NewQuota makes a full quota of the host's limits.
func (h *Host) NewQuota() *Quota {
	q := &Quota{limit: h.config.MaxOutputBytes, fuelLimit: h.config.Fuel, counters: h.config.MaxCounters, names: map[string]bool{}}
	q.fuel.Store(q.fuelLimit)
	q.output.Store(q.limit)
	q.lines.Store(int64(h.config.MaxLogLines))
	return q
}

// steps takes steps of guests, and reports whether there were as many left.
func (q *Quota) steps(n uint64) bool { return q.fuel.Add(-int64(n)) >= 0 }

// FuelUsed is the number of steps that the job's instances have used so far, to about a slice of each.
func (q *Quota) FuelUsed() uint64 { return uint64(q.fuelLimit - q.fuel.Load()) }

// emit takes n bytes of output.
func (q *Quota) emit(n int) error {
	if q.output.Add(-int64(n)) < 0 {
		return overLimit("guest-output", strconv.FormatInt(q.limit, 10), "the job emitted more bytes than").
			WithHint("emit less, reduce with a combine function, or raise guest-output")
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
		return api.Errorf(api.CodeLimitExceeded, "the name of counter %.40q has %d bytes; the limit is %d", name, len(name), maxCounterName).
			WithHint("count under shorter names; values belong into what is emitted")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.names[name] {
		return nil
	}
	if len(q.names) == q.counters {
		return overLimit("guest-counters", strconv.Itoa(q.counters), "the job counts under %q and more names than", name).
			WithHint("count under fewer names, since values belong into what is emitted, or raise guest-counters")
	}
	q.names[name] = true
	return nil
}
