package node

import (
	"fmt"
	"slices"

	"github.com/pinion-mr/pinion/api"
)

// Defaults of how many jobs a router takes.
const (
	DefaultJobs  = 64   // that run at once
	DefaultQueue = 1024 // that wait
)

// MaxJobs is the most jobs that a router may run at once. A storage keeps the snapshots of as many cuts for jobs that
// have not pinned there yet; beyond that, as with several routers, the oldest is dropped and its job tries again.
const MaxJobs = 64

// A client alone leaves some room to the others: of the places to run in, it holds at most runShare times as
// many as are free then, three of four if it is alone; and the last part of the queue is for clients of whom
// nobody waits yet.
const (
	runShare   = 3
	queueSpare = 16 // one of so many places in the queue

	queueBytes = 64 << 20 // that the requests of jobs that wait may take
)

// admission decides which jobs of a router run and which wait. Of the jobs of one client the first to come is
// the first to run; clients take turns. It has no clock and no lock.
type admission struct {
	most, mostWaiting int

	busy    int            // jobs that run
	running map[string]int // of them, by client
	turns   []*line        // clients with jobs that wait, the next one first
	waiting int            // jobs in all lines
	bytes   int64          // of their requests
}

// line is the queue of one client.
type line struct {
	client string
	jobs   []*applicant
}

// applicant is a job that runs or waits.
type applicant struct {
	client   string
	bytes    int64         // of its request
	admitted chan struct{} // closed when it may run
	state    applicantState
}

type applicantState int

const (
	applicantWaits applicantState = iota
	applicantRuns
	applicantGone
)

func newAdmission(most, mostWaiting int) *admission {
	return &admission{most: most, mostWaiting: mostWaiting, running: map[string]int{}}
}

// enter takes a job in, to run or to wait; bytes is the size of its request. BUSY says that too many wait.
func (a *admission) enter(client string, bytes int64) (*applicant, error) {
	x := &applicant{client: client, bytes: bytes, admitted: make(chan struct{})}
	l := a.lineOf(client)
	if l == nil && a.mayRun(client) {
		a.run(x)
		return x, nil
	}
	room := a.mostWaiting
	if l != nil {
		room -= a.mostWaiting / queueSpare
	}
	if a.waiting >= room || a.waiting > 0 && a.bytes+bytes > queueBytes {
		return nil, a.refusal()
	}
	if l == nil {
		l = &line{client: client}
		a.turns = append(a.turns, l)
	}
	l.jobs = append(l.jobs, x)
	a.waiting, a.bytes = a.waiting+1, a.bytes+bytes
	return x, nil
}

func (a *admission) refusal() *api.Error {
	why := fmt.Sprintf("%d wait of at most %d", a.waiting, a.mostWaiting)
	if a.bytes > queueBytes/2 {
		why = fmt.Sprintf("the requests of the %d that wait take %d bytes of at most %d", a.waiting, a.bytes, queueBytes)
	}
	return api.Errorf(api.CodeBusy, "this router runs %d jobs of at most %d, and %s", a.busy, a.most, why).
		WithHint("try again in a moment, start another router, or let this one take more: --jobs, --jobs-queue").
		With("running", fmt.Sprint(a.busy)).With("waiting", fmt.Sprint(a.waiting))
}

// leave takes a job out that has ended, or does not wait any longer. Those whose turn has come then are
// admitted.
func (a *admission) leave(x *applicant) {
	switch x.state {
	case applicantRuns:
		a.busy--
		if a.running[x.client]--; a.running[x.client] == 0 {
			delete(a.running, x.client)
		}
	case applicantWaits:
		l := a.lineOf(x.client)
		l.jobs = slices.DeleteFunc(l.jobs, func(other *applicant) bool { return other == x })
		a.waiting, a.bytes = a.waiting-1, a.bytes-x.bytes
		if len(l.jobs) == 0 {
			a.turns = slices.DeleteFunc(a.turns, func(other *line) bool { return other == l })
		}
	case applicantGone:
	}
	x.state = applicantGone
	for a.admitNext() {
	}
}

// admitNext lets the first job run of the first client in turn that may have another one.
func (a *admission) admitNext() bool {
	i := slices.IndexFunc(a.turns, func(l *line) bool { return a.mayRun(l.client) })
	if i < 0 {
		return false
	}
	l := a.turns[i]
	a.turns = slices.Delete(a.turns, i, i+1)
	x := l.jobs[0]
	if l.jobs = l.jobs[1:]; len(l.jobs) > 0 {
		a.turns = append(a.turns, l)
	}
	a.waiting, a.bytes = a.waiting-1, a.bytes-x.bytes
	a.run(x)
	return true
}

// mayRun reports whether a client may have one more job run.
func (a *admission) mayRun(client string) bool {
	return a.running[client] < runShare*(a.most-a.busy)
}

func (a *admission) run(x *applicant) {
	a.busy++
	a.running[x.client]++
	x.state = applicantRuns
	close(x.admitted)
}

func (a *admission) lineOf(client string) *line {
	for _, l := range a.turns {
		if l.client == client {
			return l
		}
	}
	return nil
}

// place is about how many jobs run before this one, with itself: 1 is next, 0 is no longer waiting.
func (a *admission) place(x *applicant) int {
	if x.state != applicantWaits {
		return 0
	}
	own := slices.IndexFunc(a.turns, func(l *line) bool { return l.client == x.client })
	round := slices.Index(a.turns[own].jobs, x) // others have had so many turns by then, or one more
	place := 1
	for i, l := range a.turns {
		before := round
		if i < own {
			before++
		}
		place += min(len(l.jobs), before)
	}
	return place
}
