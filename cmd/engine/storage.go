package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets/store"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/internal/cli"
	"github.com/pinion-mr/pinion/pmr/node"
	"github.com/pinion-mr/pinion/wasmhost"
)

func (s *session) storageCommand() *cobra.Command {
	cfg := storageConfig{}
	cmd := &cobra.Command{
		Use:   "storage --id ID --dir DIR",
		Short: "Run the storage role",
		Long: "Owns buckets of records and runs users' map functions on them. The folder is a cache of the log and\n" +
			"the checkpoints: a storage that lost it loads its buckets again. The id belongs to the folder that had it first;\n" +
			"a storage on another folder is refused, also while the first one does not run. If that folder is lost for\n" +
			"good, start with --replace once.",
		Example: "  engine storage --id s1 --dir /var/lib/pinion/s1\n  engine storage --id s1 --dir /var/lib/pinion/s1 --replace",
		Args:    cli.WantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.dir == "" {
				return cli.Usagef("--dir is missing: the folder of this storage's files")
			}
			if cfg.weight < 0 {
				return cli.Usagef("--weight is %v; it may not be negative", cfg.weight)
			}
			return s.runStorage(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&cfg.id, "id", "", "name of this storage, its own for ever")
	cmd.Flags().StringVar(&cfg.dir, "dir", "", "folder of this storage's files")
	cmd.Flags().Float64Var(&cfg.weight, "weight", 1, "share of the buckets, relative to the other storages ('engine weight' changes it)")
	cmd.Flags().BoolVar(&cfg.replace, "replace", false, "the folder that had this id is lost for good: give the id to this one")
	s.limitFlags(cmd)
	return cmd
}

// runStorage runs a storage as a process of its own.
func (s *session) runStorage(ctx context.Context, cfg storageConfig) error {
	log, err := s.logger()
	if err != nil {
		return err
	}
	if err := checkID(cfg.id); err != nil {
		return err
	}
	host, closeHost, err := s.newHost(ctx, cfg.dir, log)
	if err != nil {
		return err
	}
	defer closeHost()
	b, err := s.connect(ctx, "storage "+cfg.id, log)
	if err != nil {
		return err
	}
	defer b.Close()
	cl, err := s.awaitCluster(ctx, b, host, log)
	if err != nil {
		return err
	}
	cfg.workers, cfg.limits, cfg.log = node.NewWorkers(runtime.NumCPU()), s.limits, log
	return serveStorageIn(ctx, cl, cfg)
}

// routerPatience is how long a storage that is started before the first router waits for it.
const routerPatience = 30 * time.Second

// awaitCluster opens the cluster, once a router has created it.
func (s *session) awaitCluster(ctx context.Context, b *bus.Bus, host *wasmhost.Host, log *slog.Logger) (*cluster, error) {
	told := false
	for began := time.Now(); ; {
		cl, err := s.openCluster(ctx, b, host, log, false)
		if api.CodeOf(err) != api.CodeNoSuchCluster || time.Since(began) > routerPatience {
			return cl, err
		}
		if !told {
			told = true
			log.Warn("waiting for a router to create the cluster", "at most", routerPatience, "reason", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// storageConfig is what a storage needs beside its cluster.
type storageConfig struct {
	id, dir string
	weight  float64
	replace bool // another folder had the id
	workers *node.Workers
	limits  limits
	cache   *store.Cache // shared by the storages of a process; nil: its own
	log     *slog.Logger
}

// serveStorageIn runs a storage on its folder until ctx ends.
func serveStorageIn(ctx context.Context, cl *cluster, cfg storageConfig) (err error) {
	m := member(cfg.id, cfg.weight)
	if m.Folder, err = folderIdentity(cfg.dir, owner{cl.settings.ID, "storage " + cfg.id}); err != nil {
		return err
	}
	temp := filepath.Join(cfg.dir, "tmp")
	if err := errors.Join(os.RemoveAll(temp), os.MkdirAll(temp, 0o755)); err != nil {
		return fmt.Errorf("the folder of storage %s: %w", cfg.id, err)
	}
	db, err := store.OpenPebble(filepath.Join(cfg.dir, "records"), store.Options{Logger: cfg.log.With("storage", cfg.id), Cache: cfg.cache})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ports := cl.ports
	ports.TempDir, ports.KeepDir = temp, cfg.dir
	st := node.NewStorage(node.StorageConfig{
		Member: m, Settings: cl.settings, Workers: cfg.workers, Memory: int64(cfg.limits.aggregation), Total: int64(cfg.limits.total),
		LongestHold: cfg.limits.longestHold, Replace: cfg.replace,
	}, ports, db)
	return withServices(ctx, cl.bus, func() (*services, error) { return serveStorage(cl.bus, st) }, st.Run)
}
