package examples

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/wasmhost"
)

// pairs notes what a guest emits, as text.
type pairs []string

func (p *pairs) Emit(flags uint32, key, value []byte) error {
	text := fmt.Sprintf("%s = %s", key, value)
	switch flags {
	case buckets.FlagInt:
		text = fmt.Sprintf("%s = i64 %d", key, int64(binary.LittleEndian.Uint64(value)))
	case buckets.FlagFloat:
		text = fmt.Sprintf("%s = f64 %g", key, math.Float64frombits(binary.LittleEndian.Uint64(value)))
	}
	*p = append(*p, text)
	return nil
}

// sdks are the guests that use each part of an SDK.
var sdks = []string{"testdata/sdk/c", "testdata/sdk/rust", "testdata/sdk/go", "testdata/sdk/assemblyscript"}

// eachSDK runs a test with one of the functions of each of those guests.
func eachSDK(t *testing.T, function string, params map[string][]byte, test func(t *testing.T, in *wasmhost.Instance)) {
	t.Helper()
	eachOf(t, sdks, function, params, test)
}

func eachOf(t *testing.T, folders []string, function string, params map[string][]byte, test func(t *testing.T, in *wasmhost.Instance)) {
	t.Helper()
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			in, err := instance(t, compile(t, wasmhost.Config{BatchBytes: 300}, build(t, folder)), job{function: function, params: params})
			if err != nil {
				t.Fatal(err)
			}
			test(t, in)
		})
	}
}

// mapPairs maps the values and compares what is emitted, but for order of the functions that sum.
func mapPairs(t *testing.T, in *wasmhost.Instance, want []string, values ...string) {
	t.Helper()
	var got pairs
	if _, err := in.Map(t.Context(), 0, linesOfText(values...), &got); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("emitted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func linesOfText(values ...string) *lines {
	var b [][]byte
	for _, v := range values {
		b = append(b, []byte(v))
	}
	return linesOf(b...)
}

func TestSDKEmits(t *testing.T) {
	for _, folder := range sdks {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			var logged []string
			in, err := compile(t, wasmhost.Config{}, build(t, folder)).Instance(t.Context(), wasmhost.Job{
				Logger: func(level slog.Level, message string) { logged = append(logged, level.String()+" "+message) },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			for range 2 { // the second bucket begins anew
				var got pairs
				figures, err := in.Map(t.Context(), 0, linesOfText("ab", "", "a much longer value than sixteen bytes"), &got)
				if err != nil {
					t.Fatal(err)
				}
				want := pairs{
					"000000 = ab", "ab = i64 -2", "ab = f64 0.5",
					"000001 = ", " = i64 0", " = f64 0.5",
					"000002 = a much longer value than sixteen bytes", "a much longer value than sixteen bytes = i64 -38",
					"a much longer value than sixteen bytes = f64 0.5",
					"records = i64 3",
				}
				if !slices.Equal(got, want) {
					t.Errorf("emitted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				if figures.Counters["map"] != 6 {
					t.Errorf("counters are %v", figures.Counters)
				}
			}
			if len(logged) == 0 || logged[0] != "INFO ab" {
				t.Errorf("logged %q", logged)
			}
		})
	}
}

// Values and keys around the sizes of the output block and of the input buffer, and a key that is too long.
func TestSDKLargeRecords(t *testing.T) {
	eachSDK(t, "map", nil, func(t *testing.T, in *wasmhost.Instance) {
		var values []string
		for _, n := range []int{0, 65_535, 1, 65_510, 15, 16, 17, 65_535, 3} {
			values = append(values, strings.Repeat("x", n))
		}
		var got pairs
		if _, err := in.Map(t.Context(), 0, linesOfText(values...), &got); err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			want := []string{fmt.Sprintf("%06d = %s", i, v), fmt.Sprintf("%s = i64 %d", v, -len(v)), v + " = f64 0.5"}
			if !slices.Equal(got[3*i:3*i+3], want) {
				t.Fatalf("what was emitted for record %d of %d bytes differs", i, len(v))
			}
		}
		var none pairs
		_, err := in.Map(t.Context(), 0, linesOfText(strings.Repeat("x", 65_536)), &none)
		if err == nil || !strings.Contains(err.Error(), "emitted a key of 65536 bytes; the limit is 65535") {
			t.Errorf("a key that is too long: %v", err)
		}
	})
	eachSDK(t, "map", nil, func(t *testing.T, in *wasmhost.Instance) {
		var got pairs
		_, err := in.Map(t.Context(), 0, linesOfText("a", strings.Repeat("x", 70<<20)), &got)
		if err == nil || !strings.Contains(err.Error(), "refused to allocate") && !strings.Contains(err.Error(), "fatal error: out of memory") { // Go
			t.Errorf("a record of 70 MiB: %v", err)
		}
	})
	// In C and Rust the buffer grows where it is, so that a record may have most of the memory.
	eachOf(t, sdks[:2], "params", nil, func(t *testing.T, in *wasmhost.Instance) {
		var got pairs
		records := linesOfText("a", strings.Repeat("x", 5<<20), strings.Repeat("x", 10<<20), strings.Repeat("x", 20<<20), "b")
		if _, err := in.Map(t.Context(), 0, records, &got); err != nil || len(got) != 10 {
			t.Errorf("records of up to 20 MiB: %d pairs, %v", len(got), err)
		}
		if size := in.MemoryBytes(); size > 22<<20 {
			t.Errorf("the memory has %d bytes after a record of 20 MiB", size)
		}
	})
}

// More than a block of pairs from one record.
func TestSDKBlocks(t *testing.T) {
	var words, want []string
	for i := range 60_000 {
		w := strings.Repeat("x", i%40+1)
		words, want = append(words, w), append(want, "000000 = "+w)
	}
	eachSDK(t, "words", nil, func(t *testing.T, in *wasmhost.Instance) {
		var got pairs
		if _, err := in.Map(t.Context(), 0, linesOfText(strings.Join(words, " ")), &got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d words were emitted, other than the %d that there are", len(got), len(want))
		}
	})
}

func TestSDKParams(t *testing.T) {
	params := map[string][]byte{"aa": []byte("x"), "a": []byte("1=2"), "b": nil}
	eachSDK(t, "params", params, func(t *testing.T, in *wasmhost.Instance) {
		mapPairs(t, in, []string{"000000 = 1=2", "000000 = given"}, "")
		mapPairs(t, in, []string{"000000 = 1=2", "000000 = given"}, "")
	})
	eachSDK(t, "params", nil, func(t *testing.T, in *wasmhost.Instance) {
		mapPairs(t, in, []string{"000000 = ", "000000 = missing"}, "")
	})
	eachSDK(t, "params", map[string][]byte{"a": make([]byte, 5000)}, func(t *testing.T, in *wasmhost.Instance) {
		if !strings.HasSuffix(t.Name(), "/c#02") && !strings.HasSuffix(t.Name(), "/rust#02") {
			mapPairs(t, in, []string{"000000 = " + strings.Repeat("\x00", 5000), "000000 = missing"}, "") // they have no limit
			return
		}
		_, err := in.Map(t.Context(), 0, linesOfText("x"), &pairs{})
		if err == nil || !strings.Contains(err.Error(), "parameters") {
			t.Errorf("parameters of 5,000 bytes: %v", err)
		}
	})
}

// Sums that leave the range of an i64 are emitted in parts; keys of all lengths are told apart.
func TestSDKSums(t *testing.T) {
	eachSDK(t, "sums", nil, func(t *testing.T, in *wasmhost.Instance) {
		words := []string{"a", "a\x00", "12345678", "123456789", "1234567890123456", "12345678901234567", "a", "b", "a", "12345678"}
		for n := 21; n <= 26; n++ { // where keys become too long to be added up
			words = append(words, strings.Repeat("x", n), strings.Repeat("x", n-1)+"y", strings.Repeat("x", n))
		}
		want := map[string]int{}
		for _, w := range words {
			want[w]++
		}
		for range 2 {
			var got pairs
			if _, err := in.Map(t.Context(), 0, linesOfText(strings.Join(words[:6], " "), strings.Join(words[6:], "\t")), &got); err != nil {
				t.Fatal(err)
			}
			counts := map[string]int{}
			for _, text := range got {
				word, number, _ := strings.Cut(text, " = i64 ")
				var n int64
				if _, err := fmt.Sscan(number, &n); err != nil || n <= 0 {
					t.Fatalf("emitted %q", text)
				}
				counts[word] += int(n >> 62)
			}
			for _, w := range words {
				if counts[w] != want[w] {
					t.Errorf("%q was counted %d times, want %d", w, counts[w], want[w])
				}
			}
		}
	})
	eachSDK(t, "sums", nil, func(t *testing.T, in *wasmhost.Instance) {
		var text strings.Builder
		for i := range 50_000 { // more words than places
			fmt.Fprintf(&text, "w%d ", i)
		}
		var got pairs
		if _, err := in.Map(t.Context(), 0, linesOfText(text.String()), &got); err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if n := len(slices.Compact(slices.Clone(got))); n != 50_000 || len(got) != n {
			t.Errorf("%d sums of %d words were emitted", len(got), n)
		}
	})
}

// grouped is a source of pairs of one key.
func grouped(key string, flag uint32, values ...[]byte) *frames {
	f := &frames{}
	for i, v := range values {
		flags := flag
		if i == 0 {
			flags |= buckets.FlagFirst
		}
		if i == len(values)-1 {
			flags |= buckets.FlagLast
		}
		f.left = append(f.left, buckets.AppendFrame(nil, flags, []byte(key), v))
	}
	return f
}

// frames is a source of frames, one a batch.
type frames struct{ left [][]byte }

func (f *frames) Fill(dst []byte, _ int) ([]byte, int, error) {
	if len(f.left) == 0 {
		return dst, 0, nil
	}
	dst = append(dst, f.left[0]...)
	f.left = f.left[1:]
	return dst, 1, nil
}

func i64Bytes(v int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(v)) }

func TestSDKGroups(t *testing.T) {
	eachSDK(t, "map", nil, func(t *testing.T, in *wasmhost.Instance) {
		var got pairs
		for range 2 {
			if _, err := in.Group(t.Context(), "reduce", grouped("k", buckets.FlagInt, i64Bytes(7), i64Bytes(-9), i64Bytes(4)), &got); err != nil {
				t.Fatal(err)
			}
		}
		half := binary.LittleEndian.AppendUint64(nil, math.Float64bits(0.25))
		if _, err := in.Group(t.Context(), "floats", grouped("f", buckets.FlagFloat, half, half), &got); err != nil {
			t.Fatal(err)
		}
		if want := []string{"k = i64 2", "k = i64 2", "f = f64 0.5"}; !slices.Equal(got, want) {
			t.Errorf("reduced to %q, want %q", got, want)
		}
		_, err := in.Group(t.Context(), "reduce", grouped("raw", 0, []byte("12345678")), &got)
		if err == nil || !strings.Contains(err.Error(), "the value is no i64; the key is") || !strings.Contains(err.Error(), "raw") {
			t.Errorf("a value that is no i64: %v", err)
		}
	})
}

func TestSDKFailures(t *testing.T) {
	message := func(t *testing.T, in *wasmhost.Instance, value string) string {
		t.Helper()
		_, err := in.Map(t.Context(), 0, linesOfText(value), &pairs{})
		var guest *wasmhost.GuestError
		if !errors.As(err, &guest) {
			t.Fatalf("got %v", err)
		}
		return guest.Message
	}
	eachSDK(t, "failing", nil, func(t *testing.T, in *wasmhost.Instance) {
		if got := message(t, in, "bad"); got != "cannot take it: bad" {
			t.Errorf("message is %q", got)
		}
	})
	eachSDK(t, "failing", nil, func(t *testing.T, in *wasmhost.Instance) {
		if got := message(t, in, strings.Repeat("bad", 1000)); !strings.HasPrefix(got, "cannot take it: badbad") || len(got) > 1200 {
			t.Errorf("message of %d bytes is %.80q", len(got), got)
		}
	})
	eachSDK(t, "map", map[string][]byte{"begin": []byte("fail")}, func(t *testing.T, in *wasmhost.Instance) {
		if got := message(t, in, ""); got != "begin was told to fail" {
			t.Errorf("message is %q", got)
		}
	})
	for folder, want := range map[string][]string{
		"testdata/sdk/rust":           {"index out of bounds: the len is 2 but the index is 2", "sdk.rs:"},
		"testdata/sdk/go":             {"panic: runtime error: slice bounds out of range [::1] with capacity 0"},
		"testdata/sdk/assemblyscript": {"cut is out of range", "pmr.ts"},
	} {
		t.Run("panic in "+filepath.Base(folder), func(t *testing.T) {
			in, err := instance(t, compile(t, wasmhost.Config{}, build(t, folder)), job{function: "panicking"})
			if err != nil {
				t.Fatal(err)
			}
			got := message(t, in, "12")
			for _, part := range want {
				if !strings.Contains(got, part) {
					t.Errorf("message is %q, without %q", got, part)
				}
			}
		})
	}
}

// What is in pmr.h for texts and numbers.
func TestSDKTextsInC(t *testing.T) {
	m := compile(t, wasmhost.Config{}, build(t, "testdata/sdk/c"))
	in, err := instance(t, m, job{function: "numbers"})
	if err != nil {
		t.Fatal(err)
	}
	mapPairs(t, in, []string{
		"0 = i64 0", "-0 = i64 0", "007 = i64 7", "-12 = i64 -12",
		"9223372036854775807 = i64 9223372036854775807", "-9223372036854775808 = i64 -9223372036854775808",
		"9223372036854775808 = none", "-9223372036854775809 = none", "99999999999999999999 = none",
		" = none", "- = none", "+1 = none", "1 = i64 1", " 1 = none", "1x = none", "--1 = none",
	}, "0,-0,007,-12,9223372036854775807,-9223372036854775808,9223372036854775808,-9223372036854775809,99999999999999999999,,-,+1,1, 1,1x,--1,")
	if in, err = instance(t, m, job{function: "order"}); err != nil {
		t.Fatal(err)
	}
	var got pairs
	source := &lines{left: []record{
		{[]byte("a"), []byte("a")}, {[]byte("a"), []byte("b")}, {[]byte("b"), []byte("a")}, {nil, []byte("a")}, {[]byte("ab"), []byte("a")}, {[]byte("\xff"), []byte("a")}, {nil, nil},
	}}
	if _, err := in.Map(t.Context(), 0, source, &got); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a = i64 0", "a = i64 -1", "b = i64 1", " = i64 -1", "ab = i64 1", "\xff = i64 1", " = i64 0"}; !slices.Equal(got, want) {
		t.Errorf("orders are %q, want %q", got, want)
	}
}

// pmr_next finds the words that Go finds, wherever their 64 bytes begin and end.
func TestSDKWordsInC(t *testing.T) {
	wordsInC(t, compile(t, wasmhost.Config{BatchBytes: batchBytes}, build(t, sdks[0])))
}

const batchBytes = 64 << 10

func wordsInC(t *testing.T, m *wasmhost.Module) {
	t.Helper()
	in, err := instance(t, m, job{function: "each"})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	text := func(n int) []byte {
		const odd = "\x00\x08\t\n\v\f\r\x0e\x1f !a\x7f\x80\x85\xa0\xff"
		out := make([]byte, n)
		rare := 1 + random.IntN(100)
		for i := range out {
			if out[i] = 'x'; random.IntN(rare) == 0 {
				out[i] = odd[random.IntN(len(odd))]
			}
		}
		return out
	}
	var records []record
	for range 3000 {
		records = append(records, record{text(random.IntN(20)), text(random.IntN(200))})
	}
	for n := range 70 { // records that end near the memory's end, where no 64 bytes can be read
		records = append(records, record{text(n), text(batchBytes - buckets.FrameHeader - 2*n)})
	}
	var want pairs
	for _, r := range records {
		for _, word := range bytes.FieldsFunc(r.key, isSpace) {
			want = append(want, "key = "+string(word))
		}
		for _, word := range bytes.FieldsFunc(r.value, isSpace) {
			want = append(want, "value = "+string(word))
		}
	}
	var got pairs
	if _, err := in.Map(t.Context(), 0, &lines{left: records}, &got); err != nil {
		t.Fatal(err)
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("word %d is %q, want %q", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d words, want %d", len(got), len(want))
	}
}

// isSpace is ASCII white space, where the SDKs split.
func isSpace(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' }

// The SDKs also serve those who build in other ways: as C++, by the letter of C11 without SIMD, with libc, or without
// Rust's std.
func TestSDKOtherBuilds(t *testing.T) {
	const c, rust = "testdata/sdk/c/sdk.c", "testdata/sdk/rust/sdk.rs"
	include := "CPATH=../../sdk/c"
	t.Run("c++", func(t *testing.T) {
		build(t, sdks[0])
		m := otherBuild(t, []string{include, "CC=clang++", "CFLAGS=-x c++ -Wextra -Werror"}, "../../sdk/templates/c/build.sh", c)
		wordsInC(t, m)
	})
	t.Run("c11", func(t *testing.T) {
		build(t, sdks[0])
		m := otherBuild(t, []string{include, "CFLAGS=-std=c11 -pedantic -mno-simd128 -Wextra -Werror"}, "../../sdk/templates/c/build.sh", c)
		wordsInC(t, m)
	})
	t.Run("libc", func(t *testing.T) {
		build(t, "wordcount/wasi-c") // needs the same
		otherBuild(t, []string{include}, "clang", "--target=wasm32-wasi", "-mexec-model=reactor", "-O2", "-Wall", "-Werror", c, "-o")
	})
	t.Run("no_std", func(t *testing.T) {
		build(t, sdks[1])
		otherBuild(t, []string{"RUSTFLAGS=--cfg pmr_no_std"}, "../../sdk/templates/rust/build.sh", rust)
	})
}

// otherBuild builds the guest that uses all of an SDK by a command, to which the output is appended, and tries it.
func otherBuild(t *testing.T, env []string, command ...string) *wasmhost.Module {
	t.Helper()
	out := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], out)...)
	cmd.Env = append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	m := compile(t, wasmhost.Config{}, read(t, out))
	in, err := instance(t, m, job{function: "map"})
	if err != nil {
		t.Fatal(err)
	}
	mapPairs(t, in, []string{"000000 = one", "one = i64 -3", "one = f64 0.5", "records = i64 1"}, "one")
	return m
}
