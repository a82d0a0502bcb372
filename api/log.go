package api

import "time"

// Headers of log messages.
const (
	HeaderSpace = "Pinion-Space" // the record's space; absent means DefaultSpace
	HeaderKey   = "Pinion-Key"   // one record: this is its key and the body its value
)

// DefaultSpace is the space of records for which none is named.
const DefaultSpace = "default"

// LogEntry is one entry of the log as it is stored.
type LogEntry struct {
	Seq     uint64
	Time    time.Time         // the server's, when it was stored
	Subject string            // below the log's prefix: rec.17, own.17, fence.s1, cut
	Header  map[string]string // only the headers above
	Data    []byte            // valid until the callback that got it returns
}

// LogState is the extent of the log.
type LogState struct {
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"` // First-1 if the log is empty
	Bytes    uint64 `json:"bytes"`
	Replicas int    `json:"replicas"`
}

// KVEntry is one key of a key-value bucket. Revision 0 means that it does not exist.
type KVEntry struct {
	Key      string
	Value    []byte
	Revision uint64
	Deleted  bool
}

// ObjectInfo is one object of an object store.
type ObjectInfo struct {
	Name string
	Size uint64
}
