package node_test

import (
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// cut appends a cut, as a router does for a job.
func (c *cluster) cut(job string) uint64 {
	c.t.Helper()
	body, err := api.Encode(api.Msgpack, buckets.Cut{Job: job, Attempt: 1})
	c.must(err)
	seq, err := c.log.Append(c.t.Context(), buckets.SubjectCut, nil, body, "")
	c.must(err)
	return seq
}

// pin asks a storage for what it parked at a cut, and gives it back.
func (c *cluster) pin(storage string, cut uint64) (api.PinReply, error) {
	var reply api.PinReply
	err := c.request("storage."+storage+".pin", api.PinRequest{Job: "j", Attempt: 1, Router: "nobody", Cut: cut, TTLMS: 1000, Mode: "hold"}, &reply)
	if err == nil {
		c.must(c.request("storage."+storage+".release", api.PMRRequest{PMR: reply.PMR}, nil))
	}
	return reply, err
}

func (c *cluster) parked() int {
	n := 0
	for _, s := range c.status().Storages {
		n += s.Parked
	}
	return n
}

func TestAParkedCutExpires(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		early, late := c.cut("early"), c.cut("late")
		time.Sleep(19 * time.Second)
		if _, err := c.pin("s1", early); err != nil {
			t.Errorf("after 19 s: %v", err)
		}
		if _, err := c.pin("s1", early); api.CodeOf(err) != api.CodeNoCut {
			t.Errorf("the same cut again: %v", err)
		}
		time.Sleep(1500 * time.Millisecond)
		if _, err := c.pin("s1", late); api.CodeOf(err) != api.CodeNoCut {
			t.Errorf("after 20 s: %v", err)
		}
		if n := c.parked(); n != 0 {
			t.Errorf("%d cuts are parked", n)
		}
	})
}

func TestOnlySoManyCutsAreParked(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		var cuts []uint64
		for range 70 {
			cuts = append(cuts, c.cut("j"))
		}
		if _, err := c.pin("s1", cuts[69]); err != nil {
			t.Errorf("the last: %v", err)
		}
		if n := c.parked(); n != 63 {
			t.Errorf("%d cuts are parked after one of 64 was claimed", n)
		}
		for i, wanted := range map[int]api.Code{0: api.CodeNoCut, 5: api.CodeNoCut, 6: ""} {
			if _, err := c.pin("s1", cuts[i]); api.CodeOf(err) != wanted {
				t.Errorf("cut %d: %v", i, err)
			}
		}
	})
}
