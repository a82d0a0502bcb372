// Package sim is a seeded simulator of a whole cluster, in its tests: the real routers and storages of package
// pmr/node over package bus/busmem, in a bubble of testing/synctest, with a store in memory and a mapper that
// counts words in Go.
//
// Whatever a node sends, answers, appends, reads or runs waits in one pool until the seed picks it, delivers,
// loses, doubles or delays it; between two picks everything comes to rest. Before and after each pick a node may
// be stopped for a while, cut off, killed with or without its store, or lie about what it pinned. Jobs come and
// records change meanwhile. In the end all is healed: then every job must have ended, with the exact content of
// the log at its cut or with an error that its faults explain, nothing may be left pinned, and a last job must be
// right.
//
//	go test ./sim -run TestSeeds -sim.seed=17 -sim.seeds=1 -sim.trace
//
// runs one seed and prints what happened, one line for each pick. The same seed gives the same lines, byte by
// byte.
//
// TestMoves runs each seed twice, with the same jobs over the same records: once nothing moves; once move orders come
// without pause, doubled, late and wrong ones among them, or a storage comes and another one is drained, or one is gone
// until its buckets are taken over, or routers are killed while they move. What the jobs give is the same, byte by byte.
// In the end no order is left, every storage has its share, and none holds what is another one's.
//
//	go test ./sim -run TestMoves -sim.seed=17 -sim.moves=1 -sim.trace
package sim
