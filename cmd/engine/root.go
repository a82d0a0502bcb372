package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

// Exit codes.
const (
	exitFailed = 1 // named on stderr
	exitUsage  = 2
)

const exitCodes = `Exit codes: 0 all that was asked was done; 1 a failure, named on stderr; 2 wrong usage.`

// common holds the flags of every command.
type common struct {
	server, cluster      string
	creds, ca, cert, key string
	logLevel             string
	out, err             io.Writer
	embedded             *bus.Server // connect to it in this process
	settings             api.Settings
}

// run is the whole program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := &common{out: stdout, err: stderr}
	root := c.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "engine: %v\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "engine: %v\n", err)
	return exitFailed
}

// usageError is the caller's fault.
type usageError struct{ error }

func (c *common) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "engine",
		Short: "Run a Pinion cluster",
		Long: "engine runs the roles of a Pinion cluster: storages that own buckets of records and map them,\n" +
			"routers that drive jobs, and the NATS server that connects them.\n\n" + exitCodes,
		Example:           "  engine dev\n  engine status",
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		Args:              noArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.StringVar(&c.server, "server", envOr("PINION_SERVER", "nats://127.0.0.1:4222"), "NATS server to connect to (env PINION_SERVER)")
	f.StringVar(&c.cluster, "cluster", envOr("PINION_CLUSTER", "dev"), "name of the cluster (env PINION_CLUSTER)")
	f.StringVar(&c.creds, "creds", envOr("PINION_CREDS", ""), "file with NATS credentials (env PINION_CREDS)")
	f.StringVar(&c.ca, "tls-ca", envOr("PINION_TLS_CA", ""), "file with the authorities to trust (env PINION_TLS_CA)")
	f.StringVar(&c.cert, "tls-cert", envOr("PINION_TLS_CERT", ""), "file with this program's certificate (env PINION_TLS_CERT)")
	f.StringVar(&c.key, "tls-key", envOr("PINION_TLS_KEY", ""), "file with its key (env PINION_TLS_KEY)")
	f.StringVar(&c.logLevel, "log", envOr("PINION_LOG", "info"), "what to log on stderr: debug, info, warn, error (env PINION_LOG)")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(c.devCommand(), c.natsCommand(), c.routerCommand(), c.storageCommand(), c.statusCommand())
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("%s takes no argument %q", cmd.CommandPath(), args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, near[0])
	}
	return usageError{err}
}

func envOr(name, value string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return value
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// logger writes to stderr.
func (c *common) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		return nil, usageError{fmt.Errorf("--log %q: it is debug, info, warn or error", c.logLevel)}
	}
	return slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: level})), nil
}

// connect opens a bus to the server, or to the one embedded in this process.
func (c *common) connect(ctx context.Context, name string, log *slog.Logger) (*bus.Bus, error) {
	return bus.Connect(ctx, bus.Config{
		Server: c.server, Cluster: c.cluster, Name: "pinion " + name, Creds: c.creds,
		TLSCA: c.ca, TLSCert: c.cert, TLSKey: c.key, InProcess: c.embedded, Log: log,
	})
}
