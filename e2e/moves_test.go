//go:build unix

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// moveNow orders buckets to go to a storage and waits until they are there.
func (c *cluster) moveNow(b *bus.Bus, to string, list ...uint16) {
	c.t.Helper()
	if err := b.Request(c.t.Context(), "admin.move", api.MoveRequest{Buckets: list, To: to}, nil); err != nil {
		c.t.Fatal(err)
	}
	c.waitFor(60*time.Second, fmt.Sprintf("%d buckets to be at %s", len(list), to), func(ctx context.Context) error {
		for _, info := range c.bucketsNow(ctx, b) {
			if slices.Contains(list, info.Bucket) && info.Owner != to {
				return fmt.Errorf("bucket %d is %s at %s", info.Bucket, info.State, info.Owner)
			}
		}
		return nil
	})
}

// bucketsNow asks how all buckets are.
func (c *cluster) bucketsNow(ctx context.Context, b *bus.Bus) []api.BucketInfo {
	c.t.Helper()
	var all []api.BucketInfo
	for req := (api.BucketsRequest{}); ; {
		var reply api.BucketsReply
		if err := b.Request(ctx, "admin.buckets", req, &reply); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, reply.Buckets...)
		if reply.Next == 0 {
			return all
		}
		req.From = uint16(reply.Next)
	}
}

// bucketsOf lists the first n buckets of a storage.
func (c *cluster) bucketsOf(b *bus.Bus, storage string, n int) []uint16 {
	c.t.Helper()
	var list []uint16
	for _, info := range c.bucketsNow(c.t.Context(), b) {
		if info.Owner == storage && len(list) < n {
			list = append(list, info.Bucket)
		}
	}
	if len(list) < n {
		c.t.Fatalf("%s owns %d buckets, want %d", storage, len(list), n)
	}
	return list
}

func (c *cluster) pauseRebalancer(b *bus.Bus) {
	c.t.Helper()
	if err := b.Request(c.t.Context(), "admin.topology", api.TopologyRequest{Paused: new(true)}, nil); err != nil {
		c.t.Fatal(err)
	}
}

// tally counts records while others are written.
type tally struct {
	offered, acknowledged atomic.Int64
	jobs, refused         atomic.Int64
}

// unless is an error, but for one that comes of the end of ctx.
func unless(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// write stores records, some dozen at a time, until ctx ends.
func (y *tally) write(ctx context.Context, c *cluster) error {
	for ctx.Err() == nil {
		w, err := c.client.NewWriter(ctx, "tally")
		if err != nil {
			return unless(ctx, err)
		}
		for range 50 {
			y.offered.Add(1)
			err = errors.Join(err, w.Add([]byte("x")))
		}
		if err := errors.Join(err, w.Close()); err != nil {
			return unless(ctx, err)
		}
		y.acknowledged.Store(y.offered.Load())
	}
	return nil
}

// count runs jobs until ctx ends: each counts what was there when it began, and nothing that came after it ended.
func (y *tally) count(ctx context.Context, c *cluster, mode string) error {
	for ctx.Err() == nil {
		least := y.acknowledged.Load()
		n, err := c.countTally(ctx, pinion.Job{Module: "wordcount", Reduce: "sum", Space: "tally", Mode: mode, Timeout: 30 * time.Second})
		switch {
		case api.CodeOf(err) == api.CodeUnknownSpace && least == 0:
		case retried(err):
			y.refused.Add(1)
		case err != nil:
			return unless(ctx, err)
		case n < least || n > y.offered.Load():
			return fmt.Errorf("a job in mode %s counted %d records; %d were acknowledged when it began, %d offered when it ended", mode, n, least, y.offered.Load())
		default:
			y.jobs.Add(1)
		}
	}
	return nil
}

// countTally runs a job and adds its rows up.
func (c *cluster) countTally(ctx context.Context, job pinion.Job) (n int64, err error) {
	result, err := c.client.Run(ctx, job)
	if err != nil {
		return 0, err
	}
	for row, err := range result.Rows(ctx) {
		if err != nil {
			return 0, err
		}
		n += row.Value.Int
	}
	return n, nil
}

// Sixteen buckets go to another storage and back, again and again, while records are written and counted. No job
// notices more than that it takes a moment.
func TestMovesWhileCounting(t *testing.T) {
	heavy(t)
	c := startCluster(t, settings{buckets: 64})
	b := c.bus()
	c.pauseRebalancer(b)
	ctx, stop := context.WithCancel(t.Context())
	var y tally
	var busy sync.WaitGroup
	failed := make(chan error, 8)
	run := func(fn func() error) {
		busy.Go(func() {
			if err := fn(); err != nil {
				failed <- err
			}
		})
	}
	run(func() error { return y.write(ctx, c) })
	for _, mode := range []string{api.ModeHold, api.ModeHold, api.ModeSnapshot} {
		run(func() error { return y.count(ctx, c, mode) })
	}
	list := c.bucketsOf(b, "s1", 16)
	began := time.Now()
	rounds := scaled(8)
	for i := range rounds {
		c.moveNow(b, []string{"s2", "s1"}[i%2], list...)
	}
	took := time.Since(began)
	// The source is killed as soon as the destination owns them, and comes back with what it had not forgotten yet.
	c.moveNow(b, "s3", list...)
	p := c.storage([]string{"s2", "s1"}[1-rounds%2])
	p.kill()
	p.start()
	c.waitHealthy()
	c.moveNow(b, "s2", list...)
	stop()
	busy.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	t.Logf("%d moves of 16 buckets in %s; %d jobs right, %d failed for a reason that passes; %d records", rounds, took.Round(time.Millisecond), y.jobs.Load(), y.refused.Load(), y.acknowledged.Load())
	if y.jobs.Load() == 0 {
		t.Error("no job was done")
	}
	c.waitHealthy()
	c.wantNothingPinned()
	c.wantTally(&y)
	c.wantParallelMoves(b)
}

// wantTally demands that every acknowledged record is there once. Those of the last batch may be there or not.
func (c *cluster) wantTally(y *tally) {
	c.t.Helper()
	n, err := c.countTally(c.t.Context(), pinion.Job{Module: "wordcount", Reduce: "sum", Space: "tally"})
	if err != nil {
		c.t.Fatal(err)
	}
	if n < y.acknowledged.Load() || n > y.offered.Load() {
		c.t.Errorf("%d records at the end; %d were acknowledged, %d offered", n, y.acknowledged.Load(), y.offered.Load())
	}
}

// wantParallelMoves reads what any NATS client can: how many orders are worked on at a time.
func (c *cluster) wantParallelMoves(b *bus.Bus) {
	c.t.Helper()
	for _, n := range []int{1, 3, 1} {
		set := api.TopologyRequest{Set: map[string]string{"parallel_moves": fmt.Sprint(n)}}
		if err := b.Request(c.t.Context(), "admin.topology", set, nil); err != nil {
			c.t.Fatal(err)
		}
		c.waitFor(10*time.Second, fmt.Sprintf("the consumer of moves to hand out %d at a time", n), func(context.Context) error {
			out, err := rawRequest(c.server, "$JS.API.CONSUMER.INFO.PINION_dev_REBALANCE.workers")
			if err != nil {
				return err
			}
			var info struct {
				Config struct {
					MaxAckPending int `json:"max_ack_pending"`
				} `json:"config"`
			}
			if err := json.Unmarshal(out, &info); err != nil {
				return err
			}
			if info.Config.MaxAckPending != n {
				return fmt.Errorf("max_ack_pending is %d", info.Config.MaxAckPending)
			}
			return nil
		})
	}
}

// A storage starts with a folder of the time before buckets left it and others came, and records were written since. It
// finds out from the log, whether the log still has all of that time or not.
func TestAStorageRestoredFromABackup(t *testing.T) {
	heavy(t)
	for name, purged := range map[string]bool{"the log has all since": false, "the log was purged since": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settings{buckets: 32}
			if purged {
				s = settings{buckets: 32, checkpoint: "64KiB", window: "2s"}
			}
			c := startCluster(t, s)
			b := c.bus()
			c.pauseRebalancer(b)
			text := newText(31, scaled(20_000))
			c.importLines("", text.lines)
			c.wantRows(countWords(""), text.rows())
			p := c.storage("s1")
			p.terminate()
			if err := os.CopyFS(c.folder("backup"), os.DirFS(c.folder("s1"))); err != nil {
				t.Fatal(err)
			}
			p.start()
			c.waitHealthy()
			log, err := b.Log(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			reached, err := log.State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			away := c.bucketsOf(b, "s1", 5)
			c.moveNow(b, "s2", away...)
			c.moveNow(b, "s1", c.bucketsOf(b, "s3", 3)...)
			c.moveNow(b, "s1", away[:1]...) // there and back again
			more := newText(32, scaled(2_000))
			c.importLines("", more.lines)
			for _, line := range more.lines {
				text.add(line)
			}
			if purged {
				c.importUntilPurged(log, text, reached.Last, time.Now())
			}
			c.wantRows(countWords(""), text.rows())
			before := c.bucketsNow(t.Context(), b)

			p.terminate()
			if err := errors.Join(os.RemoveAll(c.folder("s1")), os.Rename(c.folder("backup"), c.folder("s1"))); err != nil {
				t.Fatal(err)
			}
			p.start()
			c.waitHealthy()
			c.waitRight(30*time.Second, countWords(""), text.rows())
			for i, now := range c.bucketsNow(t.Context(), b) {
				if now.Owner != before[i].Owner || now.Generation != before[i].Generation {
					t.Errorf("bucket %d belongs to %s since %d, and did to %s since %d", i, now.Owner, now.Generation, before[i].Owner, before[i].Generation)
				}
			}
			c.waitFor(20*time.Second, "s1 to have forgotten what it gave away", func(context.Context) error {
				if st := c.status("s1"); st.Loaded != st.Owned || st.Reloads > 0 != purged {
					return fmt.Errorf("it has loaded %d buckets, owns %d, and has loaded all again %d times", st.Loaded, st.Owned, st.Reloads)
				}
				return nil
			})
		})
	}
}

// rawRequest asks a NATS server in its own words, as any client does.
func rawRequest(server, subject string) ([]byte, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(server, "nats://"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "CONNECT {\"verbose\":false}\r\nSUB answer 1\r\nPUB %s answer 0\r\n\r\n", subject)
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		var size int
		if n, _ := fmt.Sscanf(line, "MSG answer 1 %d\r\n", &size); n == 1 {
			body := make([]byte, size)
			_, err := io.ReadFull(in, body)
			return body, err
		}
		if strings.HasPrefix(line, "-ERR") {
			return nil, errors.New(line)
		}
	}
}
