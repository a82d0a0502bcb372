// Package wasmhost compiles guest modules and runs their functions over the records of buckets, within
// limits. It is the only package that knows wazero, and the only one that speaks the guest ABI pmr1.
//
//	host, err := wasmhost.New(ctx, wasmhost.Config{CacheDir: dir})
//	module, err := host.Compile(ctx, digest, file)
//	defer module.Close()
//
//	instance, err := module.Instance(ctx, wasmhost.Job{ID: job, Name: "wordcount", Function: "map"})
//	defer instance.Close()
//	for _, b := range pinned {
//		figures, err := instance.Map(ctx, b, cursorOf(b), sink) // sink.Emit is called per emitted pair
//		...
//	}
//
// A guest is a reactor: it exports its memory, pmr_alloc and functions of the shape (ptr, len i32) -> i32
// that take batches of frames. What it emits is checked, pair by pair, before a [Sink] sees it.
//
// A guest that traps, says fail, lies about its memory or runs past its time ends with a [*GuestError],
// which names module, export, bucket and records; its instance is then [Instance.Broken]. Nothing that a
// guest does ends the process.
//
// A [Host] and a [Module] may be used by many goroutines, an [Instance] by one at a time.
package wasmhost
