package main

import "slices"

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
	moverGo     = "pmr/mover.go"
	sightGo     = "pmr/sight.go"
	rulesGo     = "pmr/explorerules_test.go"
	logGo       = "pmr/explorelog_test.go"
	tableGo     = "buckets/table.go"
)

// one is a change in a single place.
func one(file, from, to string) []edit { return []edit{{file, from, to}} }

// mutants is the table. The groups are about what a job's answer rests on, about gates and fences, about the movers that
// ask for them, about what storages load and forget, about fairness between jobs and moves, and about what the shell
// adds.
func mutants() []mutant {
	return slices.Concat(answerMutants(), gateMutants(), moverMutants(), copyMutants(), fairnessMutants(), nodeMutants())
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

func gateMutants() []mutant {
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
			"source-fence-counts", "an activation counts only behind the source's present fence",
			one(tableGo, "case o.FenceSrc != 0 && o.FenceSrc != t.fences[now.Storage]:", "case false:"),
			"./pmr", "TestExplore",
		},
		{
			"prev", "an activation counts only if it replaces the present owner",
			one(tableGo, "case o.Prev < now.Generation:", "case false:"),
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

func moverMutants() []mutant {
	return []mutant{
		{
			"gates", "a move between storages that live has gates",
			one(moverGo, "if o.NeedsGates() {\n\t\tm.gates", "if false {\n\t\tm.gates"),
			"./pmr", "TestExplore",
		},
		{
			"ordered-gates", "gates are taken in the order of the storages",
			one(moverGo, "{{storage: min(o.Src, o.Dst)}, {storage: max(o.Src, o.Dst)}}", "{{storage: o.Src}, {storage: o.Dst}}"),
			"./pmr", "TestExplore",
		},
		{
			"own-gates", "no two deliveries of an order share a gate",
			one("pmr/node/mover.go", "gate: newID(), began", "gate: d.Order.ID, began"),
			"./pmr/node", "TestTwoMoversOfOneOrder$",
		},
		{
			"gates-still-held", "a mover looks whether its gates have ended before it activates",
			one(moverGo, "if s.Table.Fence(g.storage) != g.fence {", "if false {"),
			"./pmr", "TestExplore",
		},
		{
			"source-fence-named", "an activation names the fence of the source",
			one(moverGo, "ask.FenceSrc = s.Table.Fence(m.order.Src)", "ask.FenceSrc = 0"),
			"./pmr", "TestExplore",
		},
		{
			"source-gate-kept", "the source's gate is given up after the activation, not before",
			one(moverGo, "return []Effect{ask}\n", "return append(m.ungate(), ask)\n"),
			"./pmr", "TestExplore",
		},
		{
			"outcome-in-the-log", "an order is done when the log shows it, not when one is told",
			one(moverGo, "case m.step == MoveConcludes && m.failure != nil:\n\t\treturn m.again(m.failure)\n\tcase m.step == MoveConcludes:\n", "case m.step == MoveConcludes:\n\t\treturn m.end(Done{})\n\tcase false:\n"),
			"./pmr", "TestExplore",
		},
		{
			"received-first", "a mover asks for gates when the destination has received all",
			one(moverGo, "return failed, have == len(m.going)", "return failed, have <= len(m.going)"),
			"./pmr", "TestMoverScripts/move$",
		},
		{
			"takeover-looks", "nothing is taken over from a storage that is back",
			one(sightGo, "case o.Takeover && srcLives:", "case false:"),
			"./pmr", "TestMoverScripts/takeover$",
		},
	}
}

func copyMutants() []mutant {
	return []mutant{
		{
			"activation-received", "a storage becomes the owner only of what it has received",
			one("pmr/node/ownership.go", "len(absent) > 0 {\n\t\treturn reply,", "len(absent) > 1000 {\n\t\treturn reply,"),
			"./pmr/node", "TestActivationsThatAreRefused$",
		},
		{
			"base-check-model", "a storage that lacks a bucket parks nothing, in the model",
			one(logGo, "!h.copies[b].joined {\n\t\t\treturn", "!h.copies[b].joined && h.jumped {\n\t\t\treturn"),
			"./pmr", "TestExplore",
		},
		{
			"base-check", "a storage that lacks a bucket parks nothing",
			one("pmr/node/cuts.go", "if len(owned) == 0 || !a.complete(owned) {", "if len(owned) == 0 {"),
			"./pmr/node", "TestAStorageThatLostItsFolderLoadsAgain$",
		},
		{
			"gap-model", "a storage that was purged past loads anew, in the model",
			one(logGo, "h.jumped, h.at = true, w.purged", "h.at = w.purged"),
			"./pmr", "TestExplore",
		},
		{
			"gap", "a storage that was purged past loads anew",
			one("pmr/node/cuts.go", "case state.First > a.verified+1:", "case false:"),
			"./pmr/node", "TestAStorageThatWasPurgedPastNeverAnswersWrong$",
		},
		{
			"purge-during-load-model", "a load that a purge has overtaken is void, in the model",
			one(logGo, "if w.purged > c.from {", "if false {"),
			"./pmr", "TestExplore",
		},
		{
			"purge-during-load", "a load that a purge has overtaken is void",
			one("pmr/node/join.go", "if state.First > l.from[b]+1 {", "if false {"),
			"./pmr/node", "TestAPurgeDuringAJoin$",
		},
		{
			"source-keeps", "a storage forgets a bucket only once it belongs to another",
			[]edit{
				{"pmr/node/join.go", "a.joined[id] && a.view.Owner(id).Storage != a.self {", "a.joined[id] {"},
				{"pmr/node/join.go", "!a.joined[b] || a.view.Owner(b).Storage == a.self || needed(b)", "!a.joined[b] || needed(b)"},
			},
			"./pmr/node", "TestAMoveAndItsProgress$",
		},
		{
			"manifest-conflict", "a manifest that was overtaken is discarded, not rebased",
			one("pmr/node/manifest.go", "\treturn kv.Update(ctx, manifestKey(m.Bucket), body, revision)", "\tif e, err := kv.Get(ctx, manifestKey(m.Bucket)); err == nil {\n\t\trevision = e.Revision\n\t}\n\treturn kv.Update(ctx, manifestKey(m.Bucket), body, revision)"),
			"./pmr/node", "TestAManifestThatChangedDiscardsTheCheckpoint$",
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
			one("pmr/node/applier.go", "if err := a.write(); err != nil {\n\t\t\treturn err\n\t\t}\n\t\ta.cut = e.Seq", "a.cut = e.Seq"),
			"./pmr/node", "TestAJobSeesWhatWasAcknowledgedBefore$",
		},
		{
			"unique-id-minted", "a storage mints a new id for each pin request",
			one("pmr/node/pins.go", "id: newID(), job: req.Job,", "id: s.ID() + req.Job, job: req.Job,"),
			"./pmr/node", "TestEachPinIsAnother$",
		},
		{
			"one-done", "a job's end is written by compare-and-set",
			one("pmr/node/jobrecord.go", "if rec.State.Over() {\n\t\treturn", "if rec.State.Over() {\n\t\tif _, now, err := r.record(ctx, rec.Job); err == nil {\n\t\t\trevision = now\n\t\t}\n\t\treturn"),
			"./pmr/node", "TestAJobIsDoneOnceThoughTwoRoutersRanIt$",
		},
	}
}
