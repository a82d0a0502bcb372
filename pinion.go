package pinion

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strings"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// DefaultCluster is the cluster of a Config that names none, the one that `engine dev` makes.
const DefaultCluster = bus.DefaultCluster

// requestPatience bounds a request whose context has no deadline.
const requestPatience = 30 * time.Second

// lookWithin is how long a failed request may look whether the cluster is there.
const lookWithin = 2 * time.Second

// moduleStore is the object store of modules.
const moduleStore = "MODULES"

// Config says which cluster to use and how to reach it.
type Config struct {
	Server  string // nats://host:port, tls://.. or ws://..; several with commas. Default nats://127.0.0.1:4222
	Cluster string // default DefaultCluster
	Name    string // of this program, for the server's list of connections; default pinion

	Creds   string // file with a NATS user's JWT and seed
	TLSCA   string // file with the authorities to trust
	TLSCert string // files with this program's own certificate and key
	TLSKey  string

	Log *slog.Logger // of the connection; nil is silent
}

// Client is a connection to a cluster. Its methods may be used concurrently.
type Client struct {
	conn transport
	user string // who its jobs are of, if they do not say

	mu       sync.Mutex
	settings *api.Settings // once they were asked for
}

// transport is what a Client needs of a bus.
type transport interface {
	Request(ctx context.Context, subject string, in, out any) error
	Subscribe(subject string, fn func(subject string, body []byte)) (stop func(), err error)
	MaxPayload() int
	Close()
	openLog(ctx context.Context) (clusterLog, error)
	openState(ctx context.Context) (keys, error)
	openModules(ctx context.Context) (objects, error)
}

type clusterLog interface {
	NewAppender(maxInFlight int) *bus.Appender
	State(ctx context.Context) (api.LogState, error)
	Entry(ctx context.Context, seq uint64) (api.LogEntry, error)
	ReadTo(ctx context.Context, from, to uint64, filters []string, fn func(api.LogEntry) error) error
}

type keys interface {
	Get(ctx context.Context, key string) (api.KVEntry, error)
}

type objects interface {
	Has(ctx context.Context, name string) (bool, error)
	Put(ctx context.Context, name string, r io.Reader) error
}

// natsBus is a transport over NATS.
type natsBus struct{ *bus.Bus }

var _ transport = natsBus{}

func (b natsBus) openLog(ctx context.Context) (clusterLog, error) { return b.Log(ctx) }

func (b natsBus) openState(ctx context.Context) (keys, error) { return b.KV(ctx, stateStore, false, 0) }

func (b natsBus) openModules(ctx context.Context) (objects, error) {
	return b.Objects(ctx, moduleStore, false, 0)
}

// Connect opens a connection, within about five seconds or fails with an UNAVAILABLE error that says what is
// wrong with the server. Whether the cluster exists is found out by the first request.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	b, err := bus.Connect(ctx, bus.Config{
		Server: cfg.Server, Cluster: cfg.Cluster, Name: cmp.Or(cfg.Name, "pinion"),
		Creds: cfg.Creds, TLSCA: cfg.TLSCA, TLSCert: cfg.TLSCert, TLSKey: cfg.TLSKey, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return &Client{conn: natsBus{b}, user: userName()}, nil
}

// userName names the user of this process and the host: who shares the cluster with others as one client.
func userName() string {
	name, host := "", ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	text := name + "@" + host
	return strings.ToValidUTF8(text[:min(len(text), api.MaxClient)], "?")
}

// Close ends the connection. Writers that were not closed lose what they hold.
func (c *Client) Close() { c.conn.Close() }

// request asks a router. If that fails for want of an answer, the error tells whether the cluster exists at all.
func (c *Client) request(ctx context.Context, subject string, in, out any) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestPatience)
		defer cancel()
	}
	err := c.conn.Request(ctx, subject, in, out)
	if e := api.AsError(err); err == nil || e.Code != api.CodeUnavailable && e.Code != api.CodeInDoubt && !unanswered(err) {
		return err
	}
	// Nobody answered, or whoever did could not write. If the server has lost its files, that is what to say.
	look, done := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
	defer done()
	if _, logErr := c.conn.openLog(look); api.CodeOf(logErr) == api.CodeNoSuchCluster {
		return logErr
	}
	return err
}

// Status is the state of the cluster as one of its routers sees it.
func (c *Client) Status(ctx context.Context) (api.ClusterStatus, error) {
	var st api.ClusterStatus
	err := c.request(ctx, "admin.status", nil, &st)
	return st, err
}

// Settings are the cluster's settings, which were fixed when it was created.
func (c *Client) Settings(ctx context.Context) (api.Settings, error) {
	c.mu.Lock()
	known := c.settings
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	var s api.Settings
	if err := c.request(ctx, "admin.settings", nil, &s); err != nil {
		return s, err
	}
	if s.Buckets < 1 || s.MaxRecord < 1 {
		return s, api.Errorf(api.CodeInternal, "the cluster's settings say %d buckets and records of at most %d bytes", s.Buckets, s.MaxRecord)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settings = &s
	return s, nil
}
