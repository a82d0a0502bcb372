package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pinion-mr/pinion/api"
)

// connectPatience bounds Connect.
const connectPatience = 4 * time.Second

// maxAsync bounds what all appenders of a bus together have under way.
const maxAsync = 16 << 10

// Config says where a bus connects to, and as whom.
type Config struct {
	Server  string // nats://host:port, tls://.. or ws://..; several with commas. Default nats://127.0.0.1:4222
	Cluster string // letters, digits, _ and -; default DefaultCluster
	Name    string // of this program, for the server's list of connections

	Creds   string // file with a NATS user's JWT and seed
	TLSCA   string // file with the authorities to trust
	TLSCert string // files with this program's own certificate and key
	TLSKey  string

	InProcess *Server      // connect to this server without a socket; Server is not used then
	Log       *slog.Logger // nil is silent
}

// DefaultCluster is the name of a cluster that was given none.
const DefaultCluster = "dev"

var clusterName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Connect opens a bus within about five seconds, or fails with an UNAVAILABLE error that tells apart:
// nobody listens, something listens that is not NATS, the credentials are refused, JetStream is off.
func Connect(ctx context.Context, cfg Config) (*Bus, error) {
	if cfg.Cluster == "" {
		cfg.Cluster = DefaultCluster
	}
	if !clusterName.MatchString(cfg.Cluster) {
		return nil, api.Errorf(api.CodeBadRequest, "cluster name %q may hold letters, digits, _ and - only, at most 64", cfg.Cluster)
	}
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	b := newBus(cfg)
	if err := b.dial(ctx); err != nil {
		b.cancel()
		return nil, err
	}
	if err := b.checkJetStream(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func newBus(cfg Config) *Bus {
	b := &Bus{
		cfg: cfg, log: discard(cfg.Log),
		prefix:    "pinion." + cfg.Cluster + ".",
		streams:   "PINION_" + cfg.Cluster + "_",
		listeners: map[int]func(){},
		gone:      make(chan struct{}),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// where names the server in messages, without passwords.
func (c Config) where() string {
	if c.InProcess != nil {
		return c.InProcess.URL()
	}
	var out []string
	for _, s := range c.servers() {
		if u, err := url.Parse(s); err == nil {
			s = u.Redacted()
		}
		out = append(out, s)
	}
	return strings.Join(out, ",")
}

// servers lists the addresses, each with a scheme and a port.
func (c Config) servers() []string {
	if strings.TrimSpace(c.Server) == "" {
		return []string{nats.DefaultURL}
	}
	var out []string
	for s := range strings.SplitSeq(c.Server, ",") {
		s = strings.TrimSpace(s)
		if !strings.Contains(s, "://") {
			s = "nats://" + s
		}
		if u, err := url.Parse(s); err == nil && u.Port() == "" && !strings.HasPrefix(u.Scheme, "ws") {
			u.Host = net.JoinHostPort(u.Hostname(), "4222")
			s = u.String()
		}
		out = append(out, s)
	}
	return out
}

// dial opens the connection. nats.Connect knows no context, so it is left behind when ctx ends first.
func (b *Bus) dial(ctx context.Context) error {
	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	servers := b.cfg.servers()
	opts, err := b.options(len(servers))
	if err != nil {
		return err
	}
	go func() {
		nc, err := nats.Connect(strings.Join(servers, ","), opts...)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return b.explain(ctx, r.err)
		}
		b.nc = r.nc
	case <-ctx.Done():
		go func() {
			if r := <-done; r.nc != nil {
				r.nc.Close()
			}
		}()
		return api.Errorf(api.CodeUnavailable, "%s did not answer in time", b.cfg.where()).
			WithHint("look whether the address is right and the network lets it through")
	}
	if b.js, err = jetstream.New(b.nc); err != nil {
		return err
	}
	b.async, err = jetstream.New(b.nc, jetstream.WithPublishAsyncTimeout(publishTimeout),
		jetstream.WithPublishAsyncMaxPending(maxAsync))
	return err
}

func (b *Bus) options(servers int) ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(b.cfg.Name),
		nats.Timeout(max(connectPatience/2/time.Duration(max(servers, 1)), 500*time.Millisecond)),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(reconnectDelay),
		// Nothing is kept for later: a write that the server gets after its message id was forgotten
		// would be stored twice.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.NoCallbacksAfterClientClose(),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			b.log.Info("connected to NATS again", "server", nc.ConnectedUrlRedacted())
			b.reconnected()
		}),
		nats.ClosedHandler(func(nc *nats.Conn) { b.lost(nc.LastError()) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			b.log.Warn("connection to NATS lost", "error", err)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			b.log.Warn("nats", "subject", subject, "error", err)
		}),
	}
	if b.cfg.InProcess != nil {
		return append(opts, nats.InProcessServer(b.cfg.InProcess.srv)), nil
	}
	if b.cfg.Creds != "" {
		opts = append(opts, nats.UserCredentials(b.cfg.Creds))
	}
	if b.cfg.TLSCA != "" {
		opts = append(opts, nats.RootCAs(b.cfg.TLSCA))
	}
	if (b.cfg.TLSCert == "") != (b.cfg.TLSKey == "") {
		return nil, api.Errorf(api.CodeBadRequest, "a TLS certificate and its key go together; only one of them was given")
	}
	if b.cfg.TLSCert != "" {
		opts = append(opts, nats.ClientCert(b.cfg.TLSCert, b.cfg.TLSKey))
	}
	return opts, nil
}

// reconnectDelay is the wait before the n-th walk through all servers: 50 ms doubled up to 2 s, less up
// to half of it so that many clients do not come back at the same moment.
func reconnectDelay(n int) time.Duration {
	d := min(50*time.Millisecond<<min(max(n-1, 0), 6), 2*time.Second)
	return d - time.Duration(rand.Int64N(int64(d/2)))
}

// explain turns a failed connection into an error that tells what to do.
func (b *Bus) explain(ctx context.Context, err error) error {
	where := b.cfg.where()
	text := err.Error()
	var dns *net.DNSError
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return api.Errorf(api.CodeUnavailable, "%s refuses the credentials: %v", where, err).
			WithHint("give a credentials file, or user and password in the address")
	case errors.As(err, &dns):
		return api.Errorf(api.CodeUnavailable, "%s: no such host", where).WithHint("look whether the address is right")
	case errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted),
		strings.Contains(text, "tls:"), strings.Contains(text, "x509:"):
		return api.Errorf(api.CodeUnavailable, "no TLS connection to %s: %v", where, err).
			WithHint("look at the TLS settings: authority, certificate and key, and whether the server has TLS at all")
	}
	if what := b.probe(ctx); what != "" {
		return api.Errorf(api.CodeUnavailable, "%s answers at %s, not a NATS server", what, where).
			WithHint("give the address of a NATS server's client port, usually 4222")
	}
	if errors.Is(err, nats.ErrNoServers) {
		return api.Errorf(api.CodeUnavailable, "no NATS server answers at %s", where).
			WithHint("start one with `engine dev`, or give the address of another")
	}
	return api.Errorf(api.CodeUnavailable, "cannot connect to %s: %v", where, err)
}

// probe finds out who listens where NATS should. It returns "" if nobody does, or a NATS server.
func (b *Bus) probe(ctx context.Context) string {
	for _, s := range b.cfg.servers() {
		u, err := url.Parse(s)
		if err != nil || strings.HasPrefix(u.Scheme, "ws") {
			continue
		}
		if what := probeAddress(ctx, u.Host); what != "" {
			return what
		}
	}
	return ""
}

func probeAddress(ctx context.Context, addr string) string {
	dialer := net.Dialer{Timeout: 500 * time.Millisecond}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	// A NATS server speaks first. A web server waits for this.
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(conn, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", addr)
	head := make([]byte, 5)
	n, _ := io.ReadFull(conn, head)
	switch {
	case string(head[:n]) == "INFO ":
		return ""
	case string(head[:n]) == "HTTP/":
		return "a web server"
	default:
		return "something else"
	}
}

// checkJetStream waits for JetStream, as a NATS cluster may be in the middle of an election.
func (b *Bus) checkJetStream(ctx context.Context) error {
	_, err := b.js.AccountInfo(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return api.Errorf(api.CodeUnavailable, "JetStream is not enabled on %s", b.Server()).
			WithHint("start that server with JetStream: `nats-server -js`, or use `engine dev`")
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return api.Errorf(api.CodeUnavailable, "JetStream is not enabled on %s for this account", b.Server()).
			WithHint("enable it for the account, or use other credentials")
	default:
		return api.Errorf(api.CodeUnavailable, "JetStream on %s does not answer: %v", b.Server(), err).
			WithHint("if its servers have just started, they may still be electing a leader: try again in some seconds")
	}
}
