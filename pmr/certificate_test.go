package pmr_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// owned is a table of six buckets: 0 to 2 of s1 under generations 1 to 3, the others of s2 under 4 to 6.
func owned(t *testing.T) *buckets.Table {
	t.Helper()
	table := buckets.NewTable(6)
	for b := range buckets.ID(6) {
		own := buckets.Own{Bucket: b, Owner: "s1"}
		if b > 2 {
			own.Owner = "s2"
		}
		if verdict, err := table.Own(uint64(b)+1, own); verdict != buckets.Applied {
			t.Fatal(err)
		}
	}
	return table
}

func moved(t *testing.T, table *buckets.Table, seq uint64, b buckets.ID, to string) {
	t.Helper()
	prev := table.View().Owner(b).Generation
	if verdict, err := table.Own(seq, buckets.Own{Bucket: b, Prev: prev, Owner: to}); verdict != buckets.Applied {
		t.Fatal(err)
	}
}

func read(b uint16, generation uint64) api.BucketCount {
	return api.BucketCount{Bucket: b, Generation: generation, Records: 10, Pairs: 100}
}

// sound is the certificate of a job that read all of it at position 10.
func sound() api.Certificate {
	return api.Certificate{
		Version: 1, Job: "j1", Attempt: 1, Cut: 10, Buckets: 6, Records: 60, Pairs: 600,
		Storages: []api.CertifiedStorage{
			{Storage: "s1", Buckets: []api.BucketCount{read(0, 1), read(1, 2), read(2, 3)}},
			{Storage: "s2", Buckets: []api.BucketCount{read(3, 4), read(4, 5), read(5, 6)}},
		},
	}
}

func TestCheckCertificate(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(c *api.Certificate)
		later  func(t *testing.T, table *buckets.Table) // entries behind the cut
		faults []string                                 // kind and text's beginning, and the bucket in it
		proven int
		open   []buckets.ID
	}{
		"sound": {proven: 6},
		"sound part": {
			change: func(c *api.Certificate) {
				c.Wanted, c.Records, c.Pairs = []uint16{1, 4}, 20, 200
				c.Storages[0].Buckets, c.Storages[1].Buckets = c.Storages[0].Buckets[1:2], c.Storages[1].Buckets[1:2]
			},
			proven: 2,
		},
		"one lost and another doubled": { // sums of counts are those of the whole
			change: func(c *api.Certificate) { c.Storages[0].Buckets[1] = read(2, 3) },
			faults: []string{"missing: pinned by nobody: bucket 1", "doubled: pinned twice: bucket 2"}, proven: 4,
		},
		"pinned by both": {
			change: func(c *api.Certificate) {
				c.Storages[1].Buckets[0] = read(2, 3)
			},
			faults: []string{
				"missing: pinned by nobody: bucket 3", "doubled: pinned twice: bucket 2",
				"foreign: pinned by another owner or generation than the table's: bucket 2",
			},
			proven: 4,
		},
		"wrong generation": {
			change: func(c *api.Certificate) { c.Storages[1].Buckets[2].Generation = 4 },
			faults: []string{"foreign: pinned by another owner or generation than the table's: bucket 5"}, proven: 5,
		},
		"of another storage": {
			change: func(c *api.Certificate) { c.Storages[1].Storage = "s3" },
			faults: []string{"foreign: pinned by another owner or generation than the table's: buckets 3-5"}, proven: 3,
		},
		"incomplete": {
			change: func(c *api.Certificate) { c.Storages, c.Records, c.Pairs = c.Storages[:1], 30, 300 },
			faults: []string{"missing: pinned by nobody: buckets 3-5"}, proven: 3,
		},
		"more than wanted": {
			change: func(c *api.Certificate) { c.Wanted = []uint16{0, 1, 2} },
			faults: []string{"surplus: not asked for: buckets 3-5"}, proven: 3,
		},
		"not of this cluster": {
			change: func(c *api.Certificate) {
				c.Storages[1].Buckets = append(c.Storages[1].Buckets, api.BucketCount{Bucket: 6})
			},
			faults: []string{"unknown: not of this cluster: bucket 6"}, proven: 6,
		},
		"wanted what is not there": {
			change: func(c *api.Certificate) { c.Wanted = []uint16{0, 6} },
			faults: []string{"unknown: the wanted buckets are not ascending and of 0..5"},
		},
		"wanted twice": {
			change: func(c *api.Certificate) { c.Wanted = []uint16{0, 0} },
			faults: []string{"unknown: the wanted buckets are not ascending and of 0..5"},
		},
		"of a larger cluster": {
			change: func(c *api.Certificate) { c.Buckets = 7 },
			faults: []string{"unknown: it is of a cluster of 7 buckets, this one has 6"},
		},
		"records do not add up": {
			change: func(c *api.Certificate) { c.Storages[0].Buckets[0].Records++ },
			faults: []string{"counts: the buckets' records are 61 together, the job's 60"}, proven: 6,
		},
		"pairs do not add up": {
			change: func(c *api.Certificate) { c.Pairs-- },
			faults: []string{"counts: the buckets' pairs are 600 together, the job's 599"}, proven: 6,
		},
		"sums that wrap": {
			change: func(c *api.Certificate) { c.Storages[0].Buckets[0].Records = math.MaxUint64 - 9 },
			faults: []string{"counts: the counts of bucket 1 are out of range"}, proven: 6,
		},
		"more skipped than read": {
			change: func(c *api.Certificate) { c.Skips = 61 },
			faults: []string{"counts: 61 records were left out of 60"}, proven: 6,
		},
		"a bucket moved since": {
			later:  func(t *testing.T, table *buckets.Table) { moved(t, table, 11, 1, "s2") },
			proven: 5, open: []buckets.ID{1},
		},
		"a bucket moved since, and another was never right": {
			change: func(c *api.Certificate) { c.Storages[1].Buckets[2].Generation = 4 },
			later:  func(t *testing.T, table *buckets.Table) { moved(t, table, 11, 1, "s2") },
			faults: []string{"foreign: pinned by another owner or generation than the table's: bucket 5"},
			proven: 4, open: []buckets.ID{1},
		},
		"pinned under a generation behind the cut": {
			change: func(c *api.Certificate) { c.Storages[0].Buckets[1].Generation = 11 },
			later:  func(t *testing.T, table *buckets.Table) { moved(t, table, 11, 1, "s1") },
			faults: []string{"foreign: pinned by another owner or generation than the table's: bucket 1"}, proven: 5,
		},
		"lost and doubled among what moved": {
			change: func(c *api.Certificate) { c.Storages[0].Buckets[1] = read(2, 3) },
			later: func(t *testing.T, table *buckets.Table) {
				moved(t, table, 11, 1, "s2")
				moved(t, table, 12, 2, "s2")
			},
			faults: []string{"missing: pinned by nobody: bucket 1", "doubled: pinned twice: bucket 2"}, proven: 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, table := sound(), owned(t)
			if tc.change != nil {
				tc.change(&c)
			}
			if tc.later != nil {
				tc.later(t, table)
			}
			check := pmr.CheckCertificate(c, table.View())
			var faults []string
			for _, f := range check.Faults {
				faults = append(faults, string(f.Kind)+": "+f.Text)
			}
			if !slices.Equal(faults, tc.faults) {
				t.Errorf("faults:\n%s\nwant:\n%s", strings.Join(faults, "\n"), strings.Join(tc.faults, "\n"))
			}
			if check.Proven != tc.proven || !slices.Equal(check.Open, tc.open) {
				t.Errorf("%d proven, %v open; want %d and %v", check.Proven, check.Open, tc.proven, tc.open)
			}
		})
	}
}

// Each field that makes the answer another one makes the digest another one, and nothing else does.
func TestParamsDigest(t *testing.T) {
	full := func() api.JobRequest {
		return api.JobRequest{
			Job: "j1", Module: "words", Function: "map", Reduce: "sum", Space: "default", Mode: "hold", Limit: 3,
			Params:  map[string]api.Bytes{"a": api.Bytes("1"), "b": api.Bytes("2")},
			Buckets: []uint16{1, 2}, Keys: []api.Bytes{api.Bytes("k"), api.Bytes("l")},
			BucketParams: []api.BucketParams{{Bucket: 1, Params: map[string]api.Bytes{"a": api.Bytes("3")}}, {Bucket: 2}},
		}
	}
	base := pmr.ParamsDigest(full())
	if len(base) != 64 || pmr.ParamsDigest(full()) != base {
		t.Errorf("digest %q, then %q", base, pmr.ParamsDigest(full()))
	}
	seen := map[string]string{base: "the request itself"}
	others := map[string]func(r *api.JobRequest){
		"function":        func(r *api.JobRequest) { r.Function = "first" },
		"combine":         func(r *api.JobRequest) { r.Combine = "map" },
		"reduce":          func(r *api.JobRequest) { r.Reduce = "count" },
		"space":           func(r *api.JobRequest) { r.Space = "logs" },
		"mode":            func(r *api.JobRequest) { r.Mode = "snapshot" },
		"sort":            func(r *api.JobRequest) { r.Sort = "-value" },
		"limit":           func(r *api.JobRequest) { r.Limit = 4 },
		"on_error":        func(r *api.JobRequest) { r.OnError = "skip" },
		"max_skip":        func(r *api.JobRequest) { r.MaxSkip = 4 },
		"param":           func(r *api.JobRequest) { r.Params["a"] = api.Bytes("2") },
		"param's name":    func(r *api.JobRequest) { r.Params = map[string]api.Bytes{"a": api.Bytes("1"), "c": api.Bytes("2")} },
		"param's edge":    func(r *api.JobRequest) { r.Params = map[string]api.Bytes{"a1": nil, "b": api.Bytes("2")} },
		"bucket's param":  func(r *api.JobRequest) { r.BucketParams[0].Params["a"] = api.Bytes("4") },
		"bucket's bucket": func(r *api.JobRequest) { r.BucketParams[0].Bucket = 3 },
		"buckets":         func(r *api.JobRequest) { r.Buckets = []uint16{1, 3} },
		"keys":            func(r *api.JobRequest) { r.Keys[0] = api.Bytes("m") },
		"keys, not wanted": func(r *api.JobRequest) {
			r.Buckets, r.Keys = []uint16{1}, append(r.Keys, api.Bytes("2"))
		},
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		r := full()
		others[name](&r)
		digest := pmr.ParamsDigest(r)
		if other, ok := seen[digest]; ok {
			t.Errorf("%s gives the digest of %s", name, other)
		}
		seen[digest] = name
	}
	same := full()
	same.Job, same.Client, same.TimeoutMS, same.Attempts, same.WaitMS, same.MaxBytes, same.Proof = "j2", "me", 5, 6, 7, 8, true
	slices.Reverse(same.Buckets)
	slices.Reverse(same.BucketParams)
	same.Keys = []api.Bytes{api.Bytes("l"), api.Bytes("k"), api.Bytes("l")}
	if got := pmr.ParamsDigest(same); got != base {
		t.Error("the digest depends on the order of buckets or keys, or on what does not change the answer")
	}
}

func TestRowDigest(t *testing.T) {
	rows := func(values ...api.Value) string {
		d := pmr.NewRowDigest()
		for _, v := range values {
			d.Add(api.Row{Key: api.Bytes("k"), Value: v})
		}
		if d.Rows() != uint64(len(values)) {
			t.Errorf("%d rows of %d", d.Rows(), len(values))
		}
		return d.Sum()
	}
	one, two := api.IntValue(1), api.IntValue(2)
	all := []string{
		rows(), rows(one), rows(two), rows(one, two), rows(two, one), rows(one, one),
		rows(api.FloatValue(1)), rows(api.BytesValue([]byte("\x00\x00\x00\x00\x00\x00\xf0\x3f"))), rows(api.BytesValue([]byte("\x01\x00\x00\x00\x00\x00\x00\x00"))), rows(api.BytesValue(nil)),
	}
	if slices.Sort(all); len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("different rows have one digest: %v", all)
	}
	// An empty answer has the digest that any tool gives for no bytes.
	if rows() != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Errorf("no rows give %s", rows())
	}
	many := pmr.NewRowDigest()
	for range 10_000 { // more than is hashed at once
		many.Add(api.Row{Key: api.Bytes("k"), Value: one})
	}
	if sum := many.Sum(); sum != many.Sum() {
		t.Error("asking for the sum changes it")
	}
}
