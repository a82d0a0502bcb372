package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	wazeroapi "github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/pinion-mr/pinion/api"
)

// callContext carries the instance to host functions, which wazero shares between instances.
type callContext struct {
	context.Context
	instance *Instance
}

type instanceKey struct{}

// Value gives the instance under instanceKey.
func (c *callContext) Value(key any) any {
	if key == (instanceKey{}) {
		return c.instance
	}
	return c.Context.Value(key)
}

func (in *Instance) context(ctx context.Context) *callContext {
	return &callContext{Context: ctx, instance: in}
}

// instanceOf returns the instance whose guest calls a host function.
func instanceOf(ctx context.Context) *Instance {
	if c, ok := ctx.(*callContext); ok {
		return c.instance
	}
	return ctx.Value(instanceKey{}).(*Instance)
}

// export is an exported function; its Function is nil if the module has none of the name.
type export struct {
	wazeroapi.Function
	name string
}

// call calls an export with up to two numbers and returns its result, if it has one.
func (in *Instance) call(ctx *callContext, f export, a, b uint64) (uint32, error) {
	in.place.function = f.name
	in.stack = [2]uint64{a, b}
	if err := f.CallWithStack(ctx, in.stack[:]); err != nil {
		return 0, in.failure(ctx.Context, err)
	}
	return uint32(in.stack[0]), nil
}

// isGuestFailure tells a guest's trap or exit from a module that wazero cannot instantiate.
func isGuestFailure(err error) bool {
	var exit *sys.ExitError
	return errors.As(err, &exit) || strings.Contains(err.Error(), "wasm stack trace:") || strings.Contains(err.Error(), "wasm error:")
}

// failure explains why a call ended with an error. The instance is broken.
func (in *Instance) failure(ctx context.Context, err error) error {
	in.broken = true
	in.wasi.flush(in)
	message, stack, _ := strings.Cut(err.Error(), "wasm stack trace:")
	if in.stop != nil {
		var guest *GuestError
		if errors.As(in.stop, &guest) {
			guest.Stack = stackText(stack)
		}
		return in.stop
	}
	out := in.guestError(api.CodeGuestFailed, "")
	out.Stack = stackText(stack)
	var exit *sys.ExitError
	switch {
	case errors.As(err, &exit) && ctx.Err() != nil:
		in.interrupted(ctx, out)
	case errors.As(err, &exit):
		out.Message = fmt.Sprintf("exited with status %d", exit.ExitCode())
	default:
		out.Trap = trapName(message)
		out.Message = out.Trap
	}
	if last := lastWords(out.Stderr); last != "" && out.Code == api.CodeGuestFailed {
		out.Message += ": " + last
	}
	return out
}

// interrupted says which of the two ends of a context ended the call.
func (in *Instance) interrupted(ctx context.Context, out *GuestError) {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		out.Code, out.Message = api.CodeCanceled, "the job was canceled"
		return
	}
	limit := in.job.TimeLimit
	if deadline, ok := ctx.Deadline(); ok && limit == 0 {
		limit = deadline.Sub(in.began)
	}
	out.Code, out.Message = api.CodeTimeout, "exceeded its time limit of "+limitText(max(limit, time.Millisecond))
}

func (in *Instance) guestError(code api.Code, message string) *GuestError {
	return &GuestError{
		Code: code, Message: message, Stderr: in.stderr.text(),
		Module: in.job.Name, Digest: in.module.entry.digest, Function: in.place.function,
		Bucket: in.place.bucket, Record: in.place.record, Records: in.place.records,
		Key: append([]byte(nil), in.place.key...),
	}
}

// fault is a breach of the ABI, or what the guest says of itself.
func (in *Instance) fault(function, message string) error {
	out := in.guestError(api.CodeGuestFailed, message)
	out.Function = function
	return out
}

// outside is the fault of a range that is not in the guest's memory.
func (in *Instance) outside(what string, ptr, n uint64) error {
	return in.fault(in.place.function, fmt.Sprintf("%s is outside of its memory: pointer %d, length %d, memory %d bytes",
		what, ptr, n, memorySize(in.memory)))
}

// trapName is WebAssembly's name for a trap, out of wazero's text.
func trapName(message string) string {
	message = strings.TrimSpace(message)
	if i := strings.LastIndex(message, "wasm error: "); i >= 0 {
		message = message[i+len("wasm error: "):]
	}
	return oneLine(message, maxMessage)
}

// stackText has one function a line.
func stackText(stack string) string {
	var lines []string
	for line := range strings.Lines(stack) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, strings.ToValidUTF8(line, "\uFFFD"))
		}
	}
	return strings.Join(lines, "\n")
}

// lastWords is the line of stderr that says why a program ended: that of a panic, else the last one.
func lastWords(stderr string) string {
	last := ""
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return oneLine(line, maxMessage)
		}
		if line != "" {
			last = line
		}
	}
	return oneLine(last, maxMessage)
}
