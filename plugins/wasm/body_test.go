package wasm

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// sound is a module of (i32, i32) -> i32 with everything that code can refer to, a function of whose code is
// to be checked, and one behind it.
func sound(code string) []byte {
	body := "\x01\x01\x7f" + code + "\x0b"
	return module(section(1, typeOne), section(2, "\x01\x01m\x01f\x00\x00"), section(3, "\x02\x00\x00"), section(4, "\x02\x70\x00\x01\x6f\x00\x01"),
		section(5, memory), section(6, "\x02\x7f\x00\x41\x00\x0b\x7f\x01\x41\x00\x0b"), section(9, "\x01\x01\x00\x01\x00"), section(12, "\x01"),
		section(10, "\x02"+u(uint64(len(body)))+body+"\x02\x00\x0b"), section(11, "\x01\x01\x00"))
}

func TestInstructions(t *testing.T) {
	for name, code := range map[string]string{
		"control":        "\x02\x40\x03\x7f\x04\x00\x05\x0b\x0b\x0c\x00\x0d\x00\x0e\x02\x00\x00\x00\x0b\x0f\x00\x01",
		"calls":          "\x10\x00\x11\x00\x00\xd2\x02\xd0\x70\xd1",
		"values":         "\x1a\x1b\x1c\x01\x7f\x20\x02\x21\x02\x22\x02\x23\x00\x24\x01",
		"constants":      "\x41\x80\x80\x80\x80\x78\x42\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7f\x43\x00\x00\x00\x00\x44\x00\x00\x00\x00\x00\x00\x00\x00",
		"memory":         "\x28\x02\x00\x29\x03\xff\xff\xff\xff\x0f\x3e\x02\x00\x3f\x00\x40\x00",
		"arithmetic":     "\x45\x67\x8a\xa7\xbf\xc0\xc4",
		"saturating":     "\xfc\x00\xfc\x07",
		"bulk memory":    "\xfc\x08\x00\x00\xfc\x09\x00\xfc\x0a\x00\x00\xfc\x0b\x00",
		"tables":         "\x25\x01\x26\x00\xfc\x0c\x00\x01\xfc\x0d\x00\xfc\x0e\x00\x01\xfc\x0f\x00\xfc\x10\x01\xfc\x11\x01",
		"simd":           "\xfd\x00\x04\x00\xfd\x0b\x04\x00\xfd\x0c0123456789abcdef\xfd\x0e\xfd\x15\x0f\xfd\x1e\x01\xfd\xff\x01",
		"simd shuffle":   "\xfd\x0d\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x1f",
		"simd lanes":     "\xfd\x54\x00\x00\x0f\xfd\x57\x03\x00\x01\xfd\x5b\x03\x00\x01\xfd\x5c\x02\x00\xfd\x5d\x03\x00",
		"dead code":      "\x00\x6a\x0c\x00\x03\x40\x0b",
		"many blocks":    strings.Repeat("\x02\x40", 4_000) + strings.Repeat("\x0b", 4_000),
		"many loops":     strings.Repeat("\x03\x40", 300) + strings.Repeat("\x0b", 300),
		"large br_table": "\x0e" + u(60_000) + strings.Repeat("\x00", 60_001),
	} {
		if _, err := Read(sound(code)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInstructionFaults(t *testing.T) {
	for name, c := range map[string]struct{ code, want string }{
		"unknown":             {"\x27", "no instruction 0x27"},
		"unknown misc":        {"\xfc\x20", "no instruction 0xfc20"},
		"unknown vector":      {"\xfd\x9a\x01", "no instruction 0xfd9a"},
		"unknown long":        {"\xfc\x80\x02", "no instruction 0xfc 0x100"},
		"cut off":             {"\x43\x00", "a constant does not fit into its section"},
		"else":                {"\x05", "an else without an if"},
		"two elses":           {"\x04\x40\x05\x05\x0b", "an else without an if"},
		"no end":              {"\x02\x40", "does not end with an end"},
		"more behind the end": {"\x0b\x01", "2 bytes follow the end of it"},
		"block type":          {"\x02\x01\x0b", "type 1 is used, but there are 1"},
		"block type number":   {"\x02\x80\x7f\x0b", "a block of type"},
		"block value type":    {"\x02\x7a\x0b", "there is no value type 0x7a"},
		"label":               {"\x0c\x01", "a branch out of 1 blocks, but there are 0"},
		"label of a br_table": {"\x0e\x01\x00\x02", "a branch out of 2 blocks"},
		"function":            {"\x10\x03", "function 3 is used, but there are 3"},
		"ref.func":            {"\xd2\x03", "function 3 is used, but there are 3"},
		"type of a call":      {"\x11\x01\x00", "type 1 is used, but there are 1"},
		"table of a call":     {"\x11\x00\x02", "table 2 is used, but there are 2"},
		"local":               {"\x20\x03", "local 3 is used, but there are 3"},
		"global":              {"\x23\x02", "global 2 is used, but there are 2"},
		"constant global":     {"\x24\x00", "sets global 0, which cannot change"},
		"table":               {"\x25\x02", "table 2 is used, but there are 2"},
		"table.copy":          {"\xfc\x0e\x00\x02", "table 2 is used"},
		"table.init":          {"\xfc\x0c\x01\x00", "element segment 1 is used, but there are 1"},
		"elem.drop":           {"\xfc\x0d\x01", "element segment 1 is used"},
		"memory.init":         {"\xfc\x08\x01\x00", "data segment 1 is used, but there are 1"},
		"data.drop":           {"\xfc\x09\x01", "data segment 1 is used"},
		"alignment":           {"\x28\x03\x00", "an alignment of 2^3 for an access to 4 bytes"},
		"lane":                {"\xfd\x15\x10", "lane 16 of 16"},
		"lane of an access":   {"\xfd\x57\x03\x00\x02", "lane 2 of 2"},
		"shuffle":             {"\xfd\x0d\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x20", "a lane above 31"},
		"select":              {"\x1c\x02\x7f\x7f", "a select of 2 types"},
		"ref.null":            {"\xd0\x7f", "holds funcref or externref, not i32"},

		"threads":              {"\xfe\x10\x02\x00", "threads feature"},
		"gc":                   {"\xfb\x00\x00", "GC feature"},
		"ref.eq":               {"\xd3", "GC feature"},
		"legacy exceptions":    {"\x06\x40\x0b", "exception handling feature"},
		"exceptions":           {"\x1f\x40\x00\x0b", "exception handling feature"},
		"throw":                {"\x08\x00", "exception handling feature"},
		"tail call":            {"\x12\x00", "tail calls feature"},
		"indirect tail call":   {"\x13\x00\x00", "tail calls feature"},
		"call_ref":             {"\x14\x00", "typed function references feature"},
		"typed reference":      {"\x02\x64\x00\x0b", "typed function references feature"},
		"relaxed simd":         {"\xfd\x80\x02", "relaxed SIMD feature"},
		"second memory":        {"\x3f\x01", "multi-memory feature"},
		"load of a memory":     {"\x28\x42\x01\x00", "multi-memory feature"},
		"copy of a memory":     {"\xfc\x0a\x00\x01", "multi-memory feature"},
		"wide arithmetic":      {"\xfc\x13", "wide arithmetic feature"},
		"switching of stacks":  {"\xe0\x00", "stack switching feature"},
		"discarding of memory": {"\xfc\x12\x00", "memory control feature"},
	} {
		_, err := Read(sound(c.code))
		var faults Faults
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
			continue
		}
		if f := faults[0]; len(faults) != 1 || f.Function != "1" || f.Section != "code" || f.Offset < 60 {
			t.Errorf("%s: %+v", name, faults)
		}
	}
}

// Without what it needs, an instruction is refused, too.
func TestMissing(t *testing.T) {
	for code, want := range map[string]string{
		"\x28\x02\x00":     "memory 0 is used, but there are 0",
		"\x3f\x00":         "memory 0 is used",
		"\xfc\x0b\x00":     "memory 0 is used",
		"\xfc\x0a\x00\x00": "memory 0 is used",
		"\xfd\x00\x00\x00": "memory 0 is used",
		"\xfc\x09\x00":     "there is no data count section",
		"\x25\x00":         "table 0 is used",
	} {
		body := "\x00" + code + "\x0b"
		_, err := Read(module(section(1, typeOne), section(3, "\x01\x00"), section(10, "\x01"+u(uint64(len(body)))+body)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("% x: %v", code, err)
		}
	}
}

// All that is wrong is said at once: a bad function or section does not hide the next one's faults.
func TestFaults(t *testing.T) {
	bodies := "\x03" + "\x03\x00\x27\x0b" + "\x03\x00\xfe\x0b" + "\x04\x00\x20\x05\x0b"
	name := "\x01\x0c\x02\x00\x01a\x02\x06" + "\x1b[31m" + "x"
	file := module(section(1, typeOne), section(3, "\x03\x00\x00\x00"), section(5, "\x01\x04\x01"), section(6, "\x01\x7f\x00\x42\x00\x0b"),
		section(7, "\x03\x01f\x00\x09\x01f\x00\x00\x01t\x04\x00"), section(13, "\x00"), section(9, "\x01\x00\x41\x00\x0b\x00"),
		section(10, bodies), section(0, "\x04name"+name))
	_, err := Read(file)
	want := []string{
		"memory section, byte 26: a 64-bit memory belongs to the memory64 feature, which is off",
		"global section, byte 33: a constant of type i64 where i32 is needed",
		`export section, byte 39: export "f" is func number 9 of 3`,
		`export section, byte 43: export "f" is there twice`,
		"export section, byte 47: exports a tag: that belongs to the exception handling feature, which is off",
		"byte 51: the tag section is doubled or out of order",
		"element section, byte 57: table 0 is used, but there are 0",
		`function 0 "a", byte 67: there is no instruction 0x27`,
		"function 1, byte 71: an instruction of the threads feature, which is off (prefix 0xfe)",
		`function 2 "\x1b[31mx", byte 75: local 5 is used, but there are 2`,
	}
	if err == nil || err.Error() != strings.Join(want, "; ") {
		t.Errorf("Read = %v\nwant %s", err, strings.Join(want, "; "))
	}
	many := module(section(1, typeOne), section(3, u(200)+strings.Repeat("\x00", 200)), section(10, u(200)+strings.Repeat("\x03\x00\x27\x0b", 200)))
	_, err = Read(many)
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 200 || !strings.HasSuffix(err.Error(), "; and 190 more") || len(err.Error()) > 1_000 {
		t.Errorf("200 faults: %v", err)
	}
	if _, err = Read(module(section(1, typeOne), section(3, "\x01\x00"), section(7, "\x02\x80\x01"+strings.Repeat("é", 64)+"\x00\x00\x80\x01"+strings.Repeat("é", 64)+"\x00\x00"), section(10, codeOne))); err == nil || len(err.Error()) > 200 || !strings.Contains(err.Error(), `é..."`) {
		t.Errorf("a long name: %v", err)
	}
}

// What a section that cannot be read would have declared is not missed.
func TestBrokenSection(t *testing.T) {
	_, err := Read(module(section(1, "\x02\x60\x00\x00\x5f"), section(3, "\x01\x01"), section(10, "\x01\x05\x00\x02\x01\x0b\x0b")))
	if err == nil || strings.Count(err.Error(), ";") > 0 || !strings.Contains(err.Error(), "GC feature") {
		t.Errorf("Read = %v", err)
	}
}

// Files of a few bytes that would keep a compiler busy, or without memory, are refused at once.
func TestBombs(t *testing.T) {
	code := func(locals, code string) []byte {
		body := locals + code + "\x0b"
		return module(section(1, typeOne), section(3, "\x01\x00"), section(5, memory), section(10, "\x01"+u(uint64(len(body)))+body))
	}
	thousand := "\x01\xe8\x07\x7f"
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"2^32-1 locals":                      {code("\x01"+big+"\x7f", ""), "declares 4294967295 locals or more; the limit is 50000"},
		"locals in many groups":              {code("\x03"+strings.Repeat("\xff\xff\x01\x7f", 3), ""), "locals or more; the limit is 50000"},
		"locals of many functions":           {manyLocals(), "all functions together declare more than 5000000 locals"},
		"200,000 targets":                    {code("\x00", "\x0e"+u(200_000)+strings.Repeat("\x00", 200_001)), "200000 targets of a br_table; the limit is 65536"},
		"targets of many br_tables":          {code("\x00", strings.Repeat("\x0e"+u(60_000)+strings.Repeat("\x00", 60_001), 20)), "all br_table together have more than 1000000 targets"},
		"20,000 ifs in one another":          {code(thousand, strings.Repeat("\x20\x00\x04\x40", 20_000)+strings.Repeat("\x0b", 20_000)), "to a depth of more than 5000"},
		"10,000 blocks in one another":       {code("\x00", strings.Repeat("\x02\x40", 10_000)+strings.Repeat("\x0b", 10_000)), "to a depth of more than 5000"},
		"2,000 loops in one another":         {code("\x00", strings.Repeat("\x03\x40", 2_000)+strings.Repeat("\x0b", 2_000)), "to a depth of more than 5000"},
		"20,000 ifs one behind the other":    {code("\x00", strings.Repeat("\x20\x00\x04\x40\x0b", 20_000)), "would take too long to compile"},
		"6,000 ifs with 1,000 locals":        {code(thousand, strings.Repeat("\x20\x00\x04\x40\x0b", 6_000)), "would take too long to compile"},
		"10,000 times memory.fill":           {code("\x00", strings.Repeat("\x20\x00\x20\x00\x20\x00\xfc\x0b\x00", 10_000)), "would take too long to compile"},
		"10,000 times memory.grow":           {code("\x00", strings.Repeat("\x20\x00\x40\x00\x1a", 10_000)), "would take too long to compile"},
		"a branch table to 1,000 locals":     {code(thousand, "\x0e"+u(20_000)+strings.Repeat("\x00", 20_001)), "would take too long to compile"},
		"many functions with 9,000 ifs each": {manyBranches(), "the module would take too long to compile"},
		"a function of 3 MB":                 {code("\x00", strings.Repeat("\x01", 3<<20)), "it has 3145730 bytes; the limit is 2097152"},
		"2^32-1 elements":                    {module(section(4, "\x01\x70\x00\x01"), section(9, "\x01\x00\x41\x00\x0b"+big)), "4294967295 elements are declared"},
		"2^32-1 data segments":               {module(section(12, big)), "4294967295 data segments; the limit is 1000000"},
		"2^32-1 types":                       {module(section(1, big)), "4294967295 types are declared"},
		"2^32-1 functions":                   {module(section(1, typeOne), section(3, big)), "4294967295 functions are declared"},
		"2^32-1 names":                       {module(section(7, big)), "4294967295 exports are declared"},
		"a long name":                        {module(section(5, memory), section(7, "\x01"+u(20_000)+strings.Repeat("x", 20_000)+"\x02\x00")), "has 20000 bytes; the limit is 10000"},
		"many sections":                      {module([]byte(strings.Repeat("\x00\x01\x00", 2_000))), "more than 1000 sections"},
		"many globals":                       {module(section(6, u(150_000)+strings.Repeat("\x7f\x00\x41\x00\x0b", 150_000))), "150000 globals; the limit is 100000"},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			_, err := Read(c.file)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Read = %v; want %q", err, c.want)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			if allocated := testing.AllocsPerRun(1, func() { _, _ = Read(c.file) }); allocated > 100_000 {
				t.Errorf("%v allocations", allocated)
			}
		})
	}
}

func manyLocals() []byte {
	body := "\x05\x01\xd0\x86\x03\x7f\x0b" // 50,000
	return module(section(1, typeOne), section(3, u(101)+strings.Repeat("\x00", 101)), section(10, u(101)+strings.Repeat("\x06"+body[1:], 101)))
}

func manyBranches() []byte {
	body := "\x00" + strings.Repeat("\x20\x00\x04\x40\x0b", 9_000) + "\x0b"
	body = u(uint64(len(body))) + body
	return module(section(1, typeOne), section(3, u(40)+strings.Repeat("\x00", 40)), section(10, u(40)+strings.Repeat(body, 40)))
}
