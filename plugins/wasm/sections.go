package wasm

func (r *reader) skip() { r.at = r.end }

// custom notes the name of a section, and what the module calls itself and its functions. A name section
// that is broken is no fault: engines ignore it.
func (r *reader) custom() {
	section := r.text("the name of a custom section")
	r.m.Customs = append(r.m.Customs, section)
	if section == "name" && r.err == nil {
		r.m.names = Section{Offset: r.at, Size: r.left()}
		r.m.Name = r.m.moduleName()
	}
	r.skip()
}

// text reads a name within the bounds of one name and of all.
func (r *reader) text(what string) string {
	at := r.at
	s := r.name(what)
	r.strings += len(s)
	switch {
	case r.err != nil:
		return ""
	case len(s) > r.bounds.Name:
		r.fail(at, "%s has %d bytes; the limit is %d", what, len(s), r.bounds.Name)
	case r.strings > r.bounds.Names:
		r.fail(at, "all names together have more than %d bytes, the limit", r.bounds.Names)
	}
	return s
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

func (r *reader) imports() {
	for n := r.count("imports", r.bounds.Imports); n > 0 && r.err == nil; n-- {
		i := Import{Module: r.text("an import's module"), Name: r.text("an import's name")}
		at := r.at
		i.Kind = Kind(r.byte("an import's kind"))
		switch i.Kind {
		case Func:
			t := r.typeIndex()
			if r.err == nil {
				i.Func = r.m.typeOf(t)
				r.m.Funcs = append(r.m.Funcs, t)
				r.m.importedFuncs++
			}
		case Table:
			i.Range = r.table()
		case Memory:
			i.Range = r.memory()
		case Global:
			r.m.Globals = append(r.m.Globals, r.globalType())
			r.importedGlobals++
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
	r.inRange(at, t, len(r.m.Types), "type", typeSection)
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
		r.fail(r.at, "a table with an initial value belongs to the typed function references feature, which is off")
	}
	typ := r.refType("a table")
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

func (r *reader) globalType() GlobalType {
	at := r.at
	g := GlobalType{Type: r.valType()}
	m := r.byte("a global's mutability")
	g.Mutable = m == 1
	switch {
	case m > 3:
		r.fail(at, "a global's mutability cannot be 0x%02x", m)
	case m > 1:
		r.fail(at, "a shared global belongs to the threads feature, which is off")
	}
	return g
}

func (r *reader) globals() {
	for n := r.count("globals", r.bounds.Globals); n > 0 && r.err == nil; n-- {
		g := r.globalType()
		r.constant(g.Type)
		r.m.Globals = append(r.m.Globals, g)
	}
}

func (r *reader) exports() {
	seen := map[string]bool{}
	for n := r.count("exports", r.bounds.Exports); n > 0 && r.err == nil; n-- {
		at := r.at
		e := Export{Name: r.text("an export's name"), Kind: Kind(r.byte("an export's kind")), Index: r.u32("an export's index")}
		switch {
		case r.err != nil:
			return
		case e.Kind == 4:
			r.fault(at, "exports a tag: that belongs to the exception handling feature, which is off")
			continue
		case e.Kind > Global:
			r.fault(at, "there is no export kind %d", byte(e.Kind))
			continue
		case seen[e.Name]:
			r.fault(at, "export %s is there twice", quote(e.Name))
		}
		seen[e.Name] = true
		r.resolve(at, &e)
		r.m.Exports = append(r.m.Exports, e)
	}
}

// resolve checks an export's index and gives it its type.
func (r *reader) resolve(at int, e *Export) {
	of := [...]int{Func: len(r.m.Funcs), Table: len(r.m.Tables), Memory: len(r.m.Memories), Global: len(r.m.Globals)}[e.Kind]
	declared := [...]byte{Func: functionSection, Table: tableSection, Memory: memorySection, Global: globalSection}[e.Kind]
	switch {
	case int(e.Index) < of && e.Kind == Func:
		e.Func = r.m.typeOf(r.m.Funcs[e.Index])
	case int(e.Index) >= of && !r.broken[declared] && !r.broken[importSection]:
		r.fault(at, "export %s is %s number %d of %d", quote(e.Name), e.Kind, e.Index, of)
	}
}

func (r *reader) start() {
	at := r.at
	r.m.HasStart = true
	r.m.Start = r.u32("the start function")
	if !r.inRange(at, r.m.Start, len(r.m.Funcs), "the start function", importSection, functionSection) {
		return
	}
	if t := r.m.typeOf(r.m.Funcs[r.m.Start]); !t.Is(nil, nil) && !r.broken[typeSection] {
		r.fault(at, "the start function is %s; it must have no parameters and no results", t)
	}
}

func (r *reader) dataCount() {
	at := r.at
	n := r.u32("the number of data segments")
	if r.err == nil && uint64(n) > uint64(r.bounds.Segments) {
		r.fail(at, "%d data segments; the limit is %d", n, r.bounds.Segments)
		return
	}
	r.data = int(n)
}

func (r *reader) tags() {
	r.fault(r.at, "a tag section belongs to the exception handling feature, which is off")
	r.skip()
}
