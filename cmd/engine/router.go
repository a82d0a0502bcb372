package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/internal/cli"
	"github.com/pinion-mr/pinion/pmr/node"
)

func (s *session) routerCommand() *cobra.Command {
	var id, dir string
	var expect int
	var replace bool
	cmd := &cobra.Command{
		Use:   "router",
		Short: "Run the router role",
		Long: "Takes jobs and drives pin, map and reduce; serves records; assigns buckets once enough storages have\n" +
			"joined; purges the log. The first router creates the cluster: its buckets and replicas are fixed then.",
		Example: "  engine router --server nats://127.0.0.1:4222 --expect 3",
		Args:    cli.WantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if expect < 1 {
				return cli.Usagef("--expect is %d; it must be at least 1", expect)
			}
			return s.runRouter(cmd.Context(), cmp.Or(id, "r-"+strings.ToLower(rand.Text()[:8])), dir, expect, replace)
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "name of this router (default: one is made)")
	cmd.Flags().StringVar(&dir, "dir", "", "folder for compiled modules (default: one that ends with the process)")
	cmd.Flags().BoolVar(&replace, "replace", false, "the folder that had this id is lost for good: give the id to the one of --dir")
	cmd.Flags().IntVar(&expect, "expect", 3, "storages that must have joined before buckets are assigned")
	s.settingFlags(cmd)
	s.limitFlags(cmd)
	return cmd
}

// runRouter runs a router as a process of its own.
func (s *session) runRouter(ctx context.Context, id, dir string, expect int, replace bool) error {
	log, err := s.logger()
	if err != nil {
		return err
	}
	if err := checkID(id); err != nil {
		return err
	}
	host, closeHost, err := s.newHost(ctx, dir, log)
	if err != nil {
		return err
	}
	defer closeHost()
	b, err := s.connect(ctx, "router "+id, log)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := checkFolder(ctx, b, dir, "router "+id); err != nil {
		return err
	}
	cl, err := s.openCluster(ctx, b, host, log, true)
	if err != nil {
		return err
	}
	if state, err := cl.ports.Log.State(ctx); err == nil && state.Replicas == 1 && s.embedded == nil {
		log.Warn("the log has one replica; it is as durable as that server's disk, and only if its sync_interval is always",
			"remedy", "sync_interval: always in the JetStream configuration, or a NATS cluster and --replicas 3 for a new cluster")
	}
	m := member(id, 0)
	if dir != "" {
		if m.Folder, err = folderIdentity(dir, owner{cl.settings.ID, "router " + id}); err != nil {
			return err
		}
	}
	return s.serveRouter(ctx, cl, node.RouterConfig{Member: m, Expect: expect, Replace: replace})
}

// serveRouter runs a router on an open cluster until ctx ends.
func (s *session) serveRouter(ctx context.Context, cl *cluster, cfg node.RouterConfig) error {
	cfg.Cluster, cfg.Settings = s.options.Value("cluster"), cl.settings
	cfg.Memory, cfg.Jobs, cfg.Queue = int64(s.limits.aggregation), s.limits.jobs, cmp.Or(s.limits.jobsQueue, -1)
	cfg.Collect, cfg.Durable = int64(s.limits.collect), s.limits.durable
	r := node.NewRouter(cfg, cl.ports)
	compiling := s.limits.compileTimeout
	return withServices(ctx, cl.bus, func() (*services, error) { return serveRouter(cl.bus, r, cl.catalogue, compiling) }, r.Run)
}

// withServices answers requests while run runs. It fails when the connection has ended for good: whoever
// supervises the process then starts it again.
func withServices(ctx context.Context, b *bus.Bus, start func() (*services, error), run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-b.Lost():
			cancel(api.Errorf(api.CodeUnavailable, "the connection to NATS has ended for good").WithHint("start this role again"))
		case <-stop:
		}
	}()
	s, err := start()
	if err == nil {
		err = run(ctx)
	}
	s.stop()
	var lost *api.Error
	if err == nil && errors.As(context.Cause(ctx), &lost) {
		return lost
	}
	return err
}

func member(id string, weight float64) api.Member {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return api.Member{ID: id, Weight: weight, Version: cli.Version(), Host: host, PID: os.Getpid()}
}

// checkID refuses what cannot be part of a subject.
func checkID(id string) error {
	if err := api.CheckID("an id", id); err != nil {
		return cli.Usagef("--id: %v", err)
	}
	return nil
}
