package api

// PutRequest stores one record: subject record.put.
type PutRequest struct {
	Space string `json:"space,omitempty"`
	Key   *Bytes `json:"key,omitempty"` // absent: the key is assigned
	Value Bytes  `json:"value"`
}

// KeyRequest names a record: subjects record.get and record.delete.
type KeyRequest struct {
	Space string `json:"space,omitempty"`
	Key   Bytes  `json:"key"`
}

// SeqReply answers a write with its log position, and a put without a key with the one that was assigned.
type SeqReply struct {
	Seq uint64 `json:"seq"`
	Key Bytes  `json:"key,omitempty"`
}

// GetReply answers record.get.
type GetReply struct {
	Key   Bytes `json:"key"`
	Value Bytes `json:"value"`
}

// GetRequest is record.get as the owner gets it: subject storage.<id>.get.
type GetRequest struct {
	Bucket uint16 `json:"bucket"`
	Space  string `json:"space"`
	Key    Bytes  `json:"key"`
}

// SpaceRequest names a space: subject space.create.
type SpaceRequest struct {
	Space string `json:"space"`
}

// SpacesReply lists spaces by name: subjects space.list and storage.<id>.spaces.
type SpacesReply struct {
	Spaces []string `json:"spaces"`
}
