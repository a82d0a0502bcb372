package api

// More states of a job, beside running and done.
const (
	JobQueued   JobStatus = "queued"
	JobFailed   JobStatus = "failed"
	JobCanceled JobStatus = "canceled"
)

// JobStatuses are all states of a job, in the order in which they follow each other.
func JobStatuses() []JobStatus {
	return []JobStatus{JobQueued, JobRunning, JobDone, JobFailed, JobCanceled}
}

// Over reports whether a job of this state has ended.
func (s JobStatus) Over() bool { return s == JobDone || s == JobFailed || s == JobCanceled }

// JobRecord is what the cluster knows of a job: KV JOBS, key job.<id> of a durable one. Under claim.<id> it says for some
// time who has the id: the router that runs a job of job.run, or, with Durable, that a job of job.submit is being stored.
// Every change of it is a compare-and-set.
// Times are the wall clocks of whoever wrote them, for people only.
type JobRecord struct {
	Version     int         `json:"version"` // of this structure
	Job         string      `json:"job"`
	Durable     bool        `json:"durable,omitempty"`
	State       JobStatus   `json:"state"`
	Asked       string      `json:"asked,omitempty"`   // sha256 of the request as it was sent, so that a repeated one is known
	Request     *JobRequest `json:"request,omitempty"` // complete, with the module's digest
	Module      string      `json:"module,omitempty"`  // as the user called it
	Router      string      `json:"router,omitempty"`  // that took it last
	Take        int         `json:"take,omitempty"`    // how often it was taken
	Back        int         `json:"back,omitempty"`    // how many of these takes were given back in order
	Message     uint64      `json:"message,omitempty"` // place in the queue of the message that the last take came by
	Cancel      bool        `json:"cancel,omitempty"`  // somebody wants it to end
	SubmittedMS int64       `json:"submitted_ms,omitempty"`
	StartedMS   int64       `json:"started_ms,omitempty"` // of the last take
	EndedMS     int64       `json:"ended_ms,omitempty"`
	Attempts    int         `json:"attempts,omitempty"` // of the takes that told theirs
	Error       *Error      `json:"error,omitempty"`    // why it failed, or why the last take did not finish
	Stats       *JobStats   `json:"stats,omitempty"`    // without what grows with the cluster, which is with the result
	Result      string      `json:"result,omitempty"`   // name of the result in object store RESULTS
	Bytes       uint64      `json:"bytes,omitempty"`    // of the result as it is stored
}

// QueuedJob is a message of the work queue jobs.
type QueuedJob struct {
	Job string `json:"job"`
}

// ResultIndex is the head of a stored result: object <job>.<take> of store RESULTS. A small result is in it as a
// whole; of a larger one, piece i is object <job>.<take>.<i>.
type ResultIndex struct {
	Version     int       `json:"version"` // of this structure and of the pieces
	Job         string    `json:"job"`
	Take        int       `json:"take"`
	Stats       *JobStats `json:"stats"`
	Rows        []Row     `json:"rows,omitempty"`        // all of them, if there are no pieces
	Pieces      []uint64  `json:"pieces,omitempty"`      // number of each piece's first row
	Certificate Bytes     `json:"certificate,omitempty"` // of the job, as job.certificate answers it
}

// ResultPiece is a part of a stored result.
type ResultPiece struct {
	Version int    `json:"version"`
	First   uint64 `json:"first"` // number of the first row
	Rows    []Row  `json:"rows"`
}

// JobState answers job.submit and job.cancel.
type JobState struct {
	Job   string    `json:"job"`
	State JobStatus `json:"state"`
	Over  bool      `json:"over,omitempty"` // it had ended before the request came
}

// JobName names a job: subject job.get, and router.<id>.job for the jobs of one router.
type JobName struct {
	Job string `json:"job"`
}

// JobInfo is a job as others see it: it answers job.get, and is an entry of job.list.
type JobInfo struct {
	Job         string       `json:"job"`
	State       JobStatus    `json:"state"`
	Durable     bool         `json:"durable,omitempty"`
	Module      string       `json:"module,omitempty"`
	Function    string       `json:"function,omitempty"`
	Reduce      string       `json:"reduce,omitempty"`
	Space       string       `json:"space,omitempty"`
	Wanted      []uint16     `json:"wanted,omitempty"` // of a job of a part of the space: its buckets, ascending; not in lists
	Client      string       `json:"client,omitempty"`
	Router      string       `json:"router,omitempty"` // that runs it or ran it last
	Take        int          `json:"take,omitempty"`   // how often a router took it
	Attempts    int          `json:"attempts,omitempty"`
	Cancel      bool         `json:"cancel,omitempty"` // it is being cancelled
	SubmittedMS int64        `json:"submitted_ms,omitempty"`
	StartedMS   int64        `json:"started_ms,omitempty"`
	EndedMS     int64        `json:"ended_ms,omitempty"`
	Progress    *JobProgress `json:"progress,omitempty"` // of a running job, not in lists
	Error       *Error       `json:"error,omitempty"`    // why it failed, or why the last take did not finish
	Stats       *JobStats    `json:"stats,omitempty"`    // of a job that is done, not in lists
	Rows        uint64       `json:"rows,omitempty"`     // of the result
	Bytes       uint64       `json:"bytes,omitempty"`    // of the result as it is stored
}

// JobsRequest asks for jobs: subject job.list, and router.<id>.jobs for the jobs of one router.
type JobsRequest struct {
	State  JobStatus `json:"state,omitempty"`
	Client string    `json:"client,omitempty"`
	Limit  int       `json:"limit,omitempty"` // default 100, at most 1,000
}

// MostListed is the largest Limit of a JobsRequest.
const MostListed = 1000

// JobsReply answers it: the newest first.
type JobsReply struct {
	Jobs []JobInfo `json:"jobs"`
	More int       `json:"more,omitempty"` // that were left out
}

// AttemptsPerTake keeps the attempts of a job's takes apart: those of take n are numbered from (n-1) times it on.
const AttemptsPerTake = 1 << 20
