// Package node is the shell around the state machines of package pmr: it follows the log, holds
// snapshots, runs maps and moves messages, and decides nothing that a machine decides.
//
// It declares the ports it needs ([Log], [KV], [Objects], [Peers], [Mapper]); package bus and cmd/engine
// supply them. A process makes the nodes of its roles and runs them:
//
//	storage, err := node.NewStorage(node.StorageConfig{ID: "s1", Settings: settings}, ports, store)
//	router, err := node.NewRouter(node.RouterConfig{ID: "r1", Settings: settings}, ports)
//	go storage.Run(ctx)
//	go router.Run(ctx)
//	reply, err := router.RunJob(ctx, api.JobRequest{Module: "wordcount", Reduce: "sum"})
//
// Both roles have an [Applier]: the one reader of the log, which steps the table of owners and, in a
// storage, writes records to its store and takes a snapshot at each cut.
package node
