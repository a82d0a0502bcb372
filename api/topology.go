package api

// Topology is what administrators want of the cluster: KV STATE, key topology, changed by compare-and-set. The
// zero Topology is that of a cluster which nobody has touched: what is not set has its default.
type Topology struct {
	Version int `json:"version"`
	// Weights are given by administrators, before those with which the storages were started. A storage of weight
	// 0 gives all it has away.
	Weights map[string]float64 `json:"weights,omitempty"`
	// LockedBuckets stay where they are, and LockedStorages neither give nor take, as long as their storage lives.
	// A takeover from a storage that is gone heeds no lock of what is taken; a locked storage takes nothing then
	// either.
	LockedBuckets  []uint16 `json:"locked_buckets,omitempty"`  // ascending
	LockedStorages []string `json:"locked_storages,omitempty"` // ascending
	// Paused stops moves that nobody has ordered by hand. First assignments and takeovers go on.
	Paused        bool  `json:"paused,omitempty"`
	ParallelMoves int   `json:"parallel_moves,omitempty"` // orders worked off at the same time; 0: 1
	MoveBandwidth int64 `json:"move_bandwidth,omitempty"` // bytes per second that a storage receives; 0: unlimited
	// Threshold is how many percent of its share a storage may have too much or too little before buckets move.
	Threshold       *float64 `json:"threshold,omitempty"`         // default 1
	TakeoverGraceMS int64    `json:"takeover_grace_ms,omitempty"` // from a storage's lapse to its takeover; 0: 20 s
	PinQuota        *int     `json:"pin_quota,omitempty"`         // see Quotas; default 8
	GateQuota       *int     `json:"gate_quota,omitempty"`        // default 4
}
