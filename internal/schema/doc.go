// Schema writes a JSON schema (draft 2020-12) for each message of package api into docs/schema, with the
// comments of its fields:
//
//	go run ./internal/schema docs/schema
//
// A client in another language may check its messages with them, or make types of them. What msgpack and JSON
// have in common is in the schema as JSON has it: see docs/protocol.md for bytes and values.
package main
