package wasm

func (r *reader) skip() { r.at = r.end }

// custom reads the module's name and skips all else. A name section that is broken is no fault: engines
// ignore it.
func (r *reader) custom() {
	section := r.name("the name of a custom section")
	r.m.Customs = append(r.m.Customs, section)
	if section == "name" && r.err == nil {
		names := r.cursor
		if names.byte("a kind of name") == 0 {
			names.u32("the size of the module name")
			if name := names.name("the module name"); names.err == nil {
				r.m.Name = name
			}
		}
	}
	r.skip()
}

func (r *reader) types() {
	for n := r.count("types", r.bounds.Types); n > 0 && r.err == nil; n-- {
		at := r.at
		switch form := r.byte("a type"); form {
		case 0x60:
			t := FuncType{Params: r.valTypes("parameters"), Results: r.valTypes("results")}
			r.m.Types = append(r.m.Types, t)
		case 0x5f, 0x5e, 0x50, 0x4f, 0x4e:
			r.fail(at, "type form 0x%02x belongs to the GC feature, which is off", form)
		default:
			r.fail(at, "there is no type form 0x%02x", form)
		}
	}
}

func (r *reader) valTypes(what string) []ValType {
	n := r.count(what, r.bounds.Arity)
	var ts []ValType
	for ; n > 0 && r.err == nil; n-- {
		ts = append(ts, r.valType())
	}
	return ts
}

func (r *reader) valType() ValType {
	at := r.at
	t := ValType(r.byte("a value type"))
	if _, ok := valTypeNames[t]; ok || r.err != nil {
		return t
	}
	switch t {
	case 0x69, 0x74:
		r.fail(at, "value type 0x%02x belongs to the exception handling feature, which is off", byte(t))
	case 0x63, 0x64, 0x65, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x71, 0x72, 0x73:
		r.fail(at, "value type 0x%02x belongs to the GC feature, which is off", byte(t))
	default:
		r.fail(at, "there is no value type 0x%02x", byte(t))
	}
	return t
}

func (r *reader) refType() ValType {
	at := r.at
	t := r.valType()
	if r.err == nil && t != FuncRef && t != ExternRef {
		r.fail(at, "a table holds funcref or externref, not %s", t)
	}
	return t
}

func (r *reader) imports() {
	for n := r.count("imports", r.bounds.Imports); n > 0 && r.err == nil; n-- {
		i := Import{Module: r.name("an import's module"), Name: r.name("an import's name")}
		at := r.at
		i.Kind = Kind(r.byte("an import's kind"))
		switch i.Kind {
		case Func:
			t := r.typeIndex()
			if r.err == nil {
				i.Func = r.m.Types[t]
				r.m.Funcs = append(r.m.Funcs, t)
				r.m.importedFuncs++
			}
		case Table:
			i.Range = r.table()
		case Memory:
			i.Range = r.memory()
		case Global:
			r.valType()
			r.byte("a global's mutability")
		case 4:
			r.fail(at, "imports a tag: that belongs to the exception handling feature, which is off")
		default:
			r.fail(at, "there is no import kind %d", i.Kind)
		}
		r.m.Imports = append(r.m.Imports, i)
	}
}

func (r *reader) typeIndex() uint32 {
	at := r.at
	t := r.u32("a type index")
	if r.err == nil && int(t) >= len(r.m.Types) {
		r.fail(at, "type %d is used, but there are %d", t, len(r.m.Types))
	}
	return t
}

func (r *reader) functions() {
	r.funcs = r.count("functions", r.bounds.Functions)
	for n := r.funcs; n > 0 && r.err == nil; n-- {
		r.m.Funcs = append(r.m.Funcs, r.typeIndex())
	}
}

func (r *reader) tables() {
	for n := r.count("tables", r.bounds.Tables); n > 0 && r.err == nil; n-- {
		r.table()
	}
}

func (r *reader) table() Range {
	if r.left() > 0 && r.b[r.at] == 0x40 {
		r.fail(r.at, "a table with an initial value belongs to the function references feature, which is off")
	}
	typ := r.refType()
	t := r.limits("table")
	t.Type = typ
	r.m.Tables = append(r.m.Tables, t)
	return t
}

func (r *reader) memories() {
	for n := r.count("memories", 1_000); n > 0 && r.err == nil; n-- {
		r.memory()
	}
}

func (r *reader) memory() Range {
	at := r.at
	t := r.limits("memory")
	r.m.Memories = append(r.m.Memories, t)
	switch {
	case len(r.m.Memories) > 1:
		r.fail(at, "more than one memory belongs to the multi-memory feature, which is off")
	case r.err == nil && (t.Min > 65_536 || t.HasMax && t.Max > 65_536):
		r.fail(at, "a memory has at most 65536 pages")
	}
	return t
}

func (r *reader) limits(what string) Range {
	at := r.at
	flags := r.byte("the limits of a " + what)
	switch {
	case r.err != nil:
		return Range{}
	case flags&4 != 0 && flags < 8:
		r.fail(at, "a 64-bit %s belongs to the memory64 feature, which is off", what)
	case flags&2 != 0 && flags < 4:
		r.fail(at, "a shared %s belongs to the threads feature, which is off", what)
	case flags&8 != 0 && flags < 16:
		r.fail(at, "a %s with pages of its own size belongs to the custom page sizes feature, which is off", what)
	case flags > 1:
		r.fail(at, "limits of a %s cannot begin with 0x%02x", what, flags)
	}
	t := Range{Min: r.u32("the minimum of a " + what), HasMax: flags == 1}
	if t.HasMax {
		t.Max = r.u32("the maximum of a " + what)
		if r.err == nil && t.Max < t.Min {
			r.fail(at, "a %s of at least %d and at most %d", what, t.Min, t.Max)
		}
	}
	return t
}

func (r *reader) exports() {
	seen := map[string]bool{}
	for n := r.count("exports", r.bounds.Exports); n > 0 && r.err == nil; n-- {
		at := r.at
		e := Export{Name: r.name("an export's name"), Kind: Kind(r.byte("an export's kind")), Index: r.u32("an export's index")}
		switch {
		case r.err != nil:
			return
		case e.Kind == 4:
			r.fail(at, "exports a tag: that belongs to the exception handling feature, which is off")
		case e.Kind > Global:
			r.fail(at, "there is no export kind %d", byte(e.Kind))
		case seen[e.Name]:
			r.fail(at, "export %.64q is there twice", e.Name)
		}
		seen[e.Name] = true
		r.m.Exports = append(r.m.Exports, e)
	}
}

func (r *reader) start() {
	r.m.HasStart = true
	r.m.Start = r.u32("the start function")
}

func (r *reader) dataCount() { r.data = int(r.u32("the number of data segments")) }

func (r *reader) tags() {
	r.fail(r.at, "a tag section belongs to the exception handling feature, which is off")
}

func (r *reader) code() {
	at := r.at
	n := r.count("function bodies", r.bounds.Functions)
	if r.err == nil && n != r.funcs {
		r.fail(at, "%d functions are declared, but %d have code", r.funcs, n)
	}
	for ; n > 0 && r.err == nil; n-- {
		size := r.u32("the size of a function")
		if r.err == nil && uint64(size) > uint64(r.left()) {
			r.short("a function")
		}
		if r.err != nil {
			return
		}
		section := r.end
		r.end = r.at + int(size)
		r.body()
		r.at, r.end = r.end, section
	}
}

// body reads a function's locals: a few bytes can declare four billion of them, which compilers allocate.
func (r *reader) body() {
	at := r.at
	var locals uint64
	for n := r.count("groups of locals", r.bounds.Locals); n > 0 && r.err == nil; n-- {
		locals += uint64(r.u32("the number of locals"))
		r.valType()
		if r.err == nil && locals > uint64(r.bounds.Locals) {
			r.fail(at, "function %d declares %d locals or more; the limit is %d", r.m.importedFuncs+len(r.m.Bodies), locals, r.bounds.Locals)
		}
	}
	if r.err == nil && (r.left() == 0 || r.b[r.end-1] != opEnd) {
		r.fail(at, "function %d does not end with an end instruction", r.m.importedFuncs+len(r.m.Bodies))
	}
	r.m.Bodies = append(r.m.Bodies, Body{Offset: r.at, Size: r.left(), Locals: locals})
}
