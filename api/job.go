package api

// JobRequest asks for a job: subject job.run.
type JobRequest struct {
	Job       string           `json:"job,omitempty"`      // the client's own id; one is made if empty
	Module    string           `json:"module,omitempty"`   // name, name@version or sha256; empty passes records through
	Label     string           `json:"label,omitempty"`    // what lists and messages call the module, as the name of an uploaded file; default its name
	Function  string           `json:"function,omitempty"` // default map
	Combine   string           `json:"combine,omitempty"`  // a function of the module, run on each storage's output
	Reduce    string           `json:"reduce,omitempty"`   // sum, count, min, max, none, module, or a function of the module as module:NAME
	Space     string           `json:"space,omitempty"`    // default DefaultSpace
	Params    map[string]Bytes `json:"params,omitempty"`
	Mode      string           `json:"mode,omitempty"`       // hold (default): no bucket moves during the map; snapshot: they may
	Buckets   []uint16         `json:"buckets,omitempty"`    // map these alone
	Keys      []Bytes          `json:"keys,omitempty"`       // map the records of these keys alone
	Client    string           `json:"client,omitempty"`     // who asks; clients share the cluster evenly. Default one for all that do not say
	TimeoutMS int64            `json:"timeout_ms,omitempty"` // default 60,000
	Attempts  int              `json:"attempts,omitempty"`   // maps begun at the most; default 10
	Sort      string           `json:"sort,omitempty"`       // key (default), -key, value, -value, none
	Limit     int              `json:"limit,omitempty"`      // rows at the most; 0 is all
	WaitMS    int64            `json:"wait_ms,omitempty"`    // how long to wait for the end; 0 is the job's timeout
	MaxBytes  int              `json:"max_bytes,omitempty"`  // rows in the reply, about; default 512 KiB
	Proof     bool             `json:"proof,omitempty"`      // list in the stats who pinned which bucket
	OnError   string           `json:"on_error,omitempty"`   // fail (default), or skip: leave out the records at which the function fails
	MaxSkip   int              `json:"max_skip,omitempty"`   // records that on_error skip may leave out; default 100

	BucketParams []BucketParams `json:"bucket_params,omitempty"`
}

// BucketParams are params that hold for one bucket, beside the job's and before them.
type BucketParams struct {
	Bucket uint16           `json:"bucket"`
	Params map[string]Bytes `json:"params"`
}

// MaxClient is the longest name of a client, in bytes.
const MaxClient = 128

// The modes of a job.
const (
	ModeHold     = "hold"
	ModeSnapshot = "snapshot"
)

// What a job does about a record at which its function fails.
const (
	OnErrorFail = "fail"
	OnErrorSkip = "skip"
)

// JobReply answers job.run and job.result.
type JobReply struct {
	Job    string    `json:"job"`
	Status JobStatus `json:"status"`
	Rows   []Row     `json:"rows"`
	Next   string    `json:"next,omitempty"` // cursor for job.result, also of a running job; empty when these are the last rows
	Stats  *JobStats `json:"stats,omitempty"`
}

// JobStatus says how far a job is.
type JobStatus string

// The states a client can see.
const (
	JobRunning JobStatus = "running"
	JobDone    JobStatus = "done"
)

// Row is one line of a result.
type Row struct {
	Key   Bytes `json:"key"`
	Value Value `json:"value"`
}

// JobStats says what a job did and proves its coverage.
type JobStats struct {
	Cut      uint64            `json:"cut"`      // log position that the job saw
	Buckets  int               `json:"buckets"`  // pinned, each exactly once
	Storages int               `json:"storages"` // that pinned them
	Records  uint64            `json:"records"`
	Bytes    uint64            `json:"bytes"` // keys and values read
	Pairs    uint64            `json:"pairs"` // emitted by maps
	Rows     uint64            `json:"rows"`
	Attempts int               `json:"attempts"`
	Millis   int64             `json:"millis"`
	Module   string            `json:"module,omitempty"` // sha256 of the module that ran
	Reduce   string            `json:"reduce,omitempty"` // that was applied
	Counters map[string]int64  `json:"counters,omitempty"`
	Fuel     *Fuel             `json:"fuel,omitempty"`    // of the job's guests
	Skips    uint64            `json:"skips,omitempty"`   // records that were left out; they count in Records
	Skipped  []SkippedRecord   `json:"skipped,omitempty"` // the first of them by bucket and record, at most 100
	Pinned   []PinnedOnStorage `json:"pinned,omitempty"`  // if the request asked for the proof
}

// Fuel is the work of guests in steps, about one for an instruction. It does not depend on the machine.
type Fuel struct {
	Total     uint64  `json:"total"`      // of all buckets, combine and reduce
	Bucket    int     `json:"bucket"`     // that took the most
	BucketMax uint64  `json:"bucket_max"` // what it took
	PerRecord float64 `json:"per_record"` // total divided by records
}

// SkippedRecord is a record at which the function failed and that was left out.
type SkippedRecord struct {
	Bucket uint16 `json:"bucket"`
	Record uint64 `json:"record"` // its number in the bucket, from 0
	Key    Bytes  `json:"key"`    // its first 256 bytes
	Reason string `json:"reason"` // the failure's message, cut to 256 bytes
}

// PinnedOnStorage is one storage's part of the proof.
type PinnedOnStorage struct {
	Storage     string      `json:"storage"`
	Incarnation string      `json:"incarnation"`
	PMR         string      `json:"pmr"`
	Buckets     []BucketPin `json:"buckets"`
}

// ResultRequest fetches more rows: subject job.result.
type ResultRequest struct {
	Job      string `json:"job"`
	Cursor   string `json:"cursor,omitempty"`    // from JobReply.Next; empty starts at the first row
	MaxBytes int    `json:"max_bytes,omitempty"` // default 512 KiB
	WaitMS   int64  `json:"wait_ms,omitempty"`   // how long to wait for a running job
}

// CancelRequest ends a job: subject job.cancel.
type CancelRequest struct {
	Job string `json:"job"`
}

// Empty is a message without fields.
type Empty struct{}
