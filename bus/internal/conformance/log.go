package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

var errEnough = errors.New("enough")

// readAll reads to the end of what is there, as "seq subject data".
func readAll(ctx context.Context, t *testing.T, l Log, from, to uint64, filters ...string) []string {
	t.Helper()
	var out []string
	check(t, l.ReadTo(ctx, from, to, filters, func(e api.LogEntry) error {
		out = append(out, fmt.Sprintf("%d %s %s", e.Seq, e.Subject, e.Data))
		return nil
	}))
	return out
}

// follow reads n entries by Read.
func follow(ctx context.Context, t *testing.T, l Log, from uint64, n int, filters ...string) []string {
	t.Helper()
	var out []string
	err := l.Read(ctx, from, filters, func(batch []api.LogEntry) error {
		for _, e := range batch {
			out = append(out, fmt.Sprintf("%d %s %s", e.Seq, e.Subject, e.Data))
		}
		if len(out) >= n {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("Read ended with %v after %q", err, out)
	}
	return out
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

func newLog(ctx context.Context, t *testing.T, p Peer) Log {
	t.Helper()
	return must(p.CreateLog(ctx, bus.LogConfig{Replicas: 1}))(t)
}

func appendAll(ctx context.Context, t *testing.T, l Log, subjects ...string) {
	t.Helper()
	for i, s := range subjects {
		seq := must(l.Append(ctx, s, nil, []byte{byte('a' + i)}, ""))(t)
		if seq != uint64(i+1) {
			t.Fatalf("entry %d got position %d", i+1, seq)
		}
	}
}

func logOrder(t *testing.T, p Peer) {
	ctx := within(t)
	l := newLog(ctx, t, p)
	appendAll(ctx, t, l, "rec.1", "own.1", "rec.2", "cut", "own.2", "rec.1", "rec.17")
	same(t, follow(ctx, t, l, 0, 7), "1 rec.1 a", "2 own.1 b", "3 rec.2 c", "4 cut d", "5 own.2 e", "6 rec.1 f", "7 rec.17 g")
	same(t, follow(ctx, t, l, 2, 4, "own.*", "cut", "rec.1"), "2 own.1 b", "4 cut d", "5 own.2 e", "6 rec.1 f")
	same(t, follow(ctx, t, l, 3, 1, "rec.*")[:1], "3 rec.2 c")

	s := must(l.State(ctx))(t)
	if s.First != 1 || s.Last != 7 || s.Bytes == 0 || s.Replicas != 1 {
		t.Fatalf("state %+v", s)
	}
	e := must(l.Entry(ctx, 4))(t)
	if e.Seq != 4 || e.Subject != "cut" || string(e.Data) != "d" || e.Time.IsZero() {
		t.Fatalf("entry %+v", e)
	}
	for _, seq := range []uint64{0, 8} {
		_, err := l.Entry(ctx, seq)
		wantCode(t, err, api.CodeNotFound)
	}
	again := must(p.CreateLog(ctx, bus.LogConfig{Replicas: 3}))(t) // stays as it is
	if s := must(again.State(ctx))(t); s.Replicas != 1 || s.Last != 7 {
		t.Fatalf("state after a second creation %+v", s)
	}
}

func logHeaders(t *testing.T, p Peer) {
	ctx := within(t)
	l := newLog(ctx, t, p)
	want := map[string]string{api.HeaderSpace: "users", api.HeaderKey: "a  b é: c"}
	must(l.Append(ctx, "rec.1", want, []byte("x"), "id1"))(t)
	must(l.Append(ctx, "rec.1", nil, nil, ""))(t)
	must(l.Append(ctx, "rec.1", map[string]string{api.HeaderKey: ""}, nil, ""))(t)
	var got []map[string]string
	check(t, l.ReadTo(ctx, 1, 3, nil, func(e api.LogEntry) error {
		got = append(got, e.Header)
		return nil
	}))
	got = append(got, must(l.Entry(ctx, 1))(t).Header)
	for i, w := range []map[string]string{want, nil, {api.HeaderKey: ""}, want} {
		if fmt.Sprint(got[i]) != fmt.Sprint(w) {
			t.Errorf("header %d is %q, want %q", i, got[i], w)
		}
	}
	for _, bad := range []map[string]string{
		{"Nats-TTL": "1s"}, {api.HeaderKey: "a\nb"}, {api.HeaderKey: "a\r"}, {api.HeaderKey: " a"}, {api.HeaderKey: "a\t"},
	} {
		_, err := l.Append(ctx, "rec.1", bad, nil, "")
		wantCode(t, err, api.CodeBadRequest)
	}
	_, err := l.Append(ctx, "rec.1", nil, make([]byte, p.MaxPayload()+1), "")
	wantCode(t, err, api.CodeLimitExceeded)
	if s := must(l.State(ctx))(t); s.Last != 3 {
		t.Fatalf("a refused entry was stored: %+v", s)
	}
}

func logDuplicates(t *testing.T, p Peer) {
	ctx := within(t)
	l := newLog(ctx, t, p)
	for _, c := range []struct {
		id  string
		seq uint64
	}{{"a", 1}, {"b", 2}, {"a", 1}, {"", 3}, {"", 4}, {"b", 2}} {
		if seq := must(l.Append(ctx, "rec.1", nil, []byte(c.id), c.id))(t); seq != c.seq {
			t.Fatalf("id %q got position %d, want %d", c.id, seq, c.seq)
		}
	}
	same(t, readAll(ctx, t, l, 1, 9), "1 rec.1 a", "2 rec.1 b", "3 rec.1 ", "4 rec.1 ")
}

func logReadWhileAppending(t *testing.T, p Peer) {
	ctx := within(t)
	l := newLog(ctx, t, p)
	const writers, each = 4, 250
	var wg sync.WaitGroup
	for w := range writers {
		other := must(p.Again(t).Log(ctx))(t)
		wg.Go(func() {
			for i := range each {
				if _, err := other.Append(ctx, fmt.Sprintf("rec.%d", w), nil, fmt.Appendf(nil, "%d", i), ""); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	got := follow(ctx, t, l, 1, writers*each)
	wg.Wait()
	next := map[string]int{}
	for i, line := range got {
		f := strings.Fields(line)
		if f[0] != fmt.Sprint(i+1) || f[2] != fmt.Sprint(next[f[1]]) {
			t.Fatalf("entry %d is %q, want value %d", i+1, line, next[f[1]])
		}
		next[f[1]]++
	}
}

func logReadTo(t *testing.T, p Peer) {
	ctx := within(t)
	l := newLog(ctx, t, p)
	same(t, readAll(ctx, t, l, 1, 10))
	appendAll(ctx, t, l, "rec.1", "rec.2", "rec.1", "cut", "rec.2", "rec.2")
	same(t, readAll(ctx, t, l, 1, 4, "rec.1"), "1 rec.1 a", "3 rec.1 c")
	same(t, readAll(ctx, t, l, 2, 3), "2 rec.2 b", "3 rec.1 c")
	same(t, readAll(ctx, t, l, 1, 100, "rec.1", "cut"), "1 rec.1 a", "3 rec.1 c", "4 cut d")
	same(t, readAll(ctx, t, l, 4, 6, "rec.1"))
	same(t, readAll(ctx, t, l, 1, 6, "rec.9"))
	same(t, readAll(ctx, t, l, 5, 4))
	same(t, readAll(ctx, t, l, 7, 9))
	n := 0
	if err := l.ReadTo(ctx, 1, 6, nil, func(api.LogEntry) error { n++; return errEnough }); !errors.Is(err, errEnough) || n != 1 {
		t.Fatalf("ReadTo returned %v after %d calls", err, n)
	}
}

func logPurge(t *testing.T, p Peer) {
	ctx := within(t)
	l := newLog(ctx, t, p)
	check(t, l.Purge(ctx, 5)) // of nothing
	appendAll(ctx, t, l, "rec.1", "rec.2", "rec.1", "rec.2", "rec.1")
	check(t, l.Purge(ctx, 2))
	check(t, l.Purge(ctx, 1))
	if s := must(l.State(ctx))(t); s.First != 3 || s.Last != 5 {
		t.Fatalf("state %+v", s)
	}
	_, err := l.Entry(ctx, 2)
	wantCode(t, err, api.CodeNotFound)
	same(t, follow(ctx, t, l, 1, 3), "3 rec.1 c", "4 rec.2 d", "5 rec.1 e") // jumps over the gap
	same(t, readAll(ctx, t, l, 1, 4), "3 rec.1 c", "4 rec.2 d")
	check(t, l.Purge(ctx, 99))
	if s := must(l.State(ctx))(t); s.First != 5 || s.Last != 5 {
		t.Fatalf("the last entry was not kept: %+v", s)
	}
	if seq := must(l.Append(ctx, "cut", nil, nil, ""))(t); seq != 6 {
		t.Fatalf("position %d was given after a purge", seq)
	}
}

func logMissing(t *testing.T, p Peer) {
	ctx := within(t)
	_, err := p.Log(ctx)
	wantCode(t, err, api.CodeNoSuchCluster)
	_, err = p.KV(ctx, "STATE", false)
	wantCode(t, err, api.CodeNoSuchCluster)
	_, err = p.Objects(ctx, "MODULES", false)
	wantCode(t, err, api.CodeNoSuchCluster)
	_, err = p.Queue(ctx, "jobs", false, bus.QueueConfig{})
	wantCode(t, err, api.CodeNoSuchCluster)
	l := newLog(ctx, t, p)
	if s := must(l.State(ctx))(t); s.First != 1 || s.Last != 0 {
		t.Fatalf("state of an empty log %+v", s)
	}
	must(p.Log(ctx))(t)
}

func appender(t *testing.T, p Peer) {
	ctx := within(t)
	l := newLog(ctx, t, p)
	a := l.NewAppender(16)
	const n = 500
	for i := range n {
		check(t, a.Append(ctx, "rec.1", nil, fmt.Appendf(nil, "%03d", i)))
	}
	check(t, a.Wait(ctx))
	if messages, bytes := a.Acked(); messages != n || bytes != 3*n {
		t.Fatalf("acknowledged %d messages, %d bytes", messages, bytes)
	}
	got := readAll(ctx, t, l, 1, n)
	if len(got) != n {
		t.Fatalf("%d entries", len(got))
	}
	for i, line := range got {
		if want := fmt.Sprintf("%d rec.1 %03d", i+1, i); line != want {
			t.Fatalf("entry is %q, want %q", line, want)
		}
	}
	wantCode(t, a.Append(ctx, "rec.1", nil, make([]byte, p.MaxPayload()+1)), api.CodeLimitExceeded)
	wantCode(t, a.Append(ctx, "rec.1", nil, nil), api.CodeLimitExceeded) // remembered
	wantCode(t, a.Wait(ctx), api.CodeLimitExceeded)
}
