package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// Every fault ends the call with one line that says what and where, and never anything but the instance.
func TestGuestFaults(t *testing.T) {
	h := newHost(t, Config{})
	m := guest(t, h, "faults")
	for function, want := range map[string]string{
		"trap":          "trapped on bucket 17, records 0 to 2: unreachable",
		"divide":        "trapped on bucket 17, records 0 to 2: integer overflow",
		"load":          "trapped on bucket 17, records 0 to 2: out of bounds memory access",
		"signature":     "trapped on bucket 17, records 0 to 2: indirect call type mismatch",
		"recurse":       "trapped on bucket 17, records 0 to 2: stack overflow",
		"key_outside":   "the emitted key is outside of its memory: pointer 2147483647, length 4, memory 262144 bytes",
		"value_outside": "the emitted value is outside of its memory: pointer 262143, length 2, memory 262144 bytes",
		"wraps":         "the emitted block is outside of its memory: pointer 16, length 4294967288, memory 262144 bytes",
		"log_outside":   "the log message is outside of its memory: pointer 4294967280, length 64",
		"flags_5":       `emitted a frame with flags 5; 0, 4 (i64) and 8 (f64) are allowed (key "k")`,
		"flags_12":      "emitted a frame with flags 12",
		"short_number":  "emitted a number of 1 bytes; a number has 8",
		"long_value":    "emitted a block whose byte 0 begins no frame: frame of key 1 and value 4294967295 bytes, but 2 are left",
		"cut_off":       "emitted a block whose byte 14 begins no frame: frame header needs 12 bytes, 6 are left",
		"long_key":      "emitted a key of 65536 bytes; the limit is 65535",
		"fail":          "fail failed on bucket 17, records 0 to 2: bad record | in line two",
		"fail_empty":    "it failed without a message",
		"minus_one":     "minus_one returned -1; its last log line: bad record",
		"abort":         "abort: ba at x.ts:7:3",
		"abort_wild":    "abort: no message at :7:3",
		"exit_0":        "exit_0 failed on bucket 17, records 0 to 2: exited with status 0",
		"exit_2":        "exited with status 2: panic: out of cheese",
	} {
		t.Run(function, func(t *testing.T) {
			in := instance(t, m, Job{Name: "m", Function: function})
			_, err := in.Map(t.Context(), 17, records("a", "b", "c"), &pairs{})
			var g *GuestError
			if !errors.As(err, &g) {
				t.Fatalf("Map = %v", err)
			}
			prefix := fmt.Sprintf("module %q (sha256 %s): %s ", "m", m.Digest()[:8], function)
			if !strings.HasPrefix(g.Error(), prefix) || !strings.Contains(g.Error(), want) || strings.Contains(g.Error(), "\n") {
				t.Errorf("error is %q, want %q and %q", g, prefix, want)
			}
			if !in.Broken() {
				t.Error("the instance is not broken")
			}
			e := api.AsError(err)
			if e.Code != api.CodeGuestFailed || e.Details["bucket"] != "17" || e.Details["record"] != "0" || e.Details["records"] != "3" ||
				e.Details["key"] != "k0" || e.Details["function"] != function || e.Details["digest"] != m.Digest() {
				t.Errorf("API error is %+v", e)
			}
			if e.Details["trap"] != g.Trap || (g.Trap != "") != strings.Contains(want, "trapped") {
				t.Errorf("trap is %q", g.Trap)
			}
		})
	}
	in := instance(t, m, Job{Function: "echo"}) // and all goes on
	if _, err := in.Map(t.Context(), 0, records("a"), &pairs{}); err != nil {
		t.Error(err)
	}
}

func TestFaultsOfOtherExports(t *testing.T) {
	h := newHost(t, Config{})
	for _, c := range []struct {
		guest, param, want string
	}{
		{"start_emits", "", "start failed: emitted outside a batch"},
		{"start_traps", "", "start trapped: unreachable"},
		{"alloc_null", "", "pmr_alloc failed on bucket 1, record 0 of key \"k0\": refused to allocate 15 bytes (memory 131072 bytes, guest-memory 64 MiB)"},
		{"alloc_outside", "", "what pmr_alloc returned is outside of its memory: pointer 65540, length 65536, memory 131072 bytes"},
		{"alloc_emits", "", "pmr_alloc failed on bucket 1, record 0 of key \"k0\": emitted outside a batch"},
		{"hooks", "e", "pmr_init failed on bucket 1: emitted outside a batch"},
		{"hooks", "r", "pmr_init failed on bucket 1: pmr_init returned 3"},
		{"hooks", "x", "pmr_end failed on bucket 1: no end"},
	} {
		t.Run(c.guest+c.param, func(t *testing.T) {
			err := oneMap(t.Context(), guest(t, h, c.guest), c.param)
			if api.CodeOf(err) != api.CodeGuestFailed || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// oneMap makes an instance and maps one record of bucket 1.
func oneMap(ctx context.Context, m *Module, param string) error {
	in, err := m.Instance(ctx, Job{Name: "m", Params: map[string][]byte{"p": []byte(param)}})
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = in.Map(ctx, 1, records("v"), &pairs{})
	if (err != nil) != in.Broken() {
		return fmt.Errorf("broken is %v after %w", in.Broken(), err)
	}
	return err
}

// A guest that does not return is stopped wherever it is.
func TestLoopsAreStopped(t *testing.T) {
	h := newHost(t, Config{})
	for _, c := range []struct {
		guest, param, place string
	}{
		{"start_loops", "", "start"},
		{"initialize_loops", "", "_initialize"},
		{"alloc_loops", "", "pmr_alloc"},
		{"hooks", "l", "pmr_init"},
		{"hooks", "o", "pmr_end"},
	} {
		t.Run(c.place, func(t *testing.T) {
			m := guest(t, h, c.guest)
			stopped(t, c.place+" was stopped", func(ctx context.Context) error { return oneMap(ctx, m, c.param) })
		})
	}
	for _, function := range []string{"loop", "loop_emit"} {
		t.Run(function, func(t *testing.T) {
			m := guest(t, h, "faults")
			want := function + " was stopped on bucket 17, record 0 of key \"k0\": exceeded its time limit of 3s"
			stopped(t, want, func(ctx context.Context) error {
				in, err := m.Instance(ctx, Job{Function: function, TimeLimit: 3 * time.Second})
				if err != nil {
					return err
				}
				defer in.Close()
				_, err = in.Map(ctx, 17, records("a"), &pairs{})
				return err
			})
		})
	}
}

// stopped runs a guest with a deadline that ends it in a certain place. On a busy machine a short one may be
// over before the guest is there; then a longer one is tried.
func stopped(t *testing.T, want string, run func(context.Context) error) {
	t.Helper()
	var err error
	for _, limit := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 5 * time.Second} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err = run(ctx)
		cancel()
		if api.CodeOf(err) != api.CodeTimeout {
			break
		}
		if strings.Contains(err.Error(), want) {
			return
		}
	}
	t.Errorf("got %v, want %q", err, want)
}

func TestCancel(t *testing.T) {
	h := newHost(t, Config{})
	in := instance(t, guest(t, h, "faults"), Job{Function: "loop"})
	ctx, cancel := context.WithCancel(t.Context())
	source := records("a")
	go cancel()
	_, err := in.Map(ctx, 17, source, &pairs{})
	if api.CodeOf(err) != api.CodeCanceled || !strings.Contains(err.Error(), "the job was canceled") {
		t.Errorf("got %v", err)
	}
	if !in.Broken() {
		t.Error("the instance is not broken")
	}
}

// A context that ends after a call has no effect on the instance: the next bucket has its own.
func TestContextPerBucket(t *testing.T) {
	h := newHost(t, Config{})
	in := instance(t, guest(t, h, "faults"), Job{Function: "echo"})
	for range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := in.Map(ctx, 0, records("a"), &pairs{})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestStackAndStderr(t *testing.T) {
	h := newHost(t, Config{})
	m := guest(t, h, "faults")
	in := instance(t, m, Job{Function: "exit_2"})
	_, err := in.Map(t.Context(), 0, records("a"), &pairs{})
	if e := api.AsError(err); e.Details["stderr"] != "panic: out of cheese\n\ngoroutine 1 [running]:\n" {
		t.Errorf("details = %q", e.Details)
	}
	in = instance(t, m, Job{Function: "fail"})
	_, err = in.Map(t.Context(), 0, records("a"), &pairs{})
	if e := api.AsError(err); !strings.Contains(e.Details["stack"], "(i32,i32)") {
		t.Errorf("details = %q", e.Details)
	}
}

// A stack has the file's own names and numbers, and is short also in deep recursion.
func TestStackText(t *testing.T) {
	m := guest(t, newHost(t, Config{}), "floods")
	for function, want := range map[string]string{
		"deep_loop": `^(loop\(i32,i32\) i32\n)?\$15\(i32\) i32 \(\d+ times\)\n\.\.\.$`,
		"fib":       `^\$12\(i64\) i64 \(\d+ times\)\n\.\.\.$`,
		"log":       `^pmr1\.log\(i32,i32,i32\)\nlog\(i32,i32\) i32$`,
	} {
		// The place in the guest must not depend on the time: the fourth look at the context finds its end.
		ctx, cancel := context.WithCancel(t.Context())
		looks := 0
		in := instance(t, m, Job{Function: function, Yield: func(context.Context) error {
			if looks++; looks == 3 {
				cancel()
			}
			return nil
		}})
		_, err := in.Map(ctx, 0, records("a"), &nowhere{})
		var g *GuestError
		if !errors.As(err, &g) || !regexp.MustCompile(want).MatchString(g.Stack) {
			t.Errorf("%s: %v, want a stack %q", function, err, want)
		}
	}
	e := &entry{imports: 2, exports: []string{"", "", "", "run"}}
	got := e.stackText("\n\tpinion.tick()\n\t.$4(i32) i32\n\t.$1()\n\t.named()\n\t.$9()\n\t.$9()\n\t.$9()\n\t... maybe followed by omitted frames\n")
	if want := "run(i32) i32\n$1()\nnamed()\n$8() (3 times)\n..."; got != want {
		t.Errorf("stack is %q, want %q", got, want)
	}
}

func TestInstancesAreFreed(t *testing.T) {
	h := newHost(t, Config{MaxModules: 1})
	m := guest(t, h, "faults")
	for i := range 200 {
		function := []string{"echo", "trap"}[i%2]
		in, err := m.Instance(t.Context(), Job{Function: function})
		if err != nil {
			t.Fatal(err)
		}
		_, err = in.Map(t.Context(), 0, records("a"), &pairs{})
		if (err != nil) != (function == "trap") {
			t.Fatal(err)
		}
		in.Close()
		in.Close() // is harmless
	}
	h.mu.Lock()
	refs := m.entry.refs
	h.mu.Unlock()
	if refs != 1 {
		t.Errorf("%d references are left besides the module's own", refs-1)
	}
}

func TestLastWords(t *testing.T) {
	for stderr, want := range map[string]string{
		"":                                     "",
		"one\ntwo\n\n":                         "two",
		"done\nreporter:counter:a,b,1\n":       "done",
		"x\npanic: no\n\ngoroutine 1:\nmain()": "panic: no",
		"thread 'main' panicked at 'no', src/main.rs:9:39\nnote: run with":   "thread 'main' panicked at 'no', src/main.rs:9:39",
		"thread 'main' panicked at src/main.rs:9:39:\nno luck\nnote: run it": "thread 'main' panicked at src/main.rs:9:39: no luck",
		"thread 'main' panicked at src/main.rs:9:39:":                        "thread 'main' panicked at src/main.rs:9:39:",
	} {
		if got := lastWords(stderr); got != want {
			t.Errorf("lastWords(%q) = %q, want %q", stderr, got, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"a\nb":             "a | b",
		"  a \r\n\n b\t c": "a | b  c",
		"\x00\x1b[31m":     "[31m",
		"\xff":             "\uFFFD",
		"abcdefghijk":      "abcdefghij...",
	} {
		if got := oneLine(in, 10); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", in, got, want)
		}
	}
}

// What a program said at its panic is told although its trace is longer than what is kept of stderr.
func TestPanicBeforeALongTrace(t *testing.T) {
	var stderr tail
	for _, piece := range []string{"starting\n", "fatal error: ", "stack overflow", "\n"} {
		stderr.write([]byte(piece))
	}
	for range 1000 {
		stderr.write([]byte("main.f(...)\n"))
	}
	if stderr.words != "fatal error: stack overflow" || len(stderr.b) != maxStderr {
		t.Errorf("words %q, %d bytes", stderr.words, len(stderr.b))
	}
	stderr.reset()
	stderr.write([]byte("panic: large" + strings.Repeat("\n", maxStderr)))
	if stderr.words != "panic: large" {
		t.Errorf("words %q", stderr.words)
	}
}
