package pinion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/bus/busmem"
)

var sixteen = api.Settings{Buckets: 16, MaxRecord: 1<<20 - 4096}

func newWriter(t *testing.T, c *cluster, space string) *Writer {
	t.Helper()
	w, err := c.client.NewWriter(t.Context(), space)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// stored is what the log's records amount to: values by key, and the number of entries of each bucket.
func stored(t *testing.T, c *cluster, space string) (values map[string]string, perBucket map[buckets.ID]int) {
	t.Helper()
	values, perBucket = map[string]string{}, map[buckets.ID]int{}
	for _, e := range c.entries() {
		entry, err := buckets.Decode(e, sixteen.Buckets)
		if err != nil {
			t.Fatalf("entry %d on %s: %v", e.Seq, e.Subject, err)
		}
		r, ok := entry.(buckets.Records)
		if !ok || r.Space != space {
			t.Fatalf("entry %d on %s: %T of space %q", e.Seq, e.Subject, entry, r.Space)
		}
		perBucket[r.Bucket]++
		r.Each(func(key, value []byte, del bool) {
			if del {
				delete(values, string(key))
			} else {
				values[string(key)] = string(value)
			}
		})
	}
	return values, perBucket
}

func TestWriterStoresKeyedRecordsInTheirBuckets(t *testing.T) {
	c := newCluster(t, sixteen)
	w := newWriter(t, c, "logs")
	const n = 20_000
	for i := range n {
		if err := w.Put(fmt.Appendf(nil, "key-%d", i), bytes.Repeat([]byte{'v'}, i%300)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Delete([]byte("key-7")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	values, perBucket := stored(t, c, "logs")
	if len(values) != n-1 || len(perBucket) != sixteen.Buckets {
		t.Fatalf("%d records in %d buckets, want %d in 16", len(values), len(perBucket), n-1)
	}
	for i := range n {
		v, ok := values[fmt.Sprintf("key-%d", i)]
		if ok == (i == 7) || i != 7 && len(v) != i%300 {
			t.Fatalf("key-%d: %d bytes, there: %v", i, len(v), ok)
		}
	}
	if got := w.Written(); got.Records != n+1 {
		t.Errorf("counted %d records, want %d", got.Records, n+1)
	}
	if err := w.Add([]byte("x")); err == nil {
		t.Error("a closed writer takes records")
	}
}

func TestWriterSpreadsAssignedKeys(t *testing.T) {
	c := newCluster(t, sixteen)
	w := newWriter(t, c, "")
	var want []string
	for i := range 4000 { // 16 batches of 8 KiB hold 131 kB, so all buckets get some, and then larger ones
		value := fmt.Sprintf("%06d %s", i, strings.Repeat("x", 50))
		want = append(want, value)
		if err := w.Add([]byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, perBucket := stored(t, c, api.DefaultSpace)
	if len(perBucket) != 16 {
		t.Errorf("records in %d of 16 buckets: %v", len(perBucket), perBucket)
	}
	largest := 0
	var got []string
	for _, e := range c.entries() {
		largest = max(largest, len(e.Data))
		entry, _ := buckets.Decode(e, 16)
		entry.(buckets.Records).Each(func(_, value []byte, _ bool) { got = append(got, string(value)) })
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("record %d of the log is %.10q, want %.10q", i, got[i], want[i])
		}
	}
	if largest <= firstBatch || largest > fullBatch {
		t.Errorf("the largest entry has %d bytes; after the first round entries should grow up to %d", largest, fullBatch)
	}
}

func TestWriterRefusesARecordAndGoesOn(t *testing.T) {
	c := newCluster(t, api.Settings{Buckets: 16, MaxRecord: 1000})
	w := newWriter(t, c, "")
	wantCode(t, w.Add(make([]byte, 1001)), api.CodeRecordTooBig)
	wantCode(t, w.Put([]byte("k"), make([]byte, 1000)), api.CodeRecordTooBig)
	wantCode(t, w.Put(make([]byte, 70_000), nil), api.CodeRecordTooBig)
	wantCode(t, w.Put(buckets.AppendAssigned(nil, 1, 2, 3), nil), api.CodeBadRequest)
	if err := w.Put([]byte("k"), make([]byte, 999)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if values, _ := stored(t, c, api.DefaultSpace); len(values) != 1 {
		t.Errorf("%d records are stored, want 1", len(values))
	}
}

func TestWriterSendsTheLargestRecord(t *testing.T) {
	c := newCluster(t, sixteen)
	w := newWriter(t, c, strings.Repeat("s", buckets.MaxSpace))
	for _, add := range []func([]byte) error{w.Add, func(v []byte) error { return w.Put(nil, v) }} {
		if err := add(make([]byte, sixteen.MaxRecord)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// Two batches of a bucket under way at once could change places when the first has to be sent again.
func TestWriterKeepsTheOrderOfAKey(t *testing.T) {
	c := newCluster(t, sixteen)
	first := true
	c.mem.SetFaults(busmem.Faults{Append: func(string, string) busmem.AppendFault {
		defer func() { first = false }()
		if first {
			return busmem.AppendFault{Delay: 50 * time.Millisecond}
		}
		return busmem.AppendFault{}
	}})
	w := newWriter(t, c, "")
	last := ""
	for i := range 10 {
		last = fmt.Sprintf("%d%s", i, strings.Repeat("x", 100_000))
		if err := w.Put([]byte("k"), []byte(last)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if values, _ := stored(t, c, api.DefaultSpace); values["k"] != last {
		t.Errorf("the value is %.3q, want %.3q", values["k"], last)
	}
}

func TestWriterHoldsLittle(t *testing.T) {
	c := newCluster(t, api.Settings{Buckets: 2000, MaxRecord: 1 << 19})
	w := newWriter(t, c, "")
	value := make([]byte, 60_000)
	for i := range 3000 { // 180 MB, in batches that are never full
		if err := w.Put(fmt.Appendf(nil, "%d", i), value); err != nil {
			t.Fatal(err)
		}
		if w.held > maxHeld {
			t.Fatalf("%d bytes are held after %d records", w.held, i)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWriterCountsWhatIsStored(t *testing.T) {
	for name, fault := range map[string]struct {
		busmem.AppendFault
		doubt, lost uint64
	}{
		"refused":  {busmem.AppendFault{Err: api.Errorf(api.CodeLimitExceeded, "the disk is full")}, 0, 2},
		"in doubt": {busmem.AppendFault{Doubt: true}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, sixteen)
			w := newWriter(t, c, "")
			if err := w.Add([]byte("one")); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			c.mem.SetFaults(busmem.Faults{Append: func(string, string) busmem.AppendFault { return fault.AppendFault }})
			if err := w.Add([]byte("two")); err != nil {
				t.Fatal(err)
			}
			if err := w.sendSpread(); err != nil {
				t.Fatal(err)
			}
			_ = w.log.Wait(t.Context())
			if err := w.Add([]byte("three")); err != nil {
				t.Fatal(err)
			}
			var failure *WriteError
			if err := w.Close(); !errors.As(err, &failure) {
				t.Fatalf("Close: %v", err)
			}
			if failure.Stored != 1 || failure.InDoubt != fault.doubt || failure.Unstored != fault.lost {
				t.Errorf("got %v, want 1 stored, %d in doubt, %d not stored", failure, fault.doubt, fault.lost)
			}
			if err := w.Put([]byte("k"), nil); !errors.As(err, &failure) {
				t.Errorf("a failed writer answers %v", err)
			}
		})
	}
}

func TestWriterEndsWithItsContext(t *testing.T) {
	c := newCluster(t, sixteen)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := c.client.NewWriter(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add([]byte("one")); err != nil {
		t.Fatal(err)
	}
	cancel()
	var failure *WriteError
	if err := w.Close(); !errors.As(err, &failure) || failure.Stored != 0 {
		t.Fatalf("Close: %v", err)
	}
}
