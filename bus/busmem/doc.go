// Package busmem holds the ports of package bus in memory, for tests: one [Cluster] stands for the NATS
// server with all its streams, and each process connects to it as a peer.
//
//	c := busmem.New(busmem.Config{})
//	router, storage := c.Connect("router"), c.Connect("s1")
//	defer router.Close()
//	defer storage.Close()
//
// Faults are hooks. This one loses every second pin:
//
//	n := 0
//	c.SetFaults(busmem.Faults{Request: func(m busmem.Call) busmem.Fault {
//		n++
//		return busmem.Fault{Drop: m.Subject == "storage.s1.pin" && n%2 == 0}
//	}})
//	...
//	c.Cut("s1")  // neither hears nor is heard
//	c.Heal("s1") // and has its OnReconnect called
//
// Everything waits on channels and on the time of package time, so it works in testing/synctest bubbles.
// The Data of a log entry is overwritten when the callback that got it returns, so that a test finds who
// keeps it.
package busmem
