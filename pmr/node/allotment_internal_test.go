package node

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/pinion-mr/pinion/api"
)

func TestAllotment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAllotment(10)
		var mu sync.Mutex
		var order []string
		held := map[string]func(){}
		bid := func(ctx context.Context, name string, n int64) {
			go func() {
				free, err := a.take(ctx, n)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					order = append(order, name+" gave up")
					return
				}
				order = append(order, name)
				held[name] = free
			}()
			synctest.Wait()
		}
		expect := func(want string, used int64) {
			t.Helper()
			synctest.Wait()
			if got := strings.Join(order, ", "); got != want || a.inUse() != used {
				t.Fatalf("%s, %d in use; want %s, %d", got, a.inUse(), want, used)
			}
		}
		bid(t.Context(), "a", 6)
		bid(t.Context(), "b", 4)
		expect("a, b", 10)
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		bid(impatient, "large", 10)
		bid(t.Context(), "small", 1)
		held["b"]()
		expect("a, b", 6) // who came later does not overtake
		time.Sleep(2 * time.Second)
		expect("a, b, large gave up, small", 7)
		bid(t.Context(), "whole", 10)
		held["a"]()
		expect("a, b, large gave up, small", 1)
		held["small"]()
		expect("a, b, large gave up, small, whole", 10)
		held["whole"]()
		expect("a, b, large gave up, small, whole", 0)
	})
}

// One who gives up at the moment of the grant has the part, and gives it back as any other.
func TestAnAllotmentIsNotLost(t *testing.T) {
	a := newAllotment(1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 {
		free, err := a.take(ended, 1)
		switch {
		case err == nil:
			free()
		case !errors.Is(err, context.Canceled):
			t.Fatal(err)
		}
	}
	if used := a.inUse(); used != 0 || len(a.waiting) != 0 {
		t.Errorf("%d in use, %d wait", used, len(a.waiting))
	}
}

func TestCollectBytes(t *testing.T) {
	ends := map[string]api.MapEnd{"s1": {Size: 1000}, "s2": {Size: 3000}}
	for _, tc := range []struct {
		table   int64
		reduced bool
		want    int64
	}{
		{1 << 20, false, 3000 + 5*4000},
		{1 << 20, true, 3000 + 2*5*4000},
		{10_000, false, 3000 + 10_000},
		{10_000, true, 3000 + 2*10_000},
	} {
		if got := collectBytes(ends, tc.table, tc.reduced); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
	ends["s3"] = api.MapEnd{Size: 1 << 63} // what a storage says is not trusted
	if got := collectBytes(ends, 1<<28, true); got < 1<<62 {
		t.Errorf("%d bytes for an endless output", got)
	}
}

func TestAListKeepsWholeCharacters(t *testing.T) {
	info := listed(api.JobInfo{Error: api.Errorf(api.CodeGuestFailed, "x%s", strings.Repeat("ä", listedReason))})
	if m := info.Error.Message; !utf8.ValidString(m) || len(m) != listedReason-1 {
		t.Errorf("%d bytes, ends with %q", len(m), m[len(m)-4:])
	}
}
