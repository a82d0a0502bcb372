package node_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
	"github.com/pinion-mr/pinion/pmr/node"
)

// certified runs a job and returns its certificate, checked against the log.
func (c *cluster) certified(req api.JobRequest) api.Certificate {
	c.t.Helper()
	_, reply, err := c.job(req)
	c.must(err)
	var cert api.Certificate
	c.must(c.request("job.certificate", api.CertificateRequest{Job: reply.Job}, &cert))
	st := reply.Stats
	if cert.Job != reply.Job || cert.Cut != st.Cut || cert.Records != st.Records || cert.Pairs != st.Pairs ||
		cert.Rows != st.Rows || cert.Skips != st.Skips || cert.Module != st.Module || cert.Cluster != c.settings.ID {
		c.t.Errorf("the certificate is %+v\nof a job with %+v", cert, *st)
	}
	at, records := c.logUpTo(cert)
	if check := pmr.CheckCertificate(cert, at); len(check.Faults)+len(check.Open) != 0 || check.Proven == 0 {
		c.t.Errorf("checked: %+v", check)
	}
	for _, s := range cert.Storages {
		for _, b := range s.Buckets {
			if len(req.Keys) == 0 && b.Records != records[b.Bucket] {
				c.t.Errorf("bucket %d: %d records are certified, the log has %d", b.Bucket, b.Records, records[b.Bucket])
			}
		}
	}
	return cert
}

// logUpTo is the table at a certificate's cut, and the number of records of each bucket, which all have keys of
// their own. The cut must be the job's.
func (c *cluster) logUpTo(cert api.Certificate) (*buckets.View, map[uint16]uint64) {
	c.t.Helper()
	table, records := buckets.NewTable(c.settings.Buckets), map[uint16]uint64{}
	var last buckets.Entry
	c.must(c.log.ReadTo(c.t.Context(), 1, cert.Cut, nil, func(e api.LogEntry) error {
		entry, err := buckets.Decode(e, c.settings.Buckets)
		c.must(err)
		last = entry
		if r, ok := entry.(buckets.Records); ok {
			r.Each(func(_, _ []byte, _ bool) { records[uint16(r.Bucket)]++ })
			return nil
		}
		_, err = table.Apply(e.Seq, entry)
		return err
	}))
	if want := (buckets.Cut{Job: cert.Job, Attempt: cert.Attempt}); last != want {
		c.t.Errorf("the log has %+v at the cut, want %+v", last, want)
	}
	return table.View(), records
}

func TestCertificates(t *testing.T) {
	bubble(t, 3, small, func(t *testing.T, c *cluster) {
		c.startRouter("r2", 3)
		c.put("", "a b", "b", "b c c c", "d", "e e", "f", "g", "h", "i", "j", "k", "l l", "m", "n n n")
		first := c.certified(wordCount)
		again := c.certified(wordCount)
		if again.Cut <= first.Cut || again.Output != first.Output || again.Params != first.Params {
			t.Errorf("the same job certifies\n%+v\nafter\n%+v", again, first)
		}
		other := wordCount
		other.Reduce = "count"
		if cert := c.certified(other); cert.Params == first.Params {
			t.Error("another reduce has the same digest of params")
		}
		part := wordCount
		part.Buckets = []uint16{3, 1, 7}
		if cert := c.certified(part); !slices.Equal(cert.Wanted, []uint16{1, 3, 7}) || cert.Output == first.Output {
			t.Errorf("of a part: %+v", cert)
		}
		keys := wordCount
		keys.Keys = []api.Bytes{api.Bytes(keyIn(2, 12, 1))}
		if cert := c.certified(keys); !slices.Equal(cert.Wanted, []uint16{2}) || cert.Records != 0 {
			t.Errorf("of a key: %+v", cert)
		}
		c.put("", "z")
		if cert := c.certified(wordCount); cert.Output == first.Output || cert.Params != first.Params {
			t.Errorf("of other records: %+v", cert)
		}
		for range 8 { // whichever router is asked
			c.must(c.request("job.certificate", api.CertificateRequest{Job: first.Job}, nil))
		}
	})
}

// Records that are left out count as read, and what a function emits before it fails does not.
func TestTheCertificateOfAJobThatSkips(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", "a b", "b bad", "c", "bad", "d")
		c.mapper.word = func(_ context.Context, word string, _ func(context.Context) error) error {
			if word == "bad" {
				return api.Errorf(api.CodeGuestFailed, "a bad word")
			}
			return nil
		}
		req := wordCount
		req.OnError = api.OnErrorSkip
		if cert := c.certified(req); cert.Records != 5 || cert.Skips != 2 || cert.Pairs != 4 {
			t.Errorf("certified %+v", cert)
		}
	})
}

// The digest of the output is that of the rows that the client gets, wherever the buckets are.
func TestTheDigestOfTheOutput(t *testing.T) {
	var digests []string
	for _, storages := range []int{1, 3} {
		bubble(t, storages, small, func(t *testing.T, c *cluster) {
			c.put("", words(40)...)
			req := wordCount
			req.Sort = "-value"
			cert := c.certified(req)
			digest := pmr.NewRowDigest()
			for _, row := range c.pages(req, func(api.JobReply) {}) {
				digest.Add(row)
			}
			if cert.Output != digest.Sum() || cert.Rows != digest.Rows() {
				t.Errorf("certified are %d rows of %s, sent %d of %s", cert.Rows, cert.Output, digest.Rows(), digest.Sum())
			}
			digests = append(digests, cert.Output)
		})
	}
	if digests[0] != digests[1] {
		t.Errorf("the same records on one storage give %s, on three %s", digests[0], digests[1])
	}
}

func TestNoCertificate(t *testing.T) {
	bubble(t, 2, small, func(t *testing.T, c *cluster) {
		c.put("", "a", "b", "c")
		certificate := func(job string) error {
			return c.request("job.certificate", api.CertificateRequest{Job: job}, &api.Certificate{})
		}
		if err := certificate("none"); api.CodeOf(err) != api.CodeUnknownJob {
			t.Errorf("of a job that never was: %v", err)
		}
		mapping, free := c.block()
		req := wordCount
		req.Job = "j1"
		done := c.background(req)
		<-mapping
		if err := certificate("j1"); api.CodeOf(err) != api.CodeBusy || !strings.Contains(err.Error(), "has not ended") {
			t.Errorf("of a job that runs: %v", err)
		}
		free()
		c.must(<-done)
		c.must(certificate("j1"))
		c.mapper.setHook(func(context.Context, node.Task, buckets.ID) error {
			return api.Errorf(api.CodeGuestFailed, "no")
		})
		req.Job = "j2"
		if err := <-c.background(req); api.CodeOf(err) != api.CodeGuestFailed {
			t.Errorf("the job ended with %v", err)
		}
		if err := certificate("j2"); api.CodeOf(err) != api.CodeGuestFailed {
			t.Errorf("of a job that failed: %v", err)
		}
	})
}

// liar changes what storage s1 tells of its first map.
type liar struct {
	node.Peers
	lie  func(end *api.MapEnd)
	told *atomic.Bool
}

func (l liar) Request(ctx context.Context, subject string, in, out any) error {
	err := l.Peers.Request(ctx, subject, in, out)
	if reply, ok := out.(*api.MapReply); ok && reply.End != nil && strings.HasPrefix(subject, "storage.s1.") && !l.told.Swap(true) {
		l.lie(reply.End)
	}
	return err
}

// A storage whose counts contradict each other is not believed.
func TestCountsThatContradictEachOther(t *testing.T) {
	for name, lie := range map[string]func(end *api.MapEnd){
		"records": func(end *api.MapEnd) { end.BucketRecords[0]++ },
		"pairs":   func(end *api.MapEnd) { end.BucketPairs[0]++ },
		"a bucket less": func(end *api.MapEnd) {
			last := len(end.BucketRecords) - 1
			end.Records, end.Pairs = end.Records-end.BucketRecords[last], end.Pairs-end.BucketPairs[last]
			end.BucketRecords, end.BucketPairs = end.BucketRecords[:last], end.BucketPairs[:last]
		},
	} {
		t.Run(name, func(t *testing.T) {
			told := &atomic.Bool{}
			tweak := func(peer string, p *node.Ports) {
				if peer == "r1" {
					p.Peers = liar{p.Peers, lie, told}
				}
			}
			bubbleWith(t, options{storages: 2, settings: small, tweak: tweak}, func(t *testing.T, c *cluster) {
				c.put("", "a b", "b", "c")
				counts, reply, err := c.job(wordCount)
				c.must(err)
				expectCounts(t, counts, map[string]int64{"a": 1, "b": 2, "c": 1})
				if reply.Stats.Attempts != 2 {
					t.Errorf("%d attempts, want one that was not believed and one more", reply.Stats.Attempts)
				}
			})
		})
	}
}
