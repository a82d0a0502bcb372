package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pinion-mr/pinion/api"
)

// entrance counts what a test has an admission do.
type entrance struct {
	t  testing.TB
	a  *admission
	by map[*applicant]string
}

func newEntrance(t testing.TB, most, mostWaiting int) *entrance {
	return &entrance{t, newAdmission(most, mostWaiting), map[*applicant]string{}}
}

// enter takes in a client's jobs, named client and number.
func (e *entrance) enter(client string, n int) (list []*applicant) {
	for i := range n {
		x, err := e.a.enter(client, 10)
		if err != nil {
			e.t.Fatalf("job %d of %s: %v", i, client, err)
		}
		e.by[x] = fmt.Sprint(client, i)
		list = append(list, x)
	}
	return list
}

func runs(x *applicant) bool {
	select {
	case <-x.admitted:
		return true
	default:
		return false
	}
}

func countRunning(list []*applicant) (n int) {
	for _, x := range list {
		if runs(x) {
			n++
		}
	}
	return n
}

// drain ends all that run, again and again, and tells the order in which the others were admitted.
func (e *entrance) drain() string {
	var order []string
	was := map[*applicant]bool{}
	for x := range e.by {
		was[x] = runs(x)
	}
	for e.a.busy > 0 {
		ended := e.oldest()
		e.a.leave(ended)
		delete(e.by, ended)
		for x, name := range e.by {
			if runs(x) && !was[x] {
				was[x] = true
				order = append(order, name)
			}
		}
	}
	return strings.Join(order, " ")
}

// oldest is the first by name of those that run.
func (e *entrance) oldest() *applicant {
	var first *applicant
	for x, name := range e.by {
		if runs(x) && (first == nil || name < e.by[first]) {
			first = x
		}
	}
	return first
}

func TestAClientAloneLeavesRoomToOthers(t *testing.T) {
	e := newEntrance(t, 64, 1024)
	if n := countRunning(e.enter("long", 100)); n != 48 {
		t.Errorf("of one client alone %d jobs run, want 48", n)
	}
	if n := countRunning(e.enter("short", 1)); n != 1 {
		t.Error("a job of another client waits for a client's long queue")
	}
	if n := countRunning(e.enter("", 50)); n == 0 || e.a.busy > 64 {
		t.Errorf("of all who do not say who they are %d jobs run, of all together %d", n, e.a.busy)
	}
}

func TestASmallRouterRunsAsManyAsItMay(t *testing.T) {
	for _, most := range []int{1, 2} {
		if e := newEntrance(t, most, 10); countRunning(e.enter("a", 5)) != most {
			t.Errorf("of %d places one client gets %d", most, e.a.busy)
		}
	}
}

func TestClientsTakeTurns(t *testing.T) {
	e := newEntrance(t, 1, 100)
	e.enter("x", 1) // runs
	e.enter("a", 4)
	e.enter("b", 2)
	e.enter("c", 1)
	if got, want := e.drain(), "a0 b0 c0 a1 b1 a2 a3"; got != want {
		t.Errorf("they ran in the order %s, want %s", got, want)
	}
}

func TestAJobThatLeavesTheQueueMakesRoom(t *testing.T) {
	e := newEntrance(t, 1, 100)
	e.enter("x", 1)
	a := e.enter("a", 3)
	b := e.enter("b", 1)
	for _, x := range []*applicant{a[0], b[0], b[0]} { // one twice: a job may end in two ways at once
		e.a.leave(x)
		delete(e.by, x)
	}
	if e.a.waiting != 2 || len(e.a.turns) != 1 || e.a.bytes != 20 {
		t.Errorf("%d wait in %d lines with %d bytes, want 2 in one with 20", e.a.waiting, len(e.a.turns), e.a.bytes)
	}
	if got, want := e.drain(), "a1 a2"; got != want {
		t.Errorf("then ran %s, want %s", got, want)
	}
}

func TestAFullQueueRefusesWithNumbersAndRemedy(t *testing.T) {
	e := newEntrance(t, 1, 32)
	e.enter("x", 1)
	e.enter("a", 30)
	_, err := e.a.enter("a", 10)
	full := api.AsError(err)
	if full.Code != api.CodeBusy || !strings.Contains(full.Message, "runs 1 jobs of at most 1, and 30 wait of at most 32") || !strings.Contains(full.Hint, "--jobs-queue") {
		t.Errorf("%+v", full)
	}
	e.enter("b", 1) // the last places are for those of whom nobody waits yet
	e.enter("c", 1)
	if _, err := e.a.enter("d", 10); api.CodeOf(err) != api.CodeBusy {
		t.Errorf("beyond the whole queue: %v", err)
	}
}

func TestTheBytesOfWaitingRequestsAreBounded(t *testing.T) {
	e := newEntrance(t, 1, 1000)
	e.enter("x", 1)
	for i := range 64 {
		if _, err := e.a.enter("a", 1<<20); err != nil {
			t.Fatalf("MiB %d: %v", i, err)
		}
	}
	if _, err := e.a.enter("b", 1<<20); api.CodeOf(err) != api.CodeBusy || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("beyond 64 MiB: %v", err)
	}
}

// Whatever comes and goes: no more run than may, nobody waits who may run, each client's jobs run in the order
// in which they came, a place told is the place had, and at the end nothing is left.
func TestAdmission(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most, mostWaiting := rapid.IntRange(1, 8).Draw(t, "most"), rapid.IntRange(0, 40).Draw(t, "waiting")
		a := newAdmission(most, mostWaiting)
		var all []*applicant
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if len(all) == 0 || rapid.IntRange(0, 2).Draw(t, "step") > 0 {
				client := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "client")
				if x, err := a.enter(client, 10); err == nil {
					all = append(all, x)
				}
			} else {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "ends")
				a.leave(all[i])
				all = slices.Delete(all, i, i+1)
			}
			checkAdmission(t, a, all)
		}
		for len(all) > 0 {
			i := slices.IndexFunc(all, runs)
			if i < 0 {
				t.Fatalf("%d jobs wait and none runs", len(all))
			}
			a.leave(all[i])
			all = slices.Delete(all, i, i+1)
			checkAdmission(t, a, all)
		}
		if a.busy+a.waiting+len(a.turns)+len(a.running) != 0 || a.bytes != 0 {
			t.Fatalf("left: %+v", *a)
		}
	})
}

func checkAdmission(t *rapid.T, a *admission, all []*applicant) {
	running := countRunning(all)
	if running != a.busy || running > a.most || len(all)-running != a.waiting || a.waiting > a.mostWaiting || a.bytes != int64(10*a.waiting) {
		t.Fatalf("%d of %d run: %+v", running, len(all), *a)
	}
	behind := map[string]bool{}
	places := map[int]bool{}
	for _, x := range all {
		switch {
		case runs(x) && behind[x.client]:
			t.Fatalf("a job of %s runs before an older one", x.client)
		case !runs(x):
			behind[x.client] = true
			place := a.place(x)
			if place < 1 || place > a.waiting || places[place] {
				t.Fatalf("place %d of %d, taken %v", place, a.waiting, places[place])
			}
			places[place] = true
			if a.mayRun(x.client) {
				t.Fatalf("a job of %s waits and might run", x.client)
			}
		case a.place(x) != 0:
			t.Fatalf("a job that runs has place %d", a.place(x))
		}
	}
}
