package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
)

// Defaults of everything that has one, in one place.
const (
	DefaultBuckets         = 256
	DefaultMaxRecord       = 4 << 20
	DefaultDuplicateWindow = 2 * time.Minute
	DefaultCheckpointBytes = 8 << 20

	DefaultPinTTL      = 5 * time.Second
	DefaultParkedFor   = 20 * time.Second
	DefaultJobTimeout  = 60 * time.Second
	DefaultAttempts    = 10
	DefaultSilence     = 10 * time.Second
	DefaultTicket      = 10 * time.Second
	DefaultPinQuota    = 8
	DefaultGateQuota   = 4
	DefaultLongestHold = 5 * time.Minute
	DefaultMemberTTL   = 12 * time.Second
	DefaultRetention   = 5 * time.Minute
	DefaultHistory     = 24 * time.Hour // of durable jobs that have ended, and their results
	DefaultAggregation = 256 << 20      // bytes of memory for one job's output on one storage
	DefaultTotal       = 1 << 30        // for that of all jobs
	DefaultMaxSkip     = 100

	DefaultThreshold     = 1.0              // percent of a share
	DefaultParallelMoves = 1                // orders that are worked off at a time
	DefaultTakeoverGrace = 20 * time.Second // longer than NATS may be without a leader

	DefaultReplyBytes = 512 << 10 // rows in one reply, about

	maxParked    = MaxJobs
	inlineOutput = 256 << 10 // output that travels with the end message, at most half of max_payload
	pieceBytes   = 512 << 10 // of output fetched at a time
	envelope     = 4 << 10   // of max_payload that headers and framing may need

	bytesPerBucket = 128 // that a pin's answer or the saved table may take, each one message
)

// Keys of KV STATE.
const (
	keySettings      = "settings"
	keyTable         = "table"
	keyTopology      = "topology"
	keyPlanner       = "lease.planner"
	prefixMember     = "member."
	prefixStorage    = "member.storage."
	prefixRouter     = "member.router."
	prefixIdentity   = "identity."
	prefixSpace      = "space."
	settingsVersion  = 1
	topologyVersion  = 1
	identityVersion  = 1
	manifestVersion  = 1
	refreshEvery     = time.Second
	maintenanceEvery = 2 * time.Second
)

// NewSettings fills what is zero with defaults and checks the rest. Where max_payload allows less, the
// largest record is smaller.
func NewSettings(s api.Settings, maxPayload int) (api.Settings, error) {
	s.Version = settingsVersion
	setDefault(&s.ID, newID())
	setDefault(&s.Buckets, DefaultBuckets)
	setDefault(&s.Replicas, 1)
	setDefault(&s.MaxRecord, min(DefaultMaxRecord, maxPayload-envelope))
	setDefault(&s.DuplicateMS, DefaultDuplicateWindow.Milliseconds())
	setDefault(&s.CheckpointBytes, DefaultCheckpointBytes)
	setDefault(&s.HistoryMS, DefaultHistory.Milliseconds())
	if most := (maxPayload - envelope) / bytesPerBucket; s.Buckets > most {
		return s, api.Errorf(api.CodeBadRequest, "setting buckets is %d; a server with a max_payload of %d bytes allows %d", s.Buckets, maxPayload, most).
			WithHint("raise max_payload on the NATS server, or take fewer buckets: --buckets")
	}
	return s, ValidateSettings(s)
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// ValidateSettings says which setting is out of range.
func ValidateSettings(s api.Settings) error {
	for _, c := range []struct {
		name         string
		v, low, high int64
	}{
		{"buckets", int64(s.Buckets), 1, buckets.MaxBuckets},
		{"replicas", int64(s.Replicas), 1, 5},
		{"max_record", int64(s.MaxRecord), 1024, 64 << 20},
		{"duplicate_window_ms", s.DuplicateMS, 100, time.Hour.Milliseconds()},
		{"checkpoint_bytes", s.CheckpointBytes, 1024, 1 << 40},
		{"history_ms", s.HistoryMS, 1000, (366 * 24 * time.Hour).Milliseconds()},
	} {
		if c.v < c.low || c.v > c.high {
			return api.Errorf(api.CodeBadRequest, "setting %s is %d; it must be %d to %d", c.name, c.v, c.low, c.high).
				WithHint("flag --%s", strings.ReplaceAll(strings.TrimSuffix(c.name, "_ms"), "_", "-"))
		}
	}
	return nil
}

// CreateSettings stores the settings of a new cluster, or returns those of the one that is there. It
// fails with CLUSTER_DIFFERS if wanted, where not zero, contradicts them.
func CreateSettings(ctx context.Context, kv KV, cluster string, wanted api.Settings, maxPayload int) (api.Settings, error) {
	if found, err := LoadSettings(ctx, kv); err == nil {
		return found, agree(cluster, found, wanted)
	} else if api.CodeOf(err) != api.CodeNoSuchCluster {
		return api.Settings{}, err
	}
	full, err := NewSettings(wanted, maxPayload)
	if err != nil {
		return full, err
	}
	body, err := api.Encode(api.JSON, full)
	if err != nil {
		return full, err
	}
	if _, err := kv.Create(ctx, keySettings, body); api.CodeOf(err) == api.CodeNameTaken {
		found, err := LoadSettings(ctx, kv) // a rival was faster
		if err != nil {
			return found, err
		}
		return found, agree(cluster, found, wanted)
	} else if err != nil {
		return full, fmt.Errorf("node: store settings: %w", err)
	}
	return full, nil
}

func agree(cluster string, found, wanted api.Settings) error {
	for _, c := range []struct {
		name string
		f, w int64
	}{
		{"buckets", int64(found.Buckets), int64(wanted.Buckets)},
		{"replicas", int64(found.Replicas), int64(wanted.Replicas)},
		{"max_record", int64(found.MaxRecord), int64(wanted.MaxRecord)},
		{"duplicate_window_ms", found.DuplicateMS, wanted.DuplicateMS},
		{"checkpoint_bytes", found.CheckpointBytes, wanted.CheckpointBytes},
		{"history_ms", found.HistoryMS, wanted.HistoryMS},
	} {
		if c.w != 0 && c.w != c.f {
			return api.Errorf(api.CodeClusterDiffer, "cluster %s was created with %s=%d, not %d", cluster, c.name, c.f, c.w).
				WithHint("leave the option away, or name another --cluster")
		}
	}
	return nil
}

// LoadSettings reads the settings of a cluster: UNKNOWN_CLUSTER if it has none.
func LoadSettings(ctx context.Context, kv KV) (api.Settings, error) {
	var s api.Settings
	e, err := kv.Get(ctx, keySettings)
	if err != nil {
		return s, fmt.Errorf("node: read settings: %w", err)
	}
	if e.Revision == 0 {
		return s, api.Errorf(api.CodeNoSuchCluster, "the cluster has not been created").
			WithHint("start a router: `engine router`")
	}
	if err := api.Decode(e.Value, &s, api.Lenient); err != nil {
		return s, fmt.Errorf("node: settings: %w", err)
	}
	setDefault(&s.HistoryMS, DefaultHistory.Milliseconds()) // clusters that are older than the history
	if s.Version > settingsVersion {
		return s, api.Errorf(api.CodeVersion, "the cluster's settings have version %d; this program reads %d", s.Version, settingsVersion).
			WithHint("use the newer program")
	}
	return s, ValidateSettings(s)
}
