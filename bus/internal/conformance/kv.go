package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

func kvCompareAndSet(t *testing.T, p Peer) {
	ctx := within(t)
	kv := must(p.KV(ctx, "STATE", true))(t)
	if e := must(kv.Get(ctx, "a.b"))(t); e.Revision != 0 || e.Key != "a.b" {
		t.Fatalf("absent key %+v", e)
	}
	r1 := must(kv.Create(ctx, "a.b", []byte("1")))(t)
	_, err := kv.Create(ctx, "a.b", []byte("x"))
	wantCode(t, err, api.CodeNameTaken)
	r2 := must(kv.Update(ctx, "a.b", []byte("2"), r1))(t)
	if r2 <= r1 {
		t.Fatalf("revision %d after %d", r2, r1)
	}
	_, err = kv.Update(ctx, "a.b", []byte("x"), r1)
	if !errors.Is(err, bus.ErrConflict) {
		t.Fatalf("update of an old revision: %v", err)
	}
	wantCode(t, err, api.CodeBusy)
	if e := must(kv.Get(ctx, "a.b"))(t); string(e.Value) != "2" || e.Revision != r2 || e.Deleted {
		t.Fatalf("%+v", e)
	}
	r3 := must(kv.Put(ctx, "a.b", []byte("3")))(t)
	check(t, kv.Delete(ctx, "a.b"))
	check(t, kv.Delete(ctx, "a.b"))
	check(t, kv.Delete(ctx, "never"))
	if e := must(kv.Get(ctx, "a.b"))(t); e.Revision != 0 || e.Value != nil {
		t.Fatalf("deleted key %+v", e)
	}
	_, err = kv.Update(ctx, "a.b", []byte("x"), r3)
	if !errors.Is(err, bus.ErrConflict) {
		t.Fatalf("update of a deleted key: %v", err)
	}
	must(kv.Create(ctx, "a.b", []byte("4")))(t) // again, after the deletion
	for _, bad := range []string{"", ".a", "a.", "a..b", "a b", "a*", "a>", "ä"} {
		_, err := kv.Put(ctx, bad, nil)
		wantCode(t, err, api.CodeBadRequest)
	}
}

func kvList(t *testing.T, p Peer) {
	ctx := within(t)
	kv := must(p.KV(ctx, "STATE", true))(t)
	if got := must(kv.List(ctx, ""))(t); len(got) != 0 {
		t.Fatalf("an empty bucket lists %v", got)
	}
	for _, k := range []string{"member.storage.s2", "settings", "member.storage.s1", "member.router.r1", "job.17", "members"} {
		must(kv.Put(ctx, k, []byte("old")))(t)
		must(kv.Put(ctx, k, []byte(k)))(t)
	}
	check(t, kv.Delete(ctx, "job.17"))
	for prefix, want := range map[string][]string{
		"":                {"member.router.r1", "member.storage.s1", "member.storage.s2", "members", "settings"},
		"member.":         {"member.router.r1", "member.storage.s1", "member.storage.s2"},
		"member":          {"member.router.r1", "member.storage.s1", "member.storage.s2", "members"},
		"member.storage.": {"member.storage.s1", "member.storage.s2"},
		"job.":            {},
		"nothing":         {},
	} {
		if got := must(kv.Keys(ctx, prefix))(t); !slices.Equal(got, want) {
			t.Errorf("prefix %q lists %q, want %q", prefix, got, want)
		}
		for _, e := range must(kv.List(ctx, prefix))(t) {
			if string(e.Value) != e.Key || e.Revision == 0 {
				t.Errorf("listed %+v", e)
			}
		}
	}
}

// kvEach has keys told by the age of their values; one that was removed comes as that.
func kvEach(t *testing.T, p Peer) {
	ctx := within(t)
	kv := must(p.KV(ctx, "JOBS", true))(t)
	check(t, kv.Each(ctx, "job.", func(e api.KVEntry) { t.Errorf("an empty bucket has %v", e) }))
	for _, key := range []string{"job.b", "job.a", "claim.x", "job.gone", "jobs", "job.b"} {
		must(kv.Put(ctx, key, []byte("value of "+key)))(t)
	}
	check(t, kv.Delete(ctx, "job.gone"))
	var told []string
	last := uint64(0)
	check(t, kv.Each(ctx, "job.", func(e api.KVEntry) {
		if e.Deleted {
			told = append(told, "no "+e.Key)
			return
		}
		told = append(told, e.Key)
		if string(e.Value) != "value of "+e.Key || e.Revision <= last {
			t.Errorf("told %+v behind revision %d", e, last)
		}
		last = e.Revision
	}))
	if want := []string{"job.a", "job.b", "no job.gone"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// kvTTL renews one key while another one, of the same age, expires; so the renewed one has outlived its
// first time to live when the other's end is told.
func kvTTL(t *testing.T, p Peer) {
	ctx := within(t)
	kv := must(p.KV(ctx, "STATE", true))(t)
	events := watch(ctx, t, kv, "m.")
	expect := func(want string) {
		t.Helper()
		if got := receive(ctx, t, events); got != want {
			t.Fatalf("event %q, want %q", got, want)
		}
	}
	rev := must(kv.CreateTTL(ctx, "m.kept", []byte("1"), time.Second))(t)
	expect("m.kept=1")
	rev = must(kv.Renew(ctx, "m.kept", []byte("2"), rev, time.Hour))(t)
	expect("m.kept=2")
	must(kv.CreateTTL(ctx, "m.gone", []byte("1"), time.Second))(t)
	expect("m.gone=1")
	expect("m.gone deleted")
	if e := must(kv.Get(ctx, "m.kept"))(t); e.Revision != rev || string(e.Value) != "2" {
		t.Fatalf("renewed key %+v", e)
	}
	if e := must(kv.Get(ctx, "m.gone"))(t); e.Revision != 0 {
		t.Fatalf("expired key %+v", e)
	}
	_, err := kv.Renew(ctx, "m.kept", nil, rev-1, time.Hour)
	if !errors.Is(err, bus.ErrConflict) {
		t.Fatalf("renewal of an old revision: %v", err)
	}
	// A renewed key still expires.
	rev = must(kv.CreateTTL(ctx, "m.gone", []byte("3"), time.Hour))(t)
	expect("m.gone=3")
	must(kv.Renew(ctx, "m.gone", []byte("4"), rev, time.Second))(t)
	expect("m.gone=4")
	expect("m.gone deleted")
}

// watch sends what Watch tells as text.
func watch(ctx context.Context, t *testing.T, kv KV, prefix string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan string, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := kv.Watch(ctx, prefix, func(e api.KVEntry) {
			if e.Deleted {
				events <- e.Key + " deleted"
			} else {
				events <- fmt.Sprintf("%s=%s", e.Key, e.Value)
			}
		})
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Watch ended with %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return events
}

// kvEnds gives a key that was to stay a time to live, as the record of a job that ends.
func kvEnds(t *testing.T, p Peer) {
	ctx := within(t)
	kv := must(p.KV(ctx, "JOBS", true))(t)
	events := watch(ctx, t, kv, "job.")
	rev := must(kv.Create(ctx, "job.j", []byte("queued")))(t)
	receive(ctx, t, events)
	rev = must(kv.Update(ctx, "job.j", []byte("running"), rev))(t)
	receive(ctx, t, events)
	stale := rev
	must(kv.Renew(ctx, "job.j", []byte("done"), rev, time.Second))(t)
	if e := receive(ctx, t, events); e != "job.j=done" {
		t.Fatalf("the end is %q", e)
	}
	_, err := kv.Renew(ctx, "job.j", []byte("done by another"), stale, time.Second)
	wantCode(t, err, api.CodeBusy)
	if e := receive(ctx, t, events); e != "job.j deleted" {
		t.Fatalf("after its time it is %q", e)
	}
	if e := must(kv.Get(ctx, "job.j"))(t); e.Revision != 0 {
		t.Fatalf("it is still there: %+v", e)
	}
	must(kv.Create(ctx, "job.j", []byte("queued")))(t)
}

func kvWatch(t *testing.T, p Peer) {
	ctx := within(t)
	kv := must(p.KV(ctx, "STATE", true))(t)
	must(kv.Put(ctx, "w.b", []byte("1")))(t)
	must(kv.Put(ctx, "w.a", []byte("1")))(t)
	must(kv.Put(ctx, "w.b", []byte("2")))(t)
	must(kv.Put(ctx, "w.c", []byte("1")))(t)
	check(t, kv.Delete(ctx, "w.c"))
	events := watch(ctx, t, kv, "w.")
	other := must(p.Again(t).KV(ctx, "STATE", false))(t)
	for _, want := range []string{"w.a=1", "w.b=2"} {
		if got := receive(ctx, t, events); got != want {
			t.Fatalf("event %q, want %q", got, want)
		}
	}
	must(other.Put(ctx, "x.a", []byte("1")))(t)
	must(other.Put(ctx, "w.d", []byte("1")))(t)
	must(other.Put(ctx, "w.d", []byte("2")))(t)
	check(t, other.Delete(ctx, "w.a"))
	must(other.Create(ctx, "w.a", []byte("3")))(t)
	// The end is the latest state; what lies between may be left out only for the same key.
	last := map[string]string{}
	for last["w.a"] != "w.a=3" || last["w.d"] != "w.d=2" {
		e := receive(ctx, t, events)
		if e[0] == 'x' {
			t.Fatalf("event %q is none of ours", e)
		}
		last[e[:3]] = e
	}
}
