package main

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/internal/cli"
)

// session is one run of the program.
type session struct {
	stdout, stderr io.Writer
	options        cli.Connection
	logLevel       string
	embedded       *bus.Server  // connect to it in this process
	wanted         api.Settings // of the cluster, where flags give any
	limits         limits
	limited        *pflag.FlagSet // the flags of limits
}

func newSession(stdout, stderr io.Writer) *session {
	s := &session{stdout: stdout, stderr: stderr, limits: defaultLimits()}
	s.limited = limitFlags(&s.limits)
	return s
}

// run is the whole program; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s := newSession(stdout, stderr)
	return cli.Execute(ctx, s.rootCommand(), args, os.Stdin, stdout, stderr)
}

func (s *session) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "engine",
		Short: "Run a Pinion cluster",
		Long: "engine runs the roles of a Pinion cluster: storages that own buckets of records and map them,\n" +
			"routers that drive jobs, and the NATS server that connects them.",
		Example:           "  engine dev\n  engine status\n  engine rebalance status",
		PersistentPreRunE: func(*cobra.Command, []string) error { return s.options.Settle() },
	}
	f := root.PersistentFlags()
	s.options.Register(f)
	s.options.Extend(s.limited)
	level := os.Getenv("PINION_LOG")
	if level == "" {
		level = "info"
	}
	f.StringVar(&s.logLevel, "log", level, "what to log on stderr: debug, info, warn, error (env PINION_LOG)")
	cli.Group(root, s.devCommand(), s.natsCommand(), s.routerCommand(), s.storageCommand(), s.statusCommand(),
		s.bucketsCommand(), s.moveCommand(), s.weightCommand(), s.drainCommand(), s.lockCommand(), s.unlockCommand(),
		s.rebalanceCommand(), s.setCommand(), cli.CompileCommand())
	return root
}

// logger writes to stderr.
func (s *session) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, cli.Usagef("--log %q is not one of debug, info, warn, error", s.logLevel)
	}
	return slog.New(slog.NewTextHandler(s.stderr, &slog.HandlerOptions{Level: level})), nil
}

// connect opens a bus to the server, or to the one embedded in this process.
func (s *session) connect(ctx context.Context, name string, log *slog.Logger) (*bus.Bus, error) {
	o := &s.options
	return bus.Connect(ctx, bus.Config{
		Server: o.Value("server"), Cluster: o.Value("cluster"), Name: "pinion " + name, Creds: o.Value("creds"),
		TLSCA: o.Value("tls-ca"), TLSCert: o.Value("tls-cert"), TLSKey: o.Value("tls-key"),
		InProcess: s.embedded, Log: log,
	})
}
