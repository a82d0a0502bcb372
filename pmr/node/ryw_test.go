package node_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/node"
)

// slowLog brings entries late.
type slowLog struct {
	node.Log
	by time.Duration
}

func (l slowLog) Read(ctx context.Context, from uint64, filters []string, fn func([]api.LogEntry) error) error {
	return l.Log.Read(ctx, from, filters, func(batch []api.LogEntry) error {
		time.Sleep(l.by)
		return fn(batch)
	})
}

// slow is a cluster in which s1 applies the log late.
func slow(by time.Duration) options {
	return options{storages: 2, settings: api.Settings{Buckets: 4}, tweak: func(peer string, p *node.Ports) {
		if peer == "s1" {
			p.Log = slowLog{p.Log, by}
		}
	}}
}

func TestAJobSeesWhatWasAcknowledgedBefore(t *testing.T) {
	for _, by := range []time.Duration{0, 700 * time.Millisecond} {
		t.Run(by.String(), func(t *testing.T) {
			bubbleWith(t, slow(by), func(t *testing.T, c *cluster) {
				for i := range 12 {
					key := api.Bytes(keyIn(buckets.ID(i%4), 4, i))
					c.must(c.request("record.put", api.PutRequest{Key: &key, Value: api.Bytes("w")}, nil))
					c.expectJob(map[string]int64{"w": int64(i) + 1})
					key = api.Bytes(keyIn(buckets.ID(i%4), 4, i+100))
					c.must(c.request("record.put", api.PutRequest{Key: &key, Value: api.Bytes("w")}, nil))
					var got api.GetReply
					c.must(c.request("record.get", api.KeyRequest{Key: key}, &got))
					c.must(c.request("record.delete", api.KeyRequest{Key: key}, nil))
				}
			})
		})
	}
}

// Of two records that were written one after the other, into buckets of a slow and of a fast storage, no job
// sees only the second.
func TestNoJobSeesAnEffectWithoutItsCause(t *testing.T) {
	bubbleWith(t, slow(300*time.Millisecond), func(t *testing.T, c *cluster) {
		ctx, stop := context.WithCancel(t.Context())
		var writer sync.WaitGroup
		writer.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				for _, w := range []struct {
					b    buckets.ID
					word string
				}{{0, "cause"}, {3, "effect"}} { // of s1, of s2
					frame := buckets.AppendFrame(nil, buckets.FlagAssign, nil, []byte(w.word))
					_, err := c.log.Append(context.Background(), buckets.RecSubject(w.b), nil, frame, fmt.Sprint(w.word, i))
					c.must(err)
					time.Sleep(7 * time.Millisecond)
				}
			}
		})
		for range 20 {
			counts, _, err := c.job(wordCount)
			c.must(err)
			if d := counts["cause"] - counts["effect"]; d < 0 || d > 1 {
				t.Errorf("counted %v", counts)
			}
			time.Sleep(113 * time.Millisecond)
		}
		stop()
		writer.Wait()
	})
}
