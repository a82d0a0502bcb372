package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pinion-mr/pinion"
)

// connect opens the client and bounds the whole command: by --timeout, else by fallback if it is not 0.
// Call done at the end.
func (s *session) connect(ctx context.Context, fallback time.Duration) (c *pinion.Client, bounded context.Context, done func(), err error) {
	limit, err := s.options.Timeout(fallback)
	if err != nil {
		return nil, nil, nil, err
	}
	cancel := func() {}
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	client, err := s.dial(ctx)
	if err != nil {
		cancel()
		return nil, nil, nil, err
	}
	return client, ctx, func() { client.Close(); cancel() }, nil
}

// withClient runs what a short command does with a client: it settles the flags, connects, and leaves.
func (s *session) withClient(ctx context.Context, output string, fn func(context.Context, *pinion.Client) error) error {
	if err := s.prepare(output); err != nil {
		return err
	}
	client, ctx, done, err := s.connect(ctx, recordPatience)
	if err != nil {
		return err
	}
	defer done()
	return fn(ctx, client)
}

func (s *session) dial(ctx context.Context) (*pinion.Client, error) {
	o := &s.options
	client, err := pinion.Connect(ctx, pinion.Config{
		Server: o.Value("server"), Cluster: o.Value("cluster"), Name: "submit", Creds: o.Value("creds"),
		TLSCA: o.Value("tls-ca"), TLSCert: o.Value("tls-cert"), TLSKey: o.Value("tls-key"),
	})
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("stopped while connecting to %s: %w", o.Value("server"), err)
	}
	return client, err
}
