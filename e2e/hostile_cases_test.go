//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// spinTime is the time that a job which never ends is given.
const spinTime = 2500 * time.Millisecond

// spins are jobs that do not end by themselves, by whatever way the guest is entered.
func spins() []attack {
	spin := func(module, function, says string) attack {
		return attack{module: module, function: function, timeout: spinTime, code: api.CodeTimeout, says: []string{says, "time limit"}}
	}
	list := []attack{
		spin("start_spins", "", "start"),
		spin("initialize_spins", "", "_initialize"),
		spin("alloc_spins", "", "pmr_alloc"),
		spin("init_spins", "", "pmr_init"),
		spin("end_spins", "", "pmr_end"),
		spin("command_spins", "", "map"),
	}
	for _, f := range []string{
		"forever", "fib", "branches", "fills", "copies", "grows_memory", "grows_table", "randoms", "writes", "letters",
		"reads", "polls", "sleeps", "asks", "logs", "counts", "emits", "blocks",
	} {
		list = append(list, spin("spins", f, f))
	}
	for _, reduce := range []string{"module:forever", "module:fib", "module:fills"} {
		a := spin("spins", "", strings.TrimPrefix(reduce, "module:"))
		a.reduce = reduce
		list = append(list, a)
	}
	combines := spin("spins", "", "forever")
	combines.combine = "forever"
	for i, a := range list {
		if a.function == "emits" || a.function == "blocks" { // of nothing, which is no number
			list[i].reduce = "count"
		}
	}
	return append(list, combines)
}

// faults are jobs that fail at once.
func faults() []attack {
	fault := func(function string, says ...string) attack {
		return attack{module: "faults", function: function, code: api.CodeGuestFailed, says: append(says, "faults", function, "bucket")}
	}
	coded := func(code api.Code, a attack) attack {
		a.code = code
		return a
	}
	reduced := func(a attack, reduce string) attack {
		a.reduce = reduce
		return a
	}
	single := func(a attack) attack { // a trap that takes much memory, once for each job
		a.space = "single"
		return a
	}
	const outside = "outside of its memory"
	return []attack{
		fault("unreachable", "trapped", "unreachable"),
		fault("divides", "trapped", "integer divide by zero"),
		fault("overflows", "trapped", "integer overflow"),
		fault("truncates", "trapped", "invalid conversion to integer"),
		fault("loads", "trapped", "out of bounds memory access"),
		fault("stores", "trapped", "out of bounds memory access"),
		fault("fills", "trapped", "out of bounds memory access"),
		fault("calls_wrong", "trapped", "indirect call type mismatch"),
		fault("calls_null", "trapped", "table"),
		fault("calls_outside", "trapped", "table"),
		single(fault("descends", "trapped", "stack overflow")),

		fault("fails", "bad record: no colon"),
		fault("returns", "bad record: no colon", "-1"),
		fault("aborts", "abort: oh", "7:3"),
		fault("aborts_outside", "abort", "7:3"),
		fault("exits", "exited with status 3"),
		fault("quits", "exited with status 0"),
		fault("random_outside", "random_outside returned"),

		fault("key_outside", outside, "2147483647", "524288"),
		fault("key_wraps", outside),
		fault("value_wraps", outside),
		fault("block_wraps", outside),
		fault("log_outside", outside),
		fault("count_outside", outside),
		fault("fail_outside", outside),

		fault("block_garbage", "byte 0"),
		fault("block_cut", "byte 0"),
		fault("flags_unknown", "flags 64"),
		fault("number_short", "8"),
		fault("key_long", "65536", "65535"),
		coded(api.CodeTypeMismatch, attack{module: "faults", function: "nan", says: []string{"NaN", `"k"`, "bucket"}}),
		coded(api.CodeTypeMismatch, attack{module: "faults", function: "text", says: []string{`"k"`, "bucket"}}),
		coded(api.CodeOverflow, attack{module: "faults", function: "maximum", says: []string{`"k"`}}),
		coded(api.CodeOverflow, attack{module: "faults", function: "count_overflows", says: []string{`"k"`}}),
		coded(api.CodeLimitExceeded, attack{module: "faults", function: "names", says: []string{"counters", "64"}}),
		coded(api.CodeLimitExceeded, attack{module: "faults", function: "name_long", says: []string{"129", "128"}}),
		reduced(attack{module: "faults", function: "one", code: api.CodeGuestFailed, says: []string{"invents", `"bad"`}}, "module:invents"),
		reduced(attack{module: "faults", function: "one", code: api.CodeGuestFailed, says: []string{"unreachable", "trapped"}}, "module:unreachable"),

		{module: "start_traps", code: api.CodeGuestFailed, says: []string{"start", "unreachable"}},
		{module: "start_emits", code: api.CodeGuestFailed, says: []string{"start", "emitted outside a batch"}},
		{module: "alloc_lies", code: api.CodeGuestFailed, says: []string{"pmr_alloc", outside}},
		{module: "alloc_negative", code: api.CodeGuestFailed, says: []string{"pmr_alloc", outside}},
		{module: "alloc_refuses", code: api.CodeGuestFailed, says: []string{"pmr_alloc", "refused to allocate"}},
		{module: "command_exits", code: api.CodeGuestFailed, says: []string{"status 3", "the disk is on fire", "bucket"}},
		{module: "command_floods", code: api.CodeLimitExceeded, says: []string{"bucket"}},
	}
}

// excesses are jobs that fail at the limit of something large. They come once, as each takes much memory.
func excesses() []attack {
	return []attack{
		{module: "odd", function: "huge", reduce: "none", space: "single", code: api.CodeResultTooLarge, says: []string{`"k"`}},
		{module: "faults", function: "keys", code: api.CodeLimitExceeded, says: []string{"aggregation-memory"}},
	}
}

// oddities are jobs that look dangerous and have an answer.
func (s *siege) oddities() []attack {
	each := func(function string, rows ...string) attack {
		return attack{module: "odd", function: function, rows: strings.Join(rows, "")}
	}
	row := func(key string, value int) string { return fmt.Sprintf("%s\t%d\n", key, value) }
	n := s.batches
	thousand := make([]string, 1000)
	for i := range thousand {
		thousand[i] = row(string([]byte{'A' + byte(i&15), 'A' + byte(i>>4&15), 'A' + byte(i>>8)}), n)
	}
	slices.Sort(thousand)
	list := []attack{
		each("reuses", thousand...),
		each("grows", row("A", n), row("B", n)),
		each("nuls", row("a", n), row("a\x00", n), row("a\x00b", n)),
		each("overwrites", row("X", n)),
		each("tables", row("kilo", n*100_000)),
		each("features", row("passive", n*16)),
		each("talks", row("kilo", n)),
		each("works", row("kilo", n)),
		each("hoards", row("kilo", 1024)),
		each("empty", row("", n)),
		each("rows", strings.Repeat("kilo\t"+strings.Repeat("x", 1024)+"\n", 500)),
		{module: "command_quits", rows: row("bucket", n)},
		each("value", strings.Repeat("k\t"+strings.Repeat("v", 100_000)+"\n", n)),
	}
	for i, a := range list {
		switch a.function {
		case "empty":
			list[i].reduce = "count"
		case "hoards":
			list[i].space = "single"
		case "rows":
			list[i].reduce, list[i].space = "none", "single"
		case "value":
			list[i].reduce = "none"
		}
	}
	return list
}

// Hostile guests harm neither the processes nor the jobs beside them: they are stopped in time, named with what
// they did, and forgotten. Each comes eight times at once, twice in a row, beside a job of a good guest.
func TestHostileGuests(t *testing.T) {
	s := startSiege(t)
	if testing.Short() {
		some := slices.Concat(spins()[:2], faults()[:3], s.oddities()[:1])
		s.warm(some)
		s.wave(some)
		s.wantUnharmed()
		return
	}
	s.storm(s.oddities())
	s.storm(faults())
	s.warm(spins())
	if long() {
		s.storm(spins())
	} else { // eight of different kinds at once
		for range 2 {
			for wave := range slices.Chunk(spins(), atOnce) {
				s.wave(wave)
			}
		}
	}
	s.runAgain()
	s.wave(excesses())
	s.wantUnharmed()
}
