package busmem

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// bubble runs a test with two peers in a bubble, where time passes only when all wait.
func bubble(t *testing.T, test func(t *testing.T, c *Cluster, router, storage *Bus)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		router, storage := c.Connect("router"), c.Connect("s1")
		defer storage.Close()
		defer router.Close()
		test(t, c, router, storage)
	})
}

func code(t *testing.T, err error, want api.Code) {
	t.Helper()
	if api.CodeOf(err) != want {
		t.Fatalf("error %v has code %q, want %q", err, api.CodeOf(err), want)
	}
}

func TestRequestFaults(t *testing.T) {
	bubble(t, func(t *testing.T, c *Cluster, router, storage *Bus) {
		var calls atomic.Int32
		if _, err := bus.Handle(storage, "storage.s1.pin", "", func(context.Context, api.PinRequest) (api.PinReply, error) {
			calls.Add(1)
			return api.PinReply{}, nil
		}); err != nil {
			t.Fatal(err)
		}
		ask := func() (time.Duration, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			start := time.Now()
			err := router.Request(ctx, "storage.s1.pin", nil, nil)
			return time.Since(start), err
		}
		hook := func(f Fault) func(Call) Fault { return func(Call) Fault { return f } }
		for _, f := range []struct {
			name   string
			faults Faults
			code   api.Code
			took   time.Duration
			calls  int32
		}{
			{"none", Faults{}, "", 0, 1},
			{"request lost", Faults{Request: hook(Fault{Drop: true})}, api.CodeTimeout, 5 * time.Second, 0},
			{"request late", Faults{Request: hook(Fault{Delay: time.Second})}, "", time.Second, 1},
			{"request doubled", Faults{Request: hook(Fault{Duplicate: true})}, "", 0, 2},
			{"reply lost", Faults{Reply: hook(Fault{Drop: true})}, api.CodeTimeout, 5 * time.Second, 1},
			{"reply late", Faults{Reply: hook(Fault{Delay: time.Minute})}, api.CodeTimeout, 5 * time.Second, 1},
			{"reply doubled", Faults{Reply: hook(Fault{Duplicate: true})}, "", 0, 1},
		} {
			c.SetFaults(f.faults)
			calls.Store(0)
			took, err := ask()
			synctest.Wait()
			if api.CodeOf(err) != f.code || took != f.took || calls.Load() != f.calls {
				t.Errorf("%s: %v after %v and %d calls", f.name, err, took, calls.Load())
			}
		}
		c.SetFaults(Faults{})
		c.Cut("s1")
		_, err := ask()
		code(t, err, api.CodeTimeout)
		c.Heal("s1")
		if _, err := ask(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAppendFaults(t *testing.T) {
	bubble(t, func(t *testing.T, c *Cluster, router, _ *Bus) {
		ctx := context.Background()
		l, err := router.CreateLog(ctx, bus.LogConfig{})
		if err != nil {
			t.Fatal(err)
		}
		last := func() uint64 {
			s, err := l.State(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return s.Last
		}
		fault := func(f AppendFault) {
			c.SetFaults(Faults{Append: func(peer, subject string) AppendFault {
				if peer != "router" || subject != "cut" {
					t.Errorf("hook for %s, %s", peer, subject)
				}
				return f
			}})
		}
		fault(AppendFault{Doubt: true})
		_, err = l.Append(ctx, "cut", nil, nil, "id")
		code(t, err, api.CodeInDoubt)
		fault(AppendFault{})
		if seq, err := l.Append(ctx, "cut", nil, nil, "id"); err != nil || seq != 1 || last() != 1 {
			t.Fatalf("repeat of a stored entry: position %d, last %d, %v", seq, last(), err)
		}
		fault(AppendFault{Lost: true})
		_, err = l.Append(ctx, "cut", nil, nil, "other")
		code(t, err, api.CodeInDoubt)
		full := errors.New("full")
		fault(AppendFault{Err: full})
		if _, err = l.Append(ctx, "cut", nil, nil, ""); !errors.Is(err, full) || last() != 1 {
			t.Fatalf("refused entry: last %d, %v", last(), err)
		}
		fault(AppendFault{})
		time.Sleep(2 * time.Minute) // the duplicate window, on the bubble's clock
		if seq, err := l.Append(ctx, "cut", nil, nil, "id"); err != nil || seq != 2 {
			t.Fatalf("repeat after the window: position %d, %v", seq, err)
		}
	})
}

// TestCut cuts a storage off from the log while it reads.
func TestCut(t *testing.T) {
	bubble(t, func(t *testing.T, c *Cluster, router, storage *Bus) {
		ctx, cancel := context.WithCancel(context.Background())
		l, err := router.CreateLog(ctx, bus.LogConfig{})
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := storage.Log(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var read []uint64
		done := make(chan error, 1)
		go func() {
			done <- theirs.Read(ctx, 1, nil, func(batch []api.LogEntry) error {
				for _, e := range batch {
					read = append(read, e.Seq)
				}
				return nil
			})
		}()
		add := func() {
			if _, err := l.Append(ctx, "cut", nil, nil, ""); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		add()
		reconnected := 0
		storage.OnReconnect(func() { reconnected++ })
		c.Cut("s1")
		add()
		if len(read) != 1 {
			t.Fatalf("read %v while cut off", read)
		}
		start := time.Now()
		_, err = theirs.Append(ctx, "cut", nil, nil, "")
		code(t, err, api.CodeInDoubt)
		if took := time.Since(start); took != writePatience {
			t.Fatalf("in doubt after %v", took)
		}
		_, err = theirs.State(ctx)
		code(t, err, api.CodeUnavailable)
		c.Heal("s1")
		synctest.Wait()
		if len(read) != 2 || reconnected != 1 {
			t.Fatalf("read %v, reconnected %d times", read, reconnected)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

// TestALogThatLosesItsTail gives positions, and message ids, a second time.
func TestALogThatLosesItsTail(t *testing.T) {
	bubble(t, func(t *testing.T, c *Cluster, router, _ *Bus) {
		ctx := context.Background()
		l, err := router.CreateLog(ctx, bus.LogConfig{})
		if err != nil {
			t.Fatal(err)
		}
		add := func(data, id string) uint64 {
			seq, err := l.Append(ctx, "cut", nil, []byte(data), id)
			if err != nil {
				t.Fatal(err)
			}
			return seq
		}
		add("one", "1")
		add("two", "2")
		add("three", "3")
		c.LoseTail(2)
		if st, err := l.State(ctx); err != nil || st.First != 1 || st.Last != 1 || st.Bytes != 3 {
			t.Fatalf("%+v %v", st, err)
		}
		if add("one", "1") != 1 || add("again", "2") != 2 {
			t.Fatal("an id that is kept was forgotten, or one that is lost was not")
		}
		if e, err := l.Entry(ctx, 2); err != nil || string(e.Data) != "again" {
			t.Fatalf("%+v %v", e, err)
		}
		c.LoseTail(5)
		if st, err := l.State(ctx); err != nil || st.First != 1 || st.Last != 0 || st.Bytes != 0 {
			t.Fatalf("%+v %v", st, err)
		}
	})
}

// TestAnAnswerFromThePast has one peer see an older end of the log.
func TestAnAnswerFromThePast(t *testing.T) {
	bubble(t, func(t *testing.T, c *Cluster, router, storage *Bus) {
		ctx := context.Background()
		l, err := router.CreateLog(ctx, bus.LogConfig{Replicas: 3})
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := storage.Log(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := l.Append(ctx, "cut", nil, nil, ""); err != nil {
				t.Fatal(err)
			}
		}
		c.SetFaults(Faults{State: func(peer string, now api.LogState) api.LogState {
			if peer == "s1" {
				now.Last = 2
			}
			return now
		}})
		if st, err := theirs.State(ctx); err != nil || st.Last != 2 || st.Replicas != 3 {
			t.Fatalf("%+v %v", st, err)
		}
		_, err = theirs.Entry(ctx, 3)
		code(t, err, api.CodeNotFound)
		n := 0
		if err := theirs.ReadTo(ctx, 1, 3, nil, func(api.LogEntry) error { n++; return nil }); err != nil || n != 2 {
			t.Fatalf("%d entries, %v", n, err)
		}
		if _, err := l.Entry(ctx, 3); err != nil {
			t.Fatal(err)
		}
	})
}

// TestEntriesAreSpoiled shows that whoever keeps an entry's data is found out.
func TestEntriesAreSpoiled(t *testing.T) {
	ctx := t.Context()
	b := New(Config{}).Connect("p")
	defer b.Close()
	l, err := b.CreateLog(ctx, bus.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(ctx, "rec.1", nil, []byte("data"), ""); err != nil {
		t.Fatal(err)
	}
	var kept []byte
	if err := l.ReadTo(ctx, 1, 1, nil, func(e api.LogEntry) error { kept = e.Data; return nil }); err != nil {
		t.Fatal(err)
	}
	if string(kept) == "data" {
		t.Fatal("the data can be kept")
	}
}

// TestTimesToLiveInABubble uses a member's whole life without waiting for it.
func TestTimesToLiveInABubble(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Cluster, router, _ *Bus) {
		ctx := context.Background()
		kv, err := router.KV(ctx, "STATE", true, 1)
		if err != nil {
			t.Fatal(err)
		}
		rev, err := kv.CreateTTL(ctx, "member.s1", nil, 12*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(11 * time.Second)
			if rev, err = kv.Renew(ctx, "member.s1", nil, rev, 12*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(13 * time.Second)
		if e, err := kv.Get(ctx, "member.s1"); err != nil || e.Revision != 0 {
			t.Fatalf("%+v %v", e, err)
		}
	})
}

// TestATagFollowsARequest to its handler and to the fault of its reply.
func TestATagFollowsARequest(t *testing.T) {
	bubble(t, func(t *testing.T, c *Cluster, router, storage *Bus) {
		var seen []string
		if _, err := bus.Handle(storage, "storage.s1.pin", "", func(ctx context.Context, m api.PinRequest) (api.PinReply, error) {
			seen = append(seen, TagOf(ctx))
			return api.PinReply{}, api.Errorf(api.CodeNoCut, "no cut")
		}); err != nil {
			t.Fatal(err)
		}
		var reply Call
		c.SetFaults(Faults{
			Request: func(Call) Fault { return Fault{Tag: "#7", Duplicate: true, Delay: time.Second} },
			Reply:   func(m Call) Fault { reply = m; return Fault{} },
		})
		start := time.Now()
		code(t, router.Request(context.Background(), "storage.s1.pin", api.PinRequest{Job: "j"}, nil), api.CodeNoCut)
		if took := time.Since(start); took != time.Second {
			t.Errorf("answered after %v", took)
		}
		time.Sleep(time.Second) // the second one
		synctest.Wait()
		var asked api.PinRequest
		if err := api.Decode(reply.Asked, &asked, api.Strict); err != nil || asked.Job != "j" {
			t.Errorf("asked %+v, %v", asked, err)
		}
		if len(seen) != 2 || seen[0] != "#7" || seen[1] != "#7" || reply.Tag != "#7" || reply.Code != api.CodeNoCut || reply.From != "s1" {
			t.Errorf("handlers saw %q, the reply was %+v", seen, reply)
		}
	})
}

// TestAClosedBusSaysSo: a handler that ends because its bus closes was cancelled by nobody.
func TestAClosedBusSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Cluster, router, storage *Bus) {
		started := make(chan struct{})
		if _, err := bus.Handle(storage, "storage.s1.pin", "", func(ctx context.Context, _ api.PinRequest) (api.PinReply, error) {
			close(started)
			<-ctx.Done()
			return api.PinReply{}, ctx.Err()
		}); err != nil {
			t.Fatal(err)
		}
		go func() {
			<-started
			storage.Close()
		}()
		code(t, router.Request(context.Background(), "storage.s1.pin", api.PinRequest{}, nil), api.CodeUnavailable)
	})
}

// TestConsumersTakeTurns: a queue's messages go to those that wait, first come first served; one that is cut off
// keeps its place in the line.
func TestConsumersTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, c *Cluster, router, storage *Bus) {
		ctx := context.Background()
		got := make(chan string, 10)
		open := func(b *Bus) *Queue {
			q, err := b.Queue(ctx, "jobs", true, bus.QueueConfig{MaxAckPending: 10})
			if err != nil {
				t.Fatal(err)
			}
			return q
		}
		consume := func(q *Queue, name string) (stop func()) {
			ctx, cancel := context.WithCancel(ctx)
			ended := make(chan struct{})
			go func() {
				_ = q.Consume(ctx, func(ctx context.Context, m bus.QueueMessage) {
					got <- name + " " + string(m.Body)
					_ = m.Ack(ctx)
				})
				close(ended)
			}()
			synctest.Wait()
			return func() { cancel(); <-ended }
		}
		first, second := open(router), open(storage)
		stopFirst := consume(first, "first")
		stopSecond := consume(second, "second")
		expect := func(body, want string) {
			t.Helper()
			if err := first.Publish(ctx, []byte(body), ""); err != nil {
				t.Fatal(err)
			}
			if took := <-got; took != want+" "+body {
				t.Errorf("%s was taken by %q, want %s", body, took, want)
			}
			synctest.Wait()
		}
		for _, body := range []string{"a", "c"} {
			expect(body, "first")
			expect(body+"'", "second")
		}
		c.Cut("router")
		synctest.Wait()
		if err := second.Publish(ctx, []byte("d"), ""); err != nil {
			t.Fatal(err)
		}
		if took := <-got; took != "second d" {
			t.Errorf("beside a consumer that is cut off: %q", took)
		}
		c.Heal("router")
		synctest.Wait()
		expect("e", "first")
		stopSecond()
		expect("f", "first")
		stopFirst()
	})
}
