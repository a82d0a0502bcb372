package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// nowhere is a Sink that keeps nothing.
type nowhere struct{}

func (nowhere) Emit(uint32, []byte, []byte) error { return nil }

// Whatever a guest keeps the host busy with, it is stopped at its limit.
func TestFloodsAreStopped(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "floods")
	for _, function := range []string{
		"loop", "fib", "grow", "table_grow", "fill", "deep_loop", "million_loop",
		"emit_empty", "emit_blocks", "emit_numbers", "log", "count",
		"random", "iovecs_empty", "iovecs_large", "lines", "reads", "poll", "environ", "yield",
	} {
		t.Run(function, func(t *testing.T) {
			want := function + " was stopped on bucket 3, record 0 of key \"k0\": exceeded its time limit"
			stopped(t, want, func(ctx context.Context) error {
				in, err := m.Instance(t.Context(), Job{Function: function})
				if err != nil {
					return err
				}
				defer in.Close()
				_, err = in.Map(ctx, 3, records("a"), nowhere{})
				deadline, _ := ctx.Deadline()
				late := time.Since(deadline)
				if late > 20*time.Second { // what it takes on a machine of one's own: make bench
					t.Errorf("it took %v to stop it", late)
				}
				t.Logf("%v over the limit, %d steps", late, in.meter.used())
				return err
			})
		})
	}
}

// A deep recursion is a trap, and nothing more.
func TestDeepRecursion(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "floods")
	in := instance(t, m, Job{Function: "deep"})
	if _, err := in.Map(t.Context(), 0, records("a"), nowhere{}); err != nil {
		t.Errorf("100,000 calls deep: %v", err)
	}
	in = instance(t, m, Job{Function: "deeper"})
	var g *GuestError
	if _, err := in.Map(t.Context(), 0, records("a"), nowhere{}); !errors.As(err, &g) || g.Trap != "stack overflow" {
		t.Errorf("100 million calls deep: %v", err)
	}
}

func TestSleepTakesNoTime(t *testing.T) {
	in := instance(t, guest(t, newHost(t, Config{}), "floods"), Job{Function: "sleep"})
	var sink pairs
	if _, err := in.Map(t.Context(), 0, records("a"), &sink); err != nil || fmt.Sprint(sink.list) != "[{\x00 0} {\x00 1}]" {
		t.Errorf("poll_oneoff gave %q, %v", sink.list, err)
	}
}

// The figure is exact: it grows by the same for each turn, across any number of slices, and neither what an
// instance did before nor the place in its slice changes it.
func TestFuelIsExact(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "floods")
	in := instance(t, m, Job{Function: "turns"})
	fuel := func(in *Instance, turns int) uint64 {
		t.Helper()
		figures, err := in.Map(t.Context(), 0, records(strings.Repeat("x", turns)), nowhere{})
		if err != nil {
			t.Fatal(err)
		}
		return figures.Fuel
	}
	one, two := fuel(in, 1), fuel(in, 2)
	turn := two - one
	if turn < 2*callSteps || turn > 3*callSteps {
		t.Errorf("a turn costs %d steps", turn)
	}
	for _, turns := range []int{3, 1000, 50_000, 60_001, 7} {
		if got, want := fuel(in, turns), one+uint64(turns-1)*turn; got != want {
			t.Errorf("%d turns cost %d, want %d", turns, got, want)
		}
	}
	if got := fuel(instance(t, m, Job{Function: "turns"}), 1); got != one {
		t.Errorf("another instance uses %d, want %d", got, one)
	}
}

func TestFuelBudget(t *testing.T) {
	m := guest(t, newHost(t, Config{Fuel: 3_000_000}), "floods")
	for _, function := range []string{"loop", "fib", "emit_numbers", "random"} { // the guest's work and the host's
		quota := m.host.NewQuota()
		in := instance(t, m, Job{Function: function, Quota: quota})
		_, err := in.Map(t.Context(), 3, records("a"), nowhere{})
		e := api.AsError(err)
		if e.Code != api.CodeLimitExceeded || !strings.Contains(e.Message, "was stopped on bucket 3") ||
			!strings.Contains(e.Message, "used more than guest-fuel (3000000) steps") || !strings.Contains(e.Hint, "raise guest-fuel") {
			t.Errorf("%s: %v", function, err)
		}
		if used := quota.FuelUsed(); used < 3_000_000 || used > 3_400_000 || e.Details["fuel"] == "" {
			t.Errorf("%s: used %d, details %v", function, used, e.Details)
		}
	}
	// The budget is the job's, over buckets, batches and instances.
	quota := m.host.NewQuota()
	n := 0
	for ; n < 100_000; n++ {
		in := instance(t, m, Job{Function: "turns", Quota: quota})
		_, err := in.Map(t.Context(), 0, records("x"), nowhere{})
		in.Close()
		if api.CodeOf(err) == api.CodeLimitExceeded {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n%100 == 0 { // a bucket that is large enough for a look
			in := instance(t, m, Job{Function: "turns", Quota: quota})
			if _, err = in.Map(t.Context(), 0, records(strings.Repeat("x", 10_000)), nowhere{}); api.CodeOf(err) == api.CodeLimitExceeded {
				break
			}
		}
	}
	if used := quota.FuelUsed(); n == 100_000 || used < 3_000_000 {
		t.Errorf("%d small buckets used %d", n, used)
	}
}

func TestYield(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "floods")
	calls := 0
	enough := errors.New("enough")
	in := instance(t, m, Job{Function: "loop", Yield: func(ctx context.Context) error {
		if _, ok := ctx.(*callContext); ok {
			t.Error("Yield sees the host's own context")
		}
		if calls++; calls == 5 {
			return enough
		}
		return nil
	}})
	if _, err := in.Map(t.Context(), 0, records("a"), nowhere{}); !errors.Is(err, enough) || calls != 5 {
		t.Errorf("after %d calls: %v", calls, err)
	}
	// A wait for a place that ends with the context is the end of the job's time.
	in = instance(t, m, Job{Function: "emit_numbers", Yield: func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := in.Map(ctx, 0, records("a"), nowhere{}); api.CodeOf(err) != api.CodeTimeout {
		t.Errorf("Map = %v", err)
	}
}

// A call that returned is not reported as stopped, however late it is.
func TestLateButDone(t *testing.T) {
	in := instance(t, guest(t, newHost(t, Config{}), "floods"), Job{Function: "nothing"})
	ctx, cancel := context.WithCancel(t.Context())
	source := &cancelling{frames: records("a"), cancel: cancel}
	if _, err := in.Map(ctx, 0, source, nowhere{}); err != nil {
		t.Errorf("Map = %v", err)
	}
	if ctx.Err() == nil {
		t.Error("the context goes on")
	}
	if _, err := in.Map(ctx, 0, records("a"), nowhere{}); api.CodeOf(err) != api.CodeCanceled {
		t.Errorf("a batch after the end: %v", err)
	}
}

// cancelling cancels when it is asked for frames after the last one.
type cancelling struct {
	frames *frames
	cancel context.CancelFunc
}

func (c *cancelling) Fill(dst []byte, limit int) ([]byte, int, error) {
	dst, n, err := c.frames.Fill(dst, limit)
	if n == 0 {
		c.cancel()
	}
	return dst, n, err
}

// repeat is a Source of the same batch, n times.
type repeat struct {
	batch   []byte
	records int
	n       int
}

func (r *repeat) Fill(dst []byte, _ int) ([]byte, int, error) {
	if r.n == 0 {
		return dst, 0, nil
	}
	r.n--
	return append(dst, r.batch...), r.records, nil
}

// A batch costs no allocation.
func TestNoAllocationPerBatch(t *testing.T) {
	in := instance(t, guest(t, newHost(t, Config{}), "faults"), Job{Function: "echo"})
	var batch []byte
	for range 1000 {
		batch = buckets.AppendFrame(batch, 0, []byte("key"), []byte("value"))
	}
	allocs := func(batches int) float64 {
		return testing.AllocsPerRun(10, func() {
			if _, err := in.Map(t.Context(), 0, &repeat{batch, 1000, batches}, nowhere{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := allocs(1), allocs(201); many-few > 20 {
		t.Errorf("%v allocations with 1 batch, %v with 201", few, many)
	}
}
