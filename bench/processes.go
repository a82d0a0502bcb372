package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
)

const healthyWithin = time.Minute

// processes is a cluster of a NATS server, a router and three storages, each a process of its own.
type processes struct {
	engine string // the program
	server string
	cmds   []*exec.Cmd // in the order in which they were started
	conn   *bus.Bus
	client *pinion.Client
}

func (b *bench) startProcesses(ctx context.Context) (*processes, error) {
	return b.startProcessesOf(ctx, "bin/engine")
}

func (b *bench) startProcessesOf(ctx context.Context, engine string) (p *processes, err error) {
	dir, err := os.MkdirTemp(b.dir, "processes-")
	if err != nil {
		return nil, err
	}
	p = &processes{engine: engine}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if p.server, err = p.startServer(ctx, dir); err != nil {
		return p, err
	}
	if err := p.start(ctx, dir, "router", "--id=r1", "--expect=3"); err != nil {
		return p, err
	}
	for _, id := range []string{"s1", "s2", "s3"} {
		if err := p.start(ctx, dir, "storage", "--id="+id); err != nil {
			return p, err
		}
	}
	return p, p.connect(ctx)
}

// startServer starts the NATS server and returns its address, which it prints first.
func (p *processes) startServer(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, p.engine, "nats", "--dir", filepath.Join(dir, "nats"), "--listen=127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	p.cmds = append(p.cmds, cmd)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if i := strings.Index(lines.Text(), "nats://"); i >= 0 {
			return strings.Fields(lines.Text()[i:])[0], nil
		}
	}
	return "", fmt.Errorf("engine nats printed no address: %w", lines.Err())
}

func (p *processes) start(ctx context.Context, dir, role string, flags ...string) error {
	args := append([]string{role, "--server", p.server, "--log=error", "--dir", filepath.Join(dir, strings.Join(append(flags[:1:1], role), ""))}, flags...)
	cmd := exec.CommandContext(ctx, p.engine, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmds = append(p.cmds, cmd)
	return nil
}

// connect waits until the cluster is healthy.
func (p *processes) connect(ctx context.Context) (err error) {
	if p.conn, err = bus.Connect(ctx, bus.Config{Server: p.server, Cluster: pinion.DefaultCluster, Name: "bench"}); err != nil {
		return err
	}
	if p.client, err = pinion.Connect(ctx, pinion.Config{Server: p.server}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthyWithin)
	defer cancel()
	for {
		var st api.ClusterStatus
		err := p.conn.Request(ctx, "admin.status", api.Empty{}, &st)
		if err == nil && st.Healthy {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the cluster is not healthy: %v, %w", st.Problems, errors.Join(err, ctx.Err()))
		}
	}
}

// stop ends the processes, the server last.
func (p *processes) stop() error {
	if p.client != nil {
		p.client.Close()
	}
	if p.conn != nil {
		p.conn.Close()
	}
	var errs []error
	for i := len(p.cmds) - 1; i >= 0; i-- {
		cmd := p.cmds[i]
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil && !strings.Contains(err.Error(), "signal: killed") {
			errs = append(errs, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err))
		}
	}
	return errors.Join(errs...)
}
