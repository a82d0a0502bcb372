// Package pinion is the Go client of a Pinion cluster: it writes records, runs jobs over them and fetches
// their rows.
//
//	c, err := pinion.Connect(ctx, pinion.Config{Server: "nats://127.0.0.1:4222", Cluster: "dev"})
//	if err != nil { ... }
//	defer c.Close()
//
//	w, err := c.NewWriter(ctx, "default")
//	if err != nil { ... }
//	for _, line := range lines {
//		if err := w.Add(line); err != nil { ... } // the log assigns the key
//	}
//	if err := w.Close(); err != nil { ... } // nil: every record is stored
//
//	result, err := c.Run(ctx, pinion.Job{Module: "wordcount", Reduce: "sum", Sort: "-value", Limit: 20})
//	if err != nil { ... }
//	for row, err := range result.Rows(ctx) {
//		if err != nil { ... }
//		fmt.Println(row.Value.Text(), string(row.Key))
//	}
//	fmt.Println(result.Stats.Buckets, "buckets at log position", result.Stats.Cut)
//
// A job sees the records that were acknowledged before it began, each exactly once; what is written
// meanwhile it does not see. With Reduce "none" the rows are the pairs that the map emitted, and the loop
// over them is the reduce.
//
// # Errors
//
// Every failure that a caller can act on holds an [github.com/pinion-mr/pinion/api.Error]; api.CodeOf gives
// its code. Writes through a [Writer] fail with a [WriteError], which says how many records are stored.
package pinion
