// Command demo shows Pinion on real input: it starts a cluster of three storages on a free port and in a
// temporary folder, imports the sources of the Go standard library that are on this machine, one record a
// line, and counts their words with the wordcount guest. Then it counts them again in plain Go, without
// Pinion, and compares every word.
//
//	go run ./examples/demo       # in the root of the repository
//	make demo                    # the same
//
// It uses the programs engine and submit as anybody would, and nothing of Pinion's packages. The exit status
// is 0 only if both counts are the same. Nothing is left running, and the folder is removed, also after a
// failure or Ctrl-C.
package main
