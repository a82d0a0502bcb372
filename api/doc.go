// Package api holds the messages that travel between clients, routers and storages, and their error
// codes. It holds nothing that acts.
//
// A message is a msgpack map with string keys, or the same map as JSON. One set of struct tags serves
// both:
//
//	body, err := api.Encode(api.Msgpack, api.JobRequest{Module: "wordcount", Reduce: "sum"})
//	...
//	var reply api.JobReply
//	if err := api.Decode(body, &reply, api.Lenient); err != nil { ... }
//
// Decode looks at the first byte, so no content type is needed to read a message. It checks the shape of
// a msgpack body (declared lengths, nesting) before anything is allocated for it.
//
// Keys and values are bytes ([Bytes]) or numbers ([Value]). In JSON, bytes are a string if they are
// UTF-8 and {"base64": ".."} if not.
package api
