// Command submit is the client program of a Pinion cluster: it imports records, runs jobs over them and
// prints the rows.
//
//	submit import access.log
//	submit run wordcount --reduce sum --sort -value --limit 20
//	submit export --format ndjson > backup.ndjson
//
// Rows and records go to stdout and nothing else does; progress, summaries and errors go to stderr. Every
// command is a function of its context, arguments and streams, and the program only wires and presents: what
// it does with a cluster is in package pinion.
package main
