package node

import (
	"context"
	"errors"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// DefaultCollect is the memory that a router collects the output of all its jobs with.
const DefaultCollect = 1 << 30

// tableFactor is how much more memory a table of small keys takes than the state that it is merged from (measured: 3.5
// to 4.9 with keys of 8 bytes, less with longer ones).
const tableFactor = 5

// collectBytes is about the memory that it takes to collect output: that of one storage after the other is fetched
// and merged into a table, which a module's reduce reads while it fills another one. Tables have their own limit.
func collectBytes(ends map[string]api.MapEnd, table int64, reduced bool) int64 {
	var sum, largest uint64
	for _, end := range ends {
		sum, largest = sum+end.Size, max(largest, end.Size)
	}
	tables := table
	if sum < uint64(table)/tableFactor {
		tables = tableFactor * int64(sum)
	}
	if reduced {
		tables *= 2
	}
	return int64(min(largest, 1<<62)) + tables
}

// allot waits until the router has memory to collect the job's output with. A job that takes more than all of it is
// refused at once.
func (j *job) allot(ctx context.Context, ends map[string]api.MapEnd) (free func(), err error) {
	n, all := collectBytes(ends, j.r.cfg.Memory, j.reducer.Function() != ""), j.r.collects
	if n > all.total {
		return nil, api.Errorf(api.CodeLimitExceeded, "to collect the job's output takes about %d bytes of memory, over the %d of collect-total", n, all.total).
			WithHint("use a reduce that keeps less (count or sum), name a combine function, or raise --collect-total of the routers").
			With("setting", "collect-total")
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout-time.Since(j.start()))
	defer cancel()
	free, err = all.take(ctx, n)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, api.Errorf(api.CodeTimeout, "the job's time was over while it waited for memory to collect its output with: it needs about %d bytes, and other jobs have %d of the %d of collect-total",
			n, all.inUse(), all.total).
			WithHint("a longer time: --timeout; fewer jobs of large output at once; or raise --collect-total of the routers").
			With("setting", "collect-total")
	}
	return free, err
}

// start is when the job's time began.
func (j *job) start() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.began
}

// keepAllotted has the memory stay allotted as long as the job is in hand, since its rows are. If it has ended
// meanwhile nobody has use of them. mu is held.
func (j *job) keepAllotted(free func()) {
	if j.ended.IsZero() {
		j.allotted = free
	} else {
		free()
	}
}

// leaveMemory gives the job's memory back: its rows count among the results that are kept from now on.
func (j *job) leaveMemory() {
	j.mu.Lock()
	free, large := j.allotted, j.memory > largeResult
	j.allotted = nil
	j.mu.Unlock()
	if free == nil {
		return
	}
	if large {
		j.r.expireResults(time.Now())
	}
	free()
}

// largeResult is the size from which on a new result has old ones dropped at once, if all together take too much.
const largeResult = 1 << 20
