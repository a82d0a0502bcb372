package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pinion-mr/pinion"
	"github.com/pinion-mr/pinion/plugins/builtin"
)

// lineWait passes on the first line that begins with a prefix.
type lineWait struct {
	prefix string
	found  chan string

	mu   sync.Mutex
	text string
}

func (w *lineWait) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text += string(b)
	if _, rest, ok := strings.Cut("\n"+w.text, "\n"+w.prefix); ok {
		if line, _, ok := strings.Cut(rest, "\n"); ok {
			select {
			case w.found <- line:
			default:
			}
		}
	}
	return len(b), nil
}

// Jobs on a cluster in this process leave no goroutine behind, and neither does the cluster.
func TestNoGoroutineIsLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short")
	}
	before := goleak.IgnoreCurrent()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := &lineWait{prefix: "export PINION_SERVER=", found: make(chan string, 1)}
	var log bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"dev", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--buckets", "16"}, out, &log)
	}()
	var server string
	select {
	case server = <-out.found:
	case c := <-code:
		t.Fatalf("engine dev ended with %d: %s", c, log.String())
	}
	runJobs(t, server)
	stop()
	select {
	case c := <-code:
		if c != 0 {
			t.Errorf("engine dev ended with %d: %s", c, log.String())
		}
	case <-time.After(30 * time.Second):
		t.Fatal("engine dev does not end")
	}
	if err := goleak.Find(before); err != nil {
		t.Errorf("after the cluster has ended: %v", err)
	}
}

func runJobs(t *testing.T, server string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := pinion.Connect(ctx, pinion.Config{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	w, err := retryUntil(ctx, func() (*pinion.Writer, error) { return client.NewWriter(ctx, "") })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if err := w.Add(fmt.Appendf(nil, "some words %d", i%10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	job := pinion.Job{Module: "wordcount", Reduce: "sum"}
	first, err := retryUntil(ctx, func() (*pinion.Result, error) { return client.Run(ctx, job) })
	if err != nil || first.Stats.Records != 1000 {
		t.Fatalf("%v, %+v", err, first)
	}
	runAddedModule(ctx, t, client)
	warm := goleak.IgnoreCurrent()
	var jobs sync.WaitGroup
	for range 16 {
		jobs.Go(func() {
			for range 5 {
				if _, err := client.Run(ctx, job); err != nil {
					t.Errorf("job: %v", err)
				}
			}
		})
	}
	jobs.Wait()
	// What a job does after its end is over within the time that late answers may take. Ticks of the
	// running cluster come and go, so one clean look is enough; its fetch from the queue of moves is
	// always there, and always a new one.
	queue := goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*pullConsumer).fetch.func1")
	if _, err := retryUntil(ctx, func() (struct{}, error) { return struct{}{}, goleak.Find(warm, queue) }); err != nil {
		t.Errorf("after 80 jobs: %v", err)
	}
}

// runAddedModule runs a module that this cluster has not seen before, which a child of this process has to
// compile.
func runAddedModule(ctx context.Context, t *testing.T, client *pinion.Client) {
	t.Helper()
	m, ok := builtin.Get("wordcount")
	if !ok {
		t.Fatal("there is no wordcount")
	}
	file := append(slices.Clone(m.File), 0, 3, 1, 'x', 0) // a section of no meaning, so that it is another module
	digest, err := client.UploadModule(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	result, err := client.Run(ctx, pinion.Job{Module: digest, Reduce: "sum"})
	if err != nil || result.Stats.Records != 1000 || result.Stats.Fuel == nil || result.Stats.Fuel.Total == 0 {
		t.Errorf("%v, %+v", err, result)
	}
	if _, err := client.AddModule(ctx, "mine", "", "sum", file); err != nil {
		t.Error(err)
	}
}

// retryUntil calls fn until it succeeds or ctx ends.
func retryUntil[T any](ctx context.Context, fn func() (T, error)) (T, error) {
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		v, err := fn()
		if err == nil {
			return v, nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return v, errors.Join(err, ctx.Err())
		}
	}
}
