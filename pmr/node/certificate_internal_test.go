package node

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
)

// However many buckets a server's max_payload allows, the end of a map and a certificate fit one message each, with
// all of the buckets on one storage and every number as large as can be.
func TestCountsOfAllBucketsFitAMessage(t *testing.T) {
	for _, maxPayload := range []int{64 << 10, 1 << 20, 16_384*bytesPerBucket + envelope} {
		n := (maxPayload - envelope) / bytesPerBucket
		end := api.MapEnd{
			Records: math.MaxInt64, Size: math.MaxInt64,
			Output: bytes.Repeat([]byte{0xff}, min(inlineOutput, maxPayload/2)),
		}
		for size := 0; size < listedBytes(maxPayload); size += skippedSize(end.Skipped[0]) {
			end.Skipped = append(end.Skipped, api.SkippedRecord{Key: make([]byte, keptKey), Reason: strings.Repeat("x", keptReason)})
		}
		cert := api.Certificate{Output: strings.Repeat("f", 64), Storages: []api.CertifiedStorage{{}}}
		for b := range n {
			end.BucketRecords, end.BucketPairs = append(end.BucketRecords, math.MaxInt64), append(end.BucketPairs, math.MaxInt64)
			cert.Wanted = append(cert.Wanted, uint16(b))
			cert.Storages[0].Buckets = append(cert.Storages[0].Buckets, api.BucketCount{
				Bucket: uint16(b), Generation: math.MaxInt64, Records: math.MaxInt64, Pairs: math.MaxInt64,
			})
		}
		for what, format := range map[any]api.Format{&end: api.Msgpack, &cert: api.JSON} {
			body, err := api.Encode(format, what)
			if err != nil {
				t.Fatal(err)
			}
			if len(body) > maxPayload-envelope {
				t.Errorf("%T of %d buckets takes %d bytes of %d", what, n, len(body), maxPayload)
			}
		}
	}
}
