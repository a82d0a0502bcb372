package main

import (
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/internal/cli"
)

// partFlags name a part of a space, and what holds for single buckets.
type partFlags struct {
	buckets string
	keys    []string
	params  []string
	flags   *pflag.FlagSet
}

func (p *partFlags) register(f *pflag.FlagSet) {
	p.flags = f
	f.StringVar(&p.buckets, "buckets", "", "map these buckets alone: 3,7,20-29")
	f.StringArrayVar(&p.keys, "key", nil, "map the record of this key alone, written as get takes it; may be given several times")
	f.StringArrayVar(&p.params, "bucket-param", nil, "BUCKET:name=value for the module in that bucket, before -p; may be given several times")
}

// given reports whether any of the flags is used.
func (p *partFlags) given() bool { return p.buckets != "" || len(p.keys)+len(p.params) > 0 }

// apply puts what the flags say into a job.
func (p *partFlags) apply(job *pinion.Job) error {
	if p.buckets == "" && p.flags.Changed("buckets") {
		return cli.Usagef("--buckets names no bucket; leave it away to map all")
	}
	if p.buckets != "" && len(p.keys) > 0 {
		return cli.Usagef("--buckets and --key exclude each other: a key alone says in which bucket it is")
	}
	var err error
	if job.Buckets, err = parseBuckets(p.buckets); err != nil {
		return err
	}
	for _, key := range p.keys {
		job.Keys = append(job.Keys, keyArgument(key))
	}
	job.BucketParams, err = bucketParams(p.params)
	return err
}

// bucketParams reads BUCKET:name=value.
func bucketParams(texts []string) (map[uint16]map[string][]byte, error) {
	byBucket := map[uint16]map[string][]byte{}
	for _, text := range texts {
		bucket, pair, _ := strings.Cut(text, ":")
		name, value, ok := strings.Cut(pair, "=")
		b, err := strconv.ParseUint(bucket, 10, 16)
		if err != nil || !ok || name == "" {
			return nil, cli.Usagef("--bucket-param %q is not BUCKET:name=value", text)
		}
		values := byBucket[uint16(b)]
		if _, twice := values[name]; twice {
			return nil, cli.Usagef("--bucket-param %d:%s is given twice", b, name)
		}
		if values == nil {
			values = map[string][]byte{}
			byBucket[uint16(b)] = values
		}
		values[name] = []byte(value)
	}
	return byBucket, nil
}

// parseBuckets reads a list of numbers and ranges.
func parseBuckets(list string) ([]uint16, error) {
	if list == "" {
		return nil, nil
	}
	all, err := cli.ParseBuckets(list)
	if err != nil {
		return nil, cli.Usagef("--buckets %q: %v", list, err)
	}
	return all, nil
}
