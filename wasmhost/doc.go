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
// A guest is a reactor or a command. A reactor exports its memory, pmr_alloc and functions of the shape
// (ptr, len i32) -> i32 that take batches of frames. A command is a WASI program, which has _start: it runs once
// for each bucket, with the function's name as its argument, the params as its environment, the records as
// lines on its standard input and pairs as lines, key tab value, on its standard output. What a guest emits is
// checked, pair by pair, before a [Sink] sees it.
//
// What is compiled is not the file but what plugins/wasm.Meter makes of it: a module that counts its steps,
// and calls the host each 100,000 of them. The host charges what it does for a guest at the same rate. So a
// guest is stopped wherever it is, in whatever function of its own or of the host, when the context ends or the
// job's steps are used up, and the Go scheduler and garbage collector never wait for long.
//
// A guest that traps, says fail, lies about its memory or runs past a limit ends with a [*GuestError],
// which names module, export, bucket and records; its instance is then [Instance.Broken]. Nothing that a
// guest does ends the process. Compiling can, or can take for ever: Config.Precompile has it done by a process
// that may be killed, see package wasmhost/child.
//
// A [Host] and a [Module] may be used by many goroutines, an [Instance] by one at a time.
package wasmhost
