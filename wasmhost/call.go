package wasmhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	wazeroapi "github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/plugins/wasm"
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
	in.running = ctx.Context
	if err := f.CallWithStack(ctx, in.stack[:]); err != nil {
		return 0, in.failure(err)
	}
	return uint32(in.stack[0]), nil
}

// isGuestFailure tells a guest's trap or exit from a module that wazero cannot instantiate.
func isGuestFailure(err error) bool {
	var exit *sys.ExitError
	return errors.As(err, &exit) || strings.Contains(err.Error(), "wasm stack trace:") || strings.Contains(err.Error(), "wasm error:")
}

// failure explains why a call ended with an error. The instance is broken.
func (in *Instance) failure(err error) error {
	in.broken = true
	in.flush()
	message, stack, _ := strings.Cut(err.Error(), "wasm stack trace:")
	if in.stop != nil {
		var guest *GuestError
		if errors.As(in.stop, &guest) {
			guest.Stack = in.module.entry.stackText(stack)
		}
		return in.stop
	}
	_ = in.settle()
	out := in.guestError(api.CodeGuestFailed, "")
	out.Stack = in.module.entry.stackText(stack)
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		out.Message = fmt.Sprintf("exited with status %d", exit.ExitCode())
	} else {
		out.Trap = trapName(message)
		out.Message = out.Trap
	}
	if last := cmp.Or(in.stderr.words, lastWords(out.Stderr)); last != "" {
		out.Message += ": " + last
	}
	if limit := uint64(in.config.MemoryPages) * 65_536; in.memory != nil && memorySize(in.memory) > limit-limit/16 {
		out.Hint = fmt.Sprintf("its memory has %s, and guest-memory allows %s: keep less, or raise guest-memory",
			sizeText(memorySize(in.memory)), sizeText(limit))
	}
	return out
}

func (in *Instance) guestError(code api.Code, message string) *GuestError {
	return &GuestError{
		Code: code, Message: message, Stderr: in.stderr.text(),
		Module: in.job.Name, Digest: in.module.entry.digest, Function: in.place.function,
		Bucket: in.place.bucket, Record: in.place.record, Records: in.place.records,
		Key: append([]byte(nil), in.place.key...), Fuel: in.fuel(),
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

// stackText has one function a line, innermost first, as "parse(i32,i32) i32"; one without a name has that of
// its export, or its number, as "$12()". What the metering added is left out.
func (e *entry) stackText(stack string) string {
	var lines []string
	repeated := 0
	for line := range strings.Lines(stack) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, wasm.TickModule+"."+wasm.TickName+"(") {
			continue
		}
		if strings.HasPrefix(line, "...") { // wazero gives the innermost 30
			lines = append(lines, "...")
			continue
		}
		line = strings.ToValidUTF8(e.frameText(line), "\uFFFD")
		last := len(lines) - 1
		if last >= 0 && (line == lines[last] || repeated > 0 && strings.HasPrefix(lines[last], line+" (")) {
			repeated++
			lines[last] = fmt.Sprintf("%s (%d times)", line, repeated+1)
			continue
		}
		lines, repeated = append(lines, line), 0
	}
	return strings.Join(lines, "\n")
}

// frameText is a line of wazero's, which begins with the instance's name, that is empty, and a dot.
func (e *entry) frameText(line string) string {
	line = strings.TrimPrefix(line, ".")
	name, types, ok := strings.Cut(line, "(")
	if !ok || !strings.HasPrefix(name, "$") {
		return line
	}
	n, err := strconv.Atoi(name[1:])
	if err != nil {
		return line
	}
	if n > e.imports { // the import of tick comes after the others: all functions of the file are one further
		n--
	}
	if n < len(e.exports) && e.exports[n] != "" {
		return e.exports[n] + "(" + types
	}
	return fmt.Sprintf("$%d(%s", n, types)
}

// panicSigns begin what Go and Rust say when they give up.
var panicSigns = []string{"panic: ", "fatal error: ", "thread '"}

// lastWords is what stderr says of why a program ended: the words of a panic of Go or Rust, else its last line.
func lastWords(stderr string) string {
	last, panicked := "", ""
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		switch {
		case panicked != "": // Rust's message is a line of its own since 1.73
			return oneLine(panicked+" "+line, maxMessage)
		case strings.HasPrefix(line, panicSigns[0]), strings.HasPrefix(line, panicSigns[1]):
			return oneLine(line, maxMessage)
		case strings.HasPrefix(line, "thread '") && strings.Contains(line, "' panicked at "):
			if !strings.HasSuffix(line, ":") {
				return oneLine(line, maxMessage)
			}
			panicked = line
		case strings.HasPrefix(line, "reporter:"):
		case line != "":
			last = line
		}
	}
	if panicked != "" {
		last = panicked
	}
	return oneLine(last, maxMessage)
}
