package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/plugins"
	"github.com/pinion-mr/pinion/pmr/node"
	"github.com/pinion-mr/pinion/pmr/reduce"
)

// services collects handlers and stops them together.
type services struct {
	on    bus.Answerer
	stops []func()
	err   error
}

func (s *services) add(stop func(), err error) {
	if err != nil && s.err == nil {
		s.err = err
	}
	if stop != nil {
		s.stops = append(s.stops, stop)
	}
}

func (s *services) stop() {
	for _, stop := range s.stops {
		stop()
	}
}

// The longest that a service may work on a request: a short one, one that loads buckets, one that waits for
// a job.
const (
	short = 10 * time.Second
	long  = 2 * time.Minute
	whole = node.MaxTimeout + short
)

// serve has fn answer a subject within a time, if nothing has failed before.
func serve[Req, Resp any](s *services, subject, queue string, within time.Duration, fn func(context.Context, Req) (Resp, error)) {
	serveMany(s, bus.MaxConcurrent, subject, queue, within, fn)
}

// jobWaiters is how many requests of one subject may wait for jobs at the same time: with the defaults more than
// a router takes jobs, so that those who have to wait are told so by it.
const jobWaiters = 2048

// serveMany is serve for up to most requests at a time.
func serveMany[Req, Resp any](s *services, most int, subject, queue string, within time.Duration, fn func(context.Context, Req) (Resp, error)) {
	if s.err != nil {
		return
	}
	s.add(bus.HandleMany(s.on, most, subject, queue, func(ctx context.Context, req Req) (Resp, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return fn(ctx, req)
	}))
}

// announce begins a service that NATS tools list.
func announce(b *bus.Bus, role, description string) (*services, error) {
	service, err := b.NewService("pinion-"+role, serviceVersion, description)
	return &services{on: service}, err
}

// serviceVersion is the version of the services as NATS tools show it: the protocol's, since the program's own
// need not have the form that they demand.
var serviceVersion = fmt.Sprintf("%d.0.0", api.Protocol)

// serveStorage answers for a storage.
func serveStorage(b *bus.Bus, st *node.Storage) (*services, error) {
	s, err := announce(b, "storage", "Owns buckets of records, pins them at cuts and maps them.")
	if err != nil {
		return s, err
	}
	at := "storage." + st.ID() + "."
	serve(s, at+"pin", "", long, st.Pin)
	serve(s, at+"map", "", short, st.Map)
	serve(s, at+"release", "", short, st.Release)
	serve(s, at+"fetch", "", short, st.Fetch)
	serve(s, at+"map_status", "", short, st.MapStatus)
	serve(s, at+"gate", "", short, st.Gate)
	serve(s, at+"ungate", "", short, st.Ungate)
	serve(s, at+"receive", "", short, st.Receive)
	serve(s, at+"activate", "", long, st.Activate)
	serve(s, at+"get", "", short, st.Get)
	serve(s, at+"spaces", "", short, st.Spaces)
	serve(s, at+"buckets", "", long, st.Buckets)
	serve(s, at+"status", "", short, st.Status)
	if s.err == nil {
		s.add(b.Subscribe("router.*.beat", func(_ string, body []byte) {
			var beat api.Heartbeat
			if api.Decode(body, &beat, api.Lenient) == nil {
				st.Heard(beat.Router)
			}
		}))
	}
	s.add(b.OnReconnect(st.Reconnected), nil)
	return s, s.err
}

// serveRouter answers for a router: its own subjects, and with the other routers those of the cluster. A module
// may take some time to compile.
func serveRouter(b *bus.Bus, r *node.Router, c *plugins.Catalogue, compiling time.Duration) (*services, error) {
	s, err := announce(b, "router", "Runs jobs, and takes and gives records.")
	if err != nil {
		return s, err
	}
	at := "router." + r.ID() + "."
	serve(s, at+"mapped", "", short, r.Mapped)
	serveMany(s, jobWaiters, at+"result", "", whole, r.OwnResult)
	serve(s, at+"cancel", "", short, r.OwnCancel)
	serve(s, at+"job", "", short, r.OwnJob)
	serve(s, at+"jobs", "", short, r.OwnJobs)
	serve(s, at+"certificate", "", short, r.OwnCertificate)
	serve(s, at+"moves", "", short, r.OwnMoves)
	if s.err == nil {
		s.add(b.Subscribe(at+"progress", func(_ string, body []byte) {
			var p api.Progress
			if api.Decode(body, &p, api.Lenient) == nil {
				r.Progress(p)
			}
		}))
	}
	serveMany(s, jobWaiters, "job.run", queueRouters, whole, r.RunJob)
	serveMany(s, jobWaiters, "job.result", queueRouters, whole, r.Result)
	serve(s, "job.cancel", queueRouters, short, r.Cancel)
	serve(s, "job.submit", queueRouters, long, r.Submit)
	serve(s, "job.get", queueRouters, short, r.Job)
	serve(s, "job.list", queueRouters, long, r.Jobs)
	serve(s, "job.certificate", queueRouters, short, r.Certificate)
	serve(s, "record.put", queueRouters, short, r.Put)
	serve(s, "record.get", queueRouters, short, r.Get)
	serve(s, "record.delete", queueRouters, short, r.Delete)
	serve(s, "space.create", queueRouters, short, r.CreateSpace)
	serve(s, "space.list", queueRouters, short, r.Spaces)
	serve(s, "admin.status", queueRouters, short, r.Status)
	serve(s, "admin.quotas", queueRouters, short, r.Quotas)
	serve(s, "admin.settings", queueRouters, short, r.Settings)
	serve(s, "admin.topology", queueRouters, short, r.Topology)
	serve(s, "admin.buckets", queueRouters, long, r.Buckets)
	serve(s, "admin.plan", queueRouters, short, r.Plan)
	serve(s, "admin.move", queueRouters, short, r.Move)
	serve(s, "admin.moves", queueRouters, short, r.ClusterMoves)
	serve(s, "module.add", queueRouters, long+compiling, func(ctx context.Context, req api.ModuleAddRequest) (api.Module, error) {
		if req.Reduce != "" {
			if _, err := reduce.Parse(req.Reduce); err != nil {
				return api.Module{}, err
			}
		}
		return c.Add(ctx, req)
	})
	serve(s, "module.list", queueRouters, short, func(ctx context.Context, _ api.Empty) (api.ModulesReply, error) {
		list, err := c.List(ctx)
		return api.ModulesReply{Modules: list}, err
	})
	serve(s, "module.show", queueRouters, short, func(ctx context.Context, req api.ModuleRequest) (api.Module, error) {
		return c.Resolve(ctx, req.Module)
	})
	serve(s, "module.remove", queueRouters, short, func(ctx context.Context, req api.ModuleRequest) (api.Module, error) {
		return c.Remove(ctx, req.Module)
	})
	s.add(b.OnReconnect(r.Reconnected), nil)
	return s, s.err
}
