package buckets

import (
	"bytes"
	"hash/fnv"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The buckets are those that the subject mapping {{partition(n,1)}} of nats-server 2.15 gives.
func TestOfEqualsPartition(t *testing.T) {
	for _, tc := range []struct {
		key  string
		n    int
		want ID
	}{
		{"a", 7, 5},
		{"user", 7, 2},
		{"apple", 7, 2},
		{"Zürich", 7, 6},
		{"key-0001", 7, 4},
		{"a", 256, 44},
		{"user", 256, 242},
		{"apple", 256, 191},
		{"Zürich", 256, 32},
		{"key-0001", 256, 48},
		{"0123456789abcdef0123456789abcdef", 256, 181},
		{"a", 65535, 3385},
		{"user", 65535, 49002},
		{"apple", 65535, 15227},
		{"Zürich", 65535, 22049},
		{"key-0001", 65535, 19295},
		{"0123456789abcdef0123456789abcdef", 65535, 54405},
		{"", 256, 2166136261 % 256}, // the hash of nothing is the offset basis
		{"anything", 1, 0},
	} {
		if got := Of([]byte(tc.key), tc.n); got != tc.want {
			t.Errorf("Of(%q, %d) = %d, want %d", tc.key, tc.n, got, tc.want)
		}
	}
}

func TestOfIsBelowN(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, MaxBuckets).Draw(t, "n")
		key := rapid.OneOf(
			rapid.SliceOfN(rapid.Byte(), 0, 40),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 14, 14), func(b []byte) []byte { return append([]byte{assignedTag}, b...) }),
		).Draw(t, "key")
		got := Of(key, n)
		if int(got) >= n {
			t.Fatalf("Of(%x, %d) = %d", key, n, got)
		}
		if _, _, b, ok := ParseAssigned(key); ok && int(b) < n {
			if got != b {
				t.Fatalf("Of(%x, %d) = %d, want the bucket in the key, %d", key, n, got, b)
			}
			return
		}
		h := fnv.New32a()
		_, _ = h.Write(key)
		if want := ID(h.Sum32() % uint32(n)); got != want {
			t.Fatalf("Of(%x, %d) = %d, want %d", key, n, got, want)
		}
	})
}

func TestAssignedKeys(t *testing.T) {
	key := AppendAssigned([]byte("x"), 0x0102030405060708, 0x090a0b0c, 0x0d0e)[1:]
	if want := []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e"); !bytes.Equal(key, want) {
		t.Errorf("assigned key %x, want %x", key, want)
	}
	seq, index, b, ok := ParseAssigned(key)
	if seq != 0x0102030405060708 || index != 0x090a0b0c || b != 0x0d0e || !ok {
		t.Errorf("ParseAssigned = %x, %x, %x, %v", seq, index, b, ok)
	}
	if got := KeyText(AppendAssigned(nil, 17, 3, 255)); got != "#17.3.255" {
		t.Errorf("KeyText = %q", got)
	}
	for _, key := range [][]byte{nil, key[:14], append(bytes.Clone(key), 0), append([]byte{1}, key[1:]...)} {
		if _, _, _, ok := ParseAssigned(key); ok {
			t.Errorf("%x was taken for an assigned key", key)
		}
		if KeyText(key) != string(key) {
			t.Errorf("KeyText(%x) = %q", key, KeyText(key))
		}
	}
}

// Keys ascend with the position in the log, then with the place in the batch.
func TestAssignedKeysAscend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seqs := rapid.OneOf(rapid.Uint64Range(0, 300), rapid.Uint64())
		indexes := rapid.OneOf(rapid.Uint32Range(0, 300), rapid.Uint32())
		s1, s2 := seqs.Draw(t, "seq"), seqs.Draw(t, "seq")
		i1, i2 := indexes.Draw(t, "index"), indexes.Draw(t, "index")
		b1, b2 := ID(rapid.Uint16().Draw(t, "bucket")), ID(rapid.Uint16().Draw(t, "bucket"))
		less := s1 < s2 || s1 == s2 && (i1 < i2 || i1 == i2 && b1 < b2)
		if got := bytes.Compare(AppendAssigned(nil, s1, i1, b1), AppendAssigned(nil, s2, i2, b2)) < 0; got != less {
			t.Fatalf("(%d, %d, %d) before (%d, %d, %d): %v, want %v", s1, i1, b1, s2, i2, b2, got, less)
		}
	})
}

func TestCheckSpace(t *testing.T) {
	for _, name := range []string{"default", "a", "A-b_9", "logs.2024.05", "-", strings.Repeat("x", MaxSpace)} {
		if err := CheckSpace(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", ".", ".a", "a.", "a..b", "a b", "a/b", "a*", "a>", "é", "a\x00", "a\n", "\xff", strings.Repeat("x", MaxSpace+1),
	} {
		err := CheckSpace(name)
		if err == nil {
			t.Errorf("%q is allowed", name)
		} else if len(err.Error()) > 300 {
			t.Errorf("%q: a message of %d bytes", name, len(err.Error()))
		}
	}
	if err := CheckSpace(strings.Repeat("x", math.MaxUint16)); len(err.Error()) > 300 {
		t.Errorf("a message of %d bytes", len(err.Error()))
	}
}
