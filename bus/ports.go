package bus

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// ErrConflict reports that a key was not at the revision that an update named, or that a rival's update
// was in flight. It is no verdict on who won: read the key again.
var ErrConflict = errors.New("bus: the key has another revision")

// The time limits of what is asked of JetStream, and the default of the log's duplicate window.
const (
	publishTimeout         = 2 * time.Second  // of one try
	publishPatience        = 15 * time.Second // of all tries of a write: an election takes up to 9 s
	askPatience            = 5 * time.Second  // of all tries of a read
	defaultDuplicateWindow = 2 * time.Minute
)

// LogConfig describes a log to create.
type LogConfig struct {
	Replicas        int           // servers that hold a copy; default 1
	DuplicateWindow time.Duration // in which a message id is stored once; default 2 min
	MaxMsgSize      int           // bytes of one entry with its headers; 0 is the server's max_payload
}

// QueueConfig describes a work queue to create.
type QueueConfig struct {
	Replicas      int           // default 1
	MaxAckPending int           // messages being worked on at a time, by all consumers together; default 1
	AckWait       time.Duration // silence after which a message is delivered again; default 30 s
	KeepPending   bool          // a queue that exists keeps its MaxAckPending
}

// QueueMessage is one message of a work queue, as it is handed to one of its consumers.
type QueueMessage struct {
	Body       []byte
	Seq        uint64 // its place in the queue
	Deliveries int    // 1 at the first delivery
	Delivery
}

// Delivery ends or prolongs the delivery of a [QueueMessage]. A message that is neither ended nor
// prolonged for the queue's AckWait is delivered again.
type Delivery interface {
	// InProgress starts the queue's AckWait anew.
	InProgress() error
	// Ack takes the message off the queue and waits until the server has confirmed it. An error means
	// that it may be delivered once more.
	Ack(ctx context.Context) error
	// Nak has the message delivered again after the delay.
	Nak(delay time.Duration) error
	// Term takes the message off the queue, unworked.
	Term(reason string) error
}

// discard is the logger of those who pass none.
func discard(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
