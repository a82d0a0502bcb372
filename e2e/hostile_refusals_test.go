//go:build unix

package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
)

// refuseSoon is how long it may take to refuse a module.
const refuseSoon = 10 * time.Second

// refusal is a file that is no usable module, and what the message must say.
type refusal struct {
	name string
	file []byte
	says []string
}

// breach makes a refusal of a sound module that is changed in one way.
func breach(name string, change func(*guestBinary), says ...string) refusal {
	return refusal{name, soundGuest().with(change).bytes(), says}
}

// notModules are files of other kinds.
func notModules() []refusal {
	sound := soundGuest().bytes()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(sound) // to memory
	_ = w.Close()
	return []refusal{
		{"an empty file", nil, []string{"empty"}},
		{"text", []byte("# Read me\n\nThis is how to build it.\n"), []string{"text"}},
		{"WAT", []byte("(module\n  (memory 1))\n"), []string{"wat2wasm"}},
		{"gzip", packed.Bytes(), []string{"gzip"}},
		{"a component", []byte("\x00asm\x0d\x00\x01\x00"), []string{"component"}},
		{"a header", sound[:6], []string{"byte"}},
		{"half a module", sound[:len(sound)/2], []string{"byte"}},
		{"all but a byte", sound[:len(sound)-1], []string{"byte"}},
		{"more behind its end", append(slices.Clone(sound), 0xff), []string{"byte"}},
		{"sections in a wrong order", append(slices.Clone(sound), section(1, []byte{0})...), []string{"section"}},
		{"a section of an unknown kind", append(slices.Clone(sound), section(99, []byte{0})...), []string{"99"}},
		{"nothing but a header", sound[:8], []string{"memory", "pmr_alloc"}},
	}
}

// breaches are modules that do not keep the ABI.
func breaches() []refusal {
	constant := func(n byte) func(*guestBinary) {
		return func(g *guestBinary) {
			g.types = append(g.types, []byte{0x60, 0, 1, 0x7f})
			g.functions = append(g.functions, []byte{3})
			g.exports = append(g.exports, export("abi_version", kindFunction, 2))
			g.codes = append(g.codes, body(0x41, n, 0x0b))
		}
	}
	return []refusal{
		breach("no map", func(g *guestBinary) { g.exports[2] = export("reduce_all", kindFunction, 0) }, "(i32, i32) -> i32", "reduce_all"),
		breach("a map of f64", func(g *guestBinary) {
			g.types[batchOf] = []byte{0x60, 2, 0x7f, 0x7f, 1, 0x7c}
			g.codes[1] = body(0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0x0b)
		}, "map", "(i32, i32) -> f64", "(i32, i32) -> i32"),
		breach("memory kept to itself", func(g *guestBinary) { g.exports = g.exports[1:] }, "memory"),
		breach("no memory", func(g *guestBinary) { g.exports, g.memories = g.exports[1:], nil }, "memory"),
		breach("no pmr_alloc", func(g *guestBinary) { g.exports = slices.Delete(g.exports, 1, 2) }, "pmr_alloc", "(i32) -> i32"),
		breach("pmr_alloc of no result", func(g *guestBinary) {
			g.functions[0], g.codes[0] = []byte{nullary}, body(0x0b)
		}, "pmr_alloc", "(i32) -> i32"),
		breach("all of it", func(g *guestBinary) { g.exports = nil }, "memory", "pmr_alloc", "(i32, i32) -> i32"),
		breach("memory of the host", func(g *guestBinary) {
			g.memories, g.imports = nil, [][]byte{imported("env", "memory", kindMemory, 0, 8)}
		}, "env.memory"),
		breach("a function nobody has", func(g *guestBinary) {
			g.imports = [][]byte{imported("env", "launch_missiles", kindFunction, nullary)}
		}, "env.launch_missiles"),
		breach("emit of another type", func(g *guestBinary) {
			g.imports = [][]byte{imported("pmr1", "emit", kindFunction, nullary)}
		}, "pmr1.emit", "(i32, i32)"),
		breach("another version's functions", func(g *guestBinary) {
			g.imports = [][]byte{imported("pmr2", "emit", kindFunction, nullary)}
		}, "pmr2.emit", "pmr1"),
		breach("the host's own import", func(g *guestBinary) {
			g.imports = [][]byte{imported("pinion", "tick", kindFunction, nullary)}
		}, "pinion"),
		breach("the host's own export", func(g *guestBinary) {
			g.globals = [][]byte{{0x7e, 1, 0x42, 0, 0x0b}} // mutable i64
			g.exports = append(g.exports, export("pinion.fuel", kindGlobal, 0))
		}, "pinion.fuel"),
		breach("version 0", constant(0), "abi_version", "0", "1 to 1"),
		breach("version 42", constant(42), "abi_version", "42", "1 to 1"),
		breach("elements outside of their table", func(g *guestBinary) {
			g.tables, g.elements = [][]byte{{0x70, 0, 1}}, [][]byte{{0, 0x41, 5, 0x0b, 1, 0}}
		}, "element"),
		breach("data outside of the memory", func(g *guestBinary) {
			g.data = [][]byte{{0, 0x41, 0x7f, 0x0b, 1, 'x'}} // at -1
		}, "data"),
		breach("an export twice", func(g *guestBinary) { g.exports = append(g.exports, export("map", kindFunction, 1)) }, "map"),
		breach("a start function that takes numbers", func(g *guestBinary) { g.start = []byte{1} }, "start"),
		breach("a function that is none", func(g *guestBinary) { g.codes[1] = body(0x42, 0, 0x0b) }, ""), // an i64 as i32
		breach("a call of nothing", func(g *guestBinary) { g.codes[1] = body(0x10, 77, 0x41, 0, 0x0b) }, "77"),
		breach("5,000 names", func(g *guestBinary) {
			g.exports = nil
			for i := range 5000 {
				g.exports = append(g.exports, export(fmt.Sprintf("%s%d", strings.Repeat("a very long name ", 10), i), kindFunction, 0))
			}
		}, "memory", "more"),
	}
}

// features are modules that use what is off.
func features() []refusal {
	code := func(instructions ...byte) func(*guestBinary) {
		return func(g *guestBinary) { g.codes[1] = body(append(instructions, 0x41, 0, 0x0b)...) }
	}
	return []refusal{
		breach("shared memory", func(g *guestBinary) { g.memories[0] = []byte{3, 8, 8} }, "threads"),
		breach("waiting for another thread", code(0x41, 0, 0x41, 0, 0x42, 0x7f, 0xfe, 0x01, 2, 0, 0x1a), "threads"),
		breach("64-bit memory", func(g *guestBinary) { g.memories[0] = []byte{4, 8} }, "memory64"),
		breach("two memories", func(g *guestBinary) { g.memories = append(g.memories, []byte{0, 1}) }, "multi-memory"),
		breach("a tag", func(g *guestBinary) { g.tags = [][]byte{{0, nullary}} }, "exception"),
		breach("try", code(0x06, 0x40, 0x0b), "exception"),
		breach("a tail call", code(0x12, 0), "tail call"),
		breach("a struct", func(g *guestBinary) { g.types = append(g.types, []byte{0x5f, 0}) }, "GC"),
		breach("relaxed vectors", code(0xfd, 0x80, 0x02), "relaxed"),
	}
}

// bombs are small files that ask for much.
func bombs() []refusal {
	most := []byte{0xff, 0xff, 0xff, 0xff, 0x0f} // 2^32-1
	code := func(locals []byte, instructions []byte) func(*guestBinary) {
		return func(g *guestBinary) { g.codes[1] = bodyOf(locals, instructions...) }
	}
	ifs := slices.Concat(bytes.Repeat([]byte{0x41, 0, 0x04, 0x40}, 20_000), bytes.Repeat([]byte{0x0b}, 20_000), []byte{0x41, 0, 0x0b})
	targets := slices.Concat([]byte{0x41, 0, 0x0e}, uleb(200_000), make([]byte, 200_001), []byte{0x0b})
	sound := soundGuest().bytes()
	return []refusal{
		breach("2^32-1 locals", code(slices.Concat([]byte{1}, most, []byte{0x7e}), []byte{0x41, 0, 0x0b}), "locals"),
		breach("2^32-1 locals in small groups", code(slices.Concat([]byte{2}, most, []byte{0x7e}, most, []byte{0x7f}), []byte{0x41, 0, 0x0b}), "locals"),
		breach("200,000 targets", code([]byte{0}, targets), "br_table"),
		breach("20,000 ifs and 1,000 locals", code(slices.Concat([]byte{1}, uleb(1000), []byte{0x7e}), ifs), "blocks"),
		breach("a memory of 4 GiB", func(g *guestBinary) { g.memories[0] = slices.Concat([]byte{0}, uleb(65_536)) }, "65536", "1024"),
		breach("a table of 2^32-1", func(g *guestBinary) { g.tables = [][]byte{slices.Concat([]byte{0x70, 0}, most)} }, "table"),
		{"2^32-1 functions", append(slices.Clone(sound[:8]), section(3, most)...), []string{"function"}},
		{"2^32-1 types", append(slices.Clone(sound[:8]), section(1, most)...), []string{"type"}},
		{"a name of 4 GiB", append(slices.Clone(sound[:8]), section(7, append([]byte{1}, most...))...), []string{"export"}},
		{"a section of 4 GiB", slices.Concat(sound[:8], []byte{10}, most), []string{"byte"}},
	}
}

// heavyweights are modules near the limits, each of which may be refused or run.
func heavyweights() []refusal {
	code := func(locals []byte, instructions []byte) func(*guestBinary) {
		return func(g *guestBinary) { g.codes[1] = bodyOf(locals, instructions...) }
	}
	nested := func(n int, open ...byte) []byte {
		return slices.Concat(bytes.Repeat(open, n), bytes.Repeat([]byte{0x0b}, n), []byte{0x41, 0, 0x0b})
	}
	return []refusal{
		breach("9,999 blocks", code([]byte{0}, nested(9_999, 0x02, 0x40))),
		breach("9,000 ifs and 1,000 locals", code(slices.Concat([]byte{1}, uleb(1000), []byte{0x7e}), nested(9_000, 0x41, 0, 0x04, 0x40))),
		breach("49,000 locals", code(slices.Concat([]byte{1}, uleb(49_000), []byte{0x7e}), []byte{0x41, 0, 0x0b})),
	}
}

// wantBounded demands that a file is refused, or runs, and neither takes long.
func (s *siege) wantBounded(i int, r refusal) {
	s.t.Helper()
	began := time.Now()
	name := fmt.Sprintf("heavy-%d", i)
	_, err := s.client.AddModule(s.t.Context(), name, "", "", r.file)
	if err == nil {
		_, err = s.run(s.t.Context(), pinion.Job{Module: name, Reduce: "sum", Timeout: answerSoon})
	}
	if err != nil && api.CodeOf(err) != api.CodeBadModule {
		s.t.Errorf("%s: %v", r.name, err)
	}
	if took := time.Since(began); took > refuseSoon+answerSoon {
		s.t.Errorf("%s: it took %s", r.name, took)
	}
}

// wantRefused demands that a file is refused by the catalogue and by a job that names its digest.
func (s *siege) wantRefused(i int, r refusal) {
	s.t.Helper()
	check := func(where string, began time.Time, err error) {
		s.t.Helper()
		if took := time.Since(began); took > refuseSoon {
			s.t.Errorf("%s, %s: it took %s", r.name, where, took)
		}
		e := api.AsError(err)
		if err == nil || e.Code != api.CodeBadModule {
			s.t.Errorf("%s, %s: %v, want BAD_MODULE", r.name, where, err)
			return
		}
		if text := e.Error(); len(text) > 3000 {
			s.t.Errorf("%s, %s: the message has %d bytes: %.300s", r.name, where, len(text), text)
		}
		for _, part := range r.says {
			if !strings.Contains(e.Error(), part) {
				s.t.Errorf("%s, %s: the message does not say %q: %s", r.name, where, part, e)
			}
		}
	}
	began := time.Now()
	name := fmt.Sprintf("refused-%d", i)
	_, err := s.client.AddModule(s.t.Context(), name, "", "", r.file)
	check("added", began, err)

	digest, err := s.client.UploadModule(s.t.Context(), r.file)
	if err != nil {
		s.t.Errorf("%s: upload: %v", r.name, err)
		return
	}
	began = time.Now()
	_, err = s.client.Run(s.t.Context(), pinion.Job{Module: digest, Reduce: "sum", Timeout: answerSoon})
	check("run by its digest", began, err)
}

// Files that are no usable modules are refused, by name of what is wrong and before anything of them runs.
func TestHostileModules(t *testing.T) {
	heavy(t)
	s := startSiege(t)
	for i, r := range slices.Concat(notModules(), breaches(), features(), bombs()) {
		s.wantRefused(i, r)
	}
	for i, r := range heavyweights() {
		s.wantBounded(i, r)
	}
	s.wantCount()
	modules, err := s.client.Modules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		if strings.HasPrefix(m.Name, "refused-") {
			t.Errorf("%s is in the catalogue", m.Name)
		}
	}
	s.wantUnharmed()
}
