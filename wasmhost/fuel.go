package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	wazeroapi "github.com/tetratelabs/wazero/api"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/plugins/wasm"
)

// What a call of a host function costs a guest, in steps like its own: so that no function of the host is a way
// around the clock, and a step is about as long everywhere.
const (
	callSteps    = 20 // of each call, and of each pair, line, iovec and subscription that it brings
	bytesPerStep = 16 // of what is copied or looked through
	pieceBytes   = 64 << 10
)

// meter counts the steps of an instance. The guest counts its own in a global, which begins with a slice of
// wasm.Slice steps; when the slice is used up it calls tick. The host counts what it does for the guest.
type meter struct {
	left    wazeroapi.MutableGlobal // of the guest's slice; nil before it runs
	guest   uint64                  // steps of slices that are over
	host    uint64                  // steps of host functions
	looked  uint64                  // the value of host at the last look at the clock
	settled uint64                  // steps that the job's quota knows of
}

func (m *meter) used() uint64 {
	used := m.guest + m.host
	if m.left != nil {
		used += m.slice()
	}
	return used
}

// slice is how much of its slice the guest has used. It is more than a slice when tick is called.
func (m *meter) slice() uint64 { return uint64(wasm.Slice - int64(m.left.Get())) }

// refill ends a slice.
func (m *meter) refill() {
	m.guest += m.slice()
	m.left.Set(wasm.Slice)
}

// release keeps the count of a guest that is closed.
func (m *meter) release() {
	if m.left != nil {
		m.guest += m.slice()
		m.left = nil
	}
}

// fuel is what was used in the Map or Group under way, or else since the start.
func (in *Instance) fuel() uint64 {
	if in.run != nil {
		return in.meter.used() - in.run.before
	}
	return in.meter.used()
}

// hostTick is what a guest calls when its slice is used up.
func hostTick(in *Instance, _ []uint64) error {
	in.meter.refill()
	runtime.Gosched() // what waits for a processor is let in before the guest's slice of Go's time is over
	return in.look()
}

// work charges the steps of a call that does n more things with some bytes, and looks at the clock when the
// host has worked for a slice.
func (in *Instance) work(n, bytes int) error {
	m := &in.meter
	m.host += callSteps*uint64(n+1) + uint64(bytes)/bytesPerStep
	if m.host-m.looked < wasm.Slice || in.broken {
		return nil
	}
	m.looked = m.host
	return in.look()
}

// look ends the guest's call if its time or its fuel is over or the job was canceled; else it may give the
// guest's place to others for a while.
func (in *Instance) look() error {
	if err := in.settle(); err != nil {
		return err
	}
	if err := in.ended(in.running); err != nil {
		return err
	}
	if in.job.Yield == nil {
		return nil
	}
	if err := in.job.Yield(in.running); err != nil {
		if ended := in.ended(in.running); ended != nil {
			return ended
		}
		return in.placed(err)
	}
	return nil
}

// settle takes the steps since the last time from the job's quota.
func (in *Instance) settle() error {
	used := in.meter.used()
	n := used - in.meter.settled
	in.meter.settled = used
	if in.job.Quota.steps(n) {
		return nil
	}
	out := in.guestError(api.CodeLimitExceeded, fmt.Sprintf("the job used more than guest-fuel (%d) steps", in.job.Quota.fuelLimit))
	out.Hint = "do less per record, split the job, or raise guest-fuel"
	return out
}

// ended is the error of a guest whose context has ended. A timer may be late when guests keep all processors
// busy, so the clock is asked as well.
func (in *Instance) ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		deadline, ok := ctx.Deadline()
		if !ok || time.Now().Before(deadline) {
			return nil
		}
		err = context.DeadlineExceeded
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		return in.guestError(api.CodeCanceled, "the job was canceled")
	}
	limit := in.job.TimeLimit
	if deadline, ok := ctx.Deadline(); ok && limit == 0 {
		limit = deadline.Sub(in.began)
	}
	return in.guestError(api.CodeTimeout, "exceeded its time limit of "+limitText(max(limit, time.Millisecond)))
}
