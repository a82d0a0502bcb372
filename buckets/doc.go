// Package buckets says what a bucket is: which one a key belongs to, how records are framed, what the
// entries of the log mean, who owns which bucket at a log position, and who should.
//
// Everything here is pure. A storage and a router that apply the same entries get the same [Table]:
//
//	table := buckets.NewTable(256)
//	for _, e := range entries {
//		entry, err := buckets.Decode(e, 256)
//		if err != nil {
//			continue // skipped and counted by the caller
//		}
//		if own, ok := entry.(buckets.Own); ok {
//			verdict := table.Own(e.Seq, own) // Applied, Void or Gap
//			...
//		}
//	}
//
// The package also declares [Store], the local copy of a storage's buckets; package buckets/store
// implements it.
package buckets
