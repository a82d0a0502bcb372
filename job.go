package pinion

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pinion-mr/pinion/api"
)

// How a client waits for a job.
const (
	defaultTimeout = 60 * time.Second
	waitSlice      = 20 * time.Second // of one request
	answerWithin   = 10 * time.Second // of a request beyond what it was asked to wait
	askAgainFor    = 20 * time.Second // while no router answers
	cancelWithin   = 3 * time.Second
)

// Job says what to run. The zero value passes the records of the default space through.
type Job struct {
	ID       string            // minted if empty; a job of an id that runs or ended is joined, not run again
	Module   string            // name, name@version or digest; empty passes records through
	Label    string            // what lists and messages call the module, as the name of an uploaded file; default its name
	Function string            // of the module; default map
	Combine  string            // function of the module, run on each storage's output
	Reduce   string            // sum, count, min, max, none, module, module:NAME; default the module's own
	Space    string            // default "default"
	Params   map[string][]byte // for the module
	Mode     string            // hold (default): no bucket moves during the map; snapshot: they may
	Client   string            // who asks: clients share the cluster evenly; default user@host of this process
	Buckets  []uint16          // map these alone; empty is all
	Keys     [][]byte          // map the records of these keys alone
	// BucketParams are params of single buckets, beside Params and before those of the same name.
	BucketParams map[uint16]map[string][]byte
	Timeout      time.Duration // of the job; default 60 s, at least 1 ms
	Attempts     int           // at the most; default 10
	Sort         string        // key (default), -key, value, -value, none
	Limit        int           // rows at the most; 0 is all
	OnError      string        // fail (default), or skip: leave out the records at which the function fails
	MaxSkip      int           // records that OnError skip may leave out; default 100, at most 10,000

	// Proof has the stats list who pinned which bucket, for [Result.CheckCoverage].
	Proof bool
	// PageBytes is about how much of the rows one reply carries; default 512 KiB.
	PageBytes int
	// Progress is called while the job runs, from one goroutine at a time, and not after Run has returned.
	Progress func(api.JobProgress)
}

// check refuses a part of a space that is nothing: an empty list on the wire is the whole.
func (j Job) check() error {
	if j.Buckets != nil && len(j.Buckets) == 0 || j.Keys != nil && len(j.Keys) == 0 {
		return api.Errorf(api.CodeBadRequest, "Buckets or Keys is an empty list").WithHint("nil maps all")
	}
	return nil
}

func (j Job) request() api.JobRequest {
	req := api.JobRequest{
		Job: j.ID, Module: j.Module, Label: j.Label, Function: j.Function, Combine: j.Combine, Reduce: j.Reduce, Space: j.Space,
		Mode: j.Mode, TimeoutMS: j.Timeout.Milliseconds(), Attempts: j.Attempts, Sort: j.Sort, Limit: j.Limit,
		OnError: j.OnError, MaxSkip: j.MaxSkip, Client: j.Client, Buckets: j.Buckets,
		Params: wireParams(j.Params), MaxBytes: j.PageBytes, WaitMS: min(waitSlice, j.Timeout).Milliseconds(), Proof: j.Proof,
	}
	for _, key := range j.Keys {
		req.Keys = append(req.Keys, key)
	}
	for _, b := range slices.Sorted(maps.Keys(j.BucketParams)) {
		req.BucketParams = append(req.BucketParams, api.BucketParams{Bucket: b, Params: wireParams(j.BucketParams[b])})
	}
	return req
}

func wireParams(params map[string][]byte) map[string]api.Bytes {
	if len(params) == 0 {
		return nil
	}
	wire := make(map[string]api.Bytes, len(params))
	for name, value := range params {
		wire[name] = value
	}
	return wire
}

// Run runs a job and returns when it is done. If ctx ends first, the job is cancelled and the error has code
// CANCELED, or TIMEOUT for a deadline. Other codes: what the job failed with, as UNKNOWN_MODULE,
// UNKNOWN_SPACE, NO_OWNER, GUEST_FAILED; UNAVAILABLE if no router answers.
func (c *Client) Run(ctx context.Context, job Job) (*Result, error) {
	if err := job.check(); err != nil {
		return nil, err
	}
	if job.ID == "" {
		job.ID = strings.ToLower(rand.Text())
	}
	if job.Timeout <= 0 {
		job.Timeout = defaultTimeout
	}
	job.Timeout = max(job.Timeout, time.Millisecond)
	job.Client = cmp.Or(job.Client, c.user)
	stop, err := c.follow(job)
	if err != nil {
		return nil, err
	}
	defer stop()
	reply, err := c.await(ctx, job)
	if ctx.Err() != nil && err != nil {
		c.cancel(ctx, job.ID)
		return nil, ended(ctx, job.ID)
	}
	if err != nil {
		return nil, err
	}
	result := &Result{Job: reply.Job, client: c, first: reply, pageBytes: job.PageBytes, job: job}
	if reply.Stats != nil {
		result.Stats = *reply.Stats
	}
	return result, nil
}

// follow passes a job's events on until stop is called.
func (c *Client) follow(job Job) (stop func(), err error) {
	if job.Progress == nil {
		return func() {}, nil
	}
	var mu sync.Mutex
	over := false
	unsubscribe, err := c.conn.Subscribe("job."+job.ID+".events", func(_ string, body []byte) {
		var p api.JobProgress
		if api.Decode(body, &p, api.Lenient) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if !over {
			job.Progress(p)
		}
	})
	if err != nil {
		return nil, err
	}
	return func() {
		unsubscribe()
		mu.Lock()
		defer mu.Unlock()
		over = true
	}, nil
}

// await starts the job and asks for its result until it is there. A request whose answer was lost is sent
// again: the id makes it join.
func (c *Client) await(ctx context.Context, job Job) (api.JobReply, error) {
	req := job.request()
	reply, err := c.begin(ctx, req)
	for err == nil && reply.Status == api.JobRunning {
		again := api.ResultRequest{Job: job.ID, Cursor: reply.Next, MaxBytes: req.MaxBytes, WaitMS: req.WaitMS}
		reply, err = c.fetch(ctx, again)
	}
	return reply, err
}

// begin sends job.run, again while the answer is lost or every router is busy.
func (c *Client) begin(ctx context.Context, req api.JobRequest) (api.JobReply, error) {
	var reply api.JobReply
	err := persist(ctx, time.Duration(req.TimeoutMS)*time.Millisecond, func(err error) bool {
		return withoutTurn(err) || unanswered(err)
	}, func() error {
		reply = api.JobReply{}
		return c.patient(ctx, req.WaitMS, "job.run", req, &reply)
	})
	return reply, err
}

// fetch sends job.result, again while no router answers.
func (c *Client) fetch(ctx context.Context, req api.ResultRequest) (api.JobReply, error) {
	var reply api.JobReply
	err := persist(ctx, askAgainFor, func(err error) bool {
		return api.CodeOf(err) == api.CodeUnavailable || withoutTurn(err) || unanswered(err)
	}, func() error {
		reply = api.JobReply{}
		return c.patient(ctx, req.WaitMS, "job.result", req, &reply)
	})
	return reply, err
}

// withoutTurn reports whether a router was too busy for a request, and not a storage for a job.
func withoutTurn(err error) bool {
	return api.CodeOf(err) == api.CodeBusy && api.AsError(err).Details["job"] == ""
}

// unanswered reports whether a request got no answer. A job that ran out of time fails with the same code,
// but says which job it was.
func unanswered(err error) bool {
	e := api.AsError(err)
	return e.Code == api.CodeTimeout && e.Details["job"] == ""
}

// patient is a request that the router may take waitMS to answer.
func (c *Client) patient(ctx context.Context, waitMS int64, subject string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(waitMS)*time.Millisecond+answerWithin)
	defer cancel()
	return c.request(ctx, subject, in, out)
}

// persist calls ask until it succeeds, fails in a way that another try cannot help, or patience is over since
// the first failure.
func persist(ctx context.Context, patience time.Duration, again func(error) bool, ask func() error) error {
	var since time.Time
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := ask()
		if err == nil || ctx.Err() != nil || !again(err) {
			return err
		}
		if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) > patience {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// cancel ends a job whose caller has gone.
func (c *Client) cancel(ctx context.Context, id string) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
	defer done()
	_ = c.conn.Request(ctx, "job.cancel", api.CancelRequest{Job: id}, nil) // else the job's own time ends it
}

func ended(ctx context.Context, id string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return api.Errorf(api.CodeTimeout, "job %s was cancelled: the time for it was over", id).With("job", id)
	}
	return api.Errorf(api.CodeCanceled, "job %s was cancelled", id).With("job", id)
}
