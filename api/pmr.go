package api

// BucketPin names a pinned bucket and the generation of its ownership.
type BucketPin struct {
	Bucket     uint16 `json:"bucket"`
	Generation uint64 `json:"generation"`
}

// PinRequest asks a storage to pin: subject storage.<id>.pin.
type PinRequest struct {
	Job     string `json:"job"`
	Attempt int    `json:"attempt"`
	Router  string `json:"router"`
	Cut     uint64 `json:"cut"`
	Age     uint64 `json:"age,omitempty"` // position of the job's first cut: older jobs come first
	TTLMS   int64  `json:"ttl_ms"`        // the pin ends by itself if no map was asked for in this time
	Mode    string `json:"mode,omitempty"`
	Space   string `json:"space,omitempty"`
	// Buckets are the ones to pin, ascending; all that the storage owned at the cut if it is empty. Those that
	// it did not own are left out.
	Buckets []uint16 `json:"buckets,omitempty"`
}

// PinReply is a pin-map-reduce object of a storage.
type PinReply struct {
	PMR         string      `json:"pmr"` // 128 bit, minted by the storage, never reused
	Storage     string      `json:"storage"`
	Incarnation string      `json:"incarnation"`
	Buckets     []BucketPin `json:"buckets"`
	HasSpace    bool        `json:"has_space"` // whether any of these buckets holds a record of the space
}

// MapRequest starts the map: subject storage.<id>.map. It is answered at once.
type MapRequest struct {
	PMR          string           `json:"pmr"`
	Job          string           `json:"job"`
	Router       string           `json:"router"`
	Module       string           `json:"module,omitempty"` // sha256
	Name         string           `json:"name,omitempty"`   // as the user called it, for messages
	Function     string           `json:"function,omitempty"`
	Combine      string           `json:"combine,omitempty"`
	Reduce       string           `json:"reduce"`
	Space        string           `json:"space"`
	Params       map[string]Bytes `json:"params,omitempty"`
	BucketParams []BucketParams   `json:"bucket_params,omitempty"` // of buckets of this PMR
	Keys         []Bytes          `json:"keys,omitempty"`          // the records to map, all of the PMR's buckets if it is empty
	Client       string           `json:"client,omitempty"`        // whose job it is; clients share the workers
	TimeoutMS    int64            `json:"timeout_ms"`              // what is left of the job's time
	JobTimeoutMS int64            `json:"job_timeout_ms"`          // the whole of it, for messages
	OnError      string           `json:"on_error,omitempty"`
	MaxSkip      int              `json:"max_skip,omitempty"`
}

// MapReply answers it, at once or as soon as the map is over, if that is within some milliseconds. The end of a
// longer map is told by MapEnd. Told twice, it counts once.
type MapReply struct {
	End *MapEnd `json:"end,omitempty"`
}

// MapEnd tells the router the end of a map: subject router.<id>.mapped. It is sent again until answered.
type MapEnd struct {
	PMR      string           `json:"pmr"`
	Job      string           `json:"job"`
	Storage  string           `json:"storage"`
	Error    *Error           `json:"error,omitempty"`
	Records  uint64           `json:"records"`
	Bytes    uint64           `json:"bytes"`
	Pairs    uint64           `json:"pairs"`
	Counters map[string]int64 `json:"counters,omitempty"`
	Fuel     *Fuel            `json:"fuel,omitempty"`
	Skips    uint64           `json:"skips,omitempty"`   // records that were left out
	Skipped  []SkippedRecord  `json:"skipped,omitempty"` // the first of them by bucket and record, at most 100
	Size     uint64           `json:"size"`              // bytes of output in all
	Output   Bytes            `json:"output,omitempty"`  // all of it, if small; else fetch it

	// What was mapped and emitted of each bucket, in the order of the pin's buckets.
	BucketRecords []uint64 `json:"bucket_records,omitempty"`
	BucketPairs   []uint64 `json:"bucket_pairs,omitempty"`
}

// FetchRequest asks for a piece of a map's output: subject storage.<id>.fetch.
type FetchRequest struct {
	PMR      string `json:"pmr"`
	Cursor   uint64 `json:"cursor"` // byte offset
	MaxBytes int    `json:"max_bytes"`
}

// FetchReply is a piece: bytes [Cursor, Cursor+len(Data)) of the output.
type FetchReply struct {
	Data     Bytes  `json:"data"`
	Checksum uint64 `json:"checksum"` // xxhash64 of Data
	Size     uint64 `json:"size"`     // of the whole output
}

// PMRRequest names a PMR: subjects storage.<id>.release and storage.<id>.map_status.
type PMRRequest struct {
	PMR string `json:"pmr"`
}

// PMRStatus answers map_status.
type PMRStatus struct {
	PMR     string `json:"pmr"`
	State   string `json:"state"` // pinned, mapping, mapped
	Records uint64 `json:"records"`
	Bytes   uint64 `json:"bytes"`
	Buckets int    `json:"buckets"` // mapped so far
}

// GateRequest asks for a gate, or renews it: subject storage.<id>.gate. While a gate is held, no map-reduce
// holds the storage's buckets in place. It ends by itself if it is not renewed in its time.
type GateRequest struct {
	Gate   string `json:"gate"`             // the asker's own id, 128 bit
	TTLMS  int64  `json:"ttl_ms"`           // 1 to 60,000
	WaitMS int64  `json:"wait_ms"`          // how long the answer may wait for the gate to be granted, at most 5,000
	Second bool   `json:"second,omitempty"` // the asker holds a gate of another storage meanwhile
}

// GateReply answers it.
type GateReply struct {
	Gate    string `json:"gate"`
	State   string `json:"state"`   // waiting or held
	Running int    `json:"running"` // map-reduces that hold buckets in place
	Fence   uint64 `json:"fence"`   // the storage's present fence, if the gate is held
	// LongestHoldMS is how long a map-reduce may hold buckets in place here: so long a gate may have to wait.
	LongestHoldMS int64 `json:"longest_hold_ms"`
}

// GateName names a gate: subject storage.<id>.ungate, which ends it.
type GateName struct {
	Gate string `json:"gate"`
}

// Quotas are how many of one side a storage grants in a row while the other side waits. 0 is none; not both may
// be 0.
type Quotas struct {
	Pins  int `json:"pin_quota"`  // pins, while a gate waits
	Gates int `json:"gate_quota"` // gates, while refused pins are remembered
}

// QuotasRequest changes the quotas that it names and asks for what holds then: subject admin.quotas. Storages
// follow within some seconds.
type QuotasRequest struct {
	Pins  *int `json:"pin_quota,omitempty"`
	Gates *int `json:"gate_quota,omitempty"`
}

// Progress is published by storages while they map: subject router.<id>.progress.
type Progress struct {
	Job     string `json:"job"`
	PMR     string `json:"pmr"`
	Storage string `json:"storage"`
	Buckets int    `json:"buckets"`
	Records uint64 `json:"records"`
	Bytes   uint64 `json:"bytes"`
}

// JobProgress is published by routers: subject job.<id>.events.
type JobProgress struct {
	Job     string `json:"job"`
	Phase   string `json:"phase"`           // queued, waiting, cut, pin, map, reduce, done, failed, canceled
	Place   int    `json:"place,omitempty"` // of a queued job, about: 1 is next
	Attempt int    `json:"attempt"`         // of the present take
	Take    int    `json:"take,omitempty"`  // of a durable job: how often a router has taken it
	Buckets int    `json:"buckets"`
	Of      int    `json:"of"`
	Records uint64 `json:"records"`
	Bytes   uint64 `json:"bytes"`
	Reason  string `json:"reason,omitempty"` // why an attempt was given up
}

// Heartbeat is published by routers: subject router.<id>.beat.
type Heartbeat struct {
	Router string `json:"router"`
}
