//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// endless are jobs of a minute, each busy in another way.
func endless() []attack {
	var list []attack
	for _, function := range []string{"forever", "fib", "fills", "blocks", "sleeps", "writes"} {
		list = append(list, attack{module: "spins", function: function, reduce: "count", timeout: time.Minute})
	}
	return append(list,
		attack{module: "spins", reduce: "module:forever", timeout: time.Minute},
		attack{module: "alloc_spins", timeout: time.Minute})
}

// launch runs endless jobs until ctx ends, and returns when all are on their way. The function that it returns
// waits for their ends and gives their errors.
func (s *siege) launch(ctx context.Context) (ends func() error) {
	s.t.Helper()
	attacks := endless()
	errs := make([]error, len(attacks))
	var running sync.WaitGroup
	for i, a := range attacks {
		running.Go(func() {
			_, err := s.run(ctx, a.job())
			if err == nil {
				err = errors.New("an endless job has an answer")
			}
			errs[i] = fmt.Errorf("%s: %w", a, err)
		})
	}
	s.waitFor(20*time.Second, "all jobs to run", func(ctx context.Context) error {
		st, err := s.client.Status(ctx)
		if err == nil && st.Jobs < len(attacks) {
			err = fmt.Errorf("%d of %d do", st.Jobs, len(attacks))
		}
		return err
	})
	return func() error {
		running.Wait()
		for _, err := range errs {
			if api.CodeOf(err) != api.CodeCanceled {
				return err
			}
		}
		return nil
	}
}

// Jobs of guests that never end can be cancelled, and so can the processes that run them be stopped.
func TestStopSpinningGuests(t *testing.T) {
	heavy(t)
	s := startSiege(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ends := s.launch(ctx)
	cancel()
	if err := ends(); err != nil {
		t.Errorf("after all were cancelled: %v", err)
	}
	s.wantIdle(30 * time.Second)
	s.wantCount()

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	ends = s.launch(ctx)
	for _, p := range s.storages {
		p.terminate()
	}
	s.router.terminate()
	cancel()
	_ = ends() // nobody is left who could say how they ended

	s.router.start()
	for _, p := range s.storages {
		p.start()
	}
	s.waitHealthy()
	s.wantCount()
}
