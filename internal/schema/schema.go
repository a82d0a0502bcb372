package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// object is one JSON object of a schema. Its keys are written in order of their names.
type object map[string]any

// source is what the Go source of the messages declares.
type source struct {
	types map[string]*ast.TypeSpec
	docs  map[string]string   // of types
	words map[string][]string // values of constants, by type
}

// schemas makes a file for each message struct that is declared in a folder.
func schemas(dir string) (map[string][]byte, error) {
	src, err := read(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(src.types)) {
		s, ok := src.types[name].Type.(*ast.StructType)
		if !ok || !isMessage(s) {
			continue
		}
		root := src.structOf(s)
		root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
		root["$id"] = name + ".json"
		root["title"] = name
		root["additionalProperties"] = !isRequest(name) // of a request, unknown fields are refused
		root["description"] = src.docs[name]
		text, err := json.MarshalIndent(root, "", "  ")
		if err != nil {
			return nil, err
		}
		files[name+".json"] = append(text, '\n')
	}
	return files, nil
}

func read(dir string) (*source, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	src := &source{types: map[string]*ast.TypeSpec{}, docs: map[string]string{}, words: map[string][]string{}}
	set := token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			if gen, ok := decl.(*ast.GenDecl); ok {
				src.declare(gen)
			}
		}
	}
	return src, nil
}

func (src *source) declare(gen *ast.GenDecl) {
	for _, spec := range gen.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				src.types[spec.Name.Name] = spec
				src.docs[spec.Name.Name] = text(gen.Doc, spec.Doc)
			}
		case *ast.ValueSpec:
			t, ok := spec.Type.(*ast.Ident)
			if !ok || len(spec.Values) == 0 {
				continue
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if word, err := strconv.Unquote(lit.Value); err == nil {
					src.words[t.Name] = append(src.words[t.Name], word)
				}
			}
		}
	}
}

// text is a comment on one line.
func text(groups ...*ast.CommentGroup) string {
	for _, g := range groups {
		if t := strings.Join(strings.Fields(g.Text()), " "); t != "" {
			return t
		}
	}
	return ""
}

// isRequest reports whether a message is sent to a service. Those whose name does not say so are named here.
func isRequest(name string) bool {
	return strings.HasSuffix(name, "Request") || slices.Contains([]string{"JobName", "GateName", "MapEnd", "Empty"}, name)
}

func isMessage(s *ast.StructType) bool {
	return len(s.Fields.List) == 0 || slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool { return f.Tag != nil })
}

func (src *source) structOf(s *ast.StructType) object {
	properties := object{}
	for _, f := range s.Fields.List {
		if f.Tag == nil || len(f.Names) != 1 {
			continue
		}
		tag, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			continue
		}
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		p := src.typeOf(f.Type)
		if t := text(f.Doc, f.Comment); t != "" {
			p["description"] = t
		}
		properties[name] = p
	}
	return object{"type": "object", "properties": properties}
}

// integers gives the bounds of Go's sized integers; JSON numbers beyond 2^53 lose digits in some languages, not here.
var integers = map[string][2]any{
	"int": {nil, nil}, "int64": {nil, nil}, "uint64": {0, nil}, "uint16": {0, 65_535}, "uint32": {0, 4_294_967_295}, "int32": {nil, nil},
}

// bytesForm is how bytes are written in JSON.
func bytesForm() object {
	return object{"oneOf": []object{
		{"type": "string"},
		{"type": "object", "properties": object{"base64": object{"type": "string", "contentEncoding": "base64"}}, "required": []string{"base64"}, "additionalProperties": false},
	}}
}

func (src *source) typeOf(t ast.Expr) object {
	switch t := t.(type) {
	case *ast.StarExpr:
		return src.typeOf(t.X)
	case *ast.ArrayType:
		if id, ok := t.Elt.(*ast.Ident); ok && id.Name == "byte" {
			return bytesForm()
		}
		return object{"type": []string{"array", "null"}, "items": src.typeOf(t.Elt)}
	case *ast.MapType:
		return object{"type": []string{"object", "null"}, "additionalProperties": src.typeOf(t.Value)}
	case *ast.SelectorExpr: // time.Time is the only one
		return object{"type": "string", "format": "date-time"}
	case *ast.Ident:
		return src.named(t.Name)
	}
	return object{}
}

func (src *source) named(name string) object {
	if bounds, ok := integers[name]; ok {
		o := object{"type": "integer"}
		for i, key := range []string{"minimum", "maximum"} {
			if bounds[i] != nil {
				o[key] = bounds[i]
			}
		}
		return o
	}
	switch name {
	case "string":
		return object{"type": "string"}
	case "bool":
		return object{"type": "boolean"}
	case "float64":
		return object{"type": "number"}
	case "Bytes":
		return bytesForm()
	case "Value":
		return object{"oneOf": []object{{"type": "number"}, bytesForm()}}
	}
	spec := src.types[name]
	if spec == nil {
		panic(fmt.Sprintf("schema: what is %s?", name))
	}
	if s, ok := spec.Type.(*ast.StructType); ok {
		if isMessage(s) {
			return object{"$ref": name + ".json"}
		}
		return src.tuple(s)
	}
	o := src.typeOf(spec.Type)
	if words := src.words[name]; len(words) > 0 {
		o["enum"] = words
	}
	return o
}

// tuple is a struct without tags: it travels as the array of its fields.
func (src *source) tuple(s *ast.StructType) object {
	var items []object
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			item := src.typeOf(f.Type)
			item["title"] = name.Name
			items = append(items, item)
		}
	}
	return object{"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
}
