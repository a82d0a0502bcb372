package child

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/pinion-mr/pinion/wasmhost"
)

// Main is the child's side: it compiles the module that stdin brings and answers on stdout. The result is the
// status to exit with. It sets limits of the whole process and ends it when stdin ends early, so it must be all
// that the process does.
func Main(stdin io.Reader, stdout io.Writer) int {
	in := bufio.NewReaderSize(stdin, maxMessage)
	var t task
	if err := readMessage(in, &t); err != nil {
		return reply(stdout, answer{Error: err.Error(), Internal: true})
	}
	if err := limit(t); err != nil {
		return reply(stdout, answer{Error: err.Error(), Internal: true})
	}
	file := make([]byte, t.Size)
	if _, err := io.ReadFull(in, file); err != nil {
		return reply(stdout, answer{Error: "child: read the module: " + err.Error(), Internal: true})
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // until the parent closes it or is gone
		os.Exit(1)
	}()
	err := wasmhost.CompileTo(context.Background(), t.CacheDir, t.MemoryPages, file)
	if err == nil {
		return reply(stdout, answer{OK: true})
	}
	a := answer{Error: err.Error(), NoMemory: errors.Is(err, syscall.ENOMEM) || strings.Contains(err.Error(), "cannot allocate memory")}
	var path *os.PathError
	a.Internal = errors.As(err, &path) // the folder, not the module
	return reply(stdout, a)
}

// reply writes the answer. A compiler's message may be long.
func reply(stdout io.Writer, a answer) int {
	if len(a.Error) > maxMessage/8 {
		a.Error = a.Error[:maxMessage/8] + "..." // each byte may become six in JSON
	}
	if err := writeMessage(stdout, a); err != nil || !a.OK {
		return 1
	}
	return 0
}

// limit sets what the process may use. Garbage should not count, so the collector works harder near the limit.
func limit(t task) error {
	if t.Memory > 0 {
		debug.SetMemoryLimit(t.Memory / 4 * 3)
	}
	return setLimits(t)
}
