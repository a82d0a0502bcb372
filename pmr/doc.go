// Package pmr is the pin-map-reduce protocol as pure state machines. A machine is told what happened and
// when, and returns what is to be done; it has no clock, goroutine, lock, context or input and output of
// its own. Package pmr/node performs the effects.
//
// [Router] drives one job: cut, pin everywhere, prove coverage, map, collect, finish; any failure that
// another try may mend releases everything and begins again with a new cut.
//
//	r := pmr.NewRouter(pmr.RouterConfig{Job: "j1", Deadline: time.Minute, Attempts: 10})
//	effects := r.Step(0, pmr.Started{})                                   // AppendCut
//	effects = r.Step(1, pmr.CutFixed{Attempt: 1, Cut: 7, Owners: view})   // SendPin to every owner
//	effects = r.Step(2, pmr.Pinned{Attempt: 1, Storage: "s1", Pin: pin})  // when the last one has pinned: SendMap to all
//
// [Storage] holds a storage's PMRs: an object for each pin, with a timeout, that turns into a running map
// if it still exists, and into output to be fetched. [Mover] works off one move order.
//
// Time is a time.Duration since some fixed instant, the same for all calls of one machine.
package pmr
