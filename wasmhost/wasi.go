package wasmhost

import (
	"bytes"
	"encoding/binary"
	"math"

	wazeroapi "github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"
)

// WASI preview 1, as far as a guest may have it: arguments, environment, three streams, clock and random
// numbers. There are no files, directories or sockets, so most functions only say that the descriptor is bad.
// It is written here and not wazero's because each function must charge for what it does, in pieces, and be
// the same in each process: https://github.com/WebAssembly/WASI/blob/main/legacy/preview1/docs.md

const wasiModule = "wasi_snapshot_preview1"

// errno is a result of WASI.
type errno uint32

const (
	success errno = 0
	badf    errno = 8
	fault   errno = 21
	inval   errno = 28
	nosys   errno = 52
	spipe   errno = 70
)

// The descriptors that are open.
const (
	stdin  = 0
	stdout = 1
	stderr = 2
)

// wasiFunc is a function of WASI. An error ends the guest's call.
type wasiFunc func(in *Instance, args []uint64) (errno, error)

// wasiFunctions has each function of preview 1, with its parameters as i for i32 and l for i64. All but
// proc_exit return an errno.
var wasiFunctions = []struct {
	name, params string
	call         wasiFunc
}{
	{"args_get", "ii", func(in *Instance, args []uint64) (errno, error) { return in.giveStrings(in.world.args, args) }},
	{"args_sizes_get", "ii", func(in *Instance, args []uint64) (errno, error) { return in.giveSizes(in.world.args, args) }},
	{"clock_res_get", "ii", clockResGet},
	{"clock_time_get", "ili", clockTimeGet},
	{"environ_get", "ii", func(in *Instance, args []uint64) (errno, error) { return in.giveStrings(in.world.environ, args) }},
	{"environ_sizes_get", "ii", func(in *Instance, args []uint64) (errno, error) { return in.giveSizes(in.world.environ, args) }},
	{"fd_advise", "illi", always(badf)},
	{"fd_allocate", "ill", always(badf)},
	{"fd_close", "i", ofStream(success)},
	{"fd_datasync", "i", ofStream(success)},
	{"fd_fdstat_get", "ii", fdFdstatGet},
	{"fd_fdstat_set_flags", "ii", ofStream(success)},
	{"fd_fdstat_set_rights", "ill", ofStream(success)},
	{"fd_filestat_get", "ii", fdFilestatGet},
	{"fd_filestat_set_size", "il", always(badf)},
	{"fd_filestat_set_times", "illi", always(badf)},
	{"fd_pread", "iiili", ofStream(spipe)},
	{"fd_prestat_dir_name", "iii", always(badf)},
	{"fd_prestat_get", "ii", always(badf)},
	{"fd_pwrite", "iiili", ofStream(spipe)},
	{"fd_read", "iiii", fdRead},
	{"fd_readdir", "iiili", always(badf)},
	{"fd_renumber", "ii", always(badf)},
	{"fd_seek", "ilii", ofStream(spipe)},
	{"fd_sync", "i", ofStream(success)},
	{"fd_tell", "ii", ofStream(spipe)},
	{"fd_write", "iiii", fdWrite},
	{"path_create_directory", "iii", always(badf)},
	{"path_filestat_get", "iiiii", always(badf)},
	{"path_filestat_set_times", "iiiilli", always(badf)},
	{"path_link", "iiiiiii", always(badf)},
	{"path_open", "iiiiillii", always(badf)},
	{"path_readlink", "iiiiii", always(badf)},
	{"path_remove_directory", "iii", always(badf)},
	{"path_rename", "iiiiii", always(badf)},
	{"path_symlink", "iiiii", always(badf)},
	{"path_unlink_file", "iii", always(badf)},
	{"poll_oneoff", "iiii", pollOneoff},
	{"proc_exit", "i", procExit},
	{"proc_raise", "i", always(nosys)},
	{"random_get", "ii", randomGet},
	{"sched_yield", "", always(success)},
	{"sock_accept", "iii", always(badf)},
	{"sock_recv", "iiiiii", always(badf)},
	{"sock_send", "iiiii", always(badf)},
	{"sock_shutdown", "ii", always(badf)},
}

// wasiImport makes a function that guests can import. Each call costs callSteps.
func wasiImport(call wasiFunc) hostFunc {
	return func(in *Instance, args []uint64) error {
		if err := in.work(0, 0); err != nil {
			return err
		}
		if in.memory == nil {
			args[0] = uint64(fault)
			return nil
		}
		e, err := call(in, args)
		if err == nil {
			args[0] = uint64(e) // the place is there also without parameters
		}
		return err
	}
}

func always(e errno) wasiFunc { return func(*Instance, []uint64) (errno, error) { return e, nil } }

// ofStream is for functions that have nothing to do, with one of the three streams.
func ofStream(e errno) wasiFunc {
	return func(_ *Instance, args []uint64) (errno, error) {
		if uint32(args[0]) > stderr {
			return badf, nil
		}
		return e, nil
	}
}

// put32 and put64 write to the guest's memory.
func (in *Instance) put32(ptr uint64, v uint32) bool {
	return in.memory.WriteUint32Le(uint32(ptr), v)
}

func (in *Instance) put64(ptr uint64, v uint64) bool {
	return in.memory.WriteUint64Le(uint32(ptr), v)
}

// found turns the answer of a write into an errno.
func found(ok bool) (errno, error) {
	if !ok {
		return fault, nil
	}
	return success, nil
}

func stringBytes(list []string) int {
	n := 0
	for _, s := range list {
		n += len(s) + 1
	}
	return n
}

func (in *Instance) giveSizes(list []string, args []uint64) (errno, error) {
	return found(in.put32(args[0], uint32(len(list))) && in.put32(args[1], uint32(stringBytes(list))))
}

// giveStrings writes pointers to strings, and the strings with a zero byte after each.
func (in *Instance) giveStrings(list []string, args []uint64) (errno, error) {
	if err := in.work(len(list), stringBytes(list)); err != nil {
		return 0, err
	}
	pointers, text := uint32(args[0]), uint32(args[1])
	for _, s := range list {
		if !in.put32(uint64(pointers), text) || !in.memory.WriteString(text, s) || !in.memory.WriteByte(text+uint32(len(s)), 0) {
			return fault, nil
		}
		pointers += 4
		text += uint32(len(s)) + 1
	}
	return success, nil
}

// clocks are realtime, monotonic and the two of processor time.
const clocks = 4

func clockResGet(in *Instance, args []uint64) (errno, error) {
	if uint32(args[0]) >= clocks {
		return inval, nil
	}
	return found(in.put64(args[1], 1000))
}

func clockTimeGet(in *Instance, args []uint64) (errno, error) {
	if uint32(args[0]) >= clocks {
		return inval, nil
	}
	now := in.world.now()
	if uint32(args[0]) == 0 {
		now += epoch
	}
	return found(in.put64(args[2], uint64(now)))
}

// fdFdstatGet says that the streams are pipes: of no type, neither terminals nor files.
func fdFdstatGet(in *Instance, args []uint64) (errno, error) {
	const mayRead, mayWrite, mayPoll = 1 << 1, 1 << 6, 1 << 27
	var stat [24]byte // type, flags, rights, rights that are passed on
	switch uint32(args[0]) {
	case stdin:
		stat[8] = mayRead
	case stdout, stderr:
		stat[8] = mayWrite
	default:
		return badf, nil
	}
	binary.LittleEndian.PutUint32(stat[8:], uint32(stat[8])|mayPoll)
	return found(in.memory.Write(uint32(args[1]), stat[:]))
}

func fdFilestatGet(in *Instance, args []uint64) (errno, error) {
	if uint32(args[0]) > stderr {
		return badf, nil
	}
	var stat [64]byte
	return found(in.memory.Write(uint32(args[1]), stat[:]))
}

// iovecs calls f with each buffer of a list until f says that it is enough. The list lies in the guest's
// memory, which f may change.
func (in *Instance) iovecs(list, n uint64, f func(b []byte) (more bool, err error)) (errno, error) {
	at := uint64(uint32(list))
	for range uint32(n) {
		if err := in.work(0, 0); err != nil {
			return 0, err
		}
		if at+8 > math.MaxUint32 {
			return fault, nil
		}
		ptr, ok := in.memory.ReadUint32Le(uint32(at))
		size, ok2 := in.memory.ReadUint32Le(uint32(at) + 4)
		if !ok || !ok2 {
			return fault, nil
		}
		at += 8
		if size == 0 {
			continue
		}
		b, ok := in.memory.Read(ptr, size)
		if !ok {
			return fault, nil
		}
		for len(b) > 0 {
			piece := b[:min(len(b), pieceBytes)]
			b = b[len(piece):]
			if err := in.work(0, len(piece)); err != nil {
				return 0, err
			}
			if more, err := f(piece); !more || err != nil {
				return success, err
			}
		}
	}
	return success, nil
}

func fdRead(in *Instance, args []uint64) (errno, error) {
	if uint32(args[0]) != stdin {
		return badf, nil
	}
	if in.command == nil {
		return found(in.put32(args[3], 0)) // the end
	}
	n := 0
	e, err := in.iovecs(args[1], args[2], func(b []byte) (bool, error) {
		got, err := in.readInput(b, n == 0)
		n += got
		return got == len(b), err
	})
	if e != success || err != nil {
		return e, err
	}
	return found(in.put32(args[3], uint32(n)))
}

func fdWrite(in *Instance, args []uint64) (errno, error) {
	n := uint64(0)
	write := in.writeStdout
	switch uint32(args[0]) {
	case stdout:
	case stderr:
		write = in.writeStderr
	default:
		return badf, nil
	}
	e, err := in.iovecs(args[1], args[2], func(b []byte) (bool, error) {
		n += uint64(len(b))
		return n <= math.MaxInt32, write(b)
	})
	if e != success || err != nil {
		return e, err
	}
	return found(in.put32(args[3], uint32(n)))
}

func (in *Instance) writeStdout(b []byte) error {
	if in.command != nil {
		return in.writeOutput(b)
	}
	return in.writeLog(b, &in.world.out, in.stdoutLine)
}

func (in *Instance) writeStderr(b []byte) error {
	in.stderr.write(b)
	return in.writeLog(b, &in.world.err, in.stderrLine)
}

// writeLog charges each line, also a blank one, which is not logged.
func (in *Instance) writeLog(b []byte, to *lines, line func([]byte) error) error {
	if err := in.work(bytes.Count(b, []byte("\n")), 0); err != nil {
		return err
	}
	return to.write(b, line)
}

// pollOneoff sleeps by moving the clock. A stream is always ready; otherwise the subscriptions that end first
// are over.
func pollOneoff(in *Instance, args []uint64) (errno, error) {
	n := uint32(args[2])
	if n == 0 {
		return inval, nil
	}
	wait, err := in.firstEvent(uint32(args[0]), n)
	if err != nil {
		return 0, err
	}
	if wait < 0 {
		return fault, nil
	}
	events := uint32(0)
	var event [32]byte // userdata, error, type, and for a stream bytes and flags
	for i := range n {
		if err := in.work(0, 0); err != nil {
			return 0, err
		}
		s, ok := in.memory.Read(uint32(args[0])+i*subscriptionBytes, subscriptionBytes)
		if !ok {
			return fault, nil
		}
		if delay, isClock := in.delay(s); isClock && delay > wait {
			continue
		}
		copy(event[:8], s[:8])
		event[10] = s[8]
		if !in.memory.Write(uint32(args[1])+events*uint32(len(event)), event[:]) {
			return fault, nil
		}
		events++
	}
	in.world.sleep(wait)
	return found(in.put32(args[3], events))
}

const subscriptionBytes = 48

// firstEvent is how long the first of n subscriptions takes, below 0 if they are outside of the memory.
func (in *Instance) firstEvent(list, n uint32) (int64, error) {
	if uint64(list)+uint64(n)*subscriptionBytes > memorySize(in.memory) {
		return -1, nil
	}
	wait := int64(math.MaxInt64)
	for i := range n {
		if err := in.work(0, 0); err != nil {
			return 0, err
		}
		s, ok := in.memory.Read(list+i*subscriptionBytes, subscriptionBytes)
		if !ok {
			return -1, nil
		}
		delay, _ := in.delay(s)
		wait = min(wait, delay)
	}
	return wait, nil
}

// delay reads a subscription: 0 for a stream.
func (in *Instance) delay(s []byte) (ns int64, isClock bool) {
	if s[8] != 0 {
		return 0, false
	}
	clock, timeout := binary.LittleEndian.Uint32(s[16:]), binary.LittleEndian.Uint64(s[24:])
	ns = int64(min(timeout, math.MaxInt64))
	if absolute := s[40]&1 != 0; absolute {
		ns -= in.world.elapsed
		if clock == 0 {
			ns -= epoch
		}
	}
	return max(ns, 0), true
}

// procExit ends the guest's call. wazero passes an ExitError on as it is.
func procExit(_ *Instance, args []uint64) (errno, error) {
	return 0, sys.NewExitError(uint32(args[0]))
}

func randomGet(in *Instance, args []uint64) (errno, error) {
	b, ok := in.memory.Read(uint32(args[0]), uint32(args[1]))
	if !ok {
		return fault, nil
	}
	for len(b) > 0 {
		piece := b[:min(len(b), pieceBytes)]
		if err := in.work(0, len(piece)); err != nil {
			return 0, err
		}
		_, _ = in.world.random.Read(piece) // never fails
		b = b[len(piece):]
	}
	return success, nil
}

// wasiTypes are the parameters and results of a function of WASI.
func wasiTypes(name, params string) (p, r []wazeroapi.ValueType) {
	for _, c := range params {
		if c == 'l' {
			p = append(p, i64)
		} else {
			p = append(p, i32)
		}
	}
	if name != "proc_exit" {
		r = []wazeroapi.ValueType{i32}
	}
	return p, r
}
