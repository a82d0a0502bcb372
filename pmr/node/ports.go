package node

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr/reduce"
)

// Log is the cluster's log. Subjects are below its prefix.
type Log interface {
	// Append stores an entry once, whatever is retried below, and returns its position. It takes 15 s at the
	// most. IN_DOUBT means that nobody knows whether it is stored; any other error that it is not.
	Append(ctx context.Context, subject string, header map[string]string, data []byte, msgID string) (uint64, error)
	// Read follows the log from a position until ctx ends or fn fails. It may jump over entries that
	// were purged.
	Read(ctx context.Context, from uint64, filters []string, fn func([]api.LogEntry) error) error
	// ReadTo reads all that matches in [from, to] and returns.
	ReadTo(ctx context.Context, from, to uint64, filters []string, fn func(api.LogEntry) error) error
	// State tells the log's extent. With several replicas the answer may be from the past.
	State(ctx context.Context) (api.LogState, error)
	// Entry returns one entry; NOT_FOUND if it was purged or never was.
	Entry(ctx context.Context, seq uint64) (api.LogEntry, error)
	// Purge removes entries up to and including a position, but never the last entry.
	Purge(ctx context.Context, upTo uint64) error
}

// KV is a key-value bucket. A revision of 0 means that the key does not exist.
type KV interface {
	Get(ctx context.Context, key string) (api.KVEntry, error)
	Create(ctx context.Context, key string, value []byte) (uint64, error) // NAME_TAKEN if it exists
	CreateTTL(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error)
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) // BUSY on another revision
	Renew(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (uint64, error)
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]api.KVEntry, error) // by key
}

// Records is a key-value bucket of many keys.
type Records interface {
	KV
	// Each calls fn with all keys that have a prefix and holds few of them at a time. What comes last of a key counts;
	// one that was removed may come as Deleted.
	Each(ctx context.Context, prefix string, fn func(api.KVEntry)) error
	Keys(ctx context.Context, prefix string) ([]string, error) // without reading values
}

// Objects is an object store.
type Objects interface {
	Put(ctx context.Context, name string, r io.Reader) error
	Get(ctx context.Context, name string) (io.ReadCloser, error) // NOT_FOUND
	Delete(ctx context.Context, name string) error
}

// Peers carries messages between nodes.
type Peers interface {
	Request(ctx context.Context, subject string, in, out any) error
	Publish(subject string, v any) error
	MaxPayload() int
}

// Catalogue knows the modules by name.
type Catalogue interface {
	// Resolve finds a module by name, name@version or digest: UNKNOWN_MODULE with a suggestion if there is
	// none.
	Resolve(ctx context.Context, ref string) (api.Module, error)
	// Check makes sure, before a job of it runs, that a digest's bytes are a module that can be compiled within
	// limits: BAD_MODULE or LIMIT_EXCEEDED if they are not.
	Check(ctx context.Context, digest string) error
	// Load returns the bytes of a digest that has passed Check.
	Load(ctx context.Context, digest string) ([]byte, error)
}

// Mapper runs guest functions.
type Mapper interface {
	// Prepare gets a job's module ready: loads and compiles it, if nobody has yet.
	Prepare(ctx context.Context, task Task) (Program, error)
}

// Program is a job's module, ready to run. The limits of a job count for all of its guests together.
type Program interface {
	// Open makes an instance, for one worker. While the guest runs, yield is called often: it may block to let
	// others run, and the guest ends with the error that it returns. While nobody waits it costs little.
	Open(ctx context.Context, yield func(context.Context) error) (Guest, error)
	Close()
}

// Task is what a program is prepared for.
type Task struct {
	Job      string
	Digest   string // of the module
	Name     string // as the user calls it
	Function string
	Params   map[string][]byte
	// BucketParams hold for one bucket, before params of the same name.
	BucketParams map[buckets.ID]map[string][]byte
	Timeout      time.Duration // of the job, for messages
	Numeric      bool          // what is emitted is reduced as numbers, so text that is a decimal number counts as one
	Log          *slog.Logger  // receives the guest's log lines
}

// Guest is an instance of a module.
type Guest interface {
	// Map runs the task's function over a bucket.
	Map(ctx context.Context, b buckets.ID, in Source, out Sink) (Figures, error)
	// Group runs a combine or reduce function over frames grouped by key.
	Group(ctx context.Context, function string, in Source, out Sink) (Figures, error)
	Close()
}

// Figures say what a guest did in one call of Map or Group.
type Figures struct {
	Counters map[string]int64 // added to
	Fuel     uint64           // steps
}

// Source yields frames in batches: see buckets.Cursor. Those of a bucket also have First() uint64, the number
// in the bucket of the first record of the last batch.
type Source interface {
	Fill(dst []byte, limit int) (out []byte, records int, err error)
}

// Sink takes emitted pairs. Key and value are valid only during the call.
type Sink interface {
	Emit(flags uint32, key, value []byte) error
}

var _ Sink = (*reduce.Table)(nil)

// Orders are the two work queues of move orders: one of those that need gates, and one of first assignments and
// takeovers, so that none of these waits behind a move that waits for a storage that is gone.
type Orders interface {
	Publish(ctx context.Context, order api.MoveOrder) error
	// Len is how many orders both queues have, with those that are worked on.
	Len(ctx context.Context) (int, error)
	// Consume calls fn for orders of both queues, until ctx ends.
	Consume(ctx context.Context, fn func(ctx context.Context, d OrderDelivery)) error
	// SetParallel says how many moves are worked on at a time, by all routers together.
	SetParallel(ctx context.Context, n int) error
}

// OrderDelivery is one delivery of a move order.
type OrderDelivery struct {
	Order      api.MoveOrder
	Deliveries int // 1 at the first
	Delivery
}

// JobQueue is the work queue of durable jobs. Each is handed to one of the routers, again if that one falls silent
// for JobSilence.
type JobQueue interface {
	// Publish adds a job. Two with the same id within two minutes are one.
	Publish(ctx context.Context, job api.QueuedJob, id string) error
	// Len is how many jobs the queue has, with those that routers run.
	Len(ctx context.Context) (int, error)
	// Consume calls fn for at most so many jobs at a time.
	Consume(ctx context.Context, most int, fn func(ctx context.Context, d JobDelivery)) error
}

// JobDelivery is one delivery of a message of the queue of jobs.
type JobDelivery struct {
	Job     string
	Message uint64 // its place in the queue, the same at each delivery
	Delivery
}

// Results is the object store of the results of durable jobs.
type Results interface {
	Objects
	List(ctx context.Context) ([]api.ObjectInfo, error) // by name
}

// Delivery prolongs or ends a delivery.
type Delivery interface {
	InProgress() error
	Ack(ctx context.Context) error
	Nak(after time.Duration) error
	Term(reason string) error
}

// Ports is all that a node needs from outside.
type Ports struct {
	Log         Log
	State       KV // settings, table, members, spaces
	Manifests   KV
	Checkpoints Objects
	Peers       Peers
	Orders      Orders  // of routers, and all that is about jobs
	Jobs        Records // the history of durable jobs; nil if there are none
	Claims      KV      // who has which job's id for a time
	JobQueue    JobQueue
	Results     Results
	Catalogue   Catalogue
	Mapper      Mapper
	Logger      *slog.Logger
	TempDir     string // of storages, for table files on their way; default the system's
	KeepDir     string // of storages, for a copy of records that the log has lost; none is kept if it is empty
}
