// Package plugins is the pure part of the module catalogue: what a module file is and whether it keeps to
// the guest ABI pmr1, what modules may be called, and which are built in (package plugins/builtin).
//
//	manifest, err := plugins.Inspect(file, plugins.DefaultLimits())
//	if err != nil {
//		return err // one BAD_MODULE error that lists all that is wrong
//	}
//	fmt.Println(manifest.Digest, manifest.Functions) // 9f86d0.. [map reduce]
//
// A reactor, the kind that jobs run, exports its memory as "memory", pmr_alloc (i32) -> i32 and one or more
// functions (i32, i32) -> i32, among them usually map. It imports from pmr1, env.abort or
// wasi_snapshot_preview1 and nothing else.
package plugins
