package node

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// yard runs a fair queue's guests in places, in a time of its own.
type yard struct {
	queue   fairQueue
	now     time.Time
	free    int
	turns   []turn                     // under way
	length  func(*place) time.Duration // of a turn that begins; quantum if nil
	leaves  func(*place) bool          // whether a guest is done when its turn is over; never if nil
	ran     map[owner]time.Duration
	granted map[*place]time.Time // last
}

type turn struct {
	guest *place
	takes time.Duration
	ends  time.Time
}

func newYard(places int) *yard {
	return &yard{queue: fairQueue{places: places}, now: time.Unix(0, 0), free: places, ran: map[owner]time.Duration{}, granted: map[*place]time.Time{}}
}

// join has guests of a job wait.
func (y *yard) join(o owner, guests int) (joined []*place) {
	for range guests {
		p := &place{owner: o}
		joined = append(joined, p)
		y.queue.enter(p, y.now)
		y.fill()
	}
	return joined
}

func (y *yard) fill() {
	for y.free > 0 {
		p := y.queue.next(y.now)
		if p == nil {
			return
		}
		y.free--
		takes := quantum
		if y.length != nil {
			takes = y.length(p)
		}
		y.granted[p] = y.now
		y.turns = append(y.turns, turn{p, takes, y.now.Add(takes)})
	}
}

// step goes on to the end of the turn that ends first.
func (y *yard) step() {
	first := slices.MinFunc(y.turns, func(a, b turn) int { return a.ends.Compare(b.ends) })
	y.turns = slices.DeleteFunc(y.turns, func(t turn) bool { return t.guest == first.guest })
	y.now = first.ends
	o := first.guest.owner
	y.ran[o] += first.takes
	if y.leaves == nil || !y.leaves(first.guest) {
		y.queue.enter(first.guest, y.now)
	}
	y.queue.over(o, first.takes)
	y.free++
	y.fill()
}

func (y *yard) runFor(d time.Duration) {
	for end := y.now.Add(d); y.now.Before(end); {
		y.step()
	}
}

// portions shares places equally among those that can use only so many of them.
func portions(places float64, caps []float64) []float64 {
	order := make([]int, len(caps))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(caps[a], caps[b]) })
	out := make([]float64, len(caps))
	for n, i := range order {
		out[i] = min(caps[i], places/float64(len(caps)-n))
		places -= out[i]
	}
	return out
}

// Whatever jobs and guests clients have, clients get equal parts, and so do the jobs of each; who has too few guests
// for its part leaves the rest to the others. Such a one cannot make up for a wait, so a part of its part is lost.
func TestPartsAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(1, 6).Draw(t, "places")
		mix := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(1, 7), 1, 4), 1, 5).Draw(t, "guests by job by client")
		y := newYard(places)
		lengths := rapid.SliceOfN(rapid.IntRange(4, 14), 1, 5).Draw(t, "ms of turns")
		n := 0
		y.length = func(*place) time.Duration {
			n++
			return time.Duration(lengths[n%len(lengths)]) * time.Millisecond
		}
		enough := true // each job has a guest for every place: else jobs of one client are even only roughly
		clients := make([]float64, len(mix))
		for c, jobs := range mix {
			for j, guests := range jobs {
				y.join(owner{fmt.Sprint(c), fmt.Sprint(j)}, guests)
				clients[c] += float64(guests)
				enough = enough && guests >= places
			}
		}
		if y.queue.waiting == 0 {
			return // there are places for all
		}
		y.runFor(time.Second / 2) // until it is even
		clear(y.ran)
		const long = 2 * time.Second
		y.runFor(long)
		for c, part := range portions(float64(places), clients) {
			caps := make([]float64, len(mix[c]))
			for j, guests := range mix[c] {
				caps[j] = float64(guests)
			}
			all := 0.0
			for j, want := range portions(part, caps) {
				got := y.ran[owner{fmt.Sprint(c), fmt.Sprint(j)}].Seconds() / long.Seconds()
				all += got
				if diff := math.Abs(got - want); enough && diff > 0.4*want+0.02 { // turns of one length can keep step for ever
					t.Errorf("client %d, job %d has %.3f of %d places, want %.3f", c, j, got, places, want)
				}
			}
			if !enough && math.Abs(all-part) > 0.5*part+0.02 {
				t.Errorf("client %d has %.3f of %d places, want %.3f", c, all, places, part)
			}
		}
	})
}

// Who comes anew gets the first place that is given up when all others have had a turn.
func TestNewcomersDoNotWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(1, 4).Draw(t, "places")
		y := newYard(places)
		others := rapid.SliceOfN(rapid.IntRange(1, 6), 1, 8).Draw(t, "guests of the others")
		sameClient := rapid.Bool().Draw(t, "of one client")
		name := func(i int) owner {
			if sameClient {
				return owner{"c", fmt.Sprint(i)}
			}
			return owner{fmt.Sprint(i), "j"}
		}
		for i, guests := range others {
			y.join(name(i), guests)
		}
		for range rapid.IntRange(50, 300).Draw(t, "turns before") {
			y.step()
		}
		p := y.join(name(-1), 1)[0]
		came := y.now
		for y.granted[p].IsZero() {
			y.step()
		}
		if waited := y.granted[p].Sub(came); waited > quantum {
			t.Errorf("waited %s", waited)
		}
	})
}

// A stream of short jobs does not keep a long one from running.
func TestAStreamOfNewcomersStarvesNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(1, 3).Draw(t, "places")
		streams := rapid.IntRange(2, 40).Draw(t, "short jobs at a time")
		short := time.Duration(rapid.IntRange(1, 10).Draw(t, "ms each")) * time.Millisecond
		y := newYard(places)
		long := y.join(owner{"c", "long"}, 1)[0]
		y.length = func(p *place) time.Duration {
			if p == long {
				return quantum
			}
			return short
		}
		n, worst := 0, time.Duration(0)
		y.leaves = func(p *place) bool {
			if p == long {
				return false
			}
			n++
			y.join(owner{"c", fmt.Sprint(n)}, 1)
			return true
		}
		for range streams {
			n++
			y.join(owner{"c", fmt.Sprint(n)}, 1)
		}
		for range 3000 {
			y.step()
			if _, runs := y.granted[long]; runs {
				worst = max(worst, y.now.Sub(y.granted[long]))
			}
		}
		fair := time.Duration(streams+1) * quantum / time.Duration(places)
		if bound := (patience+2)*fair + 2*quantum; worst > bound {
			t.Errorf("the long job has waited %s, more than %s", worst, bound)
		}
		if y.ran[long.owner] == 0 {
			t.Error("the long job never ran")
		}
	})
}

// A client that comes anew has its part, and not what it might have had before.
func TestTimeAwayIsNotMadeUpFor(t *testing.T) {
	y := newYard(1)
	y.join(owner{"a", "j"}, 1)
	y.join(owner{"b", "j"}, 1)
	y.runFor(5 * time.Second)
	y.join(owner{"c", "j"}, 1)
	clear(y.ran)
	y.runFor(600 * time.Millisecond)
	if c := y.ran[owner{"c", "j"}]; c < 190*time.Millisecond || c > 230*time.Millisecond {
		t.Errorf("the client has run for %s of 600 ms in a third of a place", c)
	}
}

// A client that has had too few guests for its part does not make up for that with more of them.
func TestTooFewGuestsAreNotMadeUpFor(t *testing.T) {
	const places = 4
	y := newYard(places)
	few, many := owner{"few", "j"}, owner{"many", "j"}
	y.join(few, 1)
	y.join(many, 8)
	y.runFor(5 * time.Second)
	y.join(few, 7)
	clear(y.ran)
	y.runFor(600 * time.Millisecond)
	if got := y.ran[many]; got < 1100*time.Millisecond || got > 1300*time.Millisecond {
		t.Errorf("the other has run for %s of 600 ms in two places", got)
	}
}

// Turns under way count: two clients with many guests do not take turns at having all places.
func TestClientsRunSideBySide(t *testing.T) {
	const places = 2
	y := newYard(places)
	for _, client := range []string{"a", "b"} {
		y.join(owner{client, "j"}, 2*places)
	}
	y.runFor(200 * time.Millisecond)
	for range 100 {
		y.step()
		if len(y.turns) == places && y.turns[0].guest.owner == y.turns[1].guest.owner {
			t.Fatalf("after %s client %s has both places", y.now.Sub(time.Unix(0, 0)), y.turns[0].guest.owner.client)
		}
	}
}
