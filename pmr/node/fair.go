package node

import (
	"slices"
	"time"
)

// owner says for whom a guest runs. Jobs of the same name and different clients are different jobs.
type owner struct{ client, job string }

// quantum is how long a guest keeps its place while others wait, in time as usedBy counts it.
const quantum = 10 * time.Millisecond

// A call of a guest costs more the longer it runs, so that jobs whose calls are short pass by a guest that may
// never return. The factor has a bound: a long call that is honest goes on.
const (
	longCall   = 100 * time.Millisecond // what runs beyond this costs twice its time
	longerCall = time.Second            // and beyond this four times
)

// usedBy is what a call has used that has been in places for so long.
func usedBy(call time.Duration) time.Duration {
	return call + max(0, call-longCall) + 2*max(0, call-longerCall)
}

// patience is for how many rounds of all shares one of them waits before it is forgiven what it has used, as fast as
// it would use its part. Else those who come anew, and begin with the least that others have used, could keep one
// who has used more waiting for ever.
const patience = 2

// mostSaved is what a share may have used less than others with its guests waiting or running all the time. It makes up
// for their turns that were too long, but not for guests that it did not have.
const mostSaved = 10 * quantum

// fairQueue holds the guests that wait for a place and what those who run them have used. The next place goes to
// the client that has used least, of its jobs to the one that has used least, and of that job's guests to the first:
// start-time fair queueing (Goyal, Vin and Cheng, 1996) on two levels. So that short jobs do not wait for long ones,
// the first turn of each client and job begins a quantum ahead.
//
// Clients and jobs count from their first guest that waits or runs to the last. Who comes anew begins with the
// least that another has used: nobody saves time up while away, and nobody pays for what was before.
//
// It has no clock and no lock.
type fairQueue struct {
	places  int
	clients level
	waiting int
	since   time.Time // somebody has been waiting all the time since then
}

// level is what is shared equally, in order of arrival.
type level []*share

// share is what a client, or a job of a client, has of the places.
type share struct {
	name    string
	used    time.Duration // in turns that are over
	running int           // guests
	waiting int           // guests
	since   time.Time     // no guest of it has got a place since then, and some have waited
	served  bool          // a guest of it has had a turn
	prompt  bool          // the last turn began without a wait
	jobs    level         // of a client
	guests  []*place      // of a job: those that wait, in their order
}

// enter has a guest wait.
func (q *fairQueue) enter(p *place, now time.Time) {
	if q.waiting == 0 {
		q.since = now
	}
	q.waiting++
	job := q.clients.enter(p.owner.client, now).jobs.enter(p.owner.job, now)
	job.guests = append(job.guests, p)
}

// next takes the guest out of the queue that is to run now; nil if nobody waits.
func (q *fairQueue) next(now time.Time) *place {
	if q.waiting == 0 {
		return nil
	}
	q.waiting--
	part := float64(q.places) / float64(len(q.clients))
	client := q.clients.next(now, part)
	job := client.jobs.next(now, part/float64(len(client.jobs)))
	p := job.guests[0]
	job.guests = slices.Delete(job.guests, 0, 1)
	return p
}

// over ends a guest's turn in a place, in which it has used so much.
func (q *fairQueue) over(o owner, used time.Duration) {
	client, job := q.find(o)
	for _, s := range []*share{client, job} {
		s.running--
		s.used += used
	}
	q.drop(client, job)
}

// quit takes a guest out of the queue. It reports whether it was in there.
func (q *fairQueue) quit(p *place) bool {
	client, job := q.find(p.owner)
	if job == nil {
		return false
	}
	i := slices.Index(job.guests, p)
	if i < 0 {
		return false
	}
	job.guests = slices.Delete(job.guests, i, i+1)
	q.waiting--
	client.waiting--
	job.waiting--
	q.drop(client, job)
	return true
}

func (q *fairQueue) find(o owner) (client, job *share) {
	if client = q.clients.find(o.client); client != nil {
		job = client.jobs.find(o.job)
	}
	return client, job
}

// drop forgets a job and its client, if they have no guests.
func (q *fairQueue) drop(client, job *share) {
	client.jobs.drop(job)
	q.clients.drop(client)
}

func (l level) find(name string) *share {
	if i := slices.IndexFunc(l, func(s *share) bool { return s.name == name }); i >= 0 {
		return l[i]
	}
	return nil
}

func (l *level) drop(s *share) {
	if s.running+s.waiting == 0 {
		i := slices.Index(*l, s)
		*l = slices.Delete(*l, i, i+1)
	}
}

// enter has one more guest of a share wait.
func (l *level) enter(name string, now time.Time) *share {
	s := l.find(name)
	if s == nil {
		s = &share{name: name}
		s.used, _ = l.least(s)
		*l = append(*l, s)
	} else if least, ok := l.least(s); ok && s.prompt {
		// It has too few guests for its part of the places, and never waits; that does not count as saved up.
		s.used = max(s.used, least-mostSaved)
	}
	if s.waiting == 0 {
		s.since = now
	}
	s.waiting++
	return s
}

// least is the least that another share has used: of those that wait, if there are any.
func (l level) least(but *share) (used time.Duration, ok bool) {
	waits := false
	for _, s := range l {
		w := s.waiting > 0
		switch {
		case s == but || waits && !w:
		case !ok || w && !waits || s.used < used:
			used, ok, waits = s.used, true, w
		}
	}
	return used, ok
}

// next starts a turn of the share that is to have it. Each share's part is so many places.
func (l level) next(now time.Time, part float64) *share {
	var first *share
	var best, forgiven time.Duration
	round := time.Duration(float64(quantum) / part)
	for _, s := range l {
		if s.waiting == 0 {
			continue
		}
		late := time.Duration(float64(max(0, now.Sub(s.since)-patience*round)) * part)
		if rank := s.rank() - late; first == nil || rank < best {
			first, best, forgiven = s, rank, late
		}
	}
	if least, ok := l.least(first); ok { // debts are forgiven, and no more
		first.used = min(first.used, max(first.used-forgiven, least))
	}
	first.served, first.prompt, first.since = true, now.Equal(first.since), now
	first.waiting--
	first.running++
	return first
}

// rank orders the shares that wait. Turns under way count as whole ones.
func (s *share) rank() time.Duration {
	rank := s.used + quantum*time.Duration(s.running)
	if !s.served {
		rank -= quantum
	}
	return rank
}
