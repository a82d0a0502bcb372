package node_test

import (
	"testing"

	"github.com/pinion-mr/pinion/api"
)

// A request to pin that is late or repeated makes a PMR of its own, even for the same job and attempt. It neither
// becomes another one nor takes the place of it, and an id that was given back is not used again.
func TestEachPinIsAnother(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		ids := map[string]bool{}
		pin := func(cut uint64) string {
			var reply api.PinReply
			c.must(c.request("storage.s1.pin", api.PinRequest{Job: "j", Attempt: 1, Router: "nobody", Cut: cut, TTLMS: 5000, Mode: "hold"}, &reply))
			if ids[reply.PMR] {
				t.Errorf("the id %s was used twice", reply.PMR)
			}
			ids[reply.PMR] = true
			return reply.PMR
		}
		first := pin(c.cut("j"))
		second := pin(c.cut("j"))
		c.must(c.request("storage.s1.release", api.PMRRequest{PMR: first}, nil))
		if n := pins(c.status()); n != 1 {
			t.Errorf("%d are pinned after one of two was released", n)
		}
		third := pin(c.cut("j"))
		for _, id := range []string{second, third} {
			c.must(c.request("storage.s1.release", api.PMRRequest{PMR: id}, nil))
		}
		if n := pins(c.status()); n != 0 {
			t.Errorf("%d are pinned after all were released", n)
		}
	})
}
