// Package e2e holds acceptance tests: a cluster of real processes on this machine is killed, stopped,
// restarted and given bad input, and must still answer right.
//
// TestMain builds the programs once. A test then starts a NATS server, a router and three storages, each
// a process with a folder of its own, and talks to them as any client would:
//
//	c := startCluster(t)
//	text := newText(1, 20_000)
//	c.importLines("default", text.lines)
//	c.storage("s2").kill() // SIGKILL
//	c.storage("s2").start()
//	c.waitHealthy()
//	c.wantRows(pinion.Job{Module: "wordcount", Reduce: "sum"}, text.rows())
//
// What the cluster says is compared with a count by a few lines of plain Go. Nothing waits by sleeping: a
// condition is polled until it holds or its deadline is over, and then the test fails with the end of
// every process's log.
//
// With go test -short only two light tests run. PINION_E2E=long runs the tests with ten times the
// records and jobs, and sends each hostile guest twice. TestChaos runs with -chaos alone, as make chaos has it: it
// kills one process after the other while storages join and leave, and prints the seed that decided whom.
package e2e
