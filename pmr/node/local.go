package node

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// Local runs a job over the records of a snapshot, in this process and without a cluster, by the code with
// which a storage maps and a router reduces: limits, rows and failures are those of a job there.
//
//	local := node.Local{Snapshot: snap, Buckets: ids, Catalogue: catalogue, Mapper: mapper, Logger: log}
//	result, err := local.Run(ctx, api.JobRequest{Module: "wordcount", Reduce: "sum"})
type Local struct {
	Snapshot  buckets.Snapshot // only its Scan is used
	Buckets   []buckets.ID     // to map, in this order if there is one worker: all there are, unless the job names some
	Workers   int              // instances at the same time; default 1
	Memory    int64            // aggregation memory in bytes; default DefaultAggregation
	Catalogue Catalogue
	Mapper    Mapper
	Logger    *slog.Logger
}

// LocalResult is what a local job has made.
type LocalResult struct {
	Stats api.JobStats // without a cut
	rows  resultRows
}

// Len is the number of rows.
func (r *LocalResult) Len() int { return r.rows.Len() }

// Row returns the i-th row in the job's order, from 0. Its bytes must not be changed.
func (r *LocalResult) Row(i int) api.Row { return r.rows.Row(i) }

// Run runs a job. Its id seeds the guest's random numbers; what the request says of attempts, waiting and
// paging means nothing here. The errors are those of a job in a cluster: UNKNOWN_MODULE, UNKNOWN_FUNCTION,
// BAD_REQUEST, GUEST_FAILED, TIMEOUT, LIMIT_EXCEEDED and so on.
func (l Local) Run(ctx context.Context, req api.JobRequest) (*LocalResult, error) {
	setDefault(&l.Memory, DefaultAggregation)
	ports := Ports{Catalogue: l.Catalogue, Mapper: l.Mapper, Logger: l.Logger}
	settings := api.Settings{Buckets: len(l.Buckets)}
	j := &job{
		r:  &Router{cfg: RouterConfig{Settings: settings, Memory: l.Memory, Workers: NewWorkers(l.Workers)}, ports: ports, logger: l.Logger},
		id: cmp.Or(req.Job, newID()), began: time.Now(), log: l.Logger.Debug,
	}
	if len(req.Keys) > 0 {
		return nil, api.Errorf(api.CodeBadRequest, "a local job maps all records of its buckets").WithHint("name no keys")
	}
	if err := j.prepare(ctx, req); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	if named := wanted(j.req, len(l.Buckets)); named != nil {
		l.Buckets = slices.DeleteFunc(slices.Clone(l.Buckets), func(b buckets.ID) bool { return !slices.Contains(named, b) })
	}
	s := &Storage{cfg: StorageConfig{Settings: settings, Workers: NewWorkers(l.Workers), Memory: l.Memory}, ports: ports, logger: l.Logger}
	p := &pinned{id: "local", job: j.id, claim: Claim{snap: l.Snapshot}, buckets: l.Buckets}
	p.req = j.mapRequest(p.id, l.pins())
	m := s.newMapping(ctx, p)
	m.inline = math.MaxInt // nothing travels
	_, end := m.run(ctx)
	m.close()
	if end.Error != nil {
		return nil, end.Error
	}
	return l.collect(ctx, j, p, end)
}

// collect reduces what the map has put out and sums up its figures.
func (l Local) collect(ctx context.Context, j *job, p *pinned, end *api.MapEnd) (*LocalResult, error) {
	end.PMR, end.Storage = p.id, p.id
	rows, _, err := j.reduce(ctx, map[string]api.MapEnd{end.Storage: *end})
	if err != nil {
		return nil, err
	}
	pins := api.PinnedOnStorage{Storage: end.Storage, PMR: end.PMR, Buckets: l.pins()}
	j.rows, j.maps = rows, map[string]*runningMap{end.PMR: {storage: end.Storage, end: end}}
	return &LocalResult{*j.figures(&pmr.Proof{Attempts: 1, Pinned: []api.PinnedOnStorage{pins}}), rows}, nil
}

func (l Local) pins() []api.BucketPin {
	pins := make([]api.BucketPin, len(l.Buckets))
	for i, b := range l.Buckets {
		pins[i].Bucket = uint16(b)
	}
	return pins
}
