package plugins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/plugins/wasm"
)

func file(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestInspect(t *testing.T) {
	b := file(t, "good")
	m, err := Inspect(b, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	want := &Manifest{
		Digest: Digest(b), Size: len(b), Kind: Reactor, Functions: []string{"map", "reduce"},
		Imports: []string{"env.abort", "pmr1.count", "pmr1.emit", "wasi_snapshot_preview1.fd_write"},
		HasInit: true, HasEnd: true, Memory: wasm.Range{Min: 2, Max: 16, HasMax: true},
	}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("got %+v, want %+v", m, want)
	}
}

func TestInspectCommand(t *testing.T) {
	m, err := Inspect(file(t, "command"), DefaultLimits())
	if err != nil || m.Kind != Command || !reflect.DeepEqual(m.Functions, []string{"map"}) {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestInspectFaults(t *testing.T) {
	for name, want := range map[string][]string{
		"bad": {
			`it imports its memory as "env.memory"; it must have a memory of its own and export it as "memory"`,
			`it imports "pmr1.emit" as (i32) -> i32; it is (i32, i32)`,
			`it imports "pmr1.emit_msgpack" (i32, i32), which the host does not have`,
			`it imports "pmr2.emit" (i32, i32), which the host does not have (the host has version 1 of the guest ABI, pmr1)`,
			`it imports "env.seed" () -> f64, which the host does not have (AssemblyScript: build with --use seed= or without it)`,
			`it imports the global "env.limit", which the host does not have`,
			`it imports "wasi_snapshot_preview1.fork" () -> i32, which the host does not have`,
			"its data segment 0 lies at 65535 to 65537, but there are only 65536",
			"its table 0 begins with 2000000 elements; the limit is 100000",
			"its element segment 0 lies at 1 to 2, but there are only 1",
			"", // five more
		},
		"bare": {
			`it has no memory; it needs one, exported as "memory"`,
			"it does not export pmr_alloc (i32) -> i32, which gives the host a buffer to write to",
			`it exports no function of the shape (i32, i32) -> i32, as map must be; it exports "main\n\x1b[31m" () -> i32, "g" (global)`,
		},
		"both": {"it exports both _start and pmr_alloc, so it may be a command or a reactor"},
		"emitter": {
			`it imports "wasi_snapshot_preview1.fd_write" as (i32, i32, i64, i32) -> i32; it is (i32, i32, i32, i32) -> i32`,
			"its export _start is () -> i32; it must be ()",
			`it imports "pmr1.emit", but a command (it exports _start) emits what it writes to standard output`,
		},
		"hidden": {
			`it does not export its memory; export it as "memory"`,
			"its memory begins with 2000 pages of 64 KiB; the limit is 1024",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Inspect(file(t, name), DefaultLimits())
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.CodeBadModule {
				t.Fatalf("Inspect = %v", err)
			}
			message := "the module cannot be used: " + strings.Join(want, "; ")
			if want[len(want)-1] == "" {
				message += "and 5 more"
				want = want[:len(want)-1]
			}
			if e.Message != message {
				t.Errorf("message is\n%s\nwant\n%s", e.Message, message)
			}
			for i, w := range want {
				if got := e.Details[fmt.Sprintf("fault.%d", i+1)]; got != w {
					t.Errorf("fault %d is %q, want %q", i+1, got, w)
				}
			}
			if name == "both" && !strings.Contains(e.Hint, "build it as a reactor, without _start") {
				t.Errorf("hint is %q", e.Hint)
			}
		})
	}
}

// The faults that the test above cuts off are said, too.
func TestLaterFaults(t *testing.T) {
	m, err := wasm.Read(file(t, "bad"))
	if err != nil {
		t.Fatal(err)
	}
	in := &inspection{m: m, limits: DefaultLimits()}
	in.run()
	want := []string{
		"its export pmr_alloc is (i64) -> i32; it must be (i32) -> i32",
		"its export pmr_init is a global; it must be a function (i32, i32) -> i32",
		"its export pmr_end is (); it must be () -> i32",
		"its export map is (i32, i32) -> f64; it must be (i32, i32) -> i32",
		"its ABI_VERSION is 2; this engine supports 1 to 1",
	}
	if got := in.faults[10:]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A file with several faults that no module has tells all of them, each as a detail of its own.
func TestInspectUnreadable(t *testing.T) {
	b := []byte("\x00asm\x01\x00\x00\x00" + "\x01\x04\x01\x60\x00\x00" + "\x03\x03\x02\x00\x00" + "\x0a\x09\x02\x03\x00\x27\x0b\x03\x00\xfe\x0b")
	_, err := Inspect(b, DefaultLimits())
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeBadModule {
		t.Fatalf("Inspect = %v", err)
	}
	want := []string{
		"function 0, byte 24: there is no instruction 0x27",
		"function 1, byte 28: an instruction of the threads feature, which is off (prefix 0xfe)",
	}
	if e.Details["fault.1"] != want[0] || e.Details["fault.2"] != want[1] || e.Message != "the module cannot be used: "+strings.Join(want, "; ") {
		t.Errorf("%s; details %q", e.Message, e.Details)
	}
}

// The name of the global that metering adds is taken.
func TestInspectReserved(t *testing.T) {
	b := []byte("\x00asm\x01\x00\x00\x00" + "\x05\x03\x01\x00\x01" + "\x07\x0f\x01\x0b" + wasm.FuelExport + "\x02\x00")
	if _, err := Inspect(b, DefaultLimits()); err == nil || !strings.Contains(err.Error(), `it exports "pinion.fuel", a name that the host adds itself`) {
		t.Errorf("Inspect = %v", err)
	}
}

func TestInspectLimits(t *testing.T) {
	b := file(t, "good")
	for what, set := range map[string]func(*Limits){
		"the file has": func(l *Limits) { l.ModuleBytes = len(b) - 1 },
		"its memory":   func(l *Limits) { l.MemoryPages = 1 },
	} {
		limits := DefaultLimits()
		set(&limits)
		if _, err := Inspect(b, limits); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for name, b := range map[string][]byte{"empty": nil, "text": []byte("README")} {
		if _, err := Inspect(b, DefaultLimits()); api.CodeOf(err) != api.CodeBadModule || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNamesAreCut(t *testing.T) {
	if got := quote(strings.Repeat("é", 100)); len(got) > 2*maxName || !strings.HasSuffix(got, `..."`) {
		t.Errorf("quote = %s", got)
	}
}

func TestParseRef(t *testing.T) {
	digest := Digest([]byte("x"))
	for in, want := range map[string]Ref{
		"wordcount":             {Name: "wordcount"},
		"wordcount@1":           {Name: "wordcount", Version: "1"},
		"a-b_9@v1.2.3+x":        {Name: "a-b_9", Version: "v1.2.3+x"},
		digest:                  {Digest: digest},
		"sha256:" + digest:      {Digest: digest},
		strings.ToUpper(digest): {Digest: digest},
	} {
		got, err := ParseRef(in)
		if err != nil || got != want {
			t.Errorf("ParseRef(%q) = %+v, %v", in, got, err)
		}
		if back, err := ParseRef(got.String()); err != nil || back != got {
			t.Errorf("%v is read back as %v, %v", got, back, err)
		}
	}
	for _, in := range []string{
		"", "@1", "A", "-a", "a b", "a@", "a@-", "a@1@2", "ä", "a/b", strings.Repeat("a", 65), "a@" + strings.Repeat("1", 65),
		"sha256:abc", digest + "@1", "../a", "a\n",
	} {
		if got, err := ParseRef(in); api.CodeOf(err) != api.CodeBadRequest {
			t.Errorf("ParseRef(%q) = %+v, %v", in, got, err)
		}
	}
}

func TestNextVersion(t *testing.T) {
	for want, versions := range map[string][]string{
		"1": {}, "2": {"1"}, "11": {"9", "10", "2"}, "4": {"v9", "3", "1.5", "-7"},
	} {
		if got := NextVersion(versions); got != want {
			t.Errorf("NextVersion(%v) = %s, want %s", versions, got, want)
		}
	}
}
