package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// breaches returns what every Go file of a tree does against the rules, in the order of the files, and the
// folders that hold Go files.
func breaches(tree fs.FS) (found, dirs []string, err error) {
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (base[0] == '.' || base == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		f, err := parse(name, text)
		if err != nil {
			return err
		}
		if !slices.Contains(dirs, f.dir) {
			dirs = append(dirs, f.dir)
		}
		found = append(found, f.breaches()...)
		return nil
	})
	return found, dirs, err
}

// file is one Go file and what it was found to do.
type file struct {
	dir    string // its folder, "" for the root
	room   string // key in rooms
	known  bool   // whether there is such a room
	test   bool
	fset   *token.FileSet
	syntax *ast.File
	found  []string
}

func parse(name string, text []byte) (*file, error) {
	dir := path.Dir(name)
	if dir == "." {
		dir = ""
	}
	f := &file{dir: dir, test: strings.HasSuffix(name, "_test.go"), fset: token.NewFileSet()}
	f.room, f.known = roomOf(dir)
	var err error
	f.syntax, err = parser.ParseFile(f.fset, name, text, parser.SkipObjectResolution)
	return f, err
}

func (f *file) breaches() []string {
	if !f.known {
		f.report(f.syntax.Package, "%s is no room: give it a line in internal/arch/rules_test.go", f.dir)
		return f.found
	}
	for _, spec := range f.syntax.Imports {
		// The parser has checked the literal.
		imported, _ := strconv.Unquote(spec.Path.Value)
		f.checkImport(spec, imported)
	}
	if isPure(f.room) && !f.test {
		ast.Inspect(f.syntax, f.checkPure)
	}
	return f.found
}

func (f *file) report(at token.Pos, format string, args ...any) {
	p := f.fset.Position(at)
	f.found = append(f.found, fmt.Sprintf("%s:%d: ", p.Filename, p.Line)+fmt.Sprintf(format, args...))
}

func (f *file) checkImport(spec *ast.ImportSpec, imported string) {
	first, _, _ := strings.Cut(imported, "/")
	switch {
	case within(imported, modulePath):
		f.checkOurs(spec, strings.TrimPrefix(strings.TrimPrefix(imported, modulePath), "/"))
	case strings.Contains(first, "."):
		f.checkTheirs(spec, imported)
	case isPure(f.room) && !f.test && imported != "math/rand/v2" && anyWithin(imported, impure):
		f.report(spec.Pos(), "%s is pure: package %s is not for it", f.room, imported)
	}
	if isPure(f.room) && !f.test && spec.Name != nil && spec.Name.Name == "." {
		f.report(spec.Pos(), "%s is pure: a dot import of %s hides what it uses", f.room, imported)
	}
}

// checkOurs checks an import of this repository's folder dir.
func (f *file) checkOurs(spec *ast.ImportSpec, dir string) {
	may := rooms[f.room]
	switch {
	case dir == f.dir && f.test:
	case f.test && !isPure(f.room):
	case slices.Contains(may, anything), slices.Contains(may, dir):
	default:
		if dir == "" {
			dir = "package pinion"
		}
		f.report(spec.Pos(), "%s may not import %s", f.name(), dir)
	}
}

// checkTheirs checks an import of a third party's package.
func (f *file) checkTheirs(spec *ast.ImportSpec, imported string) {
	for module, where := range owners {
		if !within(imported, module) {
			continue
		}
		if !f.ownedBy(where) {
			f.report(spec.Pos(), "%s may not import %s: only %s may", f.name(), imported, strings.Join(where, ", "))
		}
		return
	}
	f.report(spec.Pos(), "%s is a dependency without an owner: give it a line in internal/arch/rules_test.go", imported)
}

func (f *file) ownedBy(where []string) bool {
	return anyWithin(f.dir, where) || f.test && slices.Contains(where, testsOnly)
}

func (f *file) name() string {
	if f.dir == "" {
		return "package pinion"
	}
	return f.dir
}

// checkPure reports a syntax node that acts.
func (f *file) checkPure(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		f.report(n.Pos(), "%s is pure: it starts no goroutine", f.room)
	case *ast.ChanType, *ast.SelectStmt:
		f.report(n.Pos(), "%s is pure: it has no channel", f.room)
	case *ast.SelectorExpr:
		pkg, ok := n.X.(*ast.Ident)
		if !ok {
			return true
		}
		switch f.imported(pkg.Name) {
		case "time":
			if slices.Contains(clock, n.Sel.Name) {
				f.report(n.Pos(), "%s is pure: time.%s is not for it; take the time as an argument", f.room, n.Sel.Name)
			}
		case "math/rand/v2":
			if !slices.Contains(mayRandom, n.Sel.Name) {
				f.report(n.Pos(), "%s is pure: rand.%s is not for it; take a seed as an argument", f.room, n.Sel.Name)
			}
		}
	}
	return true
}

// imported returns the path that a package name stands for in this file, "" if it is none. It knows only the
// packages that checkPure asks about.
func (f *file) imported(name string) string {
	for _, spec := range f.syntax.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		known := path.Base(p)
		if p == "math/rand/v2" {
			known = "rand"
		}
		if spec.Name != nil {
			known = spec.Name.Name
		}
		if known == name {
			return p
		}
	}
	return ""
}

// within tells whether p is dir or lies below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

func anyWithin(p string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return within(p, dir) })
}
