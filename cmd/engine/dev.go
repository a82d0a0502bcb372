package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets/store"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/internal/cli"
	"github.com/pinion-mr/pinion/pmr/node"
	"github.com/pinion-mr/pinion/wasmhost"
)

func (s *session) devCommand() *cobra.Command {
	var dir, listen string
	var storages int
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole cluster in this process",
		Long: "Runs a NATS server with JetStream on disk, a router and storages in one process. What was stored is\n" +
			"there again after a restart with the same --dir. SIGTERM or Ctrl-C stops it.",
		Example: "  engine dev\n  engine dev --dir /tmp/try --listen 127.0.0.1:0 --storages 1",
		Args:    cli.WantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if storages < 1 || storages > 64 {
				return cli.Usagef("--storages is %d; it must be 1 to 64", storages)
			}
			return s.runDev(cmd.Context(), dir, listen, storages)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "pinion-data", "folder of all files")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:4222", "address for clients; port 0 takes a free one")
	cmd.Flags().IntVar(&storages, "storages", 3, "number of storages")
	s.settingFlags(cmd)
	s.limitFlags(cmd)
	return cmd
}

// blockCache is shared by the storages of a dev cluster.
const blockCache = 64 << 20

// runDev runs all roles until ctx ends or one of them fails.
func (s *session) runDev(ctx context.Context, dir, listen string, storages int) error {
	log, err := s.logger()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	srv, err := bus.StartServer(bus.ServerConfig{Dir: filepath.Join(dir, "nats"), Listen: listen, Log: log})
	if err != nil {
		return err
	}
	defer srv.Close()
	s.embedded = srv
	host, closeHost, err := s.newHost(ctx, dir, log)
	if err != nil {
		return err
	}
	defer closeHost()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &dev{s: s, host: host, log: log, dir: dir, stop: cancel}
	err = d.run(ctx, storages)
	cancel(err) // no news if a role has failed, or somebody has stopped us
	d.roles.Wait()
	log.Info("stopped; the data stays", "dir", dir)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// dev is a cluster in one process. Every role has a connection of its own, as it would elsewhere.
type dev struct {
	s     *session
	host  *wasmhost.Host
	log   *slog.Logger
	dir   string
	stop  context.CancelCauseFunc // with the failure of a role
	roles sync.WaitGroup
}

func (d *dev) run(ctx context.Context, storages int) error {
	workers := node.NewWorkers(runtime.NumCPU())
	if err := d.start(ctx, "router r1", true, func(ctx context.Context, cl *cluster) error {
		router := member("r1", 0)
		var err error
		if router.Folder, err = folderIdentity(d.dir, owner{cl.settings.ID, "router r1"}); err != nil {
			return err
		}
		return d.s.serveRouter(ctx, cl, node.RouterConfig{Member: router, Expect: storages, Workers: workers, Replace: true})
	}); err != nil {
		return err
	}
	fmt.Fprintf(d.s.stdout, "export PINION_SERVER=%s\n", d.s.embedded.URL())
	if cluster := d.s.options.Value("cluster"); cluster != bus.DefaultCluster {
		fmt.Fprintf(d.s.stdout, "export PINION_CLUSTER=%s\n", cluster)
	}
	cache := store.NewCache(blockCache)
	for i := range storages {
		id := fmt.Sprintf("s%d", i+1)
		cfg := storageConfig{
			id: id, dir: filepath.Join(d.dir, id), weight: 1, workers: workers, limits: d.s.limits, cache: cache, log: d.log,
			replace: true, // all folders are of one machine: one that is gone was deleted
		}
		if err := d.start(ctx, "storage "+id, false, func(ctx context.Context, cl *cluster) error {
			return serveStorageIn(ctx, cl, cfg)
		}); err != nil {
			return err
		}
	}
	if err := d.awaitReady(ctx); err != nil {
		return err
	}
	fmt.Fprintln(d.s.stdout, "ready")
	<-ctx.Done()
	return nil
}

// start opens the cluster for a role and runs it.
func (d *dev) start(ctx context.Context, name string, create bool, serve func(context.Context, *cluster) error) error {
	b, err := d.s.connect(ctx, name, d.log)
	if err != nil {
		return err
	}
	if create {
		err = checkFolder(ctx, b, d.dir, name)
	}
	var cl *cluster
	if err == nil {
		cl, err = d.s.openCluster(ctx, b, d.host, d.log, create)
	}
	if err != nil {
		b.Close()
		d.stop(err)
		return err
	}
	d.roles.Go(func() {
		defer b.Close()
		if err := serve(ctx, cl); err != nil && ctx.Err() == nil {
			d.stop(fmt.Errorf("%s: %w", name, err))
		}
	})
	return nil
}

// awaitReady waits until every bucket has an owner that serves it, and says now and then what is missing.
func (d *dev) awaitReady(ctx context.Context) error {
	b, err := d.s.connect(ctx, "dev", d.log)
	if err != nil {
		return err
	}
	defer b.Close()
	for waited := time.Duration(0); ; waited += readyPoll {
		var st api.ClusterStatus
		err := b.Request(ctx, "admin.status", api.Empty{}, &st)
		if err == nil && st.Healthy {
			return nil
		}
		if waited > 0 && waited%(10*time.Second) == 0 {
			d.log.Warn("the cluster is not ready yet", "problems", st.Problems, "reason", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(readyPoll):
		}
	}
}

const readyPoll = 50 * time.Millisecond
