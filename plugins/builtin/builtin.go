// Package builtin holds the modules that are in the binary, so that every cluster can count words and search
// before anything was uploaded:
//
//	m, ok := builtin.Get("wordcount")
//	fmt.Println(m.Version, m.Reduce, len(m.File)) // 1 sum 700
//
// Their sources are in examples/wasm; make wasm assembles them again.
package builtin

import (
	_ "embed" // the modules
	"slices"
)

//go:embed wordcount.wasm
var wordcount []byte

//go:embed grep.wasm
var grep []byte

// Module is a built-in module.
type Module struct {
	Name    string
	Version string
	Reduce  string // of jobs that name none
	File    []byte // do not change it
}

// All returns the built-in modules by name.
func All() []Module {
	return []Module{
		{Name: "grep", Version: "1", Reduce: "none", File: grep},
		{Name: "wordcount", Version: "1", Reduce: "sum", File: wordcount},
	}
}

// Get returns a built-in module.
func Get(name string) (m Module, ok bool) {
	all := All()
	i := slices.IndexFunc(all, func(m Module) bool { return m.Name == name })
	if i < 0 {
		return Module{}, false
	}
	return all[i], true
}
