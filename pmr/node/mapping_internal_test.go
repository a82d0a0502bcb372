package node

import (
	"testing"

	"github.com/pinion-mr/pinion/api"
)

// The largest bucket does not depend on the order in which buckets end: of equal ones it is the first.
func TestTheLargestBucket(t *testing.T) {
	all := []api.Fuel{{Bucket: 4, BucketMax: 7}, {Bucket: 9, BucketMax: 50}, {Bucket: 3, BucketMax: 50}, {Bucket: 8, BucketMax: 0}}
	for first := range all {
		f := api.Fuel{Total: 1}
		for i := range all {
			f = largerBucket(f, all[(first+i)%len(all)])
		}
		if f != (api.Fuel{Total: 1, Bucket: 3, BucketMax: 50}) {
			t.Errorf("from %d on: %+v", first, f)
		}
	}
}
