package wasmhost

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tetratelabs/wazero/sys"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// formatParam is the param that chooses what a command reads and writes: lines, the default, or frames.
const formatParam = "PINION_FORMAT"

// command is what the instance of a WASI program has besides.
type command struct {
	frames bool // else lines
	source Source
	rest   []byte // of the batch under way, as the program reads it
	text   []byte // lines are made here
	ended  bool   // the source
	keys   *keySet
	out    []byte // a line or frame that the program has begun
}

// environ gives a bucket's params to a program as its environment.
func (in *Instance) environ(bucket int) error {
	in.world.environ = in.world.environ[:0]
	params := in.job.paramsOf(bucket)
	for _, name := range slices.Sorted(maps.Keys(params)) {
		value := string(params[name])
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return api.Errorf(api.CodeBadRequest, "the param %.80q cannot be an environment variable of the command %q", name, in.job.Name).
				WithHint("a name has no = and neither name nor value a zero byte")
		}
		in.world.environ = append(in.world.environ, name+"="+value)
	}
	return nil
}

// prepareCommand reads what the job's params say about the program.
func (in *Instance) prepareCommand(context.Context) error {
	c := &command{}
	if err := in.environ(-1); err != nil {
		return err
	}
	switch format := string(in.job.Params[formatParam]); format {
	case "", "lines":
	case "frames":
		c.frames = true
	default:
		return api.Errorf(api.CodeBadRequest, "the param %s is %.80q", formatParam, format).WithHint("it is lines or frames; without it, lines")
	}
	in.command = c
	return nil
}

// runCommand runs the program once: an instance of its own, the job's function as its argument, records on
// its standard input and pairs from its standard output.
func (in *Instance) runCommand(ctx context.Context, function string, source Source) error {
	c, call := in.command, in.context(ctx)
	c.source, c.rest, c.ended, c.out = source, nil, false, c.out[:0]
	in.world.args = []string{in.job.Name, function}
	if err := in.environ(in.place.bucket); err != nil {
		return err
	}
	defer in.closeGuest()
	if err := in.instantiate(call); err != nil {
		return err
	}
	start := export{name: function, Function: in.guest.ExportedFunction("_start")}
	switch {
	case in.memory == nil:
		return in.mustExport(`its memory as "memory"`)
	case !start.has(0, 0):
		return in.mustExport("_start as ()")
	}
	in.phase = phaseBatch
	err := start.CallWithStack(call, nil)
	var exit *sys.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 0) {
		return in.failure(err)
	}
	if err := in.finishOutput(); err != nil {
		return err
	}
	return in.skipInput()
}

// skipInput counts what the program has not read: its bucket was mapped all the same. A warning tells of it.
func (in *Instance) skipInput() error {
	c := in.command
	unread := len(c.rest) > 0
	in.leaveInput()
	for !c.ended {
		batch, records, err := c.source.Fill(in.batch[:0], in.config.BatchBytes)
		if err != nil {
			return fmt.Errorf("wasmhost: read bucket %d: %w", in.place.bucket, err)
		}
		in.batch, c.ended = batch, records == 0
		in.leave(batch, records)
		unread = unread || records > 0
	}
	if !unread {
		return nil
	}
	return in.log(slog.LevelWarn, fmt.Appendf(nil, "the command ended before it had read all records of bucket %d", in.place.bucket))
}

// closeGuest frees a program's memory; the instance can run another one.
func (in *Instance) closeGuest() {
	in.meter.release()
	if in.guest != nil {
		_ = in.guest.Close(context.Background()) // its own errors are those of files, which guests have none
	}
	in.guest, in.memory = nil, nil
}

// readInput copies what comes next of the program's standard input to b, if it need not ask the source for
// more or may do so. So a read gives at most one batch.
func (in *Instance) readInput(b []byte, mayFill bool) (int, error) {
	c := in.command
	if len(c.rest) == 0 && mayFill && !c.ended {
		if err := in.fillInput(); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (in *Instance) fillInput() error {
	c := in.command
	in.leaveInput()
	batch, records, err := c.source.Fill(in.batch[:0], in.config.BatchBytes)
	if err != nil {
		return fmt.Errorf("wasmhost: read bucket %d: %w", in.place.bucket, err)
	}
	in.batch = batch
	if records == 0 {
		c.ended = true
		return nil
	}
	if err := in.enter(c.source, batch, records); err != nil {
		return err
	}
	if err := in.work(records, len(batch)); err != nil {
		return err
	}
	if err := in.takeBatch(batch); err != nil {
		return err
	}
	c.rest = batch
	if !c.frames {
		c.rest = c.text
	}
	return nil
}

// leaveInput counts the batch that was read.
func (in *Instance) leaveInput() {
	if in.place.records > 0 {
		in.leave(in.batch, in.place.records)
	}
}

// takeBatch notes the keys of a batch of groups, and writes it as lines.
func (in *Instance) takeBatch(batch []byte) error {
	c := in.command
	c.text = c.text[:0]
	for i := uint64(0); len(batch) > 0; i++ {
		f, rest, err := buckets.CutFrame(batch)
		if err != nil {
			return fmt.Errorf("wasmhost: batch of bucket %d: %w", in.place.bucket, err)
		}
		batch = rest
		if c.keys != nil {
			c.keys.add(f.Key)
		}
		if c.frames {
			continue
		}
		if c.keys != nil {
			if bytes.ContainsAny(f.Key, "\t\n") {
				return in.noLine(i, f.Key, "key", "a tab or a newline")
			}
			c.text = append(append(c.text, f.Key...), '\t')
		}
		switch {
		case f.Flags&buckets.FlagInt != 0 && len(f.Value) == 8:
			c.text = strconv.AppendInt(c.text, int64(binary.LittleEndian.Uint64(f.Value)), 10)
		case f.Flags&buckets.FlagFloat != 0 && len(f.Value) == 8:
			c.text = strconv.AppendFloat(c.text, math.Float64frombits(binary.LittleEndian.Uint64(f.Value)), 'g', -1, 64)
		case bytes.IndexByte(f.Value, '\n') >= 0:
			return in.noLine(i, f.Key, "value", "a newline")
		default:
			c.text = append(c.text, f.Value...)
		}
		c.text = append(c.text, '\n')
	}
	return nil
}

// noLine is the fault of a record that does not fit a line.
func (in *Instance) noLine(i uint64, key []byte, part, holds string) error {
	in.place.record, in.place.records, in.place.key = in.place.record+i, 1, key
	out := in.guestError(api.CodeGuestFailed, fmt.Sprintf("the record's %s holds %s, and a command reads records as lines", part, holds))
	out.Hint = fmt.Sprintf("read frames instead: the param %s=frames says so", formatParam)
	return out
}

// Lines that a Hadoop Streaming program writes on stderr to count, and to say what it is doing.
const (
	counterReport = "reporter:counter:"
	statusReport  = "reporter:status:"
)

// report takes a line of stderr that is for the host. The counter of reporter:counter:GROUP,NAME,DELTA is
// GROUP,NAME. What only looks like a report is a line of the log.
func (in *Instance) report(line []byte) (ok bool, err error) {
	if status, ok := bytes.CutPrefix(line, []byte(statusReport)); ok {
		return true, in.log(slog.LevelInfo, status)
	}
	counter, ok := bytes.CutPrefix(line, []byte(counterReport))
	if !ok {
		return false, nil
	}
	first, last := bytes.IndexByte(counter, ','), bytes.LastIndexByte(counter, ',')
	if first == last {
		return false, nil
	}
	delta, err := strconv.ParseInt(string(bytes.TrimSpace(counter[last+1:])), 10, 64)
	if err != nil {
		return false, nil //nolint:nilerr // then it is a line of the log
	}
	if err := in.work(1, len(counter)); err != nil {
		return true, err
	}
	return true, in.count(counter[:last], delta)
}

// keySet has the keys that a program was given, as hashes. They come in order, and most programs write in this
// order, too; then no map is needed.
type keySet struct {
	seed   maphash.Seed
	hashes []uint64
	next   int                 // where the key that is written next is expected
	set    map[uint64]struct{} // made when keys are written in another order
}

func newKeySet() *keySet { return &keySet{seed: maphash.MakeSeed()} }

func (s *keySet) add(key []byte) {
	h := maphash.Bytes(s.seed, key)
	if n := len(s.hashes); n > 0 && s.hashes[n-1] == h {
		return
	}
	s.hashes = append(s.hashes, h)
	if s.set != nil {
		s.set[h] = struct{}{}
	}
}

func (s *keySet) has(key []byte) bool {
	h := maphash.Bytes(s.seed, key)
	for i := s.next; i < min(s.next+8, len(s.hashes)); i++ {
		if s.hashes[i] == h {
			s.next = i
			return true
		}
	}
	if s.set == nil {
		s.set = make(map[uint64]struct{}, len(s.hashes))
		for _, h := range s.hashes {
			s.set[h] = struct{}{}
		}
	}
	_, ok := s.set[h]
	return ok
}
