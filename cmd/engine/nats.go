package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/internal/cli"
)

// natsFlags are the flags of an embedded server.
type natsFlags struct {
	dir, listen, name, clusterListen string
	routes                           []string
	maxPayload                       sizeFlag
}

func (s *session) natsCommand() *cobra.Command {
	var f natsFlags
	cmd := &cobra.Command{
		Use:   "nats --dir DIR",
		Short: "Run only the embedded NATS server",
		Long: "Runs a NATS server with JetStream on disk, every write synced before it is acknowledged. Several of\n" +
			"them form a NATS cluster: give each a --cluster-listen and the others' addresses as --routes.",
		Example: "  engine nats --dir /var/lib/pinion/nats --listen 127.0.0.1:4222",
		Args:    cli.WantArgs(0, 0, ""),
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.runNATS(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.dir, "dir", "", "folder of JetStream's files")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:4222", "address for clients; port 0 takes a free one")
	fl.StringVar(&f.name, "name", "", "name of this server in a NATS cluster")
	fl.StringVar(&f.clusterListen, "cluster-listen", "", "address for the other servers of a NATS cluster")
	fl.StringSliceVar(&f.routes, "routes", nil, "addresses of the other servers, nats://host:port")
	fl.Var(&f.maxPayload, "max-payload", "largest message (default 8MiB)")
	return cmd
}

func (s *session) runNATS(ctx context.Context, f natsFlags) error {
	if f.dir == "" {
		return cli.Usagef("--dir is missing: the folder of JetStream's files")
	}
	log, err := s.logger()
	if err != nil {
		return err
	}
	srv, err := bus.StartServer(bus.ServerConfig{
		Dir: f.dir, Listen: f.listen, Name: f.name, Routes: f.routes, ClusterListen: f.clusterListen,
		MaxPayload: int(f.maxPayload), Log: log,
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.stdout, "export PINION_SERVER=%s\n", srv.URL())
	<-ctx.Done()
	srv.Close()
	return nil
}
