package api

// MostMoved is how many buckets an order may move at most. Orders that need no gates, which are those of buckets
// without an owner that lives, have no such bound.
const MostMoved = 16

// MoveOrder says that buckets go to another storage. Moves are on the work queue rebalance; first assignments and
// takeovers, which wait for nobody, on the work queue takeover.
type MoveOrder struct {
	ID       string   `json:"id"`
	Src      string   `json:"src,omitempty"` // empty: the buckets have no owner
	Dst      string   `json:"dst"`
	Buckets  []uint16 `json:"buckets"` // at most MostMoved, if the order needs gates
	Reason   string   `json:"reason"`
	Takeover bool     `json:"takeover,omitempty"` // src is presumed dead and is not asked
}

// NeedsGates reports whether the order is a move between two storages that live.
func (o MoveOrder) NeedsGates() bool { return o.Src != "" && !o.Takeover }

// ReceiveRequest has a storage load buckets in the background, from checkpoints and log, and follow them without
// owning them: subject storage.<id>.receive. It forgets them if nobody asks again in time and it does not come to
// own them.
type ReceiveRequest struct {
	Order     string   `json:"order"` // for messages
	Buckets   []uint16 `json:"buckets"`
	TTLMS     int64    `json:"ttl_ms"`              // 1 to 600,000
	WaitMS    int64    `json:"wait_ms,omitempty"`   // how long the answer may wait until all are ready, at most 5,000
	Bandwidth int64    `json:"bandwidth,omitempty"` // bytes per second that the storage receives from now on, in all; 0: unlimited
}

// ReceiveReply tells how far the buckets of the request are, in their order.
type ReceiveReply struct {
	Buckets []Received `json:"buckets"`
}

// Received is how far a bucket is on its way to a storage.
type Received struct {
	Bucket uint16 `json:"bucket"`
	State  string `json:"state"` // loading, ready, failed; what has failed is tried again at the next request
	Bytes  int64  `json:"bytes"`
	Total  int64  `json:"total"` // bytes known so far: of the checkpoint, and of the log that was read
	Error  *Error `json:"error,omitempty"`
}

// The states of a bucket on its way.
const (
	ReceiveLoading = "loading"
	ReceiveReady   = "ready"
	ReceiveFailed  = "failed"
)

// ActivateRequest has a storage append its ownership of buckets that it has received: subject storage.<id>.activate.
// It counts only if the storage holds the gate, and if generations and fences are still the present ones when the
// entries come to stand in the log.
type ActivateRequest struct {
	Order    string      `json:"order"`
	Gate     string      `json:"gate,omitempty"` // empty: the order needs none
	Buckets  []BucketPin `json:"buckets"`        // with the generations that are to be replaced; 0: there was none
	FenceSrc uint64      `json:"fence_src,omitempty"`
	FenceDst uint64      `json:"fence_dst,omitempty"` // 0: that of the time of the request
}

// ActivateReply tells what the log has come to, of each bucket of the request.
type ActivateReply struct {
	Buckets []Activation `json:"buckets"`
}

// Activation is who owns a bucket after an activation.
type Activation struct {
	Bucket     uint16 `json:"bucket"`
	Owner      string `json:"owner"`
	Generation uint64 `json:"generation"`
}

// MoveProgress tells of a delivery of an order, to people. A router knows those that it has worked on itself.
type MoveProgress struct {
	Order   MoveOrder `json:"order"`
	Step    string    `json:"step"`              // see StepLook and those after it
	Waiting string    `json:"waiting,omitempty"` // what for
	Bytes   int64     `json:"bytes"`             // received
	Total   int64     `json:"total"`             // known so far
	// Delivery counts how often the order was handed to a router, from 1.
	Delivery int    `json:"delivery"`
	Outcome  string `json:"outcome,omitempty"`  // of one that has ended: done, dropped, again
	Reason   string `json:"reason,omitempty"`   // of the outcome
	AgeMS    int64  `json:"age_ms"`             // since it began
	EndedMS  int64  `json:"ended_ms,omitempty"` // since it ended
}

// The steps of a move.
const (
	StepLook     = "look"     // whether the order fits
	StepReceive  = "receive"  // the destination loads the buckets; their owner serves them
	StepGates    = "gates"    // they are asked for, in the order of the storages' ids
	StepActivate = "activate" // they are held; the destination becomes the owner
	StepEnded    = "ended"
)

// The outcomes of a delivery.
const (
	OutcomeDone    = "done"    // the log shows the destination as the owner of what still fitted
	OutcomeDropped = "dropped" // the order is over without that
	OutcomeAgain   = "again"   // the order is to be delivered once more
)
