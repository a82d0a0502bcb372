package node

import (
	"cmp"
	"slices"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// mostOfRequest is how many bytes the keys and params of a job may take: they travel to the storages in one
// message. Local jobs have no bound.
func (r *Router) mostOfRequest() int {
	if r.ports.Peers == nil {
		return 0
	}
	return r.ports.Peers.MaxPayload() / 2
}

// checkParts checks which part of a space a job names, and what it says of single buckets. It sorts both. most
// is the limit for the bytes of keys and params, 0 is none.
func checkParts(req *api.JobRequest, n, most int) error {
	if req.Buckets != nil && len(req.Buckets) == 0 || req.Keys != nil && len(req.Keys) == 0 {
		return api.Errorf(api.CodeBadRequest, "buckets or keys is an empty list").WithHint("leave it away to map all")
	}
	if len(req.Buckets) > 0 && len(req.Keys) > 0 {
		return api.Errorf(api.CodeBadRequest, "a job names buckets or keys, not both").WithHint("the keys alone say in which buckets they are")
	}
	req.Buckets = slices.Compact(slices.Sorted(slices.Values(req.Buckets)))
	if i := len(req.Buckets); i > 0 && int(req.Buckets[i-1]) >= n {
		return noBucket("buckets", req.Buckets[i-1], n)
	}
	size := paramSize(req.Params)
	for i, key := range req.Keys {
		if len(key) > buckets.MaxKey {
			return api.Errorf(api.CodeBadRequest, "key %d of the job has %d bytes; a key has at most %d", i, len(key), buckets.MaxKey)
		}
		size += len(key) + 5
	}
	req.BucketParams = slices.SortedStableFunc(slices.Values(req.BucketParams), func(a, b api.BucketParams) int { return cmp.Compare(a.Bucket, b.Bucket) })
	for i, own := range req.BucketParams {
		switch {
		case int(own.Bucket) >= n:
			return noBucket("bucket_params", own.Bucket, n)
		case i > 0 && req.BucketParams[i-1].Bucket == own.Bucket:
			return api.Errorf(api.CodeBadRequest, "bucket_params has bucket %d twice", own.Bucket).WithHint("give all of its params in one entry")
		}
		size += 32 + paramSize(own.Params)
	}
	if err := checkParamBuckets(req, n); err != nil {
		return err
	}
	if most > 0 && size > most {
		return api.Errorf(api.CodeLimitExceeded, "keys and params of the job take %d bytes; at most %d reach a storage in one message", size, most).
			WithHint("split the job, put them into a space, or raise max_payload on the NATS server")
	}
	return nil
}

// checkParamBuckets refuses params of a bucket that the job does not map.
func checkParamBuckets(req *api.JobRequest, n int) error {
	named := wanted(*req, n)
	for _, own := range req.BucketParams {
		if _, found := slices.BinarySearch(named, buckets.ID(own.Bucket)); named != nil && !found {
			return api.Errorf(api.CodeBadRequest, "bucket_params names bucket %d, which the job does not map", own.Bucket).
				WithHint("it maps %s", buckets.Ranges(named))
		}
	}
	return nil
}

func paramSize(params map[string]api.Bytes) int {
	n := 0
	for name, value := range params {
		n += len(name) + len(value) + 10
	}
	return n
}

func noBucket(field string, b uint16, n int) error {
	return api.Errorf(api.CodeBadRequest, "%s names bucket %d; this cluster has the buckets 0 to %d", field, b, n-1)
}

// wanted are the buckets that a job has to cover, ascending; nil is all.
func wanted(req api.JobRequest, n int) []buckets.ID {
	var list []buckets.ID
	for _, b := range req.Buckets {
		list = append(list, buckets.ID(b))
	}
	for _, key := range req.Keys {
		list = append(list, buckets.Of(key, n))
	}
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

// only is what a PMR needs of the job's keys and params of single buckets.
func (j *job) only(pinned []api.BucketPin) (keys []api.Bytes, params []api.BucketParams) {
	here := make(map[buckets.ID]bool, len(pinned))
	for _, pin := range pinned {
		here[buckets.ID(pin.Bucket)] = true
	}
	for _, key := range j.req.Keys {
		if here[buckets.Of(key, j.r.cfg.Settings.Buckets)] {
			keys = append(keys, key)
		}
	}
	for _, own := range j.req.BucketParams {
		if here[buckets.ID(own.Bucket)] {
			params = append(params, own)
		}
	}
	return keys, params
}
