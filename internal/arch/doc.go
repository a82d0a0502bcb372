// Package arch keeps the rooms of Pinion apart. It has no code of its own: its tests parse every Go file of
// the repository, whatever its build tags, and fail if a room imports what it may not.
//
//	go test ./internal/arch
//
//	pmr/router.go:12: pmr may not import pmr/node: imports run the other way (rules_test.go)
//	buckets/table.go:40: buckets is pure: time.Now is not for it; take the time as an argument
//
// The rules are tables in rules_test.go: which room may import which, which room owns a third party's
// module, and which rooms are pure, that is, free of clock, goroutine, lock, context, randomness and IO. A
// new package needs a line there, and so does a new dependency.
package arch
