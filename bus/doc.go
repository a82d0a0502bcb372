// Package bus carries everything that Pinion's processes say to each other and keep: requests and their
// replies, the log, key-value buckets, objects and work queues. It is the only package that knows NATS.
//
// One machine needs no other program; the server can run inside the process:
//
//	srv, err := bus.StartServer(bus.ServerConfig{Dir: "data/nats", Listen: "127.0.0.1:4222"})
//	...
//	b, err := bus.Connect(ctx, bus.Config{Server: srv.URL(), Cluster: "shop"})
//	...
//	log, err := b.CreateLog(ctx, bus.LogConfig{Replicas: 1})
//	seq, err := log.Append(ctx, "rec.17", map[string]string{api.HeaderKey: "a"}, []byte("1"), "")
//	...
//	err = log.Read(ctx, 1, []string{"rec.17", "cut"}, func(batch []api.LogEntry) error { ... })
//
// A service is a function from request to reply; both are message structs of package api:
//
//	stop, err := bus.Handle(b, "storage.s1.pin", "", func(ctx context.Context, r api.PinRequest) (api.PinReply, error) {
//		return pin(r)
//	})
//	...
//	var reply api.PinReply
//	err = b.Request(ctx, "storage.s1.pin", api.PinRequest{Job: "j1"}, &reply)
//
// Subjects, stream names and bucket names are relative everywhere: the bus puts pinion.<cluster>. or
// PINION_<cluster>_ in front.
//
// # Errors
//
// A failure that a user can act on is an [api.Error] with a code. A write ends in one of three ways:
// stored, refused, or IN_DOUBT when the server did not tell within the time allowed; a repeat with the
// same message id within the duplicate window is stored at most once.
//
// Package busmem holds the same ports in memory, with faults that tests can switch on.
package bus
