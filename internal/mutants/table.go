package main

// mutant is a mechanism that is switched off.
type mutant struct {
	name  string
	what  string // the mechanism, for the table
	edits []edit
	pkg   string // the package whose tests must fail
	run   string // the tests that are run, as go test -run takes it
}

// edit replaces a text that must be in the file once.
type edit struct{ file, from, to string }

// The rooms of the table.
const (
	storageGo   = "pmr/storage.go"
	schedulerGo = "pmr/scheduler.go"
	routerGo    = "pmr/router.go"
	proofGo     = "pmr/proof.go"
	worldGo     = "pmr/exploreworld_test.go"
	rulesGo     = "pmr/explorerules_test.go"
	tableGo     = "buckets/table.go"
)

// one is a change in a single place.
func one(file, from, to string) []edit { return []edit{{file, from, to}} }

// mutants is the table. The first group is about what a job's answer rests on, the second about moves, the third
// about fairness between both, the last about what the shell adds.
func mutants() []mutant {
	return append(append(answerMutants(), moveMutants()...), append(fairnessMutants(), nodeMutants()...)...)
}

func answerMutants() []mutant {
	return []mutant{
		{
			"unique-id", "each pin request makes a PMR of its own",
			append(one(rulesGo, "c := codeOf(m.storage, m.job, m.attempt, 0)", "c := codeOf(m.storage, m.job, 1, 0)"),
				edit{rulesGo, "for w.find(c) != nil {", "for false {"}),
			"./pmr", "TestExplore",
		},
		{
			"expiry-at-map", "a map begins only on a pin whose time is not over",
			one(storageGo, " || p.State == StatePinned && now >= p.expires {", " {"),
			"./pmr", "TestExplore|TestStorageScripts/expiry$",
		},
		{
			"disjoint", "no bucket is pinned twice",
			one(proofGo, "doubled = append(doubled, b)", "_ = doubled"),
			"./pmr", "TestRouterScripts/coverage_|TestClusterScripts/bucket_lost_and_doubled$",
		},
		{
			"complete", "no bucket is pinned by nobody",
			one(proofGo, "missing = append(missing, b)", "_ = missing"),
			"./pmr", "TestRouterScripts/coverage_|TestClusterScripts/vshard_missing_buckets$",
		},
		{
			"nothing-surplus", "no bucket is pinned that was not asked for",
			one(proofGo, "\"not asked for: \", slices.Sorted(maps.Keys(by))}", "\"not asked for: \", slices.Sorted(maps.Keys(by))[:0]}"),
			"./pmr", "TestRouterScripts/partial_coverage$",
		},
		{
			"generation", "each bucket is pinned under the generation of the table",
			one(proofGo, " || owner.Generation != pin.Generation", ""),
			"./pmr", "TestRouterScripts/coverage_generation$",
		},
		{
			"late-pin", "a pin of an earlier attempt is given back, not used",
			one(routerGo, "case ev.Attempt != r.attempt || r.phase != Pinning || !r.waitFor[ev.Storage]:", "case r.phase != Pinning || !r.waitFor[ev.Storage]:"),
			"./pmr", "TestExplore|TestClusterScripts/pin_answer_late$",
		},
		{
			"late-end", "the end of a map of an earlier attempt is not used",
			one(routerGo, "|| r.pins[ev.Storage].PMR != ev.PMR ||", "||"),
			"./pmr", "TestExplore|TestClusterScripts/old_map_end$",
		},
		{
			"map-once", "a map that is asked for twice runs once",
			one(storageGo, "if p.State != StatePinned {\n\t\treturn", "if p.State == StateMapped {\n\t\treturn"),
			"./pmr", "TestExplore|TestStorageScripts/map_twice$",
		},
		{
			"guest-dead-first", "a pin is dropped only when its guests are dead",
			one(storageGo, "p.State = StateStopping\n\t\treturn []Effect{StopMap{p.ID}}", "delete(s.pmrs, p.ID)\n\t\treturn []Effect{StopMap{p.ID}, Drop{p.ID}}"),
			"./pmr", "TestExplore|TestStorageScripts/release$",
		},
		{
			"attempt-void", "the pins of an attempt that failed are all released",
			one(routerGo, "effects := r.releaseAll()\n\tr.last = err", "effects := []Effect(nil)\n\tr.pins = nil\n\tr.last = err"),
			"./pmr", "TestRouterScripts/attempts$|TestClusterScripts/pin_lost$",
		},
	}
}

func moveMutants() []mutant {
	return []mutant{
		{
			"gate-at-zero", "a gate waits until no map-reduce holds buckets in place",
			one(schedulerGo, " || running > 0 {", " {"),
			"./pmr", "TestExplore",
		},
		{
			"pins-wait-for-gate", "nothing is pinned while a gate is held",
			one(schedulerGo, "case s.held != nil:\n", "case false:\n"),
			"./pmr", "TestExplore",
		},
		{
			"fence", "a gate that ends is followed by a fence",
			one(schedulerGo, "s.held, s.fencing = nil, true\n\treturn []Effect{CloseGate{id}, SetFence{}}", "s.held = nil\n\treturn []Effect{CloseGate{id}}"),
			"./pmr", "TestExplore",
		},
		{
			"fence-first", "nothing is pinned before the fence is in the log",
			one(schedulerGo, "case s.fencing:\n", "case false:\n"),
			"./pmr", "TestExplore",
		},
		{
			"fence-counts", "an activation counts only behind the present fences",
			one(tableGo, "case o.FenceDst != 0 && o.FenceDst != t.fences[o.Owner]:", "case false:"),
			"./pmr", "TestExplore",
		},
		{
			"ordered-gates", "gates are taken in the order of the storages",
			one(worldGo, "if w.m.unordered {", "if !w.m.unordered {"),
			"./pmr", "TestExplore",
		},
		{
			"refusal", "a pin is refused, and never waits while others are held",
			[]edit{
				{storageGo, "return []Effect{Refuse{ev.PMR, err}}", "s.later = append(s.later, ev)\n\t\t\treturn nil"},
				{storageGo, "\tgates scheduler\n", "\tgates scheduler\n\tlater []PinAsked\n"},
				{
					storageGo, "return append(effects, s.gates.serve(now, s.Running())...)",
					"effects = append(effects, s.gates.serve(now, s.Running())...)\n\twaiting := s.later\n\ts.later = nil\n\tfor _, p := range waiting {\n\t\teffects = append(effects, s.step(now, p)...)\n\t}\n\treturn effects",
				},
			},
			"./pmr", "TestExplore",
		},
		{
			"snapshot-holds-nothing", "a snapshot job delays no gate",
			one(storageGo, "p.State != StateMapped && !p.Snapshot", "p.State != StateMapped"),
			"./pmr", "TestStorageScripts/snapshot$|TestClusterScripts/vshard_snapshot_under_move$",
		},
	}
}

func fairnessMutants() []mutant {
	return []mutant{
		{
			"pin-quota", "pins in a row are bounded while a gate waits",
			one(schedulerGo, "s.pins++\n", ""),
			"./pmr", "TestStorageScripts/pin_quota$|TestNeitherSideWaitsForever",
		},
		{
			"gate-quota", "gates in a row are bounded while pins are refused",
			one(schedulerGo, " && s.passed >= s.quotas.Gates {", " && s.passed < 0 {"),
			"./pmr", "TestStorageScripts/gate_quota$|TestNeitherSideWaitsForever",
		},
		{
			"tickets-by-age", "in the jobs' turn younger ones wait",
			one(schedulerGo, "pin.Age > 0 && pin.Age <= s.favour:", "s.favour > 0:"),
			"./pmr", "TestStorageScripts/tickets_by_age$",
		},
		{
			"ticket-kept", "a ticket is used up when the map begins, not by a pin",
			[]edit{
				{storageGo, "\tdelete(s.gates.tickets, p.Job) // a map is asked for once the job is pinned everywhere\n", ""},
				{storageGo, "\t\ts.pmrs[ev.PMR] = &PMR{", "\t\tdelete(s.gates.tickets, ev.Job)\n\t\ts.pmrs[ev.PMR] = &PMR{"},
			},
			"./pmr", "TestStorageScripts/gate_quota$",
		},
		{
			"ticket-renewed", "a job that still tries keeps its ticket",
			one(schedulerGo, "s.tickets[pin.Job] = left // renewed", "_ = left // renewed"),
			"./pmr", "TestStorageScripts/ticket_renewed_by_grant$",
		},
		{
			"second-gate-first", "the second gate of a move comes before others",
			one(schedulerGo, "i := max(0, slices.IndexFunc(s.waiting, func(g *gate) bool { return g.Second }))", "i := 0"),
			"./pmr", "TestExplore",
		},
		{
			"second-gate", "the second gate of a move does not wait for tickets",
			one(schedulerGo, "|| !next.Second && s.jobsFirst() {", "|| s.jobsFirst() {"),
			"./pmr", "TestExplore",
		},
	}
}

func nodeMutants() []mutant {
	return []mutant{
		{
			"read-your-writes", "a storage has written what lies before a cut when it parks the cut",
			one("pmr/node/applier.go", "if err := a.write(); err != nil {\n\t\t\treturn err\n\t\t}\n\t\treturn a.park(e.Seq)", "return a.park(e.Seq)"),
			"./pmr/node", "TestAJobSeesWhatWasAcknowledgedBefore$",
		},
		{
			"unique-id-minted", "a storage mints a new id for each pin request",
			one("pmr/node/storage.go", "id: newID(), job: req.Job,", "id: s.ID() + req.Job, job: req.Job,"),
			"./pmr/node", "TestEachPinIsAnother$",
		},
		{
			"one-done", "a job's end is written by compare-and-set",
			one("pmr/node/jobrecord.go", "if rec.State.Over() {\n\t\treturn", "if rec.State.Over() {\n\t\tif _, now, err := r.record(ctx, rec.Job); err == nil {\n\t\t\trevision = now\n\t\t}\n\t\treturn"),
			"./pmr/node", "TestAJobIsDoneOnceThoughTwoRoutersRanIt$",
		},
	}
}
