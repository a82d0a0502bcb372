package api

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5"
)

// CertificateVersion is the version of certificates that this program writes, and the newest that it reads.
const CertificateVersion = 1

// Certificate says of a done job what it read, who read it, and what came out: enough to check again from
// the log that each wanted bucket was read exactly once, as it was at the cut.
//
// Digests are SHA-256 in hex. Of one module, the same params and the same records come the same output
// digest, whichever storages held the records, unless the module itself makes its answer depend on that: a
// combine function sees what one storage holds.
type Certificate struct {
	Version  int                `json:"version"`
	Cluster  string             `json:"cluster"` // Settings.ID
	Job      string             `json:"job"`
	Attempt  int                `json:"attempt"`          // as the cut names it
	Cut      uint64             `json:"cut"`              // log position that the job saw
	Buckets  int                `json:"buckets"`          // of the cluster
	Wanted   []uint16           `json:"wanted,omitempty"` // ascending; all of the cluster's if it is empty
	Module   string             `json:"module,omitempty"` // digest; empty if records were passed through
	Params   string             `json:"params"`           // digest of all that the request says of the answer
	Storages []CertifiedStorage `json:"storages"`         // by id
	Records  uint64             `json:"records"`          // mapped
	Pairs    uint64             `json:"pairs"`            // emitted by the maps
	Skips    uint64             `json:"skips,omitempty"`  // records that were left out; they count in Records
	Rows     uint64             `json:"rows"`             // of the answer
	Output   string             `json:"output"`           // digest of the rows in their order
}

// CertifiedStorage is what one storage pinned and mapped.
type CertifiedStorage struct {
	Storage     string        `json:"storage"`
	Incarnation string        `json:"incarnation"`
	PMR         string        `json:"pmr"`
	Buckets     []BucketCount `json:"buckets"`
}

// BucketCount is what was read of a bucket. It travels as an array of its four numbers, in this order: at
// most 71 bytes in JSON.
type BucketCount struct {
	Bucket     uint16
	Generation uint64
	Records    uint64 // mapped
	Pairs      uint64 // emitted
}

// CertificateRequest asks for a job's certificate: subject job.certificate. The answer is a [Certificate].
type CertificateRequest struct {
	Job string `json:"job"`
}

// Readable refuses a certificate that a newer program has written, with UNKNOWN_VERSION, and what is none.
func (c Certificate) Readable() error {
	switch {
	case c.Version > CertificateVersion:
		return Errorf(CodeVersion, "the certificate of job %.80q has version %d; this program reads %d", c.Job, c.Version, CertificateVersion).
			WithHint("use a newer program")
	case c.Version < 1:
		return Errorf(CodeBadRequest, "this is no certificate: it has no version")
	}
	return nil
}

var (
	_ msgpack.CustomEncoder = BucketCount{}
	_ msgpack.CustomDecoder = (*BucketCount)(nil)
	_ json.Marshaler        = BucketCount{}
	_ json.Unmarshaler      = (*BucketCount)(nil)
)

func (b BucketCount) numbers() [4]uint64 {
	return [4]uint64{uint64(b.Bucket), b.Generation, b.Records, b.Pairs}
}

func (b *BucketCount) set(n []uint64) error {
	if len(n) != 4 || n[0] > math.MaxUint16 {
		return fmt.Errorf("api: a bucket's count is [bucket, generation, records, pairs], not %d", n)
	}
	*b = BucketCount{Bucket: uint16(n[0]), Generation: n[1], Records: n[2], Pairs: n[3]}
	return nil
}

// MarshalJSON writes an array of four numbers.
func (b BucketCount) MarshalJSON() ([]byte, error) { return json.Marshal(b.numbers()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (b *BucketCount) UnmarshalJSON(data []byte) error {
	var n []uint64
	if err := json.Unmarshal(data, &n); err != nil {
		return fmt.Errorf("api: a bucket's count: %w", err)
	}
	return b.set(n)
}

// EncodeMsgpack writes an array of four numbers.
func (b BucketCount) EncodeMsgpack(enc *msgpack.Encoder) error {
	if err := enc.EncodeArrayLen(4); err != nil {
		return err
	}
	for _, n := range b.numbers() {
		if err := enc.EncodeUint(n); err != nil {
			return err
		}
	}
	return nil
}

// DecodeMsgpack reads what EncodeMsgpack writes.
func (b *BucketCount) DecodeMsgpack(dec *msgpack.Decoder) error {
	size, err := dec.DecodeArrayLen()
	if err != nil {
		return err
	}
	var n [4]uint64
	if size != len(n) {
		return fmt.Errorf("api: a bucket's count has 4 numbers, not %d", size)
	}
	for i := range n {
		v, err := dec.DecodeInt64() // positions and counts are smaller; a negative one must not wrap
		if err != nil {
			return err
		}
		if v < 0 {
			return fmt.Errorf("api: number %d of a bucket's count is out of range", i)
		}
		n[i] = uint64(v)
	}
	return b.set(n[:])
}
