//go:build unix

package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// double answers in place of a storage that is stopped.
type double struct {
	c    *cluster
	real *process

	mu   sync.Mutex
	pins []api.PinRequest
	maps []string // subjects of what was sent to any storage
}

// replace stops a storage and has pin answer for it until the test's end or until back is called.
func (c *cluster) replace(b *bus.Bus, id string, pin func(n int, req api.PinRequest) (api.PinReply, error)) (d *double, back func()) {
	c.t.Helper()
	d = &double{c: c, real: c.storage(id)}
	d.real.pause()
	stopPin, err := bus.Handle(b, "storage."+id+".pin", "", func(ctx context.Context, req api.PinRequest) (api.PinReply, error) {
		d.mu.Lock()
		d.pins = append(d.pins, req)
		n := len(d.pins)
		d.mu.Unlock()
		return pin(n, req)
	})
	if err != nil {
		c.t.Fatal(err)
	}
	stopRelease, err := bus.Handle(b, "storage."+id+".release", "", func(context.Context, api.PMRRequest) (api.Empty, error) {
		return api.Empty{}, nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	stopMaps, err := b.Subscribe("storage.*.map", func(subject string, _ []byte) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.maps = append(d.maps, subject)
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return d, sync.OnceFunc(func() {
		stopPin()
		stopRelease()
		stopMaps()
		d.real.resume()
	})
}

// A faulty storage loses a bucket and doubles another, so that the counts add up. The job fails and names both, and
// nothing is mapped. (Who compares a sum of counts answers as if all were well.)
func TestFaultyStorageIsFound(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	text := newText(31, 500)
	c.importLines("", text.lines)
	c.wantRows(countWords(""), text.rows())
	m := c.newMoves(c.bus())
	owned := m.ownedBy("s3")
	lost, doubled := uint16(owned[0]), uint16(owned[2]) // apart
	incarnation := c.status("s3").Incarnation
	d, back := c.replace(m.bus, "s3", func(_ int, _ api.PinRequest) (api.PinReply, error) {
		reply := api.PinReply{PMR: strings.ToLower(rand.Text()), Storage: "s3", Incarnation: incarnation, HasSpace: true}
		for _, b := range owned {
			pin := api.BucketPin{Bucket: uint16(b), Generation: m.table.View().Owner(b).Generation}
			switch pin.Bucket {
			case lost:
				continue
			case doubled:
				reply.Buckets = append(reply.Buckets, pin)
			}
			reply.Buckets = append(reply.Buckets, pin)
		}
		return reply, nil
	})
	defer back()
	job := countWords("")
	job.Timeout = 3 * time.Second
	_, err := c.run(t.Context(), job)
	e := api.AsError(err)
	if e.Code != api.CodeCoverage && e.Code != api.CodeTimeout || e.Details["buckets"] != fmt.Sprintf("%d, %d", lost, doubled) {
		t.Errorf("the job: code %s, details %v: %v", e.Code, e.Details, err)
	}
	for _, part := range []string{fmt.Sprint("pinned by nobody: bucket ", lost), fmt.Sprint("pinned twice: bucket ", doubled)} {
		if !strings.Contains(e.Message, part) {
			t.Errorf("the message does not say %q: %s", part, e.Message)
		}
	}
	d.mu.Lock()
	if len(d.pins) < 2 || len(d.maps) > 0 {
		t.Errorf("%d attempts pinned, and these maps were asked for: %v", len(d.pins), d.maps)
	}
	d.mu.Unlock()
	back()
	c.waitRight(30*time.Second, countWords(""), text.rows())
	c.wantNothingPinned()
}

// A storage says twice that it does not own a bucket, as in a race with a move, and is then not to be reached. The
// job's progress stays within what there is, and its error tells the attempts and the last reason.
func TestRefusalsThenSilence(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 16})
	c.addPaced()
	m := c.newMoves(c.bus())
	owned := m.ownedBy("s2")
	incarnation := c.status("s2").Incarnation
	_, back := c.replace(m.bus, "s2", func(n int, req api.PinRequest) (api.PinReply, error) {
		if n > 2 {
			<-t.Context().Done()
		}
		reply := api.PinReply{PMR: strings.ToLower(rand.Text()), Storage: "s2", Incarnation: incarnation, HasSpace: true}
		for _, b := range owned[1:] {
			reply.Buckets = append(reply.Buckets, api.BucketPin{Bucket: uint16(b), Generation: m.table.View().Owner(b).Generation})
		}
		return reply, nil
	})
	defer back()
	job := paced(1, 1)
	job.Timeout = 7 * time.Second // a pin is waited for 5 s
	var mu sync.Mutex
	var reasons []string
	job.Progress = func(p api.JobProgress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Buckets > p.Of || p.Records > pacedRecords {
			t.Errorf("progress: %d of %d buckets, %d records", p.Buckets, p.Of, p.Records)
		}
		if p.Reason != "" && !slices.Contains(reasons, p.Reason) {
			reasons = append(reasons, p.Reason)
		}
	}
	_, err := c.run(t.Context(), job)
	e := api.AsError(err)
	if e.Code != api.CodeTimeout || e.Details["storage"] != "s2" {
		t.Errorf("the job: code %s, details %v: %v", e.Code, e.Details, err)
	}
	for _, part := range []string{"of attempt ", "the last failure: storage s2, pin"} {
		if !strings.Contains(e.Message, part) {
			t.Errorf("the message does not say %q: %s", part, e.Message)
		}
	}
	mu.Lock()
	if want := fmt.Sprint("pinned by nobody: bucket ", owned[0]); len(reasons) == 0 || !strings.Contains(reasons[0], want) {
		t.Errorf("the reasons of the attempts do not begin with %q: %q", want, reasons)
	}
	mu.Unlock()
	back()
	c.waitRight(30*time.Second, paced(1, 1), pacedRows)
	c.wantNothingPinned()
}
