package pmr_test

import (
	"slices"

	"github.com/pinion-mr/pinion/pmr"
)

// The models are small in one respect each, so that most can be searched to their end: a fault of each kind alone
// and in pairs, moves that are late, moves that meet, storages that are slow. All that may go wrong at a time is the last
// one, which is cut off.
//
// Quotas are small as well, so that they matter with two jobs and one or two moves.
var (
	fair   = pmr.Quotas{Pins: 1, Gates: 1}
	strict = pmr.Quotas{} // stricter than an engine takes: who waits comes first, on both sides
)

// one is an order of one bucket.
func one(bucket uint16, from, to int) order {
	return order{buckets: []uint16{bucket}, from: from, to: to}
}

func takeover(bucket uint16, from, to int) order {
	return order{buckets: []uint16{bucket}, from: from, to: to, takeover: true}
}

// oneAfter is ordered once the order before it is over.
func oneAfter(bucket uint16, from, to int) order {
	return order{buckets: []uint16{bucket}, from: from, to: to, after: true}
}

// smallModels are searched with every go test.
func smallModels() []*model {
	return []*model{
		{name: "lost", buckets: 2, jobs: 1, attempts: 2, losses: 1, quotas: fair},
		{name: "doubled", buckets: 2, jobs: 1, attempts: 2, doubles: 1, quotas: fair},
		{name: "crash", buckets: 2, jobs: 1, attempts: 2, crashes: 1, quotas: fair},
		{name: "expired", buckets: 2, jobs: 1, attempts: 2, expiries: 2, deadlines: 1, quotas: fair},
		{name: "move", buckets: 2, jobs: 1, orders: []order{one(0, 0, 1)}, attempts: 1, losses: 1, quotas: fair},
		{name: "late-move", buckets: 2, jobs: 1, orders: []order{one(0, 0, 1)}, attempts: 1, late: true, expiries: 1, quotas: strict},
		{name: "two-moves", buckets: 2, jobs: 1, orders: []order{one(0, 0, 1), one(1, 1, 0)}, attempts: 1, quotas: strict},
		{name: "moves-in-a-row", storages: 3, buckets: 3, jobs: 1, wanted: 2, orders: []order{one(0, 0, 1), one(1, 1, 2)}, attempts: 2, quotas: strict, states: 3000},
		{name: "snapshot", buckets: 2, jobs: 1, snapshot: true, orders: []order{one(0, 0, 1)}, attempts: 1, late: true, quotas: strict},
		{name: "rivals", buckets: 2, jobs: 1, orders: []order{one(0, 0, 1)}, attempts: 1, rivals: 1, quotas: strict},
		{name: "assigned", buckets: 3, free: 1, jobs: 1, wanted: 3, orders: []order{one(2, nobody, 0), one(2, nobody, 1)}, attempts: 1, quotas: strict},
		{name: "takeover", buckets: 2, jobs: 1, orders: []order{takeover(0, 0, 1)}, attempts: 2, crashes: 1, gone: true, quotas: fair},
		{name: "takeovers", storages: 3, buckets: 3, jobs: 1, wanted: 1, orders: []order{takeover(0, 0, 1), takeover(0, 0, 2)}, attempts: 1, lapses: 1, quotas: fair},
		{name: "records", buckets: 2, jobs: 1, orders: []order{one(0, 0, 1)}, attempts: 1, data: true, writes: 1, quotas: strict},
		{name: "purged", buckets: 1, jobs: 1, orders: []order{one(0, 0, 1)}, attempts: 1, crashes: 1, slow: []int{1}, data: true, writes: 1, purges: 1, quotas: strict, states: 3000},
	}
}

// allModels are searched by make explore.
func allModels() []*model {
	return slices.Concat(smallModels(), moveModels(), []*model{
		{name: "lost-doubled", buckets: 2, jobs: 1, attempts: 2, losses: 1, doubles: 1, quotas: fair},
		{name: "lost-doubled-expired", buckets: 2, jobs: 1, attempts: 2, losses: 1, doubles: 1, expiries: 1, quotas: fair},
		{name: "lost-twice", buckets: 2, jobs: 1, attempts: 2, losses: 2, expiries: 1, quotas: fair},
		{name: "doubled-twice", buckets: 2, jobs: 1, attempts: 2, doubles: 2, expiries: 1, quotas: fair},
		{name: "crash-expired", buckets: 2, jobs: 1, attempts: 2, crashes: 1, expiries: 2, deadlines: 1, quotas: fair},
		{name: "crash-lost", buckets: 2, jobs: 1, attempts: 2, crashes: 1, losses: 1, quotas: fair},
		{name: "move-retried", buckets: 2, jobs: 1, orders: []order{one(0, 0, 1)}, attempts: 2, late: true, expiries: 1, quotas: strict},
		{name: "move-doubled", buckets: 3, jobs: 1, orders: []order{one(0, 0, 1)}, attempts: 1, losses: 1, doubles: 1, quotas: fair},
		{name: "move-crash", buckets: 2, jobs: 1, orders: []order{one(0, 0, 1)}, attempts: 1, crashes: 1, losses: 1, expiries: 1, quotas: strict},
		{name: "two-moves-expired", buckets: 2, jobs: 1, orders: []order{one(0, 0, 1), one(1, 1, 0)}, attempts: 1, expiries: 1, quotas: fair},
		{name: "three-storages", storages: 3, buckets: 3, jobs: 1, wanted: 2, orders: []order{one(0, 0, 1), one(1, 1, 2)}, attempts: 1, quotas: strict},
		{name: "two-jobs", buckets: 3, jobs: 2, orders: []order{one(0, 0, 1)}, attempts: 1, quotas: strict},
		{name: "two-jobs-snapshot", buckets: 2, jobs: 2, snapshot: true, orders: []order{one(0, 0, 1)}, attempts: 1, quotas: fair},
		{name: "everything", buckets: 3, jobs: 2, orders: []order{one(0, 0, 1)}, attempts: 2, late: true, losses: 2, doubles: 2, crashes: 1, expiries: 8, deadlines: 2, quotas: fair, states: 100_000},
	})
}

// moveModels are about what can go wrong with moves: movers that die, that meet, that are late; orders that contradict
// each other; storages that are slow, or gone; and the records of what is moved.
func moveModels() []*model {
	there, back := one(0, 0, 1), oneAfter(0, 1, 0)
	return []*model{
		{name: "mover-crash", buckets: 2, jobs: 1, orders: []order{there}, attempts: 1, deliveries: 2, crashes: 1, quotas: strict},
		{name: "mover-lost", buckets: 4, jobs: 1, orders: []order{{buckets: []uint16{0, 1}, to: 1}}, attempts: 1, deliveries: 2, losses: 1, quotas: strict},
		{name: "rivals-late", buckets: 2, jobs: 1, orders: []order{there}, attempts: 1, rivals: 1, late: true, quotas: strict},
		{name: "rivals-expired", buckets: 2, jobs: 1, orders: []order{there}, attempts: 1, rivals: 1, expiries: 1, quotas: strict},
		{name: "rivals-doubled", buckets: 2, jobs: 1, orders: []order{there}, attempts: 1, rivals: 1, doubles: 1, quotas: strict},
		{name: "two-destinations", storages: 3, buckets: 3, jobs: 1, wanted: 1, orders: []order{there, one(0, 0, 2)}, attempts: 1, losses: 1, quotas: strict},
		{name: "chain", storages: 3, buckets: 3, jobs: 1, wanted: 1, orders: []order{there, oneAfter(0, 1, 2)}, attempts: 1, expiries: 1, quotas: strict},
		{name: "there-and-back", buckets: 2, jobs: 1, orders: []order{there, back}, attempts: 1, late: true, quotas: strict},
		{name: "assigned-doubled", buckets: 3, free: 1, jobs: 1, wanted: 3, orders: []order{one(2, nobody, 0), one(2, nobody, 1)}, attempts: 1, doubles: 1, quotas: strict},
		{name: "takeover-slow", buckets: 2, jobs: 1, orders: []order{takeover(0, 0, 1)}, attempts: 2, lapses: 1, doubles: 1, slow: []int{0}, quotas: fair},
		{name: "takeover-purge", buckets: 1, jobs: 1, orders: []order{takeover(0, 0, 1)}, attempts: 1, lapses: 1, slow: []int{0}, data: true, writes: 1, purges: 1, quotas: fair},
		{name: "takeover-lost-disk", buckets: 2, jobs: 1, orders: []order{takeover(0, 0, 1)}, attempts: 2, crashes: 1, gone: true, data: true, writes: 1, purges: 1, quotas: fair},
		{name: "slow-source", buckets: 2, jobs: 1, orders: []order{there}, attempts: 1, slow: []int{0}, late: true, quotas: strict},
		{name: "slow-destination", buckets: 2, jobs: 1, orders: []order{there}, attempts: 1, slow: []int{1}, late: true, quotas: strict},
		{name: "records-slow-source", buckets: 2, jobs: 1, orders: []order{there}, attempts: 1, slow: []int{0}, data: true, writes: 1, quotas: strict},
		{name: "records-slow-destination", buckets: 2, jobs: 1, orders: []order{there}, attempts: 1, slow: []int{1}, data: true, writes: 1, quotas: strict},
		{name: "records-crash", buckets: 2, jobs: 1, orders: []order{there}, attempts: 1, deliveries: 2, crashes: 1, data: true, writes: 1, quotas: strict},
		{name: "records-expired", buckets: 2, jobs: 1, orders: []order{there}, attempts: 1, deliveries: 2, expiries: 1, data: true, writes: 1, quotas: strict},
		{name: "records-there-and-back", buckets: 1, jobs: 1, orders: []order{there, back}, attempts: 1, data: true, writes: 1, quotas: strict},
		{name: "purge", buckets: 1, jobs: 1, orders: []order{there}, attempts: 1, data: true, writes: 2, purges: 1, quotas: strict},
		{name: "purge-slow-destination", buckets: 1, jobs: 1, orders: []order{there}, attempts: 1, slow: []int{1}, deliveries: 2, data: true, writes: 1, purges: 1, quotas: strict},
		{name: "purge-there-and-back", buckets: 1, orders: []order{there, back}, slow: []int{0}, data: true, writes: 1, purges: 1, quotas: strict},
		{name: "purge-crash", buckets: 1, jobs: 1, orders: []order{there}, attempts: 1, crashes: 1, data: true, writes: 1, purges: 1, quotas: strict},
	}
}

// largeModels take hours and gigabytes.
func largeModels() []*model {
	return []*model{
		{name: "one-job", buckets: 2, jobs: 1, attempts: 2, losses: 2, doubles: 2, crashes: 1, expiries: 8, deadlines: 1, quotas: fair, states: 20_000_000},
		{name: "one-job-one-move", buckets: 2, jobs: 1, orders: []order{one(0, 0, 1)}, attempts: 2, late: true, losses: 1, doubles: 1, crashes: 1, expiries: 2, quotas: fair, states: 20_000_000},
		{name: "two-jobs-one-move", buckets: 2, jobs: 2, orders: []order{one(0, 0, 1)}, attempts: 2, late: true, quotas: fair, states: 20_000_000},
		{name: "everything", buckets: 3, jobs: 2, orders: []order{one(0, 0, 1)}, attempts: 2, late: true, losses: 2, doubles: 2, crashes: 1, expiries: 8, deadlines: 2, quotas: fair, states: 20_000_000},
		{name: "one-bucket-everywhere", storages: 3, buckets: 3, jobs: 1, wanted: 1, orders: []order{one(0, 0, 1), oneAfter(0, 1, 2), takeover(0, 0, 2)}, attempts: 2, deliveries: 2, rivals: 1, late: true, lapses: 1, crashes: 1, slow: []int{0}, data: true, writes: 2, purges: 1, quotas: fair, states: 20_000_000},
		{name: "records-late", buckets: 1, jobs: 1, orders: []order{one(0, 0, 1), oneAfter(0, 1, 0)}, attempts: 2, deliveries: 2, late: true, expiries: 1, crashes: 1, slow: []int{0, 1}, data: true, writes: 2, purges: 2, quotas: fair, states: 20_000_000},
	}
}
