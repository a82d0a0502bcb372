package api

import (
	"math"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// A certificate of as many buckets as a server's max_payload allows must fit a message: node allows 128 bytes
// a bucket.
func TestTheLargestBucketCountFits(t *testing.T) {
	largest := BucketCount{math.MaxUint16, math.MaxInt64, math.MaxInt64, math.MaxInt64}
	for f, most := range map[Format]int{JSON: 71, Msgpack: 31} {
		body, err := Encode(f, CertifiedStorage{Buckets: []BucketCount{largest, largest}})
		if err != nil {
			t.Fatal(err)
		}
		one, err := Encode(f, CertifiedStorage{Buckets: []BucketCount{largest}})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(body) - len(one); n > most {
			t.Errorf("a bucket takes %d bytes as %s, at most %d are allowed", n, f, most)
		}
	}
}

func TestBucketCountsOfTheWrongFormAreRefused(t *testing.T) {
	pack := func(v any) []byte {
		body, err := msgpack.Marshal(map[string]any{"buckets": []any{v}})
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	for name, body := range map[string][]byte{
		"three numbers":  []byte(`{"buckets": [[1, 2, 3]]}`),
		"five":           []byte(`{"buckets": [[1, 2, 3, 4, 5]]}`),
		"no bucket":      []byte(`{"buckets": [[65536, 2, 3, 4]]}`),
		"negative":       []byte(`{"buckets": [[1, -2, 3, 4]]}`),
		"no array":       []byte(`{"buckets": [{"bucket": 1}]}`),
		"packed three":   pack([]int{1, 2, 3}),
		"packed bucket":  pack([]int{65536, 2, 3, 4}),
		"packed below 0": pack([]int{1, 2, -3, 4}),
		"packed text":    pack([]any{1, 2, "3", 4}),
		"packed map":     pack(map[string]int{"bucket": 1}),
		"packed huge":    pack([]any{1, 2, 3, uint64(math.MaxUint64)}),
	} {
		var c CertifiedStorage
		if err := Decode(body, &c, Strict); CodeOf(err) != CodeBadRequest {
			t.Errorf("%s: read as %+v, error %v", name, c, err)
		}
	}
}

func TestNewerCertificatesAreRefusedByName(t *testing.T) {
	for version, code := range map[int]Code{-1: CodeBadRequest, 0: CodeBadRequest, 1: "", CertificateVersion + 1: CodeVersion} {
		err := Certificate{Version: version, Job: "j1"}.Readable()
		if CodeOf(err) != code || code == CodeVersion && !strings.Contains(err.Error(), "j1") {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
