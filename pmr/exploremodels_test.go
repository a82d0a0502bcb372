package pmr_test

import "github.com/pinion-mr/pinion/pmr"

// The models are small in one respect each, so that most can be searched to their end: a fault of each kind alone
// and in pairs, moves that are late, moves that meet. All that may go wrong at a time is the last one, which is
// cut off.
//
// Quotas are small as well, so that they matter with two jobs and one or two moves.
var (
	fair   = pmr.Quotas{Pins: 1, Gates: 1}
	strict = pmr.Quotas{} // stricter than an engine takes: who waits comes first, on both sides
)

// smallModels are searched with every go test.
func smallModels() []*model {
	return []*model{
		{name: "lost", buckets: 2, jobs: 1, attempts: 2, losses: 1, quotas: fair},
		{name: "doubled", buckets: 2, jobs: 1, attempts: 2, doubles: 1, quotas: fair},
		{name: "crash", buckets: 2, jobs: 1, attempts: 2, crashes: 1, quotas: fair},
		{name: "expired", buckets: 2, jobs: 1, attempts: 2, expiries: 2, deadlines: 1, quotas: fair},
		{name: "move", buckets: 2, jobs: 1, moves: []move{{0, 1}}, attempts: 1, losses: 1, quotas: fair},
		{name: "late-move", buckets: 2, jobs: 1, moves: []move{{0, 1}}, attempts: 1, late: true, expiries: 1, quotas: strict},
		{name: "two-moves", buckets: 2, jobs: 1, moves: []move{{0, 1}, {1, 0}}, attempts: 1, quotas: strict},
		{name: "moves-in-a-row", storages: 3, buckets: 3, jobs: 1, wanted: 2, moves: []move{{0, 1}, {1, 2}}, attempts: 2, quotas: strict, states: 3000},
		{name: "snapshot", buckets: 2, jobs: 1, snapshot: true, moves: []move{{0, 1}}, attempts: 1, late: true, quotas: strict},
	}
}

// allModels are searched by make explore.
func allModels() []*model {
	return append(smallModels(), []*model{
		{name: "lost-doubled", buckets: 2, jobs: 1, attempts: 2, losses: 1, doubles: 1, quotas: fair},
		{name: "lost-doubled-expired", buckets: 2, jobs: 1, attempts: 2, losses: 1, doubles: 1, expiries: 1, quotas: fair},
		{name: "lost-twice", buckets: 2, jobs: 1, attempts: 2, losses: 2, expiries: 1, quotas: fair},
		{name: "doubled-twice", buckets: 2, jobs: 1, attempts: 2, doubles: 2, expiries: 1, quotas: fair},
		{name: "crash-expired", buckets: 2, jobs: 1, attempts: 2, crashes: 1, expiries: 2, deadlines: 1, quotas: fair},
		{name: "crash-lost", buckets: 2, jobs: 1, attempts: 2, crashes: 1, losses: 1, quotas: fair},
		{name: "move-retried", buckets: 2, jobs: 1, moves: []move{{0, 1}}, attempts: 2, late: true, expiries: 1, quotas: strict},
		{name: "move-doubled", buckets: 3, jobs: 1, moves: []move{{0, 1}}, attempts: 1, losses: 1, doubles: 1, quotas: fair},
		{name: "move-crash", buckets: 2, jobs: 1, moves: []move{{0, 1}}, attempts: 1, crashes: 1, losses: 1, expiries: 1, quotas: strict},
		{name: "two-moves-expired", buckets: 2, jobs: 1, moves: []move{{0, 1}, {1, 0}}, attempts: 1, expiries: 1, quotas: fair},
		{name: "three-storages", storages: 3, buckets: 3, jobs: 1, wanted: 2, moves: []move{{0, 1}, {1, 2}}, attempts: 1, quotas: strict},
		{name: "two-jobs", buckets: 3, jobs: 2, moves: []move{{0, 1}}, attempts: 1, quotas: strict},
		{name: "two-jobs-snapshot", buckets: 2, jobs: 2, snapshot: true, moves: []move{{0, 1}}, attempts: 1, quotas: fair},
		{name: "everything", buckets: 3, jobs: 2, moves: []move{{0, 1}}, attempts: 2, late: true, losses: 2, doubles: 2, crashes: 1, expiries: 8, deadlines: 2, quotas: fair, states: 100_000},
	}...)
}

// largeModels take hours and gigabytes.
func largeModels() []*model {
	return []*model{
		{name: "one-job", buckets: 2, jobs: 1, attempts: 2, losses: 2, doubles: 2, crashes: 1, expiries: 8, deadlines: 1, quotas: fair, states: 20_000_000},
		{name: "one-job-one-move", buckets: 2, jobs: 1, moves: []move{{0, 1}}, attempts: 2, late: true, losses: 1, doubles: 1, crashes: 1, expiries: 2, quotas: fair, states: 20_000_000},
		{name: "two-jobs-one-move", buckets: 2, jobs: 2, moves: []move{{0, 1}}, attempts: 2, late: true, quotas: fair, states: 20_000_000},
		{name: "everything", buckets: 3, jobs: 2, moves: []move{{0, 1}}, attempts: 2, late: true, losses: 2, doubles: 2, crashes: 1, expiries: 8, deadlines: 2, quotas: fair, states: 20_000_000},
	}
}
