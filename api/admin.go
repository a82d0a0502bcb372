package api

// Administration of a cluster. All subjects admin.* are answered by any router.

// TopologyRequest makes the changes that it names, all or none, and asks for what holds then: subject admin.topology.
// An empty request only asks.
type TopologyRequest struct {
	Weights        map[string]float64 `json:"weights,omitempty"`         // by storage; 0 has it give all away
	StartWeights   []string           `json:"start_weights,omitempty"`   // storages that get back the weight they were started with
	LockBuckets    []uint16           `json:"lock_buckets,omitempty"`    // and those after them: what becomes locked,
	UnlockBuckets  []uint16           `json:"unlock_buckets,omitempty"`  // or is no longer
	LockStorages   []string           `json:"lock_storages,omitempty"`   //
	UnlockStorages []string           `json:"unlock_storages,omitempty"` //
	Paused         *bool              `json:"paused,omitempty"`          // whether the rebalancer orders moves
	Set            map[string]string  `json:"set,omitempty"`             // settings by name; an empty value is the default
}

// TopologyReply tells what holds.
type TopologyReply struct {
	Topology Topology  `json:"topology"`
	Settings []Setting `json:"settings"` // all there are, by name
}

// Setting is one of the settings that can be changed while the cluster runs.
type Setting struct {
	Name    string `json:"name"`
	Value   string `json:"value"` // as TopologyRequest takes it
	Default string `json:"default"`
	About   string `json:"about"` // what it is, its unit and range
}

// BucketsRequest asks how buckets are: subject admin.buckets. Large clusters are told piece by piece.
type BucketsRequest struct {
	Buckets []uint16 `json:"buckets,omitempty"` // these; all if there are none
	From    uint16   `json:"from,omitempty"`    // of all, those from here on
	// Count has the owners count records and bytes anew, which reads them all. Without it they tell what they have
	// counted before, and count what they can in a moment.
	Count bool `json:"count,omitempty"`
}

// BucketsReply answers it.
type BucketsReply struct {
	Buckets []BucketInfo `json:"buckets"`        // ascending
	Next    int          `json:"next,omitempty"` // ask again from here; 0: that is all
}

// BucketInfo is how a bucket is.
type BucketInfo struct {
	Bucket     uint16 `json:"bucket"`
	State      string `json:"state"`           // see BucketOwned and those after it
	Owner      string `json:"owner,omitempty"` // nobody, if it is not assigned yet
	Generation uint64 `json:"generation"`      // log position of the entry that gave the bucket to its owner
	To         string `json:"to,omitempty"`    // who is to have it, of one that moves
	Locked     bool   `json:"locked,omitempty"`
	Records    uint64 `json:"records"`    // as its owner counted them, with all spaces
	Bytes      uint64 `json:"bytes"`      // of keys and values
	CountedAt  uint64 `json:"counted_at"` // every entry of the log up to here was counted, and perhaps some after it; 0: not counted yet
}

// The states of a bucket.
const (
	BucketUnowned   = "unowned"   // it was never assigned
	BucketOwned     = "owned"     // its owner serves it
	BucketLoading   = "loading"   // its owner loads it from checkpoint and log
	BucketReceiving = "receiving" // its owner serves it, and another storage loads it to become owner
	BucketMoving    = "moving"    // the moment of change: gates are asked for or held
	BucketGone      = "gone"      // its owner is not there
	BucketSilent    = "silent"    // its owner is there and does not answer
)

// FiguresRequest asks a storage for its buckets: subject storage.<id>.buckets.
type FiguresRequest struct {
	Buckets []uint16 `json:"buckets"` // at most 1024
	Count   bool     `json:"count,omitempty"`
}

// FiguresReply answers it, with all buckets of the request.
type FiguresReply struct {
	Buckets []BucketFigures `json:"buckets"`
}

// BucketFigures are what a storage knows of a bucket.
type BucketFigures struct {
	Bucket     uint16 `json:"bucket"`
	Owner      string `json:"owner"` // in the table as the storage has it
	Generation uint64 `json:"generation"`
	Loaded     bool   `json:"loaded,omitempty"`
	Records    uint64 `json:"records"`
	Bytes      uint64 `json:"bytes"`
	CountedAt  uint64 `json:"counted_at"` // 0: not counted yet
}

// MoveRequest orders moves by hand: subject admin.move. Locked buckets and storages are refused.
type MoveRequest struct {
	Buckets []uint16 `json:"buckets"`
	To      string   `json:"to"`
}

// MoveReply tells what was ordered. Nothing has moved yet: see admin.moves.
type MoveReply struct {
	Orders []MoveOrder `json:"orders"`
	There  []uint16    `json:"there,omitempty"` // buckets that the storage owns already
	Error  *Error      `json:"error,omitempty"` // why the rest was not ordered, or perhaps not
}

// PlanReply tells what the rebalancer would do now, without doing it: subject admin.plan, request {}.
type PlanReply struct {
	Balanced bool          `json:"balanced"` // nothing is to be moved
	Paused   bool          `json:"paused,omitempty"`
	Orders   []MoveOrder   `json:"orders"` // without ids; what is under way is taken as done
	More     int           `json:"more,omitempty"`
	Shares   []ShareInfo   `json:"shares"`
	Gone     []GoneStorage `json:"gone,omitempty"`
	Notes    []string      `json:"notes,omitempty"` // why some storage keeps more than it should
}

// ShareInfo is a storage's part of the buckets.
type ShareInfo struct {
	Storage string  `json:"storage"`
	Weight  float64 `json:"weight"`
	Locked  bool    `json:"locked,omitempty"`
	Owned   int     `json:"owned"` // buckets, now
	Then    int     `json:"then"`  // with what is under way, and before what is planned
	Share   float64 `json:"share"`
	Low     int     `json:"low"`  // the least and the most that count as balanced
	High    int     `json:"high"` //
}

// GoneStorage is a storage that owns buckets and is not a member.
type GoneStorage struct {
	Storage string `json:"storage"`
	Buckets int    `json:"buckets"`
	// TakeoverMS is when others take its buckets over: not before so many milliseconds have passed. 0 is now, and -1
	// that no planner is known, which begins to count when there is one.
	TakeoverMS int64 `json:"takeover_ms"`
}

// MovesReply tells of orders: subject admin.moves, request {}.
type MovesReply struct {
	Planner string         `json:"planner,omitempty"` // the router that plans; empty while there is none
	Paused  bool           `json:"paused,omitempty"`
	Queued  []MoveOrder    `json:"queued,omitempty"` // what the planner has ordered and no router has begun
	Running []MoveProgress `json:"running,omitempty"`
	Ended   []MoveProgress `json:"ended,omitempty"` // the last ones, as long as their router runs; the latest first
	InQueue int            `json:"in_queue"`        // orders in the queues, whoever gave them: those that wait, and those that are worked on
}

// RouterMoves is what one router knows: subject router.<id>.moves, request {}.
type RouterMoves struct {
	Router   string         `json:"router"`
	Moves    []MoveProgress `json:"moves,omitempty"`
	Planning *Planning      `json:"planning,omitempty"` // of the router that plans
}

// Planning is what the planner has under way.
type Planning struct {
	Ordered []MoveOrder   `json:"ordered,omitempty"` // without an outcome so far
	Gone    []GoneStorage `json:"gone,omitempty"`
}
