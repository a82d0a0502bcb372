package bus

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pinion-mr/pinion/api"
)

// DefaultMaxPayload is the largest message of an embedded server in bytes.
const DefaultMaxPayload = 8 << 20

// maxMaxPayload is the largest max_payload that NATS allows.
const maxMaxPayload = 64 << 20

// startPatience bounds the start of an embedded server once its files are open; replaying them is not
// part of it.
const startPatience = 20 * time.Second

// ServerConfig describes an embedded NATS server.
type ServerConfig struct {
	Dir        string // of JetStream's files; used by one server at a time
	Listen     string // host:port for clients; default 127.0.0.1:4222; port 0 takes a free one
	Name       string // unique among the servers of a NATS cluster; default: one is made
	MaxPayload int    // bytes; default DefaultMaxPayload

	// Several servers form one NATS cluster: each has an address for the others, and knows at least one
	// of theirs. JetStream works as soon as more than half of them run, some seconds after that.
	ClusterListen string   // host:port; empty: this one stands alone
	Routes        []string // nats://host:port, the ClusterListen of others

	Log *slog.Logger // nil is silent
}

// Server is an embedded NATS server with JetStream on disk. Every write is synced before it is
// acknowledged.
type Server struct {
	srv  *server.Server
	lock *os.File
	once sync.Once
}

// StartServer starts an embedded server and returns when it takes connections. It fails with an
// UNAVAILABLE error if the address is taken, or if the folder cannot be written or is in use.
func StartServer(cfg ServerConfig) (*Server, error) {
	opts, err := serverOptions(cfg)
	if err != nil {
		return nil, err
	}
	for _, addr := range []string{cfg.listen(), cfg.ClusterListen} {
		if err := checkFree(addr); err != nil {
			return nil, err
		}
	}
	lock, err := lockFolder(cfg.Dir)
	if err != nil {
		return nil, err
	}
	srv, err := runServer(opts, discard(cfg.Log))
	if err != nil {
		return nil, errors.Join(api.Errorf(api.CodeUnavailable, "the NATS server does not start: %v", err), lock.Close())
	}
	return &Server{srv: srv, lock: lock}, nil
}

func (c ServerConfig) listen() string {
	if c.Listen == "" {
		return "127.0.0.1:4222"
	}
	return c.Listen
}

// serverOptions translates the configuration.
func serverOptions(cfg ServerConfig) (*server.Options, error) {
	if cfg.Dir == "" {
		return nil, api.Errorf(api.CodeBadRequest, "the embedded NATS server needs a folder for its files")
	}
	if cfg.MaxPayload < 0 || cfg.MaxPayload > maxMaxPayload {
		return nil, api.Errorf(api.CodeBadRequest, "max_payload is %d bytes; it must be at most %d", cfg.MaxPayload, maxMaxPayload)
	}
	host, port, err := splitListen(cfg.listen())
	if err != nil {
		return nil, err
	}
	opts := &server.Options{
		ServerName: cfg.Name, Host: host, Port: port,
		JetStream: true, StoreDir: cfg.Dir, SyncAlways: true,
		MaxPayload: int32(cfg.MaxPayload),
		NoSigs:     true, NoLog: true, DisableJetStreamBanner: true,
	}
	if opts.MaxPayload == 0 {
		opts.MaxPayload = DefaultMaxPayload
	}
	if cfg.ClusterListen == "" {
		if len(cfg.Routes) > 0 {
			return nil, api.Errorf(api.CodeBadRequest, "routes to other NATS servers need an address for them to connect back to").
				WithHint("set the cluster listen address too")
		}
		return opts, nil
	}
	if opts.Cluster.Host, opts.Cluster.Port, err = splitListen(cfg.ClusterListen); err != nil {
		return nil, err
	}
	opts.Cluster.Name = "pinion"
	for _, r := range cfg.Routes {
		u, err := url.Parse(r)
		if err != nil || u.Host == "" {
			return nil, api.Errorf(api.CodeBadRequest, "route %q is not of the form nats://host:port", r)
		}
		opts.Routes = append(opts.Routes, u)
	}
	return opts, nil
}

// splitListen reads host:port; port 0 becomes the server's word for a free port.
func splitListen(addr string) (string, int, error) {
	host, portText, err := net.SplitHostPort(addr)
	port, numErr := strconv.Atoi(portText)
	if err != nil || numErr != nil || port < 0 || port > 65535 {
		return "", 0, api.Errorf(api.CodeBadRequest, "address %q is not of the form host:port", addr)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// checkFree tries the address before the server does, whose own complaint is only a log line.
func checkFree(addr string) error {
	if addr == "" {
		return nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "cannot listen on %s: %v", addr, errors.Unwrap(err)).
			WithHint("another program, perhaps another engine, has this address: end it or choose another one")
	}
	return l.Close()
}

// lockFolder makes the folder and takes it for this process, as two servers on the same files would
// ruin them.
func lockFolder(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, folderError(dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, folderError(dir, err)
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(api.Errorf(api.CodeUnavailable, "folder %s is in use by another NATS server of ours", dir).
			WithHint("end the engine that uses it, or choose another folder"), f.Close())
	}
	return f, nil
}

func folderError(dir string, err error) error {
	return api.Errorf(api.CodeUnavailable, "cannot use folder %s: %v", dir, err).
		WithHint("choose a folder that this user may write to")
}

// runServer starts the server and waits until it takes connections or gives up.
func runServer(opts *server.Options, log *slog.Logger) (*server.Server, error) {
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	logger := &serverLog{log: log, fatal: make(chan string, 1)}
	srv.SetLoggerV2(logger, false, false, false)
	srv.Start()
	ready := make(chan bool, 1)
	go func() { ready <- srv.ReadyForConnections(startPatience) }()
	var failure error
	select {
	case text := <-logger.fatal:
		failure = errors.New(text)
	case ok := <-ready:
		switch {
		case !ok:
			failure = fmt.Errorf("not ready after %v", startPatience)
		case !srv.JetStreamEnabled():
			failure = errors.New("JetStream is not enabled")
		default:
			return srv, nil
		}
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil, failure
}

// URL is where clients connect.
func (s *Server) URL() string { return s.srv.ClientURL() }

// Name is the server's name among the servers of a NATS cluster.
func (s *Server) Name() string { return s.srv.Name() }

// Close stops the server: it closes its clients' connections and its files, and waits for it.
func (s *Server) Close() {
	s.once.Do(func() {
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
		_ = s.lock.Close() // which frees the folder
	})
}

// serverLog passes the server's log lines on. Notices are for those who debug.
type serverLog struct {
	log   *slog.Logger
	fatal chan string
}

var _ server.Logger = (*serverLog)(nil)

func (l *serverLog) Noticef(format string, v ...any) {
	l.log.Debug("nats server", "text", fmt.Sprintf(format, v...))
}

func (l *serverLog) Warnf(format string, v ...any) {
	l.log.Warn("nats server", "text", fmt.Sprintf(format, v...))
}

func (l *serverLog) Errorf(format string, v ...any) {
	l.log.Error("nats server", "text", fmt.Sprintf(format, v...))
}

func (l *serverLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.log.Error("nats server", "text", text)
	select {
	case l.fatal <- text:
	default:
	}
}

func (l *serverLog) Debugf(string, ...any) {}
func (l *serverLog) Tracef(string, ...any) {}
