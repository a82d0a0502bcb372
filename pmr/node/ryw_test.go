package node_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
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

// While several clients write, each job of each of them, at whichever router, counts exactly the records that
// the log holds before the job's cut, on every storage; and these are at least all that were acknowledged
// to anybody before the job was asked for.
func TestAllStoragesShowTheStateAtTheCut(t *testing.T) {
	o := slow(300 * time.Millisecond)
	o.storages, o.settings.Buckets = 3, 12
	bubbleWith(t, o, func(t *testing.T, c *cluster) {
		c.startRouter("r2", 3)
		var acknowledged atomic.Int64
		var mu sync.Mutex
		done := map[uint64]int64{} // words counted, by cut
		var clients sync.WaitGroup
		for client := range 4 {
			clients.Go(func() {
				b := c.mem.Connect(fmt.Sprint("client", client))
				defer b.Close()
				for i := range 60 {
					key := api.Bytes(keyIn(buckets.ID((client+i)%12), 12, 1000*client+i))
					if err := b.Request(t.Context(), "record.put", api.PutRequest{Key: &key, Value: api.Bytes("w")}, nil); err != nil {
						t.Error(err)
					}
					before := acknowledged.Add(1)
					if i%10 != 9 {
						continue
					}
					var reply api.JobReply
					if err := b.Request(t.Context(), "job.run", wordCount, &reply); err != nil || len(reply.Rows) != 1 {
						t.Errorf("the job answers %v, error %v", reply.Rows, err)
						return
					}
					if n := reply.Rows[0].Value.Int; n < before {
						t.Errorf("a job counts %d records of %d that were acknowledged before it", n, before)
					}
					mu.Lock()
					done[reply.Stats.Cut] = reply.Rows[0].Value.Int
					mu.Unlock()
				}
			})
		}
		clients.Wait()
		total := int64(0)
		c.must(c.log.ReadTo(t.Context(), 1, math.MaxUint64, nil, func(e api.LogEntry) error {
			if n, ok := done[e.Seq]; ok && n != total {
				t.Errorf("a job counts %d records at its cut at %d; the log has %d before it", n, e.Seq, total)
			}
			if strings.HasPrefix(e.Subject, "rec.") {
				total++
			}
			return nil
		}))
		if total != 240 || len(done) != 24 {
			t.Errorf("%d records and %d jobs, want 240 and 24", total, len(done))
		}
	})
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
