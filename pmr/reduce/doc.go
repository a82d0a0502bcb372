// Package reduce is the third phase of a job: it folds the pairs that maps emit into one result per key.
// It is pure aggregation: no clock, goroutine or IO.
//
// Every worker of a storage has a [Table] of its own; the storage merges them and sends the state; the
// router merges the states and reads the rows:
//
//	r, err := reduce.Parse("sum")
//	...
//	worker := reduce.NewTable(r, 256<<20)
//	worker.StartBucket(17)
//	err = worker.Emit(buckets.FlagInt, []byte("apple"), one) // one: 8 bytes, little endian
//	...
//	err = storage.Merge(worker)        // on the storage, for each worker
//	state, err := storage.AppendState(nil) // travels
//	...
//	err = router.MergeState(state)
//	rows, err := router.Rows(reduce.ByValueDescending, 20)
//	for i := range rows.Len() {
//		fmt.Println(rows.Row(i).Key, rows.Row(i).Value.Text())
//	}
//
// The rows are the same bytes however the pairs were spread over workers and storages and in whatever
// order tables were merged: i64 sums are kept in 128 bits and f64 sums exactly, so that neither rounding
// nor a passing overflow depends on the order, and all orders of rows are total.
//
// # Reducers
//
//	count        any value           i64, the number of pairs
//	sum          i64 or f64          the same type; one type per key; leaving its range is OVERFLOW
//	min, max     i64, f64 or bytes   the same type; one type per key
//	none         any value           the pairs, ordered by key, bucket and order of emission
//	module       any value           as none; the module's reduce is then fed by Grouped
//	module:NAME  any value           the same with the module's function NAME
//
// A value of another type is TYPE_MISMATCH, and so is NaN for sum, min and max. For min and max -0.0 is
// less than 0.0. A sum that is zero is 0.0. An infinity makes the sum infinite; +Inf and -Inf together
// have no sum.
//
// Each family of reducers is a column (see column.go) in a file of its own.
package reduce
