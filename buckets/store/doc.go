// Package store keeps a storage's local copy of its buckets: [Pebble] on disk, [Mem] in memory. Both are a
// [buckets.Store] and behave alike; one conformance suite runs on both.
//
//	st, err := store.OpenPebble(dir, store.Options{Logger: log})
//	...
//	err = st.Load(7)             // bucket 7 is being loaded: unknown after a crash
//	err = st.Ingest(7, paths)    // table files that another store's snapshot exported
//	err = st.Join(7)             // now it follows the store's position
//
//	var w buckets.Writes
//	w.Put(7, "default", []byte("k"), []byte("v"))
//	w.Position = buckets.Position{Seq: 42}
//	err = st.Apply(&w)           // records and position, all or nothing
//
//	snap, err := st.Snapshot()   // constant time; writers go on
//	defer snap.Close()
//	cur, err := snap.Scan(7, "default")
//	batch, n, err := cur.Fill(nil, 64<<10)
//
// # On disk
//
// A Pebble database without a write-ahead log, for the cluster's log is one. Keys sort by bucket, space,
// key:
//
//	'r' u16be bucket, space, 0x00, key    a record
//	'm' "format"                          the version of this layout
//	'm' "position" | "table"              what the last Apply stored
//	'm' "joined" u16be bucket             the bucket is joined
//
// A crash reopens at the last flush, which is a prefix of what was applied. Two operations are durable at
// once and could overtake it: the ingestion of tables and the removal of a bucket's tables (excise). So a
// bucket's joined mark is always flushed away before its records go, is written and flushed after they
// came, and opening removes the records of every bucket without a mark.
//
// A removal must not reach into open snapshots. An excise would: so while snapshots are open, a bucket is
// removed by a range tombstone, which they do not see, and excised by the first write after they closed.
package store
