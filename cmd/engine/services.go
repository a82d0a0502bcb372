package main

import (
	"context"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/bus"
	"github.com/pinion-mr/pinion/plugins"
	"github.com/pinion-mr/pinion/pmr/node"
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

// serve has fn answer a subject, if nothing has failed before.
func serve[Req, Resp any](s *services, subject, queue string, fn func(context.Context, Req) (Resp, error)) {
	if s.err == nil {
		s.add(bus.Handle(s.on, subject, queue, fn))
	}
}

// serveStorage answers for a storage.
func serveStorage(b *bus.Bus, st *node.Storage) (*services, error) {
	s := &services{on: b}
	at := "storage." + st.ID() + "."
	serve(s, at+"pin", "", st.Pin)
	serve(s, at+"map", "", st.Map)
	serve(s, at+"release", "", st.Release)
	serve(s, at+"fetch", "", st.Fetch)
	serve(s, at+"map_status", "", st.MapStatus)
	serve(s, at+"take", "", st.Take)
	serve(s, at+"get", "", st.Get)
	serve(s, at+"spaces", "", st.Spaces)
	serve(s, at+"status", "", st.Status)
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

// serveRouter answers for a router: its own subjects, and with the other routers those of the cluster.
func serveRouter(b *bus.Bus, r *node.Router, c *plugins.Catalogue) (*services, error) {
	s := &services{on: b}
	at := "router." + r.ID() + "."
	serve(s, at+"mapped", "", r.Mapped)
	serve(s, at+"result", "", r.OwnResult)
	serve(s, at+"cancel", "", r.OwnCancel)
	if s.err == nil {
		s.add(b.Subscribe(at+"progress", func(_ string, body []byte) {
			var p api.Progress
			if api.Decode(body, &p, api.Lenient) == nil {
				r.Progress(p)
			}
		}))
	}
	serve(s, "job.run", queueRouters, r.RunJob)
	serve(s, "job.result", queueRouters, r.Result)
	serve(s, "job.cancel", queueRouters, r.Cancel)
	serve(s, "record.put", queueRouters, r.Put)
	serve(s, "record.get", queueRouters, r.Get)
	serve(s, "record.delete", queueRouters, r.Delete)
	serve(s, "space.create", queueRouters, r.CreateSpace)
	serve(s, "space.list", queueRouters, r.Spaces)
	serve(s, "admin.status", queueRouters, r.Status)
	serve(s, "admin.settings", queueRouters, r.Settings)
	serve(s, "module.add", queueRouters, c.Add)
	serve(s, "module.list", queueRouters, func(ctx context.Context, _ api.Empty) (api.ModulesReply, error) {
		list, err := c.List(ctx)
		return api.ModulesReply{Modules: list}, err
	})
	serve(s, "module.show", queueRouters, func(ctx context.Context, req api.ModuleRequest) (api.Module, error) {
		return c.Resolve(ctx, req.Module)
	})
	serve(s, "module.remove", queueRouters, func(ctx context.Context, req api.ModuleRequest) (api.Module, error) {
		return c.Remove(ctx, req.Module)
	})
	s.add(b.OnReconnect(r.Reconnected), nil)
	return s, s.err
}
