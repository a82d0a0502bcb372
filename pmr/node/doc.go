// Package node is the shell around the state machines of package pmr: it follows the log, holds
// snapshots, runs maps and moves messages, and decides nothing that a machine decides.
//
// It declares the ports it needs ([Log], [KV], [Objects], [Peers], [Mapper]); package bus and cmd/engine
// supply them. A process makes the nodes of its roles and runs them:
//
//	storage := node.NewStorage(node.StorageConfig{
//		Member: api.Member{ID: "s1", Weight: 1}, Settings: settings, Workers: node.NewWorkers(runtime.NumCPU()),
//	}, ports, store)
//	router := node.NewRouter(node.RouterConfig{Member: api.Member{ID: "r1"}, Settings: settings, Expect: 1}, ports)
//	go storage.Run(ctx)
//	go router.Run(ctx)
//	reply, err := router.RunJob(ctx, api.JobRequest{Module: "wordcount", Reduce: "sum"})
//
// Both roles have an [Applier]: the one reader of the log, which steps the table of owners and, in a
// storage, writes records to its store and takes a snapshot at each cut.
package node
