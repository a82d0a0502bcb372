package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pinion-mr/pinion"
)

const (
	warmUp    = 600 // jobs before the first is measured: processes that have just begun wait for fresh memory
	crowd     = 64  // clients at a time
	crowdTime = 5 * time.Second
)

// interactive measures small jobs on three storage processes: one after the other against the least that a
// durable system must do, one synced write, and many at a time.
func (b *bench) interactive(ctx context.Context) (err error) {
	p, err := b.startProcesses(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.client.CreateSpace(ctx, "nothing"); err != nil {
		return err
	}
	empty := pinion.Job{Module: "wordcount", Space: "nothing"}
	run := func() error {
		_, err := p.client.Run(ctx, empty)
		return err
	}
	if _, err := median(warmUp, run); err != nil {
		return err
	}
	job, err := median(tries, run)
	if err != nil {
		return err
	}
	publish, err := b.barePublish(ctx)
	if err != nil {
		return err
	}
	fmt.Println("small jobs on 3 storage processes:")
	fmt.Printf("  job over an empty space      %8.2f ms median of %d\n", ms(job), tries)
	fmt.Printf("  bare synced publish          %8.2f ms median of %d\n", ms(publish), tries)
	atMost("job beyond the publish, ms", ms(job-publish), 5)
	done, err := crowdOf(ctx, p, empty)
	if err != nil {
		return err
	}
	atLeast(fmt.Sprintf("such jobs of %d clients, each second", crowd), float64(done)/crowdTime.Seconds(), 200)
	fmt.Println()
	return nil
}

// barePublish is the median of a synced write to a server of its own.
func (b *bench) barePublish(ctx context.Context) (time.Duration, error) {
	log, stop, err := b.bareLog(ctx)
	if err != nil {
		return 0, err
	}
	defer stop()
	body := bytes.Repeat([]byte("x"), 128)
	return median(tries, func() error {
		_, err := log.Append(ctx, "rec.0", nil, body, "")
		return err
	})
}

// crowdOf has many clients, each with a connection of its own, run a job again and again.
func crowdOf(ctx context.Context, p *processes, job pinion.Job) (uint64, error) {
	var done atomic.Uint64
	errs := make([]error, crowd)
	var clients sync.WaitGroup
	until := time.Now().Add(crowdTime)
	for i := range errs {
		clients.Go(func() {
			client, err := pinion.Connect(ctx, pinion.Config{Server: p.server})
			if err != nil {
				errs[i] = err
				return
			}
			defer client.Close()
			for time.Now().Before(until) && errs[i] == nil {
				if _, errs[i] = client.Run(ctx, job); errs[i] == nil {
					done.Add(1)
				}
			}
		})
	}
	clients.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return done.Load(), nil
}
