package wasm

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// module puts sections behind the header.
func module(sections ...[]byte) []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range sections {
		b = append(b, s...)
	}
	return b
}

func section(id byte, payload string) []byte {
	return append(binary.AppendUvarint([]byte{id}, uint64(len(payload))), payload...)
}

const (
	typeOne   = "\x01\x60\x02\x7f\x7f\x01\x7f"                                              // (i32, i32) -> i32
	typeTwo   = "\x02\x60\x02\x7f\x7f\x01\x7f\x60\x00\x01\x7f"                              // and () -> i32
	typeThree = "\x03\x60\x02\x7f\x7f\x01\x7f\x60\x00\x01\x7f" + "\x60\x00\x00"             // and ()
	codeOne   = "\x01\x04\x00\x41\x00\x0b"                                                  // i32.const 0
	codeVers  = "\x02\x04\x00\x41\x00\x0b\x07\x01\x02\x7e\x41\xe7\x07\x0b"                  // and 999, with two locals
	codeThree = "\x03\x04\x00\x41\x00\x0b\x07\x01\x02\x7e\x41\xe7\x07\x0b" + "\x02\x00\x0b" // and nothing
	exports   = "\x03\x03map\x00\x00\x06memory\x02\x00\x07version\x00\x01"                  //
	data      = "\x02\x00\x41\x80\x80\x04\x0b\x02hi\x01\x01x"                               // at 65536, and passive
	elements  = "\x02\x00\x41\x05\x0b\x01\x00\x05\x70\x01\xd2\x00\x0b"                      // at 5, and passive expressions
	names     = "\x04name\x00\x04\x03abc"                                                   //
	imports   = "\x02\x04pmr1\x04emit\x00\x00\x03env\x01t\x01\x70\x01\x01\x02"              // a function and a table
	tables    = "\x02\x70\x00\x07\x6f\x01\x01\xff\xff\x03"                                  //
	memory    = "\x01\x01\x01\x10"                                                          // 1 to 16 pages
	big       = "\xff\xff\xff\xff\x0f"                                                      // 2^32-1
)

func TestRead(t *testing.T) {
	file := module(section(1, typeThree), section(2, imports), section(3, "\x03\x00\x01\x02"), section(4, tables), section(5, memory),
		section(7, "\x03\x03map\x00\x01\x06memory\x02\x00\x07version\x00\x02"), section(8, "\x03"), section(9, elements),
		section(12, "\x02"), section(10, codeThree), section(11, data), section(0, names))
	m, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	batch, number := FuncType{Params: []ValType{I32, I32}, Results: []ValType{I32}}, FuncType{Results: []ValType{I32}}
	checks := map[string][2]any{
		"name":     {m.Name, "abc"},
		"customs":  {m.Customs, []string{"name"}},
		"types":    {m.Types, []FuncType{batch, number, {}}},
		"funcs":    {m.Funcs, []uint32{0, 0, 1, 2}},
		"memories": {m.Memories, []Range{{Min: 1, Max: 16, HasMax: true}}},
		"tables":   {m.Tables, []Range{{1, 2, true, FuncRef}, {7, 0, false, FuncRef}, {1, 65_535, true, ExternRef}}},
		"imports":  {m.Imports, []Import{{Module: "pmr1", Name: "emit", Func: batch}, {Module: "env", Name: "t", Kind: Table, Range: Range{1, 2, true, FuncRef}}}},
		"exports":  {m.Exports, []Export{{"map", Func, 1, batch}, {"memory", Memory, 0, FuncType{}}, {"version", Func, 2, number}}},
		"start":    {m.Start, uint32(3)},
		"elements": {m.Elements, []Segment{{Offset: 5, Len: 1, Active: true, Known: true, Type: FuncRef}, {Len: 1, Type: FuncRef}}},
		"data":     {m.Data, []Segment{{Offset: 65_536, Len: 2, Active: true, Known: true}, {Len: 1}}},
		"sections": {len(m.Sections), 12},
		"locals":   {m.Bodies[1].Locals, uint64(2)},
	}
	for what, c := range checks {
		if !reflect.DeepEqual(c[0], c[1]) {
			t.Errorf("%s: got %v, want %v", what, c[0], c[1])
		}
	}
	if v, ok := m.ConstResult("version"); v != 999 || !ok {
		t.Errorf("ConstResult = %d, %v", v, ok)
	}
	for _, name := range []string{"map", "memory", "none"} {
		if v, ok := m.ConstResult(name); ok {
			t.Errorf("ConstResult of %s = %d", name, v)
		}
	}
	if s := batch.String() + " " + number.String() + " " + (FuncType{Results: []ValType{I64, F64}}).String(); s != "(i32, i32) -> i32 () -> i32 () -> (i64, f64)" {
		t.Errorf("types are written %s", s)
	}
}

// Every prefix of a module is refused, but those that end with a section and miss nothing.
func TestTruncated(t *testing.T) {
	file := module(section(1, typeOne), section(3, "\x01\x00"), section(10, codeOne), section(0, names))
	whole := map[int]bool{8: true, 8 + 2 + len(typeOne): true, len(file) - 2 - len(names): true, len(file): true}
	for n := range len(file) + 1 {
		_, err := Read(file[:n])
		if whole[n] != (err == nil) {
			t.Errorf("%d of %d bytes: %v", n, len(file), err)
		}
		if err != nil && n > 0 && !strings.Contains(err.Error(), "truncated here") && !strings.Contains(err.Error(), "have code") {
			t.Errorf("%d of %d bytes: %v", n, len(file), err)
		}
	}
}

func TestRefusals(t *testing.T) {
	one := func(sections ...[]byte) []byte {
		return module(append([][]byte{section(1, typeOne)}, sections...)...)
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":                                  {nil, "the file is empty"},
		"readme":                                 {[]byte("# Counts words\n\nand more"), `this is a text file that begins with "# Counts words"`},
		"utf-8 text":                             {[]byte("\xef\xbb\xbfgrüße"), `begins with "grüße"`},
		"wat":                                    {[]byte("  ;; text\n(module)"), "assemble it with wat2wasm"},
		"wat module":                             {[]byte("(module)"), "assemble it with wat2wasm"},
		"gzip":                                   {[]byte("\x1f\x8b\x08rest"), "gzip file"},
		"zstd":                                   {[]byte("\x28\xb5\x2f\xfdrest"), "zstd file"},
		"elf":                                    {[]byte("\x7fELF\x02"), "build it for wasm"},
		"bytes":                                  {[]byte("\x01\x02\x03\x04\x05"), "begins with bytes 01 02 03 04"},
		"component":                              {[]byte("\x00asm\x0d\x00\x01\x00"), "a core module is needed"},
		"version":                                {[]byte("\x00asm\x02\x00\x00\x00"), "binary version 2"},
		"section id":                             {module(section(14, "")), "no section with id 14"},
		"order":                                  {module(section(3, "\x00"), section(1, "\x00")), "type section is doubled or out of order"},
		"doubled":                                {one(section(1, typeOne)), "type section is doubled or out of order"},
		"section too long":                       {module([]byte{1, 100, 0}), "the type section that begins at byte 8 needs 99 more bytes"},
		"section too big":                        {module([]byte("\x01" + big)), "the type section that begins at byte 8 needs 4294967295 more bytes"},
		"rest":                                   {module(section(1, "\x00\x00")), "1 bytes follow the section's contents"},
		"count":                                  {module(section(1, big)), "4294967295 types are declared, but only 0 bytes are left"},
		"leb too long":                           {module([]byte("\x01\x80\x80\x80\x80\x80\x00")), "longer than 5 bytes"},
		"leb over 32 bits":                       {module([]byte("\x01\xff\xff\xff\xff\x1f")), "does not fit 32 bits"},
		"gc":                                     {module(section(1, "\x01\x5f\x00")), "GC feature"},
		"rec":                                    {module(section(1, "\x01\x4e\x00")), "GC feature"},
		"value type":                             {module(section(1, "\x01\x60\x01\x01\x00")), "no value type 0x01"},
		"typed reference":                        {module(section(1, "\x01\x60\x01\x64\x00")), "typed function references feature"},
		"exnref":                                 {module(section(1, "\x01\x60\x01\x69\x00")), "exception handling feature"},
		"tag section":                            {module(section(13, "\x01\x00\x00")), "exception handling feature"},
		"tag import":                             {one(section(2, "\x01\x01m\x01n\x04\x00\x00")), "exception handling feature"},
		"shared memory":                          {module(section(5, "\x01\x03\x01\x01")), "threads feature"},
		"memory64":                               {module(section(5, "\x01\x04\x01")), "memory64 feature"},
		"two memories":                           {module(section(5, "\x02\x00\x01\x00\x01")), "multi-memory feature"},
		"big memory":                             {module(section(5, "\x01\x00\x81\x80\x04")), "at most 65536 pages"},
		"limits":                                 {module(section(5, "\x01\x01\x02\x01")), "at least 2 and at most 1"},
		"import kind":                            {one(section(2, "\x01\x01m\x01n\x05")), "no import kind 5"},
		"import type":                            {one(section(2, "\x01\x01m\x01n\x00\x01")), "type 1 is used, but there are 1"},
		"name not utf-8":                         {one(section(2, "\x01\x01\xff\x01n\x00\x00")), "is not UTF-8"},
		"name too long":                          {one(section(2, "\x01"+big), section(3, "\x00")), "does not fit into its section"},
		"function type":                          {one(section(3, "\x01\x07")), "type 7 is used"},
		"no code":                                {one(section(3, "\x01\x00")), "1 functions are declared, but 0 have code"},
		"code without":                           {one(section(10, codeOne)), "0 functions are declared, but 1 have code"},
		"body too long":                          {one(section(3, "\x01\x00"), section(10, "\x01\x09\x00\x0b"), section(11, "\x00")), "a function does not fit into its section"},
		"body without end":                       {one(section(3, "\x01\x00"), section(10, "\x01\x02\x00\x01")), "does not end with an end"},
		"locals":                                 {one(section(3, "\x01\x00"), section(10, "\x01\x08\x01"+big+"\x7f\x0b")), "declares 4294967295 locals"},
		"export index":                           {one(section(7, "\x01\x01f\x00\x00")), `export "f" is func number 0 of 0`},
		"export twice":                           {module(section(5, memory), section(7, "\x02\x01m\x02\x00\x01m\x02\x00")), `export "m" is there twice`},
		"start":                                  {one(section(8, "\x00")), "the start function 0 is used, but there are 0"},
		"table of numbers":                       {module(section(4, "\x01\x7f\x00\x01")), "a table holds funcref or externref, not i32"},
		"element table":                          {module(section(9, "\x01\x00\x41\x00\x0b\x00")), "table 0 is used, but there are 0"},
		"element count":                          {module(section(4, "\x01\x70\x00\x01"), section(9, "\x01\x00\x41\x00\x0b"+big)), "4294967295 elements are declared"},
		"element form":                           {module(section(9, "\x01\x08")), "no element segment of form 8"},
		"data memory":                            {module(section(11, "\x01\x00\x41\x00\x0b\x00")), "memory 0 is used, but there are 0"},
		"data size":                              {module(section(5, memory), section(11, "\x01\x00\x41\x00\x0b"+big)), "truncated here, in the middle of a data segment"},
		"data count":                             {module(section(12, "\x02")), "2 data segments are declared, but there are 0"},
		"extended constant":                      {module(section(5, memory), section(11, "\x01\x00\x41\x00\x41\x00\x6a\x0b\x00")), "extended constants feature"},
		"other constant":                         {module(section(5, memory), section(11, "\x01\x00\x00\x0b\x00")), "cannot hold instruction 0x00"},
		"constant of a global that is no import": {module(section(6, "\x02\x7f\x00\x41\x00\x0b\x7f\x00\x23\x00\x0b")), "which is not imported, belongs to the GC feature"},
		"constant of a variable":                 {module(section(2, "\x01\x01m\x01g\x03\x7f\x01"), section(6, "\x01\x7f\x00\x23\x00\x0b")), "reads global 0, which can change"},
		"constant of no global":                  {module(section(6, "\x01\x7f\x00\x23\x00\x0b")), "global 0 is used, but there are 0"},
		"constant of no function":                {module(section(6, "\x01\x70\x00\xd2\x00\x0b")), "function 0 is used, but there are 0"},
		"type of a constant":                     {module(section(5, memory), section(11, "\x01\x00\x42\x00\x0b\x00")), "a constant of type i64 where i32 is needed"},
		"mutability":                             {module(section(6, "\x01\x7f\x04\x41\x00\x0b")), "mutability cannot be 0x04"},
		"shared global":                          {module(section(6, "\x01\x7f\x02\x41\x00\x0b")), "threads feature"},
		"type of the start":                      {one(section(3, "\x01\x00"), section(8, "\x00"), section(10, codeOne)), "the start function is (i32, i32) -> i32"},
		"element type":                           {module(section(4, "\x01\x6f\x00\x01"), section(9, "\x01\x00\x41\x00\x0b\x00")), "elements of type funcref for table 0 of externref"},
		"element function":                       {module(section(4, "\x01\x70\x00\x01"), section(9, "\x01\x00\x41\x00\x0b\x01\x00")), "function 0 is used, but there are 0"},
		"constant of 33 bits":                    {module(section(5, memory), section(11, "\x01\x00\x41\xff\xff\xff\xff\x1f\x0b\x00")), "does not fit 32 bits"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Read(c.file)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Read = %v, %v; want %q", m, err, c.want)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	file := module(section(1, typeTwo), section(3, "\x02\x00\x01"), section(5, memory), section(7, exports), section(10, codeVers), section(11, data))
	for name, set := range map[string]func(*Bounds){
		"file":       func(b *Bounds) { b.Size = len(file) - 1 },
		"types":      func(b *Bounds) { b.Types = 1 },
		"functions":  func(b *Bounds) { b.Functions = 1 },
		"exports":    func(b *Bounds) { b.Exports = 2 },
		"data":       func(b *Bounds) { b.Segments = 1 },
		"parameters": func(b *Bounds) { b.Arity = 1 },
		"locals":     func(b *Bounds) { b.Locals = 1 },
	} {
		b := DefaultBounds()
		set(&b)
		if _, err := ReadWithin(file, b); err == nil || !strings.Contains(err.Error(), "limit") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadWithin(file, DefaultBounds()); err != nil {
		t.Error(err)
	}
}

func TestSigned(t *testing.T) {
	for _, c := range []struct {
		bytes string
		bits  int
		want  int64
		ok    bool
	}{
		{"\x00", 32, 0, true},
		{"\x7f", 32, -1, true},
		{"\x40", 32, -64, true},
		{"\xc0\x00", 32, 64, true},
		{"\x80\x80\x80\x80\x78", 32, -1 << 31, true},
		{"\xff\xff\xff\xff\x07", 32, 1<<31 - 1, true},
		{"\xff\xff\xff\xff\x0f", 32, 0, false},
		{"\x80\x80\x80\x80\x80\x00", 32, 0, false},
		{"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7f", 64, -1 << 63, true},
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", 64, 1<<63 - 1, true},
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 64, 0, false},
		{"\x80", 64, 0, false},
	} {
		r := cursor{b: []byte(c.bytes), end: len(c.bytes)}
		v := r.signed(c.bits, "a number")
		if (r.err == nil) != c.ok || c.ok && v != c.want {
			t.Errorf("% x as %d bits: %d, %v", c.bytes, c.bits, v, r.err)
		}
	}
}

// Whatever is in a file, reading it and metering what could be read does not fail, and leaves a module.
func FuzzMeter(f *testing.F) {
	f.Add(module(section(1, typeTwo), section(2, imports), section(3, "\x02\x00\x01"), section(4, tables), section(5, memory),
		section(9, elements), section(12, "\x02"), section(10, codeVers), section(11, data), section(0, names)))
	f.Add(sound("\x02\x40\x03\x7f\x20\x00\x0d\x01\x41\x00\x0e\x01\x00\x01\x0b\x1a\x0b\xfc\x0b\x00"))
	files, err := filepath.Glob("../builtin/*.wasm")
	if err != nil || len(files) == 0 {
		f.Fatalf("no built-in modules: %v", err)
	}
	for _, name := range files {
		file, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	// What Meter adds may exceed a bound that the file just keeps.
	wide := Bounds{
		Size: 1 << 30, Sections: 2_000, Types: 1 << 20, Imports: 1 << 20, Functions: 1 << 20, Exports: 1 << 20, Segments: 1 << 20,
		Elements: 1 << 20, Arity: 1_000, Tables: 16, Globals: 1 << 20, Name: 20_000, Names: 8 << 20, Locals: 60_000,
		AllLocals: 10_000_000, Body: 1 << 30, Nesting: 30_000, Targets: 1 << 20, AllTargets: 1 << 21,
		Weight: math.MaxInt, AllWeight: math.MaxInt,
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		m, err := Read(file)
		if err != nil {
			var faults Faults
			if !errors.As(err, &faults) || len(faults) == 0 {
				t.Fatalf("an error without faults: %v", err)
			}
			return
		}
		for _, e := range m.Exports {
			m.ConstResult(e.Name)
		}
		out, err := Meter(m, 10)
		if err != nil {
			if m.reserved() == nil {
				t.Fatal(err)
			}
			return
		}
		after, err := ReadWithin(out, wide)
		if err != nil {
			t.Fatalf("a module that was read is not after it was metered: %v", err)
		}
		if len(after.Tables) != len(m.Tables) || len(after.Bodies) != len(m.Bodies) || len(after.Exports) != len(m.Exports)+1 {
			t.Fatal("metering changed something else")
		}
	})
}
