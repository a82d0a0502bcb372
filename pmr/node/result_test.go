package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

// pages fetches all rows of a job. check sees every reply.
func (c *cluster) pages(req api.JobRequest, check func(api.JobReply)) []api.Row {
	c.t.Helper()
	var reply api.JobReply
	c.must(c.request("job.run", req, &reply))
	rows := reply.Rows
	for check(reply); reply.Next != ""; check(reply) {
		next := api.ResultRequest{Job: reply.Job, Cursor: reply.Next, MaxBytes: req.MaxBytes}
		reply = api.JobReply{}
		c.must(c.request("job.result", next, &reply))
		rows = append(rows, reply.Rows...)
	}
	return rows
}

func words(n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("w%04d", i))
	}
	return list
}

func TestPagesOfALimitedResult(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		list := words(500)
		c.put("", list...)
		n := 0
		rows := c.pages(api.JobRequest{Module: "words", Reduce: "sum", Limit: 120, MaxBytes: 1000}, func(api.JobReply) { n++ })
		if len(rows) != 120 || n < 5 {
			t.Fatalf("%d rows in %d pages", len(rows), n)
		}
		for i, row := range rows {
			if string(row.Key) != list[i] {
				t.Fatalf("row %d is %s", i, row.Key)
			}
		}
	})
}

func TestOldResultsMakeRoom(t *testing.T) {
	bubbleWith(t, options{storages: 2, settings: small, memory: 300_000}, func(t *testing.T, c *cluster) {
		c.put("", words(1000)...)
		for i := range 8 {
			req := wordCount
			req.Job = fmt.Sprintf("j%d", i)
			_, _, err := c.job(req)
			c.must(err)
			time.Sleep(2 * time.Second)
		}
		var kept []int
		for i := range 8 {
			var reply api.JobReply
			err := c.request("job.result", api.ResultRequest{Job: fmt.Sprintf("j%d", i)}, &reply)
			switch {
			case err == nil && len(reply.Rows) == 1000:
				kept = append(kept, i)
			case api.CodeOf(err) != api.CodeUnknownJob:
				t.Errorf("job %d: %v", i, err)
			}
		}
		if len(kept) == 0 || len(kept) == 8 || !slices.IsSorted(kept) || kept[0] != 8-len(kept) {
			t.Errorf("kept are %v", kept)
		}
		time.Sleep(6 * time.Minute)
		if err := c.request("job.result", api.ResultRequest{Job: "j7"}, nil); api.CodeOf(err) != api.CodeUnknownJob {
			t.Errorf("a result of six minutes ago: %v", err)
		}
	})
}

func TestWaitingForAResult(t *testing.T) {
	bubble(t, 1, small, func(t *testing.T, c *cluster) {
		c.put("", "a")
		c.mapper.setHook(func(context.Context, node.Task, buckets.ID) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		began := time.Now()
		var reply api.JobReply
		c.must(c.request("job.run", api.JobRequest{Job: "j", Module: "words", Reduce: "sum", WaitMS: 1000}, &reply))
		if took := time.Since(began); reply.Status != api.JobRunning || took < time.Second || took > 1100*time.Millisecond {
			t.Errorf("%s after %s", reply.Status, took)
		}
		c.must(c.request("job.result", api.ResultRequest{Job: "j", Cursor: reply.Next, WaitMS: 2000}, &reply))
		if took := time.Since(began); reply.Status != api.JobRunning || took < 3*time.Second || took > 3100*time.Millisecond {
			t.Errorf("%s after %s", reply.Status, took)
		}
		c.must(c.request("job.result", api.ResultRequest{Job: "j", Cursor: reply.Next, WaitMS: 60_000}, &reply))
		if took := time.Since(began); reply.Status != api.JobDone || len(reply.Rows) != 1 || took > 11*time.Second {
			t.Errorf("%s after %s", reply.Status, took)
		}
	})
}

func TestARowLargerThanAMessage(t *testing.T) {
	bubbleWith(t, options{storages: 1, settings: small, maxPayload: 32 << 10}, func(t *testing.T, c *cluster) {
		c.put("", "a", strings.Repeat("w", 12<<10))
		var reply api.JobReply
		c.must(c.request("job.run", api.JobRequest{Job: "j", Module: "words", Function: "long", Reduce: "sum", MaxBytes: 60}, &reply))
		if len(reply.Rows) != 1 || string(reply.Rows[0].Key) != "aaaa" {
			t.Errorf("%d rows", len(reply.Rows))
		}
		err := c.request("job.result", api.ResultRequest{Job: "j", Cursor: reply.Next}, &reply)
		if api.CodeOf(err) != api.CodeResultTooLarge || !strings.Contains(err.Error(), "wwww") {
			t.Errorf("the large row came with %v", err)
		}
	})
}

// JSON takes six bytes for a control character, and base64 for what is not UTF-8.
func TestNoReplyIsLargerThanAMessage(t *testing.T) {
	const payload = 64 << 10
	bubbleWith(t, options{storages: 2, settings: small, maxPayload: payload}, func(t *testing.T, c *cluster) {
		var list []string
		for i := range 40 {
			for _, s := range []string{"\x01", "\"", "\\", "\u2028", "\xff\x02", "\x7f", "é"} {
				list = append(list, fmt.Sprintf("%03d", i)+strings.Repeat(s, 700))
			}
		}
		c.put("", list...)
		for _, maxBytes := range []int{0, 1 << 30} {
			largest := 0
			rows := c.pages(api.JobRequest{Module: "words", Reduce: "sum", MaxBytes: maxBytes, Proof: true}, func(reply api.JobReply) {
				for _, f := range []api.Format{api.JSON, api.Msgpack} {
					body, err := api.Encode(f, reply)
					c.must(err)
					largest = max(largest, len(body))
				}
			})
			if len(rows) != len(list) || largest > payload || largest < payload/4 {
				t.Errorf("max_bytes %d: %d rows of %d, the largest reply has %d bytes", maxBytes, len(rows), len(list), largest)
			}
		}
	})
}
