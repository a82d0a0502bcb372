package wasmhost

import (
	"bytes"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"
)

// maxStderr is how much of the end of stderr a failure report carries.
const maxStderr = 4096

// epoch is the time at which every bucket begins for a guest: 2022-01-01 00:00:00 UTC.
const epoch = int64(1_640_995_200)

// wasi is what a guest sees of a system: two outputs that are logs, a clock that starts at the same time for
// each bucket and moves by a microsecond per look and by what is slept, and random numbers that depend on
// job and bucket only. So a bucket that is mapped again gives the same bytes.
type wasi struct {
	elapsed int64 // ns
	random  *rand.ChaCha8
	out     lines
	err     lines
}

func (w *wasi) reset(job string, bucket int) {
	w.elapsed = 0
	var seed [32]byte
	h := fnv.New128a()
	_, _ = h.Write([]byte(job + "\x00" + strconv.Itoa(bucket)))
	h.Sum(seed[:0])
	w.random = rand.NewChaCha8(seed)
}

// flush logs lines that were begun.
func (w *wasi) flush(in *Instance) {
	w.out.flush(in.stdoutLine)
	w.err.flush(in.stderrLine)
}

func (w *wasi) now() int64 {
	w.elapsed += 1000
	return w.elapsed
}

// wasiConfig gives a guest its system. There are no files, arguments (but the module's name), environment or
// sockets.
func (in *Instance) wasiConfig(config wazero.ModuleConfig) wazero.ModuleConfig {
	return config.
		WithStdout(writerFunc(func(b []byte) { in.wasi.out.write(b, in.stdoutLine) })).
		WithStderr(writerFunc(func(b []byte) {
			in.stderr.write(b)
			in.wasi.err.write(b, in.stderrLine)
		})).
		WithRandSource(readerFunc(func(b []byte) (int, error) { return in.wasi.random.Read(b) })).
		WithWalltime(func() (int64, int32) {
			ns := in.wasi.now()
			return epoch + ns/1e9, int32(ns % 1e9)
		}, sys.ClockResolution(1000)).
		WithNanotime(func() int64 { return in.wasi.now() }, sys.ClockResolution(1000)).
		WithNanosleep(func(ns int64) { in.wasi.elapsed += max(ns, 0) })
}

func (in *Instance) stdoutLine(line string) { in.log(slog.LevelInfo, line) }
func (in *Instance) stderrLine(line string) { in.log(slog.LevelWarn, line) }

type writerFunc func([]byte)

// Write never fails: an output that is not read must not stop a guest.
func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

type readerFunc func([]byte) (int, error)

// Read calls f.
func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// lines cuts an output into lines of at most maxLogLine bytes; the rest of a longer one is dropped.
type lines struct{ begun []byte }

func (l *lines) write(b []byte, line func(string)) {
	for len(b) > 0 {
		part, rest, ended := bytes.Cut(b, []byte("\n"))
		if room := maxLogLine - len(l.begun); room > 0 {
			l.begun = append(l.begun, part[:min(len(part), room)]...)
		}
		if ended {
			l.flush(line)
		}
		b = rest
	}
}

func (l *lines) flush(line func(string)) {
	if len(l.begun) == 0 {
		return
	}
	text := oneLine(string(l.begun), maxLogLine)
	l.begun = l.begun[:0]
	if text != "" {
		line(text)
	}
}

// tail keeps the last maxStderr bytes.
type tail struct{ b []byte }

func (t *tail) write(b []byte) {
	if len(b) >= maxStderr {
		t.b = append(t.b[:0], b[len(b)-maxStderr:]...)
		return
	}
	if over := len(t.b) + len(b) - maxStderr; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	t.b = append(t.b, b...)
}

func (t *tail) reset()       { t.b = t.b[:0] }
func (t *tail) text() string { return strings.ToValidUTF8(string(t.b), "\uFFFD") }
