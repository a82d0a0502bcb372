package wasmhost

import (
	"bytes"
	"hash/fnv"
	"log/slog"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// maxStderr is how much of the end of stderr a failure report carries.
const maxStderr = 4096

// epoch is the time at which every bucket begins for a guest, in ns: 2022-01-01 00:00:00 UTC.
const epoch = int64(1_640_995_200_000_000_000)

// world is what a guest sees of a system: outputs, a clock that starts at the same time for each bucket and
// moves by a microsecond per look and by what is slept, and random numbers that depend on job and bucket only.
// So a bucket that is mapped again gives the same bytes.
type world struct {
	elapsed int64 // ns
	random  *rand.ChaCha8
	args    []string
	environ []string

	out, err lines
}

func (w *world) reset(job string, bucket int) {
	w.elapsed = 0
	var seed [32]byte
	h := fnv.New128a()
	_, _ = h.Write([]byte(job + "\x00" + strconv.Itoa(bucket)))
	h.Sum(seed[:0])
	if w.random == nil {
		w.random = rand.NewChaCha8(seed)
		return
	}
	w.random.Seed(seed)
}

// now moves the clock and looks at it.
func (w *world) now() int64 {
	w.sleep(1000)
	return w.elapsed
}

// sleep moves the clock: the guest's nights are short.
func (w *world) sleep(ns int64) {
	w.elapsed = min(w.elapsed+max(ns, 0), math.MaxInt64-epoch)
	if w.elapsed < 0 { // the sum left its range
		w.elapsed = math.MaxInt64 - epoch
	}
}

// flush logs lines that were begun.
func (in *Instance) flush() {
	_ = in.world.out.flush(in.stdoutLine) // what is wrong with a last line does not matter any more
	_ = in.world.err.flush(in.stderrLine)
}

func (in *Instance) stdoutLine(line []byte) error { return in.log(slog.LevelInfo, line) }

func (in *Instance) stderrLine(line []byte) error {
	if in.command != nil {
		if isReport, err := in.report(line); isReport || err != nil {
			return err
		}
	}
	return in.log(slog.LevelWarn, line)
}

// log hands a line to the job's logger, as long as it may have more.
func (in *Instance) log(level slog.Level, line []byte) error {
	line = line[:min(len(line), maxLogLine)]
	if err := in.work(1, len(line)); err != nil {
		return err
	}
	in.lastLog = append(in.lastLog[:0], line...)
	ok, last := in.job.Quota.line()
	if !ok || in.job.Logger == nil {
		return nil
	}
	in.job.Logger(level, oneLine(string(line), maxLogLine))
	if last {
		in.job.Logger(slog.LevelWarn, "module "+strconv.Quote(in.job.Name)+": further log lines are dropped: the limit of guest-log-lines ("+
			strconv.Itoa(in.config.MaxLogLines)+") is reached")
	}
	return nil
}

// lines cuts an output into lines of at most maxLogLine bytes; the rest of a longer one is dropped.
type lines struct{ begun []byte }

func (l *lines) write(b []byte, line func([]byte) error) error {
	for len(b) > 0 {
		part, rest, ended := bytes.Cut(b, []byte("\n"))
		if room := maxLogLine - len(l.begun); room > 0 {
			l.begun = append(l.begun, part[:min(len(part), room)]...)
		}
		if ended {
			if err := l.flush(line); err != nil {
				return err
			}
		}
		b = rest
	}
	return nil
}

// flush ends a line. Blank ones are left out.
func (l *lines) flush(line func([]byte) error) error {
	text := bytes.TrimSpace(l.begun)
	l.begun = l.begun[:0]
	if len(text) == 0 {
		return nil
	}
	return line(text)
}

// tail keeps the last maxStderr bytes, and what a panic said before them: Go writes a long trace behind it.
type tail struct {
	b     []byte
	words string
}

func (t *tail) write(b []byte) {
	if len(t.b)+len(b) > maxStderr && t.words == "" {
		t.words = panicIn(t.b)
		if t.words == "" && len(b) >= maxStderr {
			t.words = panicIn(b)
		}
	}
	if len(b) >= maxStderr {
		t.b = append(t.b[:0], b[len(b)-maxStderr:]...)
		return
	}
	if over := len(t.b) + len(b) - maxStderr; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	t.b = append(t.b, b...)
}

// panicIn is what a panic says in an output; empty if there is none.
func panicIn(b []byte) string {
	for _, sign := range panicSigns {
		if i := bytes.Index(b, []byte(sign)); i >= 0 {
			return lastWords(string(b[i:min(len(b), i+maxMessage)]))
		}
	}
	return ""
}

func (t *tail) reset()       { t.b, t.words = t.b[:0], "" }
func (t *tail) text() string { return strings.ToValidUTF8(string(t.b), "\uFFFD") }
