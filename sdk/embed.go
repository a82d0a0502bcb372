// Package sdk holds what authors of guests copy into their projects: an SDK file for each language, and
// templates of projects. Package guest, in a folder of its own, is the SDK for Go.
//
//	text, err := sdk.Files.ReadFile("c/pmr.h")
//	names, err := fs.Glob(sdk.Files, "templates/rust/*")
package sdk

import "embed"

// Files holds c/pmr.h, rust/pmr.rs, assemblyscript/pmr.ts, and below templates a folder for each language. A
// file of a template whose name ends in .tmpl is called by its name without that: a go.mod of its own
// would keep it from being embedded.
//
//go:embed assemblyscript c rust all:templates
var Files embed.FS
