package node

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Manifest says which table files hold a bucket, up to which log position: KV MANIFESTS, key = bucket.
type Manifest struct {
	Version    int              `json:"version"`
	Bucket     buckets.ID       `json:"bucket"`
	Generation uint64           `json:"generation"`
	Position   buckets.Position `json:"position"`
	Files      []TableFile      `json:"files"`             // in key order
	Pending    []string         `json:"pending,omitempty"` // being uploaded
	Dead       []DeadFile       `json:"dead,omitempty"`    // may be deleted after a grace time
}

// TableFile is an object of the checkpoint store. Its name is never used again.
type TableFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// DeadFile is an object that no manifest needs any more.
type DeadFile struct {
	Name  string    `json:"name"`
	Since time.Time `json:"since"`
}

// bytes is the size of the bucket's table files.
func (m Manifest) bytes() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// bury moves names to the dead list.
func (m *Manifest) bury(now time.Time, names ...string) {
	for _, name := range names {
		m.Dead = append(m.Dead, DeadFile{Name: name, Since: now})
	}
}

func manifestKey(b buckets.ID) string { return strconv.Itoa(int(b)) }

// loadManifest returns a bucket's manifest and its revision; a bucket without one has revision 0 and all
// of its records in the log.
func loadManifest(ctx context.Context, kv KV, b buckets.ID) (Manifest, uint64, error) {
	e, err := kv.Get(ctx, manifestKey(b))
	if err != nil {
		return Manifest{}, 0, fmt.Errorf("node: read the manifest of bucket %d: %w", b, err)
	}
	if e.Revision == 0 {
		return Manifest{Version: manifestVersion, Bucket: b}, 0, nil
	}
	m, err := parseManifest(e.Value)
	if err == nil && m.Bucket != b {
		err = fmt.Errorf("node: the manifest of bucket %d is of bucket %d", b, m.Bucket)
	}
	return m, e.Revision, err
}

func parseManifest(body []byte) (Manifest, error) {
	var m Manifest
	if err := api.Decode(body, &m, api.Lenient); err != nil {
		return m, fmt.Errorf("node: manifest: %w", err)
	}
	if m.Version > manifestVersion {
		return m, fmt.Errorf("node: manifest of version %d; this program reads %d", m.Version, manifestVersion)
	}
	return m, nil
}

// storeManifest extends exactly the manifest that it was built on: of that revision. It fails if another
// was stored meanwhile.
func storeManifest(ctx context.Context, kv KV, m Manifest, revision uint64) (uint64, error) {
	body, err := api.Encode(api.JSON, m)
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		return kv.Create(ctx, manifestKey(m.Bucket), body)
	}
	return kv.Update(ctx, manifestKey(m.Bucket), body, revision)
}
