// Package child compiles guest modules in a process of their own, which can be killed: a small file can keep a
// compiler busy for hours or make it fill the memory, and nothing can stop it inside of a process.
//
//	compiler := &child.Compiler{Args: []string{"compile-module"}, CacheDir: dir}
//	host, err := wasmhost.New(ctx, wasmhost.Config{CacheDir: dir, Precompile: compiler.Precompile})
//
// starts this same program again as "engine compile-module" for each new module. That command calls [Main]:
//
//	os.Exit(child.Main(os.Stdin, os.Stdout))
//
// The child reads its limits, sets them before anything else, reads the module, compiles it into the folder
// and answers. It ends with its parent, whose end closes its standard input. Limits on address space and
// processor time need Linux; elsewhere the limit on time guards alone, and the memory limit is a request to
// Go's garbage collector.
package child
