package api

// Settings of a cluster, fixed when it is created but where the field says otherwise. KV STATE, key
// settings.
type Settings struct {
	Version         int    `json:"version"` // of this structure
	ID              string `json:"id"`      // minted at creation: two clusters of one name differ in it
	Buckets         int    `json:"buckets"`
	Replicas        int    `json:"replicas"`
	MaxRecord       int    `json:"max_record"`          // key and value, bytes
	DuplicateMS     int64  `json:"duplicate_window_ms"` // of the log
	CheckpointBytes int64  `json:"checkpoint_bytes"`    // a bucket's log beyond which it is checkpointed
	HistoryMS       int64  `json:"history_ms"`          // how long durable jobs that have ended, and their results, are kept
}

// Member is a role that is alive: KV STATE, keys member.storage.<id> and member.router.<id>.
type Member struct {
	ID          string  `json:"id"`
	Role        string  `json:"role"` // storage, router
	Incarnation string  `json:"incarnation"`
	Folder      string  `json:"folder,omitempty"` // identity of a storage's folder, so that its restart is known from a rival
	Weight      float64 `json:"weight"`
	Version     string  `json:"version"`
	Host        string  `json:"host"`
	PID         int     `json:"pid"`
}

// Identity says to whose folder the id of a storage or router belongs, also while that does not run: KV STATE, keys
// identity.storage.<id> and identity.router.<id>.
type Identity struct {
	Version int    `json:"version"`
	Folder  string `json:"folder"` // see Member
	Host    string `json:"host"`   // where it ran last
}

// StorageStatus answers storage.<id>.status.
type StorageStatus struct {
	Storage      string    `json:"storage"`
	Incarnation  string    `json:"incarnation"`
	Applied      uint64    `json:"applied"`
	Verified     uint64    `json:"verified"`
	Owned        int       `json:"owned"`
	Loaded       int       `json:"loaded"`
	PMRs         []PMRInfo `json:"pmrs"`
	Parked       int       `json:"parked"`         // snapshots of cuts that no pin has claimed
	Gate         string    `json:"gate,omitempty"` // that is held
	GatesWaiting int       `json:"gates_waiting"`
	Tickets      int       `json:"tickets"` // refused pins that are remembered
	Skipped      uint64    `json:"skipped"`
	LastSkipped  string    `json:"last_skipped,omitempty"` // position and reason
	Reloads      uint64    `json:"reloads"`
	Warnings     []string  `json:"warnings,omitempty"`
}

// PMRInfo is a PMR in a status.
type PMRInfo struct {
	PMR      string `json:"pmr"`
	Job      string `json:"job"`
	Router   string `json:"router"`
	State    string `json:"state"`
	Snapshot bool   `json:"snapshot,omitempty"` // it holds no bucket in place
}

// ClusterStatus answers admin.status.
type ClusterStatus struct {
	Cluster  string          `json:"cluster"`
	Healthy  bool            `json:"healthy"`
	Settings Settings        `json:"settings"`
	Log      LogState        `json:"log"`
	Members  []Member        `json:"members"`
	Storages []StorageStatus `json:"storages"`
	Unowned  []uint16        `json:"unowned,omitempty"`
	Jobs     int             `json:"jobs"` // running on the router that answers
	// JobsWaiting are those that wait there for their turn.
	JobsWaiting int           `json:"jobs_waiting,omitempty"`
	Topology    Topology      `json:"topology"`
	Gone        []GoneStorage `json:"gone,omitempty"`
	Moves       MovesReply    `json:"moves"` // without those that have ended
	Problems    []string      `json:"problems,omitempty"`
}
